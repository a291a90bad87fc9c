// Shared memory by width and pattern: which lanes share a wavefront. One warp, one load and one store a kernel.
#include "common.h"
#include <cuda_fp16.h>

// Lane l accesses element index[l] of an array of T; the pattern comes from memory, so that nothing is known beforehand.
template <class T>
__global__ void bank_loads(const int* index, T* y) {
    __shared__ T tile[8192 / sizeof(T)];
    for (int i = threadIdx.x; i < 8192 / sizeof(T); i += 32) tile[i] = y[i % 32];
    __syncwarp();
    y[threadIdx.x] = tile[index[threadIdx.x]];
}
template <class T>
__global__ void bank_stores(const int* index, const T* x, T* y) {
    __shared__ T tile[8192 / sizeof(T)];
    T v = x[threadIdx.x];
    tile[index[threadIdx.x]] = v;
    __syncwarp();
    y[threadIdx.x] = tile[threadIdx.x];
}

// Atomics on shared memory: of which nobody reads the old value, or somebody does.
__global__ void bank_reductions(const int* index, int* y) {
    __shared__ int tile[2048];
    for (int i = threadIdx.x; i < 2048; i += 32) tile[i] = 0;
    __syncwarp();
    atomicAdd(&tile[index[threadIdx.x]], index[threadIdx.x] + 3);
    __syncwarp();
    y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void bank_increments(const int* index, int* y) {
    __shared__ int tile[2048];
    for (int i = threadIdx.x; i < 2048; i += 32) tile[i] = 0;
    __syncwarp();
    atomicAdd(&tile[index[threadIdx.x]], 1);
    __syncwarp();
    y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void bank_atomics(const int* index, int* y) {
    __shared__ int tile[2048];
    for (int i = threadIdx.x; i < 2048; i += 32) tile[i] = 0;
    __syncwarp();
    y[threadIdx.x] = atomicMax(&tile[index[threadIdx.x]], index[threadIdx.x] + 3);
}

// Scalar accesses side by side: what ptxas joins, by how many and where they begin.
template <int count, int first, int step>
__global__ void neighbour_stores(const float* x, float* y) {
    __shared__ float tile[32 * step + 8];
    float v[count];
    for (int k = 0; k < count; k++) v[k] = x[32 * k + threadIdx.x];
    for (int k = 0; k < count; k++) tile[threadIdx.x * step + first + k] = v[k];
    __syncwarp();
    y[threadIdx.x] = tile[31 - threadIdx.x];
}
template <int count, int first, int step>
__global__ void neighbour_loads(const float* x, float* y) {
    __shared__ float tile[32 * step + 8];
    for (int i = threadIdx.x; i < 32 * step + 8; i += 32) tile[i] = x[i];
    __syncwarp();
    float s = 0;
    for (int k = 0; k < count; k++) s += tile[threadIdx.x * step + first + k];
    y[threadIdx.x] = s;
}
// Halves side by side, and a pointer whose alignment only the launch knows.
__global__ void neighbour_halves(const __half* x, __half* y) {
    __shared__ __half tile[256];
    for (int i = threadIdx.x; i < 256; i += 32) tile[i] = x[i];
    __syncwarp();
    __half s = tile[8 * threadIdx.x % 256];
    for (int k = 1; k < 8; k++) s = __hadd(s, tile[8 * threadIdx.x + k]);
    y[threadIdx.x] = s;
}
__global__ void neighbour_unknown(const float* x, float* y, int step) {
    extern __shared__ float tile[];
    for (int i = threadIdx.x; i < 256; i += 32) tile[i] = x[i];
    __syncwarp();
    float s = 0;
    for (int k = 0; k < 4; k++) s += tile[threadIdx.x * step + k];
    y[threadIdx.x] = s;
}

template <class T>
void run(int* index, T* x, T* y) {
    for (int p = 0; p < 16; p++) {
        // The dynamic shared memory tells the launches apart: counts are kept by kernel and shape.
        bank_loads<T><<<1, 32, 16 * p>>>(index + 32 * p, y);
        bank_stores<T><<<1, 32, 16 * p>>>(index + 32 * p, x, y);
    }
}

int main() {
    int* index = made<int>(16 * 32, [](size_t i) {
        int p = (int)i / 32, l = (int)i % 32;
        switch (p) {
            case 0: return l;
            case 1: return 0;
            case 2: return l / 2;
            case 3: return l / 4;
            case 4: return l / 16;
            case 5: return 2 * l;
            case 6: return 4 * l;
            case 7: return 31 - l;
            case 8: return l ^ 1;
            case 9: return l % 2;
            case 10: return 8 * l % 256;
            case 11: return l / 8;
            case 12: return l % 8;
            case 13: return l % 16;
            case 14: return l / 2 + 16 * (l % 2);
            default: return (int)(drawn(l) % 128);
        }
    });
    void* x = floats(4096);
    void* y = floats(4096);
    run<float>(index, (float*)x, (float*)y);
    run<float2>(index, (float2*)x, (float2*)y);
    run<float4>(index, (float4*)x, (float4*)y);
    for (int p = 0; p < 16; p++) {
        bank_reductions<<<1, 32, 16 * p>>>(index + 32 * p, (int*)y);
        bank_increments<<<1, 32, 16 * p>>>(index + 32 * p, (int*)y);
        bank_atomics<<<1, 32, 16 * p>>>(index + 32 * p, (int*)y);
    }
    neighbour_stores<4, 0, 4><<<1, 32>>>((float*)x, (float*)y);
    neighbour_stores<2, 0, 2><<<1, 32>>>((float*)x, (float*)y);
    neighbour_stores<2, 1, 4><<<1, 32>>>((float*)x, (float*)y);
    neighbour_loads<4, 0, 4><<<1, 32>>>((float*)x, (float*)y);
    neighbour_loads<4, 2, 4><<<1, 32>>>((float*)x, (float*)y);
    neighbour_loads<4, 0, 6><<<1, 32>>>((float*)x, (float*)y);
    neighbour_loads<3, 0, 4><<<1, 32>>>((float*)x, (float*)y);
    neighbour_loads<8, 0, 8><<<1, 32>>>((float*)x, (float*)y);
    neighbour_halves<<<1, 32>>>((__half*)x, (__half*)y);
    neighbour_unknown<<<1, 32, 4096>>>((float*)x, (float*)y, 4);
    return ended();
}
