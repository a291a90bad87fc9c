"""Matrix-vector product y = A @ x at memory speed, for any shape: five kernels and a rule that chooses one.

The product reads A once and does one multiply-add an element, so only bytes count. What differs between shapes is how
enough loads stay in flight:

  narrow   K of at most 128 pieces of 16 bytes: 1 to 32 lanes share a row, x stays in registers, rows stream past.
  direct   a block takes R rows and one segment of the columns; R rows share each load of x.
  ring     the same on Hopper: a producer thread streams 4 rows x 4 KB with the bulk copy engine (cp.async.bulk) into
           ten stages of shared memory, eight warps consume them; the loads never wait for arithmetic or a block's
           start.
  strip    A column-major (that is A.T @ x of a row-major A): a thread owns columns and walks down rows.
  curtain  the same on Hopper, fed like ring: 4 rows x 4 KB of columns a stage; no sum crosses threads.

Where K is split, there are three ways to add the segments' sums: the blocks of a cluster through distributed shared
memory (Hopper, up to eight segments); the last block of a group to finish, in float64; or a second kernel, in float64.
Each adds in a fixed order, so that the result is the same bit for bit in every run. float32 chains are short: an
H200's errors lie about torch.mv's, on most shapes below. NaN and Inf propagate (no product is left out, none is added).

Limits: float32, float16, bfloat16; A is M x K with one unit stride and any other stride (rows may overlap or be far
apart; any alignment, 16-byte loads where the addresses allow them); other layouts and a strided x are copied first.
M and K up to 2^31 - 1, more than 2^31 elements in all. Forward only.

Measured (docs/gallery.md has the grid): one H200, A 2048 x 2^20 float32, 8.6 GB: ring 1.841 ms (4667 GB/s), torch.mv
2.294 ms (3745 GB/s).
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <map>
#include <mutex>
#include <utility>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int COMBINERS = 512;

// ---- loads
// ---------------------------------------------------------------------------------------------------------
__device__ __forceinline__ float as_float(float v) { return v; }
__device__ __forceinline__ float as_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float as_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ void unpack(uint32_t w, float* f, float) { f[0] = __uint_as_float(w); }
__device__ __forceinline__ void unpack(uint32_t w, float* f, __half) {
    float2 two = __half22float2(*reinterpret_cast<__half2*>(&w));
    f[0] = two.x, f[1] = two.y;
}
__device__ __forceinline__ void unpack(uint32_t w, float* f,
                                       __nv_bfloat16) {  // a bfloat16 is the upper half of a float
    f[0] = __uint_as_float(w << 16), f[1] = __uint_as_float(w & 0xffff0000u);
}

__device__ __forceinline__ void store(float* p, float v) { *p = v; }
__device__ __forceinline__ void store(__half* p, float v) { *p = __float2half_rn(v); }
__device__ __forceinline__ void store(__nv_bfloat16* p, float v) { *p = __float2bfloat16_rn(v); }

// V consecutive elements that one instruction loads: 16 bytes, or one element where rows are not aligned to 16 bytes.
// stream() is volatile: otherwise the compiler moves each load to its use, and one is in flight where eight were
// meant.
template <typename T, int V>
struct Piece {
    uint4 raw;
    __device__ __forceinline__ void load(const T* p) { raw = *reinterpret_cast<const uint4*>(p); }
    __device__ __forceinline__ void stream(const T* p, bool wanted) {  // zeros where not wanted
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, "
            "0;\n"
            "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
            : "=&r"(raw.x), "=&r"(raw.y), "=&r"(raw.z), "=&r"(raw.w)
            : "l"(p), "r"(int(wanted)));
    }
    __device__ __forceinline__ void floats(float (&f)[V]) const {
        constexpr int PER = V / 4;
        unpack(raw.x, f, T()), unpack(raw.y, f + PER, T()), unpack(raw.z, f + 2 * PER, T()),
            unpack(raw.w, f + 3 * PER, T());
    }
};
template <typename T>
struct Piece<T, 1> {
    T raw;
    __device__ __forceinline__ void load(const T* p) { raw = *p; }
    __device__ __forceinline__ void stream(const T* p, bool wanted) {
        store(&raw, 0.f);
        if (wanted) raw = *p;
    }
    __device__ __forceinline__ void floats(float (&f)[1]) const { f[0] = as_float(raw); }
};

// A piece's products are added to one another first: a chain of float32 additions is then V times shorter.
template <typename T, int V>
__device__ __forceinline__ float dot(const Piece<T, V>& a, const float (&x)[V], float sum) {
    float f[V], piece = 0.f;
    a.floats(f);
#pragma unroll
    for (int v = 0; v < V; ++v) piece = fmaf(f[v], x[v], piece);
    return sum + piece;
}

template <int LANES>
__device__ __forceinline__ float lane_sum(float v) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
    return v;
}

// Where a result goes: y itself, or this segment's row of partial sums.
template <typename T>
struct Output {
    T* y;
    float* partial;  // [segments][M], or null
    int64_t M;
    int clustered;  // the segments of a row are one cluster's blocks
    int* met;       // a counter for each group of rows, zero; or null: combine_kernel adds the partial sums
    __device__ __forceinline__ void put(int64_t row, int64_t segment, float v) const {
        if (partial) partial[segment * M + row] = v;
        else store(y + row, v);
    }
};

// ---- narrow: LANES lanes share a row, each keeps its PIECES pieces of x in registers
// ------------------------------- PIECES * IN_FLIGHT loads a thread before the first use
template <typename T, int V, int LANES, int PIECES, int IN_FLIGHT>
__global__ void __launch_bounds__(THREADS)
    narrow_kernel(const T* __restrict__ A, int64_t stride, const T* __restrict__ x, T* __restrict__ y, int64_t M,
                  int64_t K) {
    constexpr int ROWS = THREADS / LANES;
    const int lane = threadIdx.x % LANES;
    float xs[PIECES][V];
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
        const int64_t column = int64_t(p * LANES + lane) * V;
        Piece<T, V> piece;
        piece.stream(x + column, column < K);
        piece.floats(xs[p]);
    }
    for (int64_t first = int64_t(blockIdx.x) * ROWS * IN_FLIGHT; first < M;
         first += int64_t(gridDim.x) * ROWS * IN_FLIGHT) {
        Piece<T, V> a[IN_FLIGHT][PIECES];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; ++u) {
            const int64_t row = first + u * ROWS + threadIdx.x / LANES;
#pragma unroll
            for (int p = 0; p < PIECES; ++p) {
                const int64_t column = int64_t(p * LANES + lane) * V;
                a[u][p].stream(A + row * stride + column, row < M && column < K);
            }
        }
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; ++u) {
            const int64_t row = first + u * ROWS + threadIdx.x / LANES;
            float sum = 0.f;
#pragma unroll
            for (int p = 0; p < PIECES; ++p) sum = dot(a[u][p], xs[p], sum);
            sum = lane_sum<LANES>(sum);
            if (lane == 0 && row < M) store(y + row, sum);
        }
    }
}

// ---- a cluster's blocks add their sums (Hopper): the split of K without a second kernel
// --------------------------------
__device__ __forceinline__ void cluster_barrier() {
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ float of_block(const float* mine, int rank) {  // the same shared variable in another block
    float v = *mine;
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(mine))), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there) : "memory");
#endif
    return v;
}
// Block `rank` of the cluster that has cut K into `ranks` segments puts every `ranks`-th of `count` results; all
// threads call it.
template <typename T>
__device__ __forceinline__ void put_of_cluster(const Output<T>& out, const float* total, int count, int64_t first,
                                               int64_t limit, int rank, int ranks) {
    cluster_barrier();
    for (int i = threadIdx.x * ranks + rank; i < count; i += THREADS * ranks) {
        float sum = 0.f;
        for (int r = 0; r < ranks; ++r) sum += of_block(total + i, r);
        if (first + i < limit) store(out.y + first + i, sum);
    }
    cluster_barrier();  // no block leaves while another reads from it
}
__device__ __forceinline__ void next_kernel_may_start() {
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");  // combine_kernel: it waits for this grid's results
#endif
}

// ---- the last of a group's blocks to come here adds their partial sums: the split of K without a second kernel
// ----------
template <bool NAMED>
__device__ __forceinline__ void block_barrier() {
    if (NAMED) asm volatile("bar.sync 1, 256;" ::: "memory");  // without ring's producer
    else __syncthreads();
}
// The 256 threads of each of the group's blocks call it, after their put()s of the results first .. first + count.
template <bool NAMED, typename T>
__device__ __forceinline__ void add_up(const Output<T>& out, int64_t group, int segments, int64_t first, int count) {
    __shared__ int is_last;
    __shared__ double parts[THREADS];
    __threadfence();
    block_barrier<NAMED>();
    if (threadIdx.x == 0) is_last = atomicAdd(out.met + group, 1) == segments - 1;
    block_barrier<NAMED>();
    if (!is_last) return;
    __threadfence();
    int lanes = 1;
    while (lanes < count && lanes < THREADS) lanes *= 2;
    const int lane = threadIdx.x % lanes, slot = threadIdx.x / lanes, slots = THREADS / lanes;
    for (int base = 0; base < count; base += lanes) {
        double sum = 0;
        if (base + lane < count)
#pragma unroll 8
            for (int s = slot; s < segments; s += slots) sum += __ldcg(out.partial + s * out.M + first + base + lane);
        parts[threadIdx.x] = sum;
        for (int half = slots / 2; half > 0; half /= 2) {
            block_barrier<NAMED>();
            if (slot < half) parts[threadIdx.x] += parts[threadIdx.x + half * lanes];
        }
        if (slot == 0 && base + lane < count) store(out.y + first + base + lane, static_cast<float>(parts[lane]));
    }
    if (threadIdx.x == 0) out.met[group] = 0;  // for the next launch
}

// ---- direct: a block takes R rows and one segment of the columns
// ---------------------------------------------------
template <typename T, int V, int R>
__global__ void __launch_bounds__(THREADS)
    direct_kernel(const T* __restrict__ A, int64_t stride, const T* __restrict__ x, Output<T> out, int64_t M,
                  int64_t K, int64_t segment, int segments) {
    constexpr int U = 8 / R;  // eight loads a thread before the first use
    __shared__ float shared[WARPS][R], totals[R];
    next_kernel_may_start();
    const int64_t row = blockIdx.x / segments * int64_t(R);
    const int64_t begin = blockIdx.x % segments * segment;
    const int64_t end = min(begin + segment, K), whole = end - (end - begin) % V;
    const T* rows[R];
    float sum[R];
#pragma unroll
    for (int r = 0; r < R; ++r)
        rows[r] = A + min(row + r, M - 1) * stride, sum[r] = 0.f;  // the last group repeats the last row

    for (int64_t column = begin + threadIdx.x * V; column < whole; column += THREADS * V * U) {
        Piece<T, V> a[U][R], b[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int64_t at = column + u * THREADS * V;
#pragma unroll
            for (int r = 0; r < R; ++r) a[u][r].stream(rows[r] + at, at < whole);
            b[u].stream(x + at, at < whole);
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            float xs[V];
            b[u].floats(xs);
#pragma unroll
            for (int r = 0; r < R; ++r) sum[r] = dot(a[u][r], xs, sum[r]);
        }
    }
    if (V > 1 && whole + threadIdx.x < end) {  // fewer than V columns are left
        const float xs = as_float(x[whole + threadIdx.x]);
#pragma unroll
        for (int r = 0; r < R; ++r) sum[r] = fmaf(as_float(rows[r][whole + threadIdx.x]), xs, sum[r]);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const float total = lane_sum<32>(sum[r]);
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32][r] = total;
    }
    __syncthreads();
    if (threadIdx.x < R) {
        float total = 0.f;
        for (int warp = 0; warp < WARPS; ++warp) total += shared[warp][threadIdx.x];
        totals[threadIdx.x] = total;
        if (!out.clustered && row + threadIdx.x < M) out.put(row + threadIdx.x, blockIdx.x % segments, total);
    }
    if (out.clustered) put_of_cluster(out, totals, R, row, M, blockIdx.x % segments, segments);
    if (out.met) add_up<false>(out, blockIdx.x / segments, segments, row, static_cast<int>(min(int64_t(R), M - row)));
}

// ---- strip: y[j] = sum over i of A[i, j] x[i]; a warp is LANES column pieces wide and 32 / LANES rows high
// -----------
template <typename T, int V, int LANES>
__global__ void __launch_bounds__(THREADS)
    strip_kernel(const T* __restrict__ A, int64_t stride, const T* __restrict__ x, Output<T> out, int64_t rows,
                 int64_t columns, int64_t segment, int segments, int row_warps) {
    constexpr int U = 8;
    __shared__ __align__(16) float shared[THREADS * V];
    next_kernel_may_start();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int slots = row_warps * (32 / LANES), slot = warp % row_warps * (32 / LANES) + lane / LANES;
    const int width = WARPS / row_warps * LANES * V;  // columns of a block
    const int within = (warp / row_warps * LANES + lane % LANES) * V;
    const int64_t left = blockIdx.x / segments * int64_t(width), column = left + within;
    const int64_t begin = blockIdx.x % segments * segment, end = min(begin + segment, rows);
    float sum[V];
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] = 0.f;
    if (column < columns) {
        for (int64_t row = begin + slot; row < end; row += int64_t(slots) * U) {
            Piece<T, V> a[U];
            float xs[U];
#pragma unroll
            for (int u = 0; u < U; ++u) {
                const int64_t at = row + int64_t(u) * slots;
                a[u].stream(A + at * stride + column, at < end);
            }
#pragma unroll
            for (int u = 0; u < U; ++u) xs[u] = as_float(x[min(row + int64_t(u) * slots, end - 1)]);
            float part[V] = {};  // eight rows first: a shorter chain of float32 additions
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (row + int64_t(u) * slots >= end) break;  // zeros times an Inf of x would be NaN
                float f[V];
                a[u].floats(f);
#pragma unroll
                for (int v = 0; v < V; ++v) part[v] = fmaf(f[v], xs[u], part[v]);
            }
#pragma unroll
            for (int v = 0; v < V; ++v) sum[v] += part[v];
        }
    }
    if (slots == 1 && !out.clustered) {
        if (column < columns)
#pragma unroll
            for (int v = 0; v < V; ++v) out.put(column + v, blockIdx.x % segments, sum[v]);
    } else {
#pragma unroll
        for (int v = 0; v < V; ++v) shared[slot * width + within + v] = sum[v];
        __syncthreads();
        for (int c = threadIdx.x; c < width && slots > 1; c += THREADS) {
            float total = 0.f;
            for (int s = 0; s < slots; ++s) total += shared[s * width + c];
            if (out.clustered) shared[c] = total;  // only this thread reads column c
            else if (left + c < columns) out.put(left + c, blockIdx.x % segments, total);
        }
    }
    if (out.clustered) put_of_cluster(out, shared, width, left, columns, blockIdx.x % segments, segments);
    if (out.met)
        add_up<false>(out, blockIdx.x / segments, segments, left,
                      static_cast<int>(min(int64_t(width), columns - left)));
}

// ---- the second stage: partial sums of each row, in float64, in a fixed order
// ----------------------------------------
template <typename T>
__global__ void __launch_bounds__(COMBINERS)
    combine_kernel(const float* __restrict__ partial, T* __restrict__ y, int64_t M, int segments, int lanes) {
    __shared__ double shared[COMBINERS];
    const int lane = threadIdx.x % lanes, slot = threadIdx.x / lanes, slots = COMBINERS / lanes;
    const int64_t row = blockIdx.x * int64_t(lanes) + lane;
    double sum = 0;
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (row < M)
#pragma unroll 8
        for (int s = slot; s < segments; s += slots) sum += partial[s * M + row];
    shared[threadIdx.x] = sum;
    for (int half = slots / 2; half > 0; half /= 2) {
        __syncthreads();
        if (slot < half) shared[threadIdx.x] += shared[threadIdx.x + half * lanes];
    }
    if (slot == 0 && row < M) store(y + row, static_cast<float>(shared[lane]));
}

// ---- ring (Hopper): 4 rows x 4 KB a stage, ten stages, one producer warp, eight consumer warps
// ------------------------
#ifdef GALLERY_HOPPER
constexpr int RING_ROWS = 4, RING_STAGES = 10, RING_BYTES = 4096, STAGE_BYTES = (RING_ROWS + 1) * RING_BYTES;
constexpr int CURTAIN_STAGES = 12;

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void barrier_init(uint64_t* b, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals));
}
__device__ __forceinline__ void barrier_expect(uint64_t* b, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t* b, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\n"
        "bra again;\nover:\n}" ::"r"(shared_address(b)),
        "r"(parity)
        : "memory");
}
__device__ __forceinline__ void bulk_copy(void* to, const void* from, uint32_t bytes, uint64_t* b, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
        "%4;" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(b)), "l"(policy)
        : "memory");
}

template <typename T>
__global__ void __launch_bounds__(THREADS + 32)
    ring_kernel(const T* __restrict__ A, int64_t stride, const T* __restrict__ x, Output<T> out, int64_t M, int64_t K,
                int64_t segment, int segments) {
#if __CUDA_ARCH__ >= 900
    constexpr int V = 16 / sizeof(T), CHUNK = RING_BYTES / sizeof(T);
    extern __shared__ __align__(128) unsigned char stages[];
    __shared__ __align__(8) uint64_t full[RING_STAGES], empty[RING_STAGES];
    __shared__ float shared[2][WARPS][RING_ROWS];
    next_kernel_may_start();
    if (threadIdx.x == 0) {
        for (int s = 0; s < RING_STAGES; ++s) barrier_init(full + s, 1), barrier_init(empty + s, WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int64_t items = (M + RING_ROWS - 1) / RING_ROWS * segments;
    int stage = 0;
    uint32_t parity = 0;
    if (threadIdx.x >= THREADS) {
        if (threadIdx.x != THREADS) return;
        uint64_t once, often;  // A passes through L2 once; x is wanted by every block
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
        asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(often));
        for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
            const int64_t row = item / segments * RING_ROWS, begin = item % segments * segment,
                          end = min(begin + segment, K);
            const int rows = static_cast<int>(min(int64_t(RING_ROWS), M - row));
            for (int64_t column = begin; column < end; column += CHUNK) {
                const uint32_t bytes = static_cast<uint32_t>(min(int64_t(CHUNK), end - column) * sizeof(T));
                barrier_wait(empty + stage, parity ^ 1);
                barrier_expect(full + stage, bytes * (rows + 1));
                unsigned char* to = stages + stage * STAGE_BYTES;
                for (int r = 0; r < rows; ++r)
                    bulk_copy(to + r * RING_BYTES, A + (row + r) * stride + column, bytes, full + stage, once);
                bulk_copy(to + RING_ROWS * RING_BYTES, x + column, bytes, full + stage, often);
                if (++stage == RING_STAGES) stage = 0, parity ^= 1;
            }
        }
        return;
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int turn = 0;  // two result buffers: one barrier an item is enough
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x, turn ^= 1) {
        const int64_t row = item / segments * RING_ROWS, begin = item % segments * segment,
                      end = min(begin + segment, K);
        float sum[RING_ROWS] = {};
        for (int64_t column = begin; column < end; column += CHUNK) {
            barrier_wait(full + stage, parity);
            const T* chunk = reinterpret_cast<const T*>(stages + stage * STAGE_BYTES) + threadIdx.x * V;
            if (column + threadIdx.x * V < end) {
                Piece<T, V> a, b;
                float xs[V];
                b.load(chunk + RING_ROWS * CHUNK);
                b.floats(xs);
#pragma unroll
                for (int r = 0; r < RING_ROWS; ++r) {  // rows past M hold stale bytes; their sums are never written
                    a.load(chunk + r * CHUNK);
                    sum[r] = dot(a, xs, sum[r]);
                }
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(empty + stage);
            if (++stage == RING_STAGES) stage = 0, parity ^= 1;
        }
#pragma unroll
        for (int r = 0; r < RING_ROWS; ++r) {
            const float total = lane_sum<32>(sum[r]);
            if (lane == 0) shared[turn][warp][r] = total;
        }
        asm volatile("bar.sync 1, 256;" ::: "memory");  // the consumers only
        if (threadIdx.x < RING_ROWS && row + threadIdx.x < M) {
            float total = 0.f;
            for (int w = 0; w < WARPS; ++w) total += shared[turn][w][threadIdx.x];
            out.put(row + threadIdx.x, item % segments, total);
        }
        if (out.met)
            add_up<true>(out, item / segments, segments, row, static_cast<int>(min(int64_t(RING_ROWS), M - row)));
    }
#endif
}

// ---- curtain (Hopper): y[j] = sum over i of A[i, j] x[i]; 4 rows x 4 KB a stage, a thread owns a piece of the columns
template <typename T>
__global__ void __launch_bounds__(THREADS + 32)
    curtain_kernel(const T* __restrict__ A, int64_t stride, const T* __restrict__ x, Output<T> out, int64_t rows,
                   int64_t columns, int64_t segment, int segments) {
#if __CUDA_ARCH__ >= 900
    constexpr int V = 16 / sizeof(T), WIDTH = RING_BYTES / sizeof(T);
    extern __shared__ __align__(128) unsigned char stages[];
    __shared__ __align__(8) uint64_t full[CURTAIN_STAGES], empty[CURTAIN_STAGES];
    next_kernel_may_start();
    if (threadIdx.x == 0) {
        for (int s = 0; s < CURTAIN_STAGES; ++s) barrier_init(full + s, 1), barrier_init(empty + s, WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int64_t tiles = (columns + WIDTH - 1) / WIDTH, items = tiles * segments;
    int stage = 0;
    uint32_t parity = 0;
    auto advance = [&] {
        if (++stage == CURTAIN_STAGES) stage = 0, parity ^= 1;
    };
    if (threadIdx.x >= THREADS) {
        if (threadIdx.x != THREADS) return;
        uint64_t once;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
        for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {  // neighbours in a row run together
            const int64_t left = item % tiles * WIDTH, begin = item / tiles * segment, end = min(begin + segment, rows);
            const uint32_t bytes = static_cast<uint32_t>(min(int64_t(WIDTH), columns - left) * sizeof(T));
            for (int64_t row = begin; row < end; row += RING_ROWS) {
                const int count = static_cast<int>(min(int64_t(RING_ROWS), end - row));
                barrier_wait(empty + stage, parity ^ 1);
                barrier_expect(full + stage, bytes * count);
                unsigned char* to = stages + stage * RING_ROWS * RING_BYTES;
                for (int r = 0; r < count; ++r)
                    bulk_copy(to + r * RING_BYTES, A + (row + r) * stride + left, bytes, full + stage, once);
                advance();
            }
        }
        return;
    }
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int64_t left = item % tiles * WIDTH, begin = item / tiles * segment, end = min(begin + segment, rows);
        const bool mine = left + threadIdx.x * V < columns;
        float sum[V] = {};
        for (int64_t row = begin; row < end; row += RING_ROWS) {
            float xs[RING_ROWS], part[V] = {};
#pragma unroll
            for (int r = 0; r < RING_ROWS; ++r) xs[r] = as_float(x[min(row + r, end - 1)]);
            barrier_wait(full + stage, parity);
            const T* piece = reinterpret_cast<const T*>(stages + stage * RING_ROWS * RING_BYTES) + threadIdx.x * V;
            if (mine) {
#pragma unroll
                for (int r = 0; r < RING_ROWS; ++r) {
                    if (row + r >= end) break;
                    Piece<T, V> a;
                    float f[V];
                    a.load(piece + r * WIDTH);
                    a.floats(f);
#pragma unroll
                    for (int v = 0; v < V; ++v) part[v] = fmaf(f[v], xs[r], part[v]);
                }
#pragma unroll
                for (int v = 0; v < V; ++v) sum[v] += part[v];
            }
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(empty + stage);
            advance();
        }
        if (mine)
#pragma unroll
            for (int v = 0; v < V; ++v) out.put(left + threadIdx.x * V + v, item / tiles, sum[v]);
        if (out.met)
            add_up<true>(out, item % tiles, segments, left, static_cast<int>(min(int64_t(WIDTH), columns - left)));
    }
#endif
}
#endif

// ---- host
// ------------------------------------------------------------------------------------------------------------
struct Request {
    const void *A, *x;
    void* y;
    float* partial;
    int64_t M, K, stride, segment;
    int segments, rows, lanes, sms;  // rows: R of direct, row warps of strip; lanes: of narrow and strip
    bool clustered;
    int* met;
    cudaStream_t stream;
    template <typename T>
    Output<T> output() const {
        return {static_cast<T*>(y), partial, M, clustered, met};
    }
};

// Counters for add_up: zero, and left at zero by the kernel that used them. One stream's launches follow one another,
// so that they share a slice; a captured launch may be replayed beside any other and gets its own. Null: there is none.
inline int* counters(int64_t wanted, cudaStream_t stream) {
    constexpr int64_t SLICE = 4096, POOL = 1 << 20;
    static std::mutex mutex;
    static std::map<std::pair<int, cudaStream_t>, int*> of_stream;
    static std::map<int, std::pair<int*, int64_t>> pools;  // of a device: memory, and how much of it is given away
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    int device = 0;
    if (wanted > SLICE || cudaGetDevice(&device) || cudaStreamIsCapturing(stream, &status)) return nullptr;
    const bool capturing = status != cudaStreamCaptureStatusNone;
    const std::lock_guard<std::mutex> lock(mutex);
    const auto known = of_stream.find({device, stream});
    if (!capturing && known != of_stream.end()) return known->second;
    auto& [memory, used] = pools[device];
    if (!memory) {
        if (capturing) return nullptr;  // a capture may not allocate
        void* made = nullptr;
        if (cudaMalloc(&made, POOL * sizeof(int)) || cudaMemset(made, 0, POOL * sizeof(int)) ||
            cudaStreamSynchronize(nullptr))
            return nullptr;
        memory = static_cast<int*>(made);
    }
    const int64_t size = capturing ? wanted : SLICE;
    if (used + size > POOL) return nullptr;
    int* slice = memory + used;
    used += size;
    if (!capturing) of_stream[{device, stream}] = slice;
    return slice;
}

// cluster: blocks of a cluster, or 1; early: may start before the kernel in front of it has ended (Hopper; elsewhere
// plain launches)
template <typename... Parameters, typename... Given>
cudaError_t launch(void (*kernel)(Parameters...), int64_t grid, int threads, int bytes, int cluster, bool early,
                   cudaStream_t stream, Given... given) {
#ifdef GALLERY_HOPPER
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = cluster, attributes[0].val.clusterDim.y = 1, attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(grid)), config.blockDim = dim3(threads),
    config.dynamicSmemBytes = bytes;
    config.stream = stream, config.attrs = attributes + (cluster > 1 ? 0 : 1),
    config.numAttrs = (cluster > 1) + early;
    return cudaLaunchKernelEx(&config, kernel, Parameters(given)...);
#else
    const unsigned blocks = static_cast<unsigned>(grid);
    kernel<<<blocks, threads, bytes, stream>>>(Parameters(given)...);
    return cudaGetLastError();
#endif
}

template <typename T, int V>
cudaError_t narrow(const Request& q) {
    const int64_t pieces = (q.K + V - 1) / V;
    const int per_lane = static_cast<int>((pieces + q.lanes - 1) / q.lanes), rows = THREADS / q.lanes;
    const int most = per_lane > 2 ? 2 : per_lane > 1 ? 4 : 8;  // rows in flight where there are enough of them
    const bool many = q.M >= int64_t(rows) * most * q.sms * 2;
    const int64_t steps = (q.M + rows * (many ? most : 1) - 1) / (rows * (many ? most : 1));
    const int64_t resident = q.sms * (per_lane > 2 ? 4 : per_lane > 1 ? 6 : 8);
#define NARROW(LANES, PIECES, MOST)                                                                                \
    if (q.lanes == LANES && per_lane <= PIECES) {                                                                  \
        auto kernel = many ? narrow_kernel<T, V, LANES, PIECES, MOST> : narrow_kernel<T, V, LANES, PIECES, 1>;     \
        return launch(kernel, steps < resident ? steps : resident, THREADS, 0, 1, false, q.stream,                 \
                      static_cast<const T*>(q.A), q.stride, static_cast<const T*>(q.x), static_cast<T*>(q.y), q.M, \
                      q.K);                                                                                        \
    }
    NARROW(1, 1, 8)
    NARROW(2, 1, 8) NARROW(4, 1, 8) NARROW(8, 1, 8) NARROW(16, 1, 8) NARROW(32, 1, 8) NARROW(32, 2, 4)
        NARROW(32, 4, 2)
#undef NARROW
            return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t combine(const Request& q) {
    if (!q.partial || q.met) return cudaSuccess;
    int lanes = 32;  // fewer where that still gives every multiprocessor a block
    while (lanes > 1 && (lanes / 2 >= q.M || q.M < int64_t(lanes) * q.sms / 2)) lanes /= 2;
    return launch(combine_kernel<T>, (q.M + lanes - 1) / lanes, COMBINERS, 0, 1, true, q.stream, q.partial,
                  static_cast<T*>(q.y), q.M, q.segments, lanes);
}

template <typename T, int V>
cudaError_t direct(const Request& q) {
    const Output<T> out = q.output<T>();
    auto kernel = q.rows == 4   ? direct_kernel<T, V, 4>
                  : q.rows == 2 ? direct_kernel<T, V, 2>
                                : direct_kernel<T, V, 1>;
    const cudaError_t e = launch(kernel, (q.M + q.rows - 1) / q.rows * q.segments, THREADS, 0,
                                 q.clustered ? q.segments : 1, false, q.stream, static_cast<const T*>(q.A), q.stride,
                                 static_cast<const T*>(q.x), out, q.M, q.K, q.segment, q.segments);
    return e ? e : combine<T>(q);
}

template <typename T, int V>
cudaError_t strip(const Request& q) {
    const Output<T> out = q.output<T>();
    const int64_t width = int64_t(WARPS / q.rows) * q.lanes * V;
    auto kernel = q.lanes == 32   ? strip_kernel<T, V, 32>
                  : q.lanes == 16 ? strip_kernel<T, V, 16>
                  : q.lanes == 8  ? strip_kernel<T, V, 8>
                  : q.lanes == 4  ? strip_kernel<T, V, 4>
                  : q.lanes == 2  ? strip_kernel<T, V, 2>
                                  : strip_kernel<T, V, 1>;
    const cudaError_t e = launch(kernel, (q.M + width - 1) / width * q.segments, THREADS, 0,
                                 q.clustered ? q.segments : 1, false, q.stream, static_cast<const T*>(q.A), q.stride,
                                 static_cast<const T*>(q.x), out, q.K, q.M, q.segment, q.segments, q.rows);
    return e ? e : combine<T>(q);
}

template <typename T>
cudaError_t ring(const Request& q) {
#ifdef GALLERY_HOPPER
    const Output<T> out = q.output<T>();
    constexpr int bytes = RING_STAGES * STAGE_BYTES;
    if (cudaError_t e = cudaFuncSetAttribute(ring_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
        return e;
    const int64_t items = (q.M + RING_ROWS - 1) / RING_ROWS * q.segments;
    const cudaError_t e = launch(ring_kernel<T>, items < q.sms ? items : q.sms, THREADS + 32, bytes, 1, false,
                                 q.stream, static_cast<const T*>(q.A), q.stride, static_cast<const T*>(q.x), out, q.M,
                                 q.K, q.segment, q.segments);
    return e ? e : combine<T>(q);
#else
    return cudaErrorInvalidDeviceFunction;
#endif
}

template <typename T>
cudaError_t curtain(const Request& q) {
#ifdef GALLERY_HOPPER
    constexpr int bytes = CURTAIN_STAGES * RING_ROWS * RING_BYTES;
    if (cudaError_t e = cudaFuncSetAttribute(curtain_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
        return e;
    const int64_t width = RING_BYTES / sizeof(T), items = (q.M + width - 1) / width * q.segments;
    const cudaError_t e = launch(curtain_kernel<T>, items < q.sms ? items : q.sms, THREADS + 32, bytes, 1, false,
                                 q.stream, static_cast<const T*>(q.A), q.stride, static_cast<const T*>(q.x),
                                 q.output<T>(), q.K, q.M, q.segment, q.segments);
    return e ? e : combine<T>(q);
#else
    return cudaErrorInvalidDeviceFunction;
#endif
}

template <typename T>
cudaError_t run(int variant, bool aligned, const Request& q) {
    constexpr int V = 16 / sizeof(T);
    if (variant == 3) return ring<T>(q);
    if (variant == 4) return curtain<T>(q);
    if (variant == 0) return aligned ? narrow<T, V>(q) : narrow<T, 1>(q);
    if (variant == 1) return aligned ? direct<T, V>(q) : direct<T, 1>(q);
    return aligned ? strip<T, V>(q) : strip<T, 1>(q);
}

// variant: 0 narrow, 1 direct, 2 strip, 3 ring, 4 curtain; dtype: 0 float, 1 half, 2 bfloat16; groups: of rows whose
// partial sums the last block adds, 0: combine_kernel does. Returns a cudaError_t.
extern "C" int matvec_launch(int variant, int dtype, int aligned, const void* A, const void* x, void* y,
                             float* partial, int64_t M, int64_t K, int64_t stride, int64_t segment, int segments,
                             int clustered, int64_t groups, int rows, int lanes, int sms, void* stream) {
    const bool two_stages = segments > 1 && !clustered;
    const Request q{A,
                    x,
                    y,
                    two_stages ? partial : nullptr,
                    M,
                    K,
                    stride,
                    segment,
                    segments,
                    rows,
                    lanes,
                    sms,
                    segments > 1 && clustered,
                    two_stages && groups > 0 ? counters(groups, static_cast<cudaStream_t>(stream)) : nullptr,
                    static_cast<cudaStream_t>(stream)};
    if (dtype == 0) return run<float>(variant, aligned, q);
    if (dtype == 1) return run<__half>(variant, aligned, q);
    return run<__nv_bfloat16>(variant, aligned, q);
}
"""

# The wrapper is C++ of its own, so that nvcc never parses torch's headers: that is most of a usual build.
CPP_SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <array>
#include <map>

extern "C" int matvec_launch(int variant, int dtype, int aligned, const void* A, const void* x, void* y,
                             float* partial, int64_t M, int64_t K, int64_t stride, int64_t segment, int segments,
                             int clustered, int64_t groups, int rows, int lanes, int sms, void* stream);

namespace {
constexpr int STRIP = 2, CURTAIN = 4, TORCH = 5;
struct Plan {
    int variant;
    bool aligned;
    int64_t segment;
    int segments;
    bool clustered;
    int64_t groups;
    int rows, lanes, sms;
};
// Device, M, K, and type * 4 + (column-major ? 2 : 0) + (16-byte aligned ? 1 : 0).
using Key = std::array<int64_t, 4>;
std::map<Key, Plan> plans;

int type_of(const torch::Tensor& t) {
    const auto type = t.scalar_type();
    return type == torch::kFloat32 ? 0 : type == torch::kFloat16 ? 1 : type == torch::kBFloat16 ? 2 : -1;
}

torch::Tensor run(const torch::Tensor& A, const torch::Tensor& x, const Plan& p) {
    const bool columns = p.variant == STRIP || p.variant == CURTAIN;
    const int64_t M = A.size(0), K = A.size(1);
    const c10::cuda::CUDAGuard guard(A.device());
    auto y = torch::empty({M}, A.options());
    torch::Tensor partial;
    const bool two_stages = p.segments > 1 && !p.clustered;
    if (two_stages) partial = torch::empty({p.segments, M}, A.options().dtype(torch::kFloat32));
    const int error = matvec_launch(p.variant, type_of(A), p.aligned, A.data_ptr(), x.data_ptr(), y.data_ptr(),
                                    two_stages ? partial.data_ptr<float>() : nullptr, M, K, A.stride(columns ? 1 : 0),
                                    p.segment, p.segments, p.clustered, p.groups, p.rows, p.lanes, p.sms,
                                    c10::cuda::getCurrentCUDAStream().stream());
    C10_CUDA_CHECK(static_cast<cudaError_t>(error));
    return y;
}
}  // namespace

torch::Tensor matvec(torch::Tensor A, torch::Tensor x, int64_t variant, bool aligned, int64_t segment,
                     int64_t segments, bool clustered, int64_t groups, int64_t rows, int64_t lanes, int64_t sms) {
    TORCH_CHECK(A.is_cuda() && x.is_cuda(), "matvec: A and x must be on the GPU");
    TORCH_CHECK(type_of(A) >= 0, "matvec: float32, float16 or bfloat16");
    TORCH_CHECK(x.scalar_type() == A.scalar_type(), "matvec: A and x must have one dtype");
    TORCH_CHECK(A.dim() == 2 && x.dim() == 1 && x.size(0) == A.size(1), "matvec: A [M, K], x [K]");
    TORCH_CHECK(x.is_contiguous(), "matvec: contiguous x");
    const int unit = variant == STRIP || variant == CURTAIN ? 0 : 1;
    TORCH_CHECK(A.stride(unit) == 1 || A.size(unit) == 1, "matvec: the layout does not fit the variant");
    return run(A, x,
               {static_cast<int>(variant), aligned, segment, static_cast<int>(segments), clustered, groups,
                static_cast<int>(rows), static_cast<int>(lanes), static_cast<int>(sms)});
}

torch::Tensor without_gradient(const torch::Tensor& t) { return t.requires_grad() ? t.detach() : t; }

// Keeps what known() shall do for such operands.
void remember(int64_t device, int64_t M, int64_t K, int64_t kind, int64_t variant, bool aligned, int64_t segment,
              int64_t segments, bool clustered, int64_t groups, int64_t rows, int64_t lanes, int64_t sms) {
    plans[{device, M, K, kind}] = {
        static_cast<int>(variant), aligned, segment, static_cast<int>(segments), clustered, groups,
        static_cast<int>(rows), static_cast<int>(lanes), static_cast<int>(sms)};
}
void forget() { plans.clear(); }

// The product where a plan for such operands is remembered, else an undefined tensor: the way of all calls but the
// first, whose whole cost on the host is one call.
torch::Tensor known(torch::Tensor A, torch::Tensor x) {
    const torch::Tensor none;
    if (plans.empty() || !A.is_cuda() || A.dim() != 2 || x.dim() < 1 || x.dim() > 2 || x.device() != A.device() ||
        x.scalar_type() != A.scalar_type() || !x.is_contiguous())
        return none;
    const int64_t M = A.size(0), K = A.size(1), row = A.stride(0), column = A.stride(1);
    const int type = type_of(A);
    if (type < 0 || x.size(0) != K || (x.dim() == 2 && x.size(1) != 1) || (column != 1 && row != 1)) return none;
    const bool transposed = column != 1 && (K > 1 || row == 1);
    const uint64_t apart = (transposed ? K : M) > 1 ? uint64_t(transposed ? column : row) * A.element_size() : 0;
    const bool aligned =
        ((reinterpret_cast<uint64_t>(A.data_ptr()) | reinterpret_cast<uint64_t>(x.data_ptr()) | apart) & 15) == 0;
    const auto found = plans.find({A.device().index(), M, K, type * 4 + transposed * 2 + aligned});
    if (found == plans.end()) return none;
    const torch::Tensor flat = x.dim() == 1 ? x : x.view({K});
    const bool by_torch = found->second.variant == TORCH;
    const torch::Tensor y =
        by_torch ? without_gradient(A).mv(without_gradient(flat)) : run(A, flat, found->second);
    return x.dim() == 1 ? y : y.view({M, 1});
}
"""

NARROW, DIRECT, STRIP, RING, CURTAIN, TORCH = range(6)
VARIANTS = ("narrow", "direct", "strip", "ring", "curtain", "torch")
DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


@dataclass(frozen=True)
class Plan:
    """Which kernel runs, and how the work is cut."""

    variant: int
    """Index in ``VARIANTS``."""
    aligned: bool
    """Whether every row starts at a multiple of 16 bytes, so that 16-byte loads are used."""
    segment: int
    """Columns of a segment (rows of A.T, for strip)."""
    segments: int
    """How many segments; above 1 their sums are combined."""
    clustered: bool
    """Whether the segments are the blocks of one cluster (Hopper), which needs no second kernel."""
    rows: int
    """Rows a block (direct), or warps of a block that stand below one another (strip)."""
    lanes: int
    """Lanes that share a row (narrow), or column pieces a warp is wide (strip)."""
    met: bool = False
    """Whether the last block of a group to finish adds the segments' sums, which needs no second kernel either."""

    def groups(self, M: int, itemsize: int) -> int:
        """How many groups of rows there are, each with blocks that meet; 0 where none do."""
        if not self.met or self.segments == 1 or self.clustered:
            return 0
        per_piece = 16 // itemsize if self.aligned else 1
        rows = {STRIP: 8 // self.rows * self.lanes * per_piece, CURTAIN: 4096 // itemsize, RING: 4}
        return -(-M // rows.get(self.variant, self.rows))

    def __str__(self) -> str:
        if self.variant == TORCH:
            return "torch: torch.mv, which was measured to be faster here"
        how = "in a cluster" if self.clustered else "the last adds them" if self.met else "then combine"
        cut = f"{self.segments} segments of {self.segment}, {how}" if self.segments > 1 else "one segment"
        shape = {
            NARROW: f"{self.lanes} lanes a row",
            DIRECT: f"{self.rows} rows a block",
            RING: "4 rows x 4 KB x 10 stages",
            CURTAIN: "4 rows x 4 KB x 12 stages",
        }
        told = shape.get(self.variant, f"{self.lanes} lanes wide, {self.rows} warps high")
        return f"{VARIANTS[self.variant]}: {told}, {cut}, {'16-byte' if self.aligned else 'one-element'} loads"


def _power_of_two(n: int, most: int) -> int:
    """The least power of two that is at least n, at most ``most``."""
    return min(most, 1 << max(0, n - 1).bit_length())


def _floor_power_of_two(n: int) -> int:
    return 1 << (max(1, n).bit_length() - 1)


TUNED: dict[str, tuple[tuple[int, bool, int, int, str], ...]] = {}
"""Measured choices: for (part of) a device's name, rows of item size, transposed, M, K and a key of ``recipes``."""


@functools.lru_cache(maxsize=4096)
def choose(
    M: int, K: int, itemsize: int, aligned: bool, transposed: bool, sms: int, hopper: bool, device: str = ""
) -> Plan:
    """The plan for y[M] = A[M, K] @ x[K]; ``transposed``: A's columns are contiguous.

    What was measured on ``device`` at the nearest shape, at most a factor of two away in all, goes before the rule.
    """
    row = measured(M, K, itemsize, transposed, aligned, device)
    plan = recipes(M, K, itemsize, aligned, transposed, sms, hopper).get(row[-1]) if row else None
    return plan or _rule(M, K, itemsize, aligned, transposed, sms, hopper)


def measured(
    M: int, K: int, itemsize: int, transposed: bool, aligned: bool, device: str
) -> tuple[int, bool, int, int, str] | None:
    """The row of ``TUNED`` that decides, or None: rows of aligned shapes for aligned operands, others for others."""
    rows = TUNED.get(device) or next((rows for name, rows in TUNED.items() if name and name in device), ())
    near = [
        (abs(math.log2(M / row[2])) + abs(math.log2(K / row[3])), row)
        for row in rows
        if row[:2] == (itemsize, transposed) and (row[2 if transposed else 3] * itemsize % 16 == 0) == aligned
    ]
    distance, row = min(near, default=(2.0, None))
    return row if distance <= 1 else None


def recipes(M: int, K: int, itemsize: int, aligned: bool, transposed: bool, sms: int, hopper: bool) -> dict[str, Plan]:
    """Every plan that is worth measuring, by a name that means the same at another shape. "rule" is the rule's."""
    per_piece = 16 // itemsize if aligned else 1
    found = {"rule": _rule(M, K, itemsize, aligned, transposed, sms, hopper)}
    ringable = hopper and aligned and (M if transposed else K) % per_piece == 0
    if transposed:
        aligned = aligned and M % per_piece == 0
        per_piece = 16 // itemsize if aligned else 1
        widest = _power_of_two(-(-M // per_piece), 32)
        for warps, share in ((1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 2), (4, 4), (8, 4), (8, 8)):
            lanes = widest // share  # of a row of pieces; the others stand below, so that more blocks need no split
            if lanes < 4 and share > 1:
                continue
            name = f"strip {warps}" if share == 1 else f"strip {warps} / {share}"
            slots, tiles = warps * (32 // lanes), -(-M // (8 // warps * lanes * per_piece))
            if slots * 4096 >= K:
                found[name] = _cut(STRIP, aligned, K, 1, 1, False, warps, lanes)
            for times in (1, 2, 4, 8) if share == 1 else (2,):
                parts = max(1, min(times * sms // tiles, K // (slots * 2)), -(-K // (slots * 4096)))
                plan = _cut(STRIP, aligned, K, 1, parts, False, warps, lanes)
                found[f"{name} x{times}"] = plan
                if plan.segments > 1 and warps == 8:
                    found[f"{name} x{times} met"] = replace(plan, met=True)
            for together in (2, 4, 8) if hopper else ():
                if slots * together <= K <= together * slots * 4096:
                    found[f"{name} cluster {together}"] = _cut(STRIP, aligned, K, 1, together, True, warps, lanes)
        if ringable and M * itemsize >= 512:
            for times in (1, 2, 4):
                found[f"curtain x{times}"] = _curtain(M, K, itemsize, sms, times)
    else:
        pieces = -(-K // per_piece)
        if pieces <= 128 and K % per_piece == 0:
            found["narrow"] = Plan(NARROW, aligned, K, 1, False, 1, _power_of_two(pieces, 32))
        unit = 256 * per_piece
        for rows in (1, 2, 4):
            groups, units = -(-M // rows), -(-K // unit)
            if units <= 128:
                found[f"direct {rows}"] = _cut(DIRECT, aligned, K, unit, 1, False, rows)
            for together in (2, 4, 8) if hopper else ():
                if together <= units <= 128 * together:
                    found[f"direct {rows} cluster {together}"] = _cut(DIRECT, aligned, K, unit, together, True, rows)
            for times in (2, 4, 8):
                parts = max(min(units, times * sms // groups), -(-units // 128))
                if parts > 1:
                    plan = _cut(DIRECT, aligned, K, unit, parts, False, rows)
                    found[f"direct {rows} x{times}"] = plan
                    found[f"direct {rows} x{times} met"] = replace(plan, met=True)
        if ringable and K * itemsize >= 8192:
            plan = _choose_ring(M, K, itemsize, sms)
            found["ring"] = plan
            if plan.segments > 1:
                found["ring met"] = replace(plan, met=True)
    found["torch"] = Plan(TORCH, aligned, K, 1, False, 1, 1)
    return found


def _curtain(M: int, K: int, itemsize: int, sms: int, times: int) -> Plan:
    """About ``times`` items of columns x rows a multiprocessor, and no chain of more than 4096 additions."""
    tiles = -(-M // (4096 // itemsize))
    segments = max(1, min(-(-times * sms // tiles), K // 16), -(-K // 16384))
    rows = -(-K // segments)
    segment = -(-rows // 4) * 4
    return Plan(CURTAIN, True, segment, -(-K // segment), False, 1, 1)


def _rule(M: int, K: int, itemsize: int, aligned: bool, transposed: bool, sms: int, hopper: bool) -> Plan:
    """The plan where nothing near was measured. Figures behind it: docs/gallery.md."""
    per_piece = 16 // itemsize if aligned else 1
    if transposed:
        return _choose_strip(M, K, itemsize, aligned and M % per_piece == 0, sms, hopper)
    pieces = -(-K // per_piece)
    if pieces <= 128 and (not aligned or K % per_piece == 0):
        return Plan(NARROW, aligned, K, 1, False, 1, _power_of_two(pieces, 32))
    size, ringable = M * K * itemsize, hopper and aligned and K % per_piece == 0
    if ringable and K * itemsize >= 16384 and (size >= 1 << 29 or (4 <= M < 3 * sms and size >= 32 << 20)):
        return _choose_ring(M, K, itemsize, sms)
    in_row = -(-K // (256 * per_piece))  # loads a thread for one row
    if 3 * sms <= M:  # enough rows: eight loads a thread from as many rows as that takes, if blocks enough remain
        rows = next(r for r in (4, 2, 1) if r == 1 or (r * in_row <= 8 and 2 * r * sms <= M))
        segments = -(-in_row // 128)  # float32 chains of at most 128 pieces
        return _cut(DIRECT, aligned, K, 256 * per_piece, segments, False, rows)
    steps = -(-in_row // 4)
    if hopper and (steps <= 16 or 2 * sms <= 8 * M) and in_row <= 1024:
        return _cut(DIRECT, aligned, K, 256 * per_piece, min(8, _floor_power_of_two(steps)), True, 1)
    steps = -(-in_row // (4 if itemsize < 4 else 8))
    return _cut(DIRECT, aligned, K, 256 * per_piece, min(steps, max(-(-4 * sms // M), -(-in_row // 128))), False, 1)


def _cut(
    variant: int, aligned: bool, K: int, unit: int, segments: int, clustered: bool, rows: int, lanes: int = 1
) -> Plan:
    """K in about ``segments`` parts, each a multiple of ``unit``; a cluster keeps its number (parts may be empty)."""
    units = -(-K // unit)
    segment = -(-units // segments) * unit
    used = segments if clustered else -(-K // segment)
    return Plan(variant, aligned, segment, used, clustered and used > 1, rows, lanes)


def _choose_ring(M: int, K: int, itemsize: int, sms: int) -> Plan:
    """The cut whose busiest multiprocessor has the fewest stages to stream; a combine costs about as much as five
    stages."""
    chunk = 4096 // itemsize
    chunks, groups = -(-K // chunk), -(-M // 4)
    best: tuple[float, int] | None = None
    for segments in range(1, min(chunks, 512) + 1):
        per_segment = -(-chunks // segments)
        if per_segment > 32 and segments < min(chunks, 512):  # float32 chains of at most 32 pieces a thread
            continue
        used = -(-chunks // per_segment)
        cost = -(-groups * used // sms) * (per_segment + 0.25) + (5 if used > 1 else 0)
        if best is None or cost < best[0]:
            best = (cost, per_segment)
    assert best is not None
    return Plan(RING, True, best[1] * chunk, -(-chunks // best[1]), False, 4, 1)


def _choose_strip(M: int, K: int, itemsize: int, aligned: bool, sms: int, hopper: bool) -> Plan:
    """About two blocks a multiprocessor, as wide as the matrix allows: rows of 4 KB read twice as fast as rows of
    512 bytes.

    The sums of up to eight segments meet in a cluster, those of more in a combine.
    """
    per_piece = 16 // itemsize if aligned else 1
    lanes = _power_of_two(-(-M // per_piece), 32)
    wide = lanes * per_piece * 8  # columns of a block whose warps stand side by side
    across = -(-M // wide)
    if across >= 2 * sms:
        return _cut(STRIP, aligned, K, 1, -(-K // 4096), False, 1, lanes)
    narrowest = -(-M // (wide // 8))  # blocks where eight warps stand below one another
    # With few rows, let warps divide them until the blocks suffice.
    if K < 128 or (narrowest >= 1.5 * sms and K * itemsize <= 1024):
        row_warps = next((w for w in (1, 2, 4) if -(-M // (wide // w)) >= 1.5 * sms), 8)
        row_warps = min(row_warps, max(1, _floor_power_of_two(K // 2)))
        return _cut(STRIP, aligned, K, 1, 1, False, row_warps, lanes)
    if hopper and aligned and M * K * itemsize <= 16 << 20 and 8 * narrowest >= sms and K >= 512:
        together = 8 if 8 * narrowest <= 1.25 * sms else min(4, _floor_power_of_two(2 * sms // narrowest))
        return _cut(STRIP, aligned, K, 1, together, True, 8, lanes)
    row_warps = min(8, _floor_power_of_two(wide // M))
    slots, tiles = row_warps * (32 // lanes), -(-M // (wide // row_warps))
    segments = max(1, min(2 * sms // tiles, K // (slots * 2)))
    segments = max(segments, -(-K // (slots * 4096)))  # float32 chains of at most 4096 terms
    together = min(4, _floor_power_of_two(segments))  # clusters of eight of these blocks would not all be resident
    if hopper and 1 < segments <= 5 and together * slots * 4096 >= K:
        return _cut(STRIP, aligned, K, 1, together, True, row_warps, lanes)
    return _cut(STRIP, aligned, K, 1, segments, False, row_warps, lanes)


def hopper_flags() -> list[str]:
    """nvcc flags for Hopper's own code, where the GPU in hand is one and TORCH_CUDA_ARCH_LIST, if set, names it."""
    listed = os.environ.get("TORCH_CUDA_ARCH_LIST", "9.0")
    if not ("9.0" in listed or "Hopper" in listed) or not torch.cuda.is_available():
        return []
    try:
        ctypes.CDLL("libcuda.so.1")  # the driver: an emulated device has none, and runs the portable kernels
    except OSError:
        return []
    if torch.cuda.get_device_capability() != (9, 0):
        return []
    return ["-DGALLERY_HOPPER", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_80,code=compute_80"]


@functools.cache
def extension() -> Any:
    """The compiled module, built on first use."""
    return load_inline(
        name="gallery_matvec",
        cpp_sources=CPP_SOURCE,
        cuda_sources=CUDA_SOURCE,
        functions=["matvec", "known", "remember", "forget"],
        extra_cuda_cflags=["-O3", "-std=c++17", *hopper_flags()],
        no_implicit_headers=True,
    )


@functools.cache
def _device(index: int) -> tuple[int, bool, str]:
    """Multiprocessors, whether Hopper's kernels were built for this device, and its name ("" where they should be and
    are not: what was measured with them does not hold)."""
    wanted = torch.cuda.get_device_capability(index) == (9, 0)
    hopper = wanted and bool(hopper_flags())
    name = torch.cuda.get_device_name(index) if hopper == wanted else ""
    return torch.cuda.get_device_properties(index).multi_processor_count, hopper, name


def forget_plans() -> None:
    """Choose anew at the next call of each shape: needed after a change of ``TUNED``."""
    choose.cache_clear()
    if extension.cache_info().currsize:
        extension().forget()


def matvec(A: torch.Tensor, x: torch.Tensor, plan: Plan | None = None) -> torch.Tensor:
    """A [M, K] @ x [K] or [K, 1] -> [M] or [M, 1], in A's dtype. ``plan`` overrides the choice.

    Raises ``RuntimeError`` for a wrong dtype, device or shape.
    """
    if plan is None:
        y = extension().known(A, x)
        if y is not None:
            return y
    if A.dim() != 2 or x.dim() not in (1, 2) or (x.dim() == 2 and x.shape[1] != 1) or x.shape[0] != A.shape[1]:
        raise RuntimeError(f"matvec: A [M, K] and x [K] or [K, 1], got {tuple(A.shape)} and {tuple(x.shape)}")
    if not (A.is_cuda and x.is_cuda and A.device == x.device):
        raise RuntimeError(f"matvec: A and x must be on one GPU, got {A.device} and {x.device}")
    if A.dtype not in DTYPES or x.dtype != A.dtype:
        raise RuntimeError(f"matvec: A and x both float32, float16 or bfloat16, got {A.dtype} and {x.dtype}")
    M, K = A.shape
    flat = x.reshape(K)
    if not flat.is_contiguous():
        flat = flat.contiguous()
    if M == 0 or K == 0:
        y = torch.zeros(M, dtype=A.dtype, device=A.device)
        return y.unsqueeze(1) if x.dim() == 2 else y
    row, column = A.stride()
    if column != 1 and row != 1 and K > 1 and M > 1:
        A = A.contiguous()
        row, column = A.stride()
    transposed = not (column == 1 or K == 1) or (K == 1 and column != 1 and row == 1)
    stride, itemsize, index = column if transposed else row, A.element_size(), A.device.index or 0
    apart = stride * itemsize if (K if transposed else M) > 1 else 0
    aligned = (A.data_ptr() | flat.data_ptr() | apart) % 16 == 0
    sms, hopper, device = _device(index)
    chosen = plan or choose(M, K, itemsize, aligned, transposed, sms, hopper, device)
    how = (
        chosen.variant,
        chosen.aligned,
        chosen.segment,
        chosen.segments,
        chosen.clustered,
        chosen.groups(M, itemsize),
        chosen.rows,
        chosen.lanes,
        sms,
    )
    if plan is None:
        extension().remember(index, M, K, DTYPES[A.dtype] * 4 + transposed * 2 + aligned, *how)
    y = A.detach() @ flat.detach() if chosen.variant == TORCH else extension().matvec(A, flat, *how)
    return y.unsqueeze(1) if x.dim() == 2 else y


class ModelNew(nn.Module):
    """Replaces ``torch.matmul(A, B)`` with B one column."""

    def __init__(self) -> None:
        super().__init__()
        extension()

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return matvec(A, B)
