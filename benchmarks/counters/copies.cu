// Global memory: unit stride, a stride, a shifted start, float4, doubles, and rows of structures against columns.
#include "common.h"

__global__ void copy_unit(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
__global__ void copy_strided(const float* x, float* y, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i * stride];
}
__global__ void copy_shifted(const float* x, float* y, int n, int shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i + shift];
}
__global__ void copy_float4(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
__global__ void copy_double(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
struct Particle { float x, y, z, w, u, v, m; };
__global__ void structures(const Particle* p, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = p[i].x + p[i].m;
}
__global__ void columns(const float* x, const float* m, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + m[i];
}
__global__ void gather(const float* x, const int* where, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[where[i]];
}

int main() {
    const int n = 1 << 16;
    float* x = floats(32 * n + 64);
    float* y = floats(4 * n);
    int* where = made<int>(n, [](size_t i) { return (int)(drawn(i) % (1 << 16)); });
    copy_unit<<<n / 256, 256>>>(x, y, n);
    copy_strided<<<n / 256, 256>>>(x, y, n, 32);
    copy_shifted<<<n / 256, 256>>>(x, y, n, 1);
    copy_float4<<<n / 256, 256>>>((float4*)x, (float4*)y, n);
    copy_double<<<n / 256, 256>>>((double*)x, (double*)y, n);
    structures<<<n / 256, 256>>>((Particle*)x, y, n);
    columns<<<n / 256, 256>>>(x, x + n, y, n);
    gather<<<n / 256, 256>>>(x, where, y, n);
    return ended();
}
