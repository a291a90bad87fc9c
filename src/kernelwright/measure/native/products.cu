// What this device's tensor cores do at best with signed bytes, summed in 32 bits: nothing is loaded but from shared
// memory or registers, and nothing stored, so that a product of matrices of bytes cannot be faster.
//
// Random bytes, because the tensor cores' power, and with it the clock, depends on what they multiply. Built by
// ceilings.py with: nvcc -O3 -shared -Xcompiler -fPIC for this device's architecture, for Hopper with -DKW_WGMMA.

#include <cstdint>
#include <cuda_runtime.h>

namespace {

constexpr int THREADS = 256;

__device__ __forceinline__ uint32_t random_bits(uint32_t i) {  // Wang's hash
    i = (i ^ 61) ^ (i >> 16), i *= 9, i ^= i >> 4, i *= 0x27d4eb2d;
    return i ^ (i >> 15);
}

#ifdef KW_WGMMA
constexpr int K_STEPS = 4, BLOCKS_OF_SM = 1;
constexpr int A_BYTES = 2 * 64 * 128, B_BYTES = 256 * 128;  // two warpgroups' rows, and the columns that both multiply
constexpr int64_t OPERATIONS = int64_t(2) * 2 * 64 * 256 * 32 * K_STEPS;  // of a block in a pass

#define R4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define R16(i) R4(i), R4(i + 4), R4(i + 8), R4(i + 12)
#define R64(i) R16(i), R16(i + 16), R16(i + 32), R16(i + 48)
__device__ __forceinline__ void wgmma(int (&d)[128], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
        "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "
        "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "
        "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"
        ", %128, %129, 1;\n"
        : R64(0), R64(64)
        : "l"(a), "l"(b));
}
// A tile of rows of 128 bytes, 128-byte swizzled.
__device__ __forceinline__ uint64_t descriptor(const void* tile) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
    return uint64_t((address & 0x3ffff) >> 4) | (uint64_t(1) << 16) | (uint64_t(1024 >> 4) << 32) | (uint64_t(1) << 62);
}
__global__ void __launch_bounds__(THREADS, 1) products(int passes, int* out) {
    __shared__ __align__(1024) uint32_t a[A_BYTES / 4];
    extern __shared__ __align__(1024) uint32_t b[];
    for (int i = threadIdx.x; i < A_BYTES / 4; i += THREADS) a[i] = random_bits(i * 2 + blockIdx.x * 131072);
    for (int i = threadIdx.x; i < B_BYTES / 4; i += THREADS) b[i] = random_bits(i * 2 + 1 + blockIdx.x * 131072);
    __syncthreads();
    asm volatile("fence.proxy.async;" ::: "memory");
    const uint64_t of_a = descriptor(a + threadIdx.x / 128 * (A_BYTES / 8)), of_b = descriptor(b);
    int d[128] = {};
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
#pragma unroll
        for (int i = 0; i < 128; ++i) asm volatile("" : "+r"(d[i])::"memory");
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < K_STEPS; ++k) wgmma(d, of_a + k * 2, of_b + k * 2);
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 128; ++i) {
        asm volatile("" : "+r"(d[i])::"memory");
        sum += d[i];
    }
    if (sum == 0x12345678) *out = sum;  // so that it counts as used
}
#else
constexpr int TILES = 4, BLOCKS_OF_SM = 2, A_BYTES = 0, B_BYTES = 0;
constexpr int64_t OPERATIONS = int64_t(2) * THREADS / 32 * TILES * TILES * 16 * 8 * 32;

__global__ void __launch_bounds__(THREADS, 2) products(int passes, int* out) {
    uint32_t a[TILES][4], b[TILES][2];
    int d[TILES][TILES][4] = {};
    const uint32_t seed = (blockIdx.x * THREADS + threadIdx.x) * 32;
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
        for (int r = 0; r < 4; ++r) a[i][r] = random_bits(seed + i * 4 + r);
#pragma unroll
        for (int r = 0; r < 2; ++r) b[i][r] = random_bits(seed + 16 + i * 2 + r);
    }
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass)
#pragma unroll
        for (int i = 0; i < TILES; ++i)
#pragma unroll
            for (int j = 0; j < TILES; ++j)
                asm volatile(
                    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                    "{%0,%1,%2,%3};"
                    : "+r"(d[i][j][0]), "+r"(d[i][j][1]), "+r"(d[i][j][2]), "+r"(d[i][j][3])
                    : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]), "r"(b[j][1]));
    int sum = 0;
#pragma unroll
    for (int i = 0; i < TILES * TILES * 4; ++i) sum += d[i / 4 / TILES][i / 4 % TILES][i % 4];
    if (sum == 0x12345678) *out = sum;
}
#endif

}  // namespace

// One launch of `passes` over a block's operands; operations: how many it makes. Returns a cudaError_t.
extern "C" int kw_products(int passes, int* out, int64_t* operations) {
    int sms = 0;
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
    *operations = OPERATIONS * passes * sms * BLOCKS_OF_SM;
    if (B_BYTES > 0) cudaFuncSetAttribute(products, cudaFuncAttributeMaxDynamicSharedMemorySize, B_BYTES);
    products<<<sms * BLOCKS_OF_SM, THREADS, B_BYTES>>>(passes, out);
    return cudaGetLastError();
}
