// Matrix products: a row for each warp, a tiled GEMM, and one that copies its tiles with cp.async.
#include "common.h"
#include <cuda_pipeline.h>

__global__ void gemv(const float4* a, const float4* x, float* y, int n4) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    const float4* r = a + (size_t)row * n4;
    float s = 0;
    for (int c = threadIdx.x; c < n4; c += 32) {
        float4 u = r[c], v = x[c];
        s += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
    }
    for (int o = 16; o; o >>= 1) s += __shfl_down_sync(~0u, s, o);
    if (threadIdx.x == 0) y[row] = s;
}
__global__ void gemm_tiled(const float* a, const float* b, float* c, int n) {
    __shared__ float sa[16][16], sb[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float s = 0;
    for (int k = 0; k < n; k += 16) {
        sa[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        sb[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + col];
        __syncthreads();
        for (int i = 0; i < 16; i++) s += sa[threadIdx.y][i] * sb[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + col] = s;
}
__global__ void gemm_async(const float* a, const float* b, float* c, int n) {
    __shared__ float sa[32][32], sb[32][32];
    int tx = threadIdx.x % 8 * 4, ty = threadIdx.x / 8, row = blockIdx.y * 32, col = blockIdx.x * 32;
    float s[4] = {0, 0, 0, 0};
    for (int k = 0; k < n; k += 32) {
        __pipeline_memcpy_async(&sa[ty][tx], &a[(row + ty) * n + k + tx], 16);
        __pipeline_memcpy_async(&sb[ty][tx], &b[(k + ty) * n + col + tx], 16);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        for (int i = 0; i < 32; i++)
            for (int j = 0; j < 4; j++) s[j] += sa[ty][i] * sb[i][tx + j];
        __syncthreads();
    }
    for (int j = 0; j < 4; j++) c[(row + ty) * n + col + tx + j] = s[j];
}

int main() {
    const int n = 128;
    float *a = floats(n * n), *b = floats(n * n), *c = floats(n * n);
    gemv<<<n / 4, dim3(32, 4)>>>((float4*)a, (float4*)b, c, n / 4);
    gemm_tiled<<<dim3(n / 16, n / 16), dim3(16, 16)>>>(a, b, c, n);
    gemm_async<<<dim3(n / 32, n / 32), 256>>>(a, b, c, n);
    return ended();
}
