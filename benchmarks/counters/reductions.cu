// Sums, histograms and branches: shuffles, shared trees, atomics on shared and global memory, a divergent loop, a stencil.
#include "common.h"

__global__ void reduce_shuffle(const float* x, float* y, int n) {
    float s = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
    for (int o = 16; o; o >>= 1) s += __shfl_down_sync(~0u, s, o);
    __shared__ float part[32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x < 32) {
        s = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int o = 16; o; o >>= 1) s += __shfl_down_sync(~0u, s, o);
        if (threadIdx.x == 0) y[blockIdx.x] = s;
    }
}
__global__ void reduce_interleaved(const float* x, float* y) {
    __shared__ float part[256];
    part[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    for (int s = 1; s < 256; s *= 2) {
        int i = 2 * s * threadIdx.x;
        if (i < 256) part[i] += part[i + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
__global__ void histogram_shared(const int* x, int* bins, int n) {
    __shared__ int own[64];
    if (threadIdx.x < 64) own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&own[x[i] % 64], 1);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}
__global__ void histogram_global(const int* x, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[x[i] % 64], 1);
}
__global__ void tickets(int* next, int* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = atomicAdd(&next[threadIdx.x % 8], i);
}
__global__ void one_counter(int* next) { atomicAdd(next, 1); }
__global__ void collatz(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, c = 0;
    if (i >= n) return;
    unsigned v = x[i];
    while (v != 1) {
        if (v & 1) v = 3 * v + 1;
        else v >>= 1;
        c++;
    }
    y[i] = c;
}
__global__ void two_ways(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    if (threadIdx.x % 2) {
        for (int k = 0; k < 40; k++) v = v * v + 0.25f;
    } else {
        for (int k = 0; k < 24; k++) v = v / (v + 1.5f);
    }
    y[i] = v;
}
__global__ void stencil(const float* x, float* y, int n) {
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
    if (c < 1 || r < 1 || c >= n - 1 || r >= n - 1) return;
    y[r * n + c] = 0.2f * (x[r * n + c] + x[r * n + c - 1] + x[r * n + c + 1] + x[(r - 1) * n + c] + x[(r + 1) * n + c]);
}

int main() {
    const int n = 1 << 16, side = 256;
    float *x = floats(n), *y = floats(n);
    int* v = made<int>(n, [](size_t i) { return (int)(drawn(i) % 1000 + 1); });
    int* bins = made<int>(n, [](size_t) { return 0; });
    reduce_shuffle<<<32, 256>>>(x, y, n);
    reduce_interleaved<<<n / 256, 256>>>(x, y);
    histogram_shared<<<32, 256>>>(v, bins, n);
    histogram_global<<<n / 256, 256>>>(v, bins, n);
    tickets<<<16, 256>>>(bins, bins + 64);
    one_counter<<<16, 256>>>(bins);
    collatz<<<n / 256, 256>>>(v, bins, n);
    two_ways<<<n / 256, 256>>>(x, y, n);
    stencil<<<dim3(side / 32, side / 8), dim3(32, 8)>>>(x, y, side);
    return ended();
}
