// Shared memory by width and pattern: which lanes share a wavefront. One warp, one load and one store a kernel.
#include "common.h"

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
    return ended();
}
