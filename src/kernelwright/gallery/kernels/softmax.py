"""Row softmax with its prologue in one pass: softmax(activation(z + bias) * scale + mask), each row read once,
written once.

PyTorch runs bias, GELU, scale, mask and softmax as separate kernels, and its softmax reads a long row two or three
times. Here a row stays in registers from its only read to its only write:

  warp      N up to 1024: a warp a row, eight rows a block, no barrier at all.
  block     N up to 32768: a block a row, 16 or 32 values a thread, two block reductions (highest value, then sum).
  stream    on Hopper, where two 16-byte pieces a thread or more make a row: blocks stay, and the bulk copy engine
            brings a block's next row into shared memory while this one is computed and written. A row of up to 262144
            elements lies in the registers of 1 to 8 blocks of a cluster, which exchange one (highest, sum) pair
            through distributed shared memory. Rows that begin anywhere are read and written by 16 bytes all the same.
  online    anything else: one pass keeps a running (highest, sum) pair, a second recomputes and writes (two reads,
            one write).

Arithmetic is float32 whatever the dtype; exp is CUDA's expf, for half types ex2.approx. GELU is right to 3.3e-7 (erf),
by a formula with half of erff's instructions: with it, arithmetic hides behind memory. Special values act as in
PyTorch: NaN or +Inf in a row make the row NaN, -Inf counts nothing, a row of -Inf only is NaN.
Deterministic: sums have a fixed order.

Limits: float32, float16, bfloat16; softmax over the last dimension; z [M, N] with any row stride >= N; bias [N];
mask [N] or [M, N], added where it is floating point, and where it is bool, False means left out. N up to 2^31 - 1.
Forward only.

Measured: docs/gallery.md.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
// ---- begin softmax: shared with linear_gelu_softmax.py
// -----------------------------------------------------------------
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <map>
#include <mutex>
#include <tuple>

namespace softmax {

// Launches may overlap the end of the kernel in front of them: nothing is read or written before this (Hopper).
__device__ __forceinline__ void earlier_kernels_have_ended() {
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ float as_float(float v) { return v; }
__device__ __forceinline__ float as_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float as_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ void rounded(float v, float& to) { to = v; }
__device__ __forceinline__ void rounded(float v, __half& to) { to = __float2half_rn(v); }
__device__ __forceinline__ void rounded(float v, __nv_bfloat16& to) { to = __float2bfloat16_rn(v); }

// V consecutive elements that one instruction moves: 16 bytes, or one element where rows are not aligned to 16 bytes.
template <typename T, int V>
struct alignas(sizeof(T) * V) Piece {
    T value[V];
};
template <typename T, int V>
__device__ __forceinline__ void load(const T* p, float (&f)[V]) {
    Piece<T, V> piece;
    if constexpr (sizeof(T) * V == 16) *reinterpret_cast<uint4*>(&piece) = *reinterpret_cast<const uint4*>(p);
    else piece.value[0] = *p;
#pragma unroll
    for (int v = 0; v < V; ++v) f[v] = as_float(piece.value[v]);
}
template <typename T, int V>
__device__ __forceinline__ void store(T* p, const float (&f)[V]) {
    Piece<T, V> piece;
#pragma unroll
    for (int v = 0; v < V; ++v) rounded(f[v], piece.value[v]);
    if constexpr (sizeof(T) * V == 16) __stcs(reinterpret_cast<uint4*>(p), *reinterpret_cast<uint4*>(&piece));
    else *p = piece.value[0];
}

enum Activation { NONE, GELU_ERF, GELU_TANH };
// v times the normal distribution's integral, by Abramowitz and Stegun's 26.2.17 (error at most 7.5e-8): half the
// instructions of erff, and to 3.3e-7 right over all v, where PyTorch's own formula is to 4.5e-7 (float32).
__device__ __forceinline__ float power_of_two(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
__device__ __forceinline__ float gelu_erf(float v) {
    const float size = fabsf(v), t = __fdividef(1.f, fmaf(size, 0.231641888f, 1.f));
    float h = fmaf(t, 0.530702714f, -0.726576013f);
    h = fmaf(h, t, 0.710706870f), h = fmaf(h, t, -0.142248368f), h = fmaf(h, t, 0.127414796f);
    h *= t * power_of_two(v * v * -0.721347520f);
    return fmaf(-size, h, fmaxf(v, 0.f));
}
// 0.5 v (1 + tanh(u)) is v / (1 + exp(-2 u)), without the cancellation and the branches of tanhf.
__device__ __forceinline__ float gelu_tanh(float v) {
    return __fdividef(v, 1.f + power_of_two(-2.3022081984f * (v + 0.044715f * v * v * v)));
}

// What happens to an element before the softmax. A null pointer means that the step is left out.
template <typename T>
struct Prologue {
    const T* bias;
    const void* mask;
    int64_t mask_stride;  // 0: one mask for all rows
    int mask_is_bool;
    float scale;
    int activation;

    // Elements of `from` for the piece at `column`. A shifted row's pieces may begin before the row, end behind it, and
    // lie anywhere.
    template <bool SHIFTED, int V>
    static __device__ __forceinline__ void beside(const T* from, int column, int end, float (&b)[V]) {
        if constexpr (SHIFTED) {
#pragma unroll
            for (int v = 0; v < V; ++v)
                if (column + v >= 0 && column + v < end) b[v] = as_float(from[column + v]);
        } else {
            if (column < end) load<T, V>(from + column, b);
        }
    }

    // Step by step over all of a thread's pieces: the branches stay few. `column` is the first piece's, `step` leads
    // to the next.
    template <bool SHIFTED, int V, int PIECES>
    __device__ __forceinline__ void apply(float (&f)[PIECES][V], int64_t row, int column, int step, int end) const {
        auto biased = [&](int p) {
            float b[V] = {};
            if (V == 1 || bias) beside<SHIFTED>(bias, column + p * step, end, b);
#pragma unroll
            for (int v = 0; v < V; ++v) f[p][v] += b[v];
        };
        if ((V == 1 || activation == NONE) && bias) {
#pragma unroll
            for (int p = 0; p < PIECES; ++p) biased(p);
        }
        if (activation == GELU_ERF) {
#pragma unroll
            for (int i = 0; i < PIECES * V; ++i) {
                if (V > 1 && i % V == 0) biased(i / V);
                f[i / V][i % V] = gelu_erf(f[i / V][i % V]);
            }
        } else if (activation == GELU_TANH) {
#pragma unroll
            for (int i = 0; i < PIECES * V; ++i) {
                if (V > 1 && i % V == 0) biased(i / V);
                f[i / V][i % V] = gelu_tanh(f[i / V][i % V]);
            }
        }
        if (scale != 1.f) {
#pragma unroll
            for (int i = 0; i < PIECES * V; ++i) f[i / V][i % V] *= scale;
        }
        if (mask && mask_is_bool) {
            const unsigned char* keep = static_cast<const unsigned char*>(mask) + row * mask_stride + column;
#pragma unroll
            for (int i = 0; i < PIECES * V; ++i) {
                const int at = i / V * step + i % V, from = SHIFTED ? column + at : column + i / V * step;
                if ((!SHIFTED || from >= 0) && from < end && !keep[at]) f[i / V][i % V] = -INFINITY;
            }
        } else if (mask) {
#pragma unroll
            for (int p = 0; p < PIECES; ++p) {
                float add[V] = {};
                beside<SHIFTED>(static_cast<const T*>(mask) + row * mask_stride, column + p * step, end, add);
#pragma unroll
                for (int v = 0; v < V; ++v) f[p][v] += add[v];
            }
        }
    }
};

template <typename T>
struct Rows {
    const T* z;
    int64_t stride;
    T* y;
    int64_t M;
    int N;
    Prologue<T> prologue;
};

struct Highest {
    static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
    static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};
template <typename Op>
__device__ __forceinline__ float over_warp(float v) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) v = Op::of(v, __shfl_xor_sync(0xffffffffu, v, offset));
    return v;
}
// The result in every thread. `shared` must not be in use by an earlier reduction.
template <typename Op, int THREADS>
__device__ __forceinline__ float over_block(float v, float* shared, float identity) {
    v = over_warp<Op>(v);
    if constexpr (THREADS == 32) return v;
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < THREADS / 32 ? shared[threadIdx.x % 32] : identity;
    return over_warp<Op>(v);
}

// Pieces `lane`, `lane + LANES`, ... of the columns [begin, end) of a row, after the prologue; columns past the end
// count nothing.
template <typename T, int V, int PIECES, int LANES>
__device__ __forceinline__ float read_row(const Rows<T>& rows, int64_t row, int begin, int end, int lane,
                                          float (&f)[PIECES][V]) {
    const T* z = rows.z + row * rows.stride;
    const int column = begin + lane * V, step = LANES * V;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
#pragma unroll
        for (int v = 0; v < V; ++v) f[p][v] = 0.f;
        if (column + p * step < end) load<T, V>(z + column + p * step, f[p]);
    }
    rows.prologue.template apply<false>(f, row, column, step, end);
    float highest = -INFINITY;
#pragma unroll
    for (int i = 0; i < PIECES * V; ++i) {
        if (column + i / V * step >= end) f[i / V][i % V] = -INFINITY;
        highest = fmaxf(highest, f[i / V][i % V]);
    }
    return highest;
}
template <typename T>
__device__ __forceinline__ float exponential(float v) {
    if constexpr (sizeof(T) == 4) return expf(v);
    else return power_of_two(v * 1.4426950409f);  // to 1e-6 or so, of which a half type shows nothing
}
template <typename T, int V, int PIECES>
__device__ __forceinline__ float exponentials(float (&f)[PIECES][V], float highest) {
    float total = 0.f;
#pragma unroll
    for (int p = 0; p < PIECES; ++p)
#pragma unroll
        for (int v = 0; v < V; ++v) total += f[p][v] = exponential<T>(f[p][v] - highest);
    return total;
}
template <typename T, int V, int PIECES, int LANES>
__device__ __forceinline__ void write_row(const Rows<T>& rows, int64_t row, int begin, int end, int lane,
                                          float (&f)[PIECES][V], float factor) {
    T* y = rows.y + row * rows.N;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
        const int column = begin + (p * LANES + lane) * V;
#pragma unroll
        for (int v = 0; v < V; ++v) f[p][v] *= factor;
        if (column < end) store<T, V>(y + column, f[p]);
    }
}

template <typename T, int V, int PIECES>
__global__ void __launch_bounds__(256) warp_kernel(const Rows<T> rows) {
    const int64_t row = blockIdx.x * int64_t(8) + threadIdx.x / 32;
    earlier_kernels_have_ended();
    if (row >= rows.M) return;
    const int lane = threadIdx.x % 32;
    float f[PIECES][V];
    const float highest = over_warp<Highest>(read_row<T, V, PIECES, 32>(rows, row, 0, rows.N, lane, f));
    const float total = over_warp<Sum>(exponentials<T>(f, highest));
    write_row<T, V, PIECES, 32>(rows, row, 0, rows.N, lane, f, 1.f / total);
}

template <typename T, int V, int PIECES, int THREADS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS) block_kernel(const Rows<T> rows) {
    __shared__ float shared[2][32];
    float f[PIECES][V];
    earlier_kernels_have_ended();
    float highest = read_row<T, V, PIECES, THREADS>(rows, blockIdx.x, 0, rows.N, threadIdx.x, f);
    highest = over_block<Highest, THREADS>(highest, shared[0], -INFINITY);
    const float total = over_block<Sum, THREADS>(exponentials<T>(f, highest), shared[1], 0.f);
    write_row<T, V, PIECES, THREADS>(rows, blockIdx.x, 0, rows.N, threadIdx.x, f, 1.f / total);
}

// One pass for the pair (highest, sum of exp(v - highest)), a second for the result.
template <typename T, int V>
__global__ void __launch_bounds__(1024, 1) online_kernel(const Rows<T> rows) {
    constexpr int THREADS = 1024, PIECES = V == 1 ? 8 : 16 / V;
    __shared__ float shared[2][32];
    const int64_t row = blockIdx.x;
    float highest = -INFINITY, total = 0.f;
    earlier_kernels_have_ended();
    for (int64_t begin = 0; begin < rows.N; begin += THREADS * PIECES * V) {
        float f[PIECES][V];
        const float now =
            fmaxf(highest, read_row<T, V, PIECES, THREADS>(rows, row, int(begin), rows.N, threadIdx.x, f));
        const float safe = now == -INFINITY ? 0.f : now;  // -Inf - -Inf would be NaN
        total = total * expf(highest - safe) + exponentials<T>(f, safe);
        highest = now;
    }
    const float all = over_block<Highest, THREADS>(highest, shared[0], -INFINITY);
    total = over_block<Sum, THREADS>(highest == -INFINITY ? total : total * expf(highest - all), shared[1], 0.f);
    const float factor = 1.f / total;
    for (int64_t begin = 0; begin < rows.N; begin += THREADS * PIECES * V) {
        float f[PIECES][V];
        read_row<T, V, PIECES, THREADS>(rows, row, int(begin), rows.N, threadIdx.x, f);
        exponentials<T>(f, all);
        write_row<T, V, PIECES, THREADS>(rows, row, int(begin), rows.N, threadIdx.x, f, factor);
    }
}

#ifdef GALLERY_HOPPER
// A block's part of the row has (highest, total); what its exponentials are to be multiplied by. All threads call it;
// `pairs` must not be read by an earlier call any more: two calls in turn suffice, as each has a cluster's barrier.
__device__ __forceinline__ float with_cluster(float2* pairs, int rank, int blocks, float highest, float total) {
    float factor = 0.f;
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x < blocks) {
        uint32_t there;
        const uint32_t here = static_cast<uint32_t>(__cvta_generic_to_shared(pairs + rank));
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(threadIdx.x));
        asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(there), "f"(highest), "f"(total) : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    float all = -INFINITY, sum = 0.f;
    for (int b = 0; b < blocks; ++b) all = fmaxf(all, pairs[b].x);
    for (int b = 0; b < blocks; ++b) sum += pairs[b].x == -INFINITY ? pairs[b].y : pairs[b].y * expf(pairs[b].x - all);
    // Nothing but -Inf here and something else elsewhere: zeros, or NaN with the rest of the row; exp(-all) may be Inf.
    factor = highest > -INFINITY ? expf(highest - all) / sum : all > -INFINITY ? 0.f * sum : 1.f / sum;
#endif
    return factor;
}

// ---- stream: blocks stay, the next row arrives while this one is at work. Positions count from the 16-byte boundary
// before a row: position = column + shift. --------------------------------------------------------------------------
__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
template <typename T, int V, int THREADS, bool SHIFTED>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS) stream_kernel(const Rows<T> rows, int blocks) {
#if __CUDA_ARCH__ >= 900
    constexpr int PIECES = 32 / V;
    extern __shared__ __align__(128) unsigned char arrived[];
    __shared__ __align__(8) uint64_t full;
    __shared__ float shared[2][32];
    __shared__ float2 pairs[2][16];
    const int rank = blockIdx.x % blocks, clusters = gridDim.x / blocks;
    const int width = (rows.N + (SHIFTED ? V - 1 : 0) + blocks * V - 1) / (blocks * V) * V;  // positions of a block
    auto shift_of = [&](int64_t row) { return SHIFTED ? static_cast<int>(row * rows.N & (V - 1)) : 0; };
    auto start_of = [&](int64_t row) { return rows.z + row * rows.stride - shift_of(row); };
    auto request = [&](int64_t row) {  // whole pieces only: what is left of the row is read directly
        const int begin = rank * width, end = min(begin + width, rows.N + shift_of(row));
        const uint32_t bytes = static_cast<uint32_t>(max(0, end - begin) / V * 16);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full)), "r"(bytes)
                     : "memory");
        if (bytes)
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    shared_address(arrived)),
                "l"(start_of(row) + begin), "r"(bytes), "r"(shared_address(&full))
                : "memory");
    };
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (blocks > 1)  // every block of the cluster has started
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    earlier_kernels_have_ended();
    int64_t row = blockIdx.x / blocks;
    if (threadIdx.x == 0 && row < rows.M) request(row);
    for (int turn = 0; row < rows.M; row += clusters, turn ^= 1) {
        const int shift = shift_of(row), begin = rank * width, end = min(begin + width, rows.N + shift);
        const int at = begin + threadIdx.x * V;
        constexpr int STEP = THREADS * V;
        asm volatile(
            "{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\n"
            "bra again;\nover:\n}" ::"r"(shared_address(&full)),
            "r"(turn)
            : "memory");
        float f[PIECES][V];
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
#pragma unroll
            for (int v = 0; v < V; ++v) f[p][v] = 0.f;
            if (at + p * STEP + V <= end) {
                load<T, V>(reinterpret_cast<const T*>(arrived) + (threadIdx.x * V + p * STEP), f[p]);
            } else if (SHIFTED && at + p * STEP < end) {
#pragma unroll
                for (int v = 0; v < V; ++v)
                    if (at + p * STEP + v < end) f[p][v] = as_float(start_of(row)[at + p * STEP + v]);
            }
        }
        __syncthreads();
        if (threadIdx.x == 0 && row + clusters < rows.M) request(row + clusters);
        rows.prologue.template apply<SHIFTED>(f, row, at - shift, STEP, end - shift);
        float highest = -INFINITY;
#pragma unroll
        for (int i = 0; i < PIECES * V; ++i) {
            const int position = at + i / V * STEP + (SHIFTED ? i % V : 0);
            if (position >= end || (SHIFTED && position < shift)) f[i / V][i % V] = -INFINITY;
            highest = fmaxf(highest, f[i / V][i % V]);
        }
        highest = over_block<Highest, THREADS>(highest, shared[0], -INFINITY);
        const float safe = highest == -INFINITY && blocks > 1 ? 0.f : highest;
        const float total = over_block<Sum, THREADS>(exponentials<T>(f, safe), shared[1], 0.f);
        const float factor = blocks == 1 ? 1.f / total : with_cluster(pairs[turn], rank, blocks, highest, total);
        T* y = rows.y + row * rows.N - shift;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            const int position = at + p * STEP;
#pragma unroll
            for (int v = 0; v < V; ++v) f[p][v] *= factor;
            if (position >= shift && position + V <= end) {
                store<T, V>(y + position, f[p]);
            } else if (SHIFTED) {
#pragma unroll
                for (int v = 0; v < V; ++v)
                    if (position + v >= shift && position + v < end) rounded(f[p][v], y[position + v]);
            }
        }
    }
#endif
}
#endif

// ---- host
// ------------------------------------------------------------------------------------------------------------
enum Variant { WARP, BLOCK, ONLINE, STREAM };

// On Hopper a launch may overlap the end of the kernel in front of it; cluster: blocks of a cluster, or 1.
template <typename... Parameters, typename... Given>
cudaError_t launch(void (*kernel)(Parameters...), int64_t grid, int threads, int bytes, int cluster,
                   cudaStream_t stream, Given... given) {
#ifdef GALLERY_HOPPER
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = cluster, attributes[1].val.clusterDim.y = 1, attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(grid)), config.blockDim = dim3(threads);
    config.dynamicSmemBytes = bytes, config.stream = stream;
    config.attrs = attributes, config.numAttrs = cluster > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, Parameters(given)...);
#else
    const unsigned count = static_cast<unsigned>(grid);
    kernel<<<count, threads, bytes, stream>>>(Parameters(given)...);
    return cudaGetLastError();
#endif
}

#ifdef GALLERY_HOPPER
// How many clusters of `blocks` blocks run at once, or 0: asked once for each kernel and size, for asking is slow.
inline int resident(const void* kernel, int threads, int bytes, int blocks) {
    static std::mutex mutex;
    static std::map<std::tuple<int, const void*, int, int>, int> known;
    int device = 0, found = 0, sms = 0, per_sm = 0;
    if (cudaGetDevice(&device)) return 0;
    const std::lock_guard<std::mutex> lock(mutex);
    const auto key = std::make_tuple(device, kernel, bytes, blocks);
    const auto at = known.find(key);
    if (at != known.end()) return at->second;
    // Of every size that this kernel may ask for: the last call would count, and smaller rows follow longer ones.
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, threads * 32 * 4)) return 0;
    if (blocks > 8 && cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)) return 0;
    if (blocks == 1) {
        if (cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device) ||
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, threads, bytes))
            return 0;
        found = sms * per_sm;
    } else {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = blocks, attribute.val.clusterDim.y = 1, attribute.val.clusterDim.z = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(blocks), config.blockDim = dim3(threads), config.dynamicSmemBytes = bytes;
        config.attrs = &attribute, config.numAttrs = 1;
        if (cudaOccupancyMaxActiveClusters(&found, kernel, &config)) return 0;
    }
    return known[key] = found;
}

template <typename T, int V>
cudaError_t stream_rows(int threads, int blocks, bool shifted, const Rows<T>& rows, cudaStream_t stream) {
    if (shifted && threads == 512) return cudaErrorInvalidValue;
    auto kernel = threads == 256   ? (shifted ? stream_kernel<T, V, 256, true> : stream_kernel<T, V, 256, false>)
                  : threads == 512 ? stream_kernel<T, V, 512, false>
                                   : (shifted ? stream_kernel<T, V, 1024, true> : stream_kernel<T, V, 1024, false>);
    const int width = (rows.N + (shifted ? V - 1 : 0) + blocks * V - 1) / (blocks * V) * V;
    if (width > threads * 32) return cudaErrorInvalidValue;
    const int bytes = width * static_cast<int>(sizeof(T));
    const int64_t most = resident(reinterpret_cast<const void*>(kernel), threads, bytes, blocks);
    if (most == 0) return cudaErrorInvalidConfiguration;
    return launch(kernel, (rows.M < most ? rows.M : most) * blocks, threads, bytes, blocks, stream, rows, blocks);
}
#endif

template <typename T, int V>
cudaError_t run(int variant, int threads, const Rows<T>& rows, cudaStream_t stream) {
    constexpr int FEW = V > 8 ? 1 : 8 / V, SOME = 16 / V,
                  MANY = 32 / V;  // pieces that make 8, 16, 32 values a thread
    const int64_t M = rows.M;
    if (variant == WARP) {
        auto kernel = rows.N <= 256   ? warp_kernel<T, V, FEW>
                      : rows.N <= 512 ? warp_kernel<T, V, SOME>
                                      : warp_kernel<T, V, MANY>;
        return launch(kernel, (M + 7) / 8, 256, 0, 1, stream, rows);
    }
    if (variant == BLOCK) {
        const bool few = rows.N <= threads * 16;
        if constexpr (V == 1) {  // the slow way, for rows that are not aligned: few kernels do
            auto kernel = threads == 256 ? (few ? block_kernel<T, V, SOME, 256> : block_kernel<T, V, MANY, 256>)
                                         : block_kernel<T, V, MANY, 1024>;
            return launch(kernel, M, threads == 256 ? 256 : 1024, 0, 1, stream, rows);
        } else {
            auto kernel = threads == 64    ? (few ? block_kernel<T, V, SOME, 64> : block_kernel<T, V, MANY, 64>)
                          : threads == 128 ? (few ? block_kernel<T, V, SOME, 128> : block_kernel<T, V, MANY, 128>)
                          : threads == 256 ? (few ? block_kernel<T, V, SOME, 256> : block_kernel<T, V, MANY, 256>)
                          : threads == 512 ? (few ? block_kernel<T, V, SOME, 512> : block_kernel<T, V, MANY, 512>)
                                           : block_kernel<T, V, MANY, 1024>;
            return launch(kernel, M, threads, 0, 1, stream, rows);
        }
    }
    return launch(online_kernel<T, V>, M, 1024, 0, 1, stream, rows);
}

template <typename T>
cudaError_t start(int variant, int threads, int blocks, int aligned, const Rows<T>& rows, cudaStream_t stream) {
    constexpr int V = 16 / sizeof(T);
#ifdef GALLERY_HOPPER
    if (variant == STREAM) return stream_rows<T, V>(threads, blocks, aligned != 1, rows, stream);
#endif
    if (variant == STREAM) return cudaErrorInvalidDeviceFunction;
    return aligned == 1 ? run<T, V>(variant, threads, rows, stream) : run<T, 1>(variant, threads, rows, stream);
}
}  // namespace softmax
// ---- end softmax
// -------------------------------------------------------------------------------------------------------

// dtype: 0 float, 1 half, 2 bfloat16; aligned: 1 all rows, 2 z and y as a whole, 0 neither. Returns a cudaError_t.
extern "C" int softmax_launch(int variant, int threads, int blocks, int activation, int dtype, int aligned,
                              const void* z, int64_t stride, const void* bias, float scale, const void* mask,
                              int64_t mask_stride, int mask_is_bool, void* y, int64_t M, int N, void* stream) {
    auto go = [&](auto zero) {
        using T = decltype(zero);
        const softmax::Rows<T> rows{
            static_cast<const T*>(z),
            stride,
            static_cast<T*>(y),
            M,
            N,
            {static_cast<const T*>(bias), mask, mask_stride, mask_is_bool, scale, activation}};
        return softmax::start<T>(variant, threads, blocks, aligned, rows, static_cast<cudaStream_t>(stream));
    };
    return dtype == 0 ? go(float()) : dtype == 1 ? go(__half()) : go(__nv_bfloat16());
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
#include <optional>

extern "C" int softmax_launch(int variant, int threads, int blocks, int activation, int dtype, int aligned,
                              const void* z, int64_t stride, const void* bias, float scale, const void* mask,
                              int64_t mask_stride, int mask_is_bool, void* y, int64_t M, int N, void* stream);

namespace {
constexpr int TORCH = 4;
struct Plan {
    int variant, threads, blocks, aligned;
};
using Key = std::array<int64_t, 4>;  // device, M, N, and dtype, activation and alignment in one number
std::map<Key, Plan> plans;

int type_of(const torch::Tensor& t) {
    const auto type = t.scalar_type();
    return type == torch::kFloat32 ? 0 : type == torch::kFloat16 ? 1 : type == torch::kBFloat16 ? 2 : -1;
}

torch::Tensor run(const torch::Tensor& z, const std::optional<torch::Tensor>& bias,
                  const std::optional<torch::Tensor>& mask, double scale, int64_t activation, const Plan& p,
                  bool in_place) {
    const c10::cuda::CUDAGuard guard(z.device());
    auto y = in_place ? z : torch::empty({z.size(0), z.size(1)}, z.options());
    const int error = softmax_launch(
        p.variant, p.threads, p.blocks, static_cast<int>(activation), type_of(z), p.aligned, z.data_ptr(), z.stride(0),
        bias ? bias->data_ptr() : nullptr, static_cast<float>(scale), mask ? mask->data_ptr() : nullptr,
        mask && mask->dim() == 2 ? mask->stride(0) : 0, mask && mask->scalar_type() == torch::kBool, y.data_ptr(),
        z.size(0), static_cast<int>(z.size(1)), c10::cuda::getCurrentCUDAStream().stream());
    C10_CUDA_CHECK(static_cast<cudaError_t>(error));
    return y;
}
}  // namespace

torch::Tensor softmax(torch::Tensor z, std::optional<torch::Tensor> bias, std::optional<torch::Tensor> mask,
                      double scale, int64_t activation, int64_t variant, int64_t threads, int64_t blocks,
                      int64_t aligned, bool in_place) {
    TORCH_CHECK(z.is_cuda() && z.dim() == 2 && (z.stride(1) == 1 || z.size(1) == 1),
                "softmax: z [M, N] on the GPU, rows contiguous");
    TORCH_CHECK(type_of(z) >= 0, "softmax: float32, float16 or bfloat16");
    TORCH_CHECK(!in_place || z.is_contiguous(), "softmax: in place needs a contiguous z");
    return run(z, bias, mask, scale, activation,
               {static_cast<int>(variant), static_cast<int>(threads), static_cast<int>(blocks),
                static_cast<int>(aligned)},
               in_place);
}

// Keeps what known() shall do for such operands.
void remember(int64_t device, int64_t M, int64_t N, int64_t kind, int64_t variant, int64_t threads, int64_t blocks,
              int64_t aligned) {
    plans[{device, M, N, kind}] = {static_cast<int>(variant), static_cast<int>(threads), static_cast<int>(blocks),
                                   static_cast<int>(aligned)};
}
void forget() { plans.clear(); }

// The result where a plan for such operands is remembered, else an undefined tensor: the way of all calls but the
// first, whose whole cost on the host is one call. Contiguous z, no mask.
torch::Tensor known(torch::Tensor z, std::optional<torch::Tensor> bias, double scale, int64_t activation,
                    bool in_place) {
    const torch::Tensor none;
    if (plans.empty() || !z.is_cuda() || z.dim() < 1 || !z.is_contiguous()) return none;
    const int64_t N = z.size(z.dim() - 1), size = z.numel();
    const int type = type_of(z);
    if (type < 0 || size == 0) return none;
    uint64_t address = reinterpret_cast<uint64_t>(z.data_ptr()) | uint64_t(N) * z.element_size();
    if (bias) {
        if (bias->dim() != 1 || bias->size(0) != N || bias->scalar_type() != z.scalar_type() ||
            bias->device() != z.device() || !bias->is_contiguous())
            return none;
        address |= reinterpret_cast<uint64_t>(bias->data_ptr());
    }
    const bool plain = !bias && scale == 1.0 && activation == 0;
    const bool whole = (reinterpret_cast<uint64_t>(z.data_ptr()) & 15) == 0;
    const int64_t kind = (((type * 4 + activation) * 2 + plain) * 2 + ((address & 15) == 0)) * 2 + whole;
    const auto found = plans.find({z.device().index(), size / N, N, kind * 2 + in_place});
    if (found == plans.end()) return none;
    if (found->second.variant == TORCH) return (z.requires_grad() ? z.detach() : z).softmax(-1);
    if (z.dim() == 2) return run(z, bias, std::nullopt, scale, activation, found->second, in_place);
    return run(z.view({size / N, N}), bias, std::nullopt, scale, activation, found->second, in_place).view(z.sizes());
}
"""

WARP, BLOCK, ONLINE, STREAM, TORCH = range(5)
VARIANTS = ("warp", "block", "online", "stream", "torch")
DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
ROWS, WHOLE = 1, 2
ACTIVATIONS = {None: 0, "gelu": 1, "gelu_tanh": 2}


@dataclass(frozen=True)
class Plan:
    """Which kernel runs, and with how many threads and blocks a row."""

    variant: int
    """Index in ``VARIANTS``."""
    threads: int
    """Threads of a block."""
    blocks: int
    """Blocks of a cluster; 1 elsewhere."""
    aligned: int
    """Whether 16-byte loads and stores are used: ``ROWS``, as every row starts at a multiple of 16 bytes; ``WHOLE``,
    as z and y do and are contiguous (stream only); else 0, element by element."""

    def __str__(self) -> str:
        if self.variant == TORCH:
            return "torch: torch.softmax, which was measured to be faster here"
        width = ("one-element", "16-byte", "16-byte, shifted,")[self.aligned]
        shape = f"{self.threads} threads a block, {self.blocks} block{'s' if self.blocks > 1 else ''} a row"
        return f"{VARIANTS[self.variant]}: {shape}, {width} loads and stores"


LONGEST_ROWS = ((1024, WARP, 256, 1), (2048, BLOCK, 128, 1), (4096, BLOCK, 256, 1), (8192, BLOCK, 256, 1))
"""The longest row, and the variant, threads and blocks that take it, on any device. Figures: docs/gallery.md."""
LONGER_ROWS = ((16384, BLOCK, 512, 1), (32768, BLOCK, 1024, 1))
"""What follows without clusters; beyond it, online."""
LONGER_ROWS_HOPPER = (
    (16384, BLOCK, 512, 1),
    (32768, STREAM, 1024, 1),
    (65536, STREAM, 1024, 2),
    (131072, STREAM, 1024, 4),
    (262144, STREAM, 1024, 8),
)
"""What follows on Hopper."""
UNALIGNED_ROWS = ((1024, WARP, 256, 1), (8192, BLOCK, 256, 1), (32768, BLOCK, 1024, 1))
"""Rows that are read element by element; longer ones online, or by stream where it may."""
TUNED: dict[str, tuple[tuple[int, bool, int, int, str], ...]] = {}
"""Measured choices: for (part of) a device's name, rows of item size, with GELU, M, N and a key of ``recipes``."""


@functools.lru_cache(maxsize=4096)
def choose(
    M: int, N: int, itemsize: int, aligned: int, hopper: bool, gelu: bool = False, plain: bool = False, device: str = ""
) -> Plan:
    """The plan for M rows of N elements; ``aligned`` as in ``Plan``; ``plain``: no prologue at all.

    What was measured on ``device`` at the nearest shape, at most a factor of two away in all, goes before the rule.
    """
    known = recipes(M, N, itemsize, aligned, hopper, plain)
    row = measured(M, N, itemsize, gelu, device)
    return known.get(row[-1] if row else "rule", known["rule"])


def measured(M: int, N: int, itemsize: int, gelu: bool, device: str) -> tuple[int, bool, int, int, str] | None:
    """The row of ``TUNED`` that decides, or None."""
    rows = TUNED.get(device) or next((rows for name, rows in TUNED.items() if name and name in device), ())
    near = [
        (abs(math.log2(M / row[2])) * 0.5 + abs(math.log2(N / row[3])), row)  # blocks take rows as they come
        for row in rows
        if row[:2] == (itemsize, gelu)
    ]
    distance, row = min(near, default=(2.0, None))
    return row if distance <= 1 else None


def recipes(M: int, N: int, itemsize: int, aligned: int, hopper: bool, plain: bool) -> dict[str, Plan]:
    """Every plan that is worth measuring, by a name that means the same at another shape. "rule" is the rule's."""
    found = {"rule": _rule(N, aligned, hopper)}
    rows = aligned if aligned == ROWS else 0
    if N <= 1024:
        found["warp"] = Plan(WARP, 256, 1, rows)
    for threads in (64, 128, 256, 512, 1024) if rows else (256, 1024):
        if threads * 4 <= N <= threads * 32:
            found[f"block {threads}"] = Plan(BLOCK, threads, 1, rows)
    pieces = 16 // itemsize
    for threads in () if not hopper else (256, 512, 1024) if aligned == ROWS else (256, 1024) if aligned else ():
        for blocks in (1, 2, 4, 8):
            shift = pieces - 1 if aligned == WHOLE else 0
            width = -(-(N + shift) // (blocks * pieces)) * pieces
            if threads * 8 <= width <= threads * 32:
                found[f"stream {threads} {blocks}"] = Plan(STREAM, threads, blocks, aligned)
    if N >= 16384:
        found["online"] = Plan(ONLINE, 1024, 1, rows)
    if plain:
        found["torch"] = Plan(TORCH, 0, 1, rows)
    return found


def _rule(N: int, aligned: int, hopper: bool) -> Plan:
    """The plan where nothing near was measured. Figures behind it: docs/gallery.md."""
    ladder = LONGEST_ROWS + (LONGER_ROWS_HOPPER if hopper else LONGER_ROWS) if aligned == ROWS else UNALIGNED_ROWS
    if hopper and aligned == WHOLE and N > 2048:
        ladder = ((8184, STREAM, 256, 1), *((32760 * blocks, STREAM, 1024, blocks) for blocks in (1, 2, 4, 8)))
    for longest, variant, threads, blocks in ladder:
        if longest >= N:
            return Plan(variant, threads, blocks, aligned if variant == STREAM or aligned == ROWS else 0)
    return Plan(ONLINE, 1024, 1, aligned if aligned == ROWS else 0)


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
        name="gallery_softmax",
        cpp_sources=CPP_SOURCE,
        cuda_sources=CUDA_SOURCE,
        functions=["softmax", "known", "remember", "forget"],
        extra_cuda_cflags=["-O3", "-std=c++17", *hopper_flags()],
        no_implicit_headers=True,
    )


@functools.cache
def _device(index: int) -> tuple[bool, str]:
    """Whether Hopper's kernels were built for this device, and its name ("" where they should be and are not: what was
    measured with them does not hold)."""
    wanted = torch.cuda.get_device_capability(index) == (9, 0)
    hopper = wanted and bool(hopper_flags())
    return hopper, torch.cuda.get_device_name(index) if hopper == wanted else ""


def forget_plans() -> None:
    """Choose anew at the next call of each shape: needed after a change of ``TUNED``."""
    choose.cache_clear()
    if extension.cache_info().currsize:
        extension().forget()


def softmax(
    z: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    scale: float = 1.0,
    activation: str | None = None,
    in_place: bool = False,
    plan: Plan | None = None,
) -> torch.Tensor:
    """softmax(activation(z + bias) * scale + mask) over the last dimension; z [..., N], bias [N], mask [N] or of z's
    shape.

    ``activation``: None, "gelu" (erf) or "gelu_tanh"; ``in_place``: z, contiguous, receives the result. Raises
    ``RuntimeError`` for a wrong dtype, device or shape.
    """
    if activation not in ACTIVATIONS:
        raise RuntimeError(f"softmax: activation None, 'gelu' or 'gelu_tanh', got {activation!r}")
    number = ACTIVATIONS[activation]
    if plan is None and mask is None:
        y = extension().known(z, bias, scale, number, in_place)
        if y is not None:
            return y
    if z.dim() < 1 or not z.is_cuda:
        raise RuntimeError(f"softmax: z [..., N] on the GPU, got {tuple(z.shape)} on {z.device}")
    if z.dtype not in DTYPES:
        raise RuntimeError(f"softmax: float32, float16 or bfloat16, got {z.dtype}")
    N = z.shape[-1]
    if z.numel() == 0:
        return torch.empty_like(z)
    rows = z.reshape(-1, N)
    if rows.stride(1) != 1 and N > 1 and not in_place:
        rows = rows.contiguous()
    if bias is not None:
        if bias.shape != (N,) or bias.dtype != z.dtype or bias.device != z.device:
            raise RuntimeError(f"softmax: bias must be [{N}], {z.dtype}, on {z.device}")
        bias = bias.contiguous()
    if mask is not None:
        if mask.shape not in ((N,), z.shape) or mask.device != z.device:
            raise RuntimeError(f"softmax: mask must be [{N}] or {tuple(z.shape)}, on {z.device}")
        mask = (mask if mask.dtype in (torch.bool, z.dtype) else mask.to(z.dtype)).contiguous()
        mask = mask.reshape(-1, N) if mask.shape == z.shape and z.dim() > 1 else mask
    M, itemsize, index = rows.shape[0], z.element_size(), z.device.index or 0
    pointers = rows.data_ptr() | (rows.stride(0) * itemsize if M > 1 else 0) | N * itemsize
    for extra in (bias, mask):
        pointers |= 0 if extra is None or extra.dtype == torch.bool else extra.data_ptr()
    aligned = ROWS if pointers % 16 == 0 else WHOLE if rows.is_contiguous() and rows.data_ptr() % 16 == 0 else 0
    hopper, device = _device(index)
    plain = bias is None and mask is None and scale == 1.0 and activation is None
    chosen = plan or choose(M, N, itemsize, aligned, hopper, activation is not None, plain and not in_place, device)
    how = (chosen.variant, chosen.threads, chosen.blocks, chosen.aligned)
    if plan is None and mask is None and z.is_contiguous():
        whole = z.data_ptr() % 16 == 0
        kind = (((DTYPES[z.dtype] * 4 + number) * 2 + plain) * 2 + (aligned == ROWS)) * 2 + whole
        extension().remember(index, M, N, kind * 2 + in_place, *how)
    if chosen.variant == TORCH:
        return torch.softmax(z.detach(), -1)
    return extension().softmax(rows, bias, mask, scale, number, *how, in_place).reshape(z.shape)


def gelu_softmax(z: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(gelu(z + bias)) over the last dimension, with PyTorch's erf GELU."""
    return softmax(z, bias=bias, activation="gelu")


class ModelNew(nn.Module):
    """Replaces ``F.softmax(F.gelu(z + bias), dim=1)``."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        extension()

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return gelu_softmax(z, self.bias.detach())
