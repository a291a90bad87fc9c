// Arithmetic by type, tensor cores, arrays in local memory.
#include "common.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

__global__ void singles(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = __fadd_rn(__fmul_rn(v, v), __fmaf_rn(v, 3.f, 1.f));
}
__global__ void doubles(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i];
    y[i] = __dadd_rn(__dmul_rn(v, v), __fma_rn(v, 3., 1.));
}
__global__ void halves(const __half2* x, __half2* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half2 v = x[i];
    y[i] = __hadd2_rn(__hmul2_rn(v, v), __hfma2(v, v, v));
}
__global__ void brains(const __nv_bfloat16* x, __nv_bfloat16* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __hfma(x[i], x[i], x[i]);
}
__global__ void local_array(const float* x, const int* at, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float kept[32];
    for (int k = 0; k < 32; k++) kept[k] = x[(i + k) % n];
    float s = 0;
    for (int k = 0; k < 8; k++) s += kept[(at[k] + i) % 32];
    y[i] = s;
}
__global__ void local_table(const int* at, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, kept[256];
#pragma unroll 1
    for (int k = 0; k < 256; k++) kept[(k * 7 + i) % 256] = k;
    int s = 0;
#pragma unroll 1
    for (int k = 0; k < 8; k++) s += kept[(at[k] + 3 * i) % 256];
    y[i % n] = s;
}
// The same product from tiles in shared memory.
__global__ void tensor_wmma_shared(const __half* a, const __half* b, float* c, int n) {
    using namespace nvcuda::wmma;
    __shared__ __half ta[16][24], tb[16][24];
    __shared__ float tc[16][20];
    fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __half, row_major> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    fill_fragment(fc, 0.f);
    for (int k = 0; k < n; k += 16) {
        for (int i = threadIdx.x; i < 256; i += 32) {
            ta[i / 16][i % 16] = a[(blockIdx.y * 16 + i / 16) * n + k + i % 16];
            tb[i / 16][i % 16] = b[(k + i / 16) * n + blockIdx.x * 16 + i % 16];
        }
        __syncwarp();
        load_matrix_sync(fa, &ta[0][0], 24);
        load_matrix_sync(fb, &tb[0][0], 24);
        mma_sync(fc, fa, fb, fc);
        __syncwarp();
    }
    store_matrix_sync(&tc[0][0], fc, 20, mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) c[(blockIdx.y * 16 + i / 16) * n + blockIdx.x * 16 + i % 16] = tc[i / 16][i % 16];
}
__global__ void tensor_wmma(const __half* a, const __half* b, float* c, int n) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    fill_fragment(fc, 0.f);
    for (int k = 0; k < n; k += 16) {
        load_matrix_sync(fa, a + blockIdx.y * 16 * n + k, n);
        load_matrix_sync(fb, b + blockIdx.x * 16 * n + k, n);
        mma_sync(fc, fa, fb, fc);
    }
    store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, fc, n, mem_row_major);
}
__device__ unsigned window(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
// One warp a tile: ldmatrix from a shared tile of `pitch` halves a row (64: 8 rows in one bank group; 72: none).
template <int pitch>
__global__ void tensor_ldmatrix(const __half* a, float* c) {
    __shared__ __align__(16) __half tile[16][pitch];
    for (int i = threadIdx.x; i < 16 * 8; i += 32)
        *(uint4*)&tile[i / 8][i % 8 * 8] = *(const uint4*)&a[(blockIdx.x * 16 + i / 8) * 64 + i % 8 * 8];
    __syncwarp();
    float d[4] = {0, 0, 0, 0};
    for (int k = 0; k < 64; k += 16) {
        unsigned r[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(window(&tile[threadIdx.x % 16][k + threadIdx.x / 16 * 8])));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[0]), "r"(r[1]));
    }
    for (int j = 0; j < 4; j++) c[(blockIdx.x * 4 + j) * 32 + threadIdx.x] = d[j];
}

int main() {
    const int n = 1 << 14;
    float *x = floats(4 * n), *y = floats(4 * n);
    double* d = made<double>(n, [](size_t i) { return i / 1024.; });
    __half* h = made<__half>(2 * n, [](size_t i) { return __half(i % 7 / 8.f); });
    __nv_bfloat16* b = made<__nv_bfloat16>(n, [](size_t i) { return __nv_bfloat16(i % 7 / 8.f); });
    int* at = made<int>(8, [](size_t i) { return (int)(drawn(i) % 32); });
    singles<<<n / 256, 256>>>(x, y, n);
    doubles<<<n / 256, 256>>>(d, d, n);
    halves<<<n / 256, 256>>>((__half2*)h, (__half2*)y, n);
    brains<<<n / 256, 256>>>(b, b, n);
    local_array<<<n / 256, 256>>>(x, at, y, n);
    local_table<<<4, 256>>>(at, (int*)y, 1024);
    tensor_wmma<<<dim3(8, 8), 32>>>(h, h, y, 128);
    tensor_wmma_shared<<<dim3(4, 4), 32>>>(h, h, y, 64);
    tensor_ldmatrix<64><<<16, 32>>>(h, y);
    tensor_ldmatrix<72><<<16, 32>>>(h, y);
    return ended();
}
