// Transposing a matrix: straight, through a shared tile with bank conflicts, and through a padded tile without.
#include "common.h"

__global__ void transpose_straight(const float* x, float* y, int n) {
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    y[c * n + r] = x[r * n + c];
}
__global__ void transpose_conflicts(const float* x, float* y, int n) {
    __shared__ float tile[32][32];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[r * n + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
    y[r * n + c] = tile[threadIdx.x][threadIdx.y];
}
__global__ void transpose_padded(const float* x, float* y, int n) {
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[r * n + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
    y[r * n + c] = tile[threadIdx.x][threadIdx.y];
}

int main() {
    const int n = 256;
    float *x = floats(n * n), *y = floats(n * n);
    dim3 grid(n / 32, n / 32), block(32, 32);
    transpose_straight<<<grid, block>>>(x, y, n);
    transpose_conflicts<<<grid, block>>>(x, y, n);
    transpose_padded<<<grid, block>>>(x, y, n);
    return ended();
}
