"""float32 linear layer on the fp16 tensor cores, more accurate than cuBLAS's float32 product and several times faster.

out = activation(x @ W.T + bias) * scale + residual, float32 in and out. The scheme:

  split     Each row of x and W is multiplied by a power of two that brings its largest magnitude into [2^14, 2^15),
            then every element v becomes hi = fp16(v), lo = fp16(v - hi): 22 bits. (Unscaled, nn.Linear's small
            weights would put lo into fp16's denormals.) Columns are padded with zeros to a multiple of 64.
  multiply  lo*hi + hi*lo + hi*hi on the tensor cores, three fp16 products. Hopper's accumulator truncates; that, not
            the split, would cost the accuracy. So every 64 columns start from zero and are added to float32
            registers with ordinary rounding.
  finish    The powers of two are undone exactly; bias, activation, scale and residual are applied in registers.

Kernels: `hopper` (wgmma, 128 x 128 or 128 x 32 tiles, a TMA ring, one producer and two consumer warpgroups, two
temporaries so that additions overlap the next product) and `portable` (mma.sync m16n8k16, sm_80 and newer, plain
loads, 40 KB of static shared memory). With few tiles the columns are divided among blocks, whose partial results a
second kernel adds in a fixed order. Deterministic.

Rows that the scheme does not fit are found on the device while splitting and recomputed in plain float32 by a last
kernel that otherwise returns at once: rows with Inf or NaN (their hi/lo split would be NaN), rows whose largest
magnitude lies outside 2^-60..2^60, and rows whose largest magnitude exceeds 2^14 times the mean magnitude of their
non-zero elements. Such rows are slow (a warp an output), never wrong. Within a row, elements below 2^-15 of the
largest keep an absolute precision of 2^-39 of the largest: the error is as small as float32's relative to max|x_m| *
sum|w_n|, not relative to each product (graded matrices whose small elements meet the other side's large ones lose
bits; multiply those in float32).

Weights are split once: the planes are kept while the weight is the same tensor with the same `_version`, storage,
shape and strides, and the storage is held, so that its address cannot be reused meanwhile. An in-place operation,
`load_state_dict`, `.to()`, an optimiser step or a new `.data` changes one of these. During a CUDA-graph capture and
for inference tensors (no `_version`) the split is part of each call. What PyTorch itself does not count cannot be
seen: writes through `weight.data` and by raw pointers; after those, call `forget(weight)`. Planes take as much
memory as the weight.

Limits: float32; x [..., K], W [N, K], contiguous last dimension (others are copied); M, N, K up to 2^31 - 1. Forward
only. Measured: docs/gallery.md.
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
// ---- begin linear: shared with linear_gelu_softmax.py
// --------------------------------------------------------------------
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace linear {

constexpr int BLOCK_K = 64;  // columns summed inside the tensor core before they are added to float32 registers

// ---- split: a row -> scaled fp16 planes hi and lo, and the factor that undoes the scaling (negative: the scheme
// does not fit) ---
__device__ __forceinline__ void split_four(float4 v, float scale, uint2& hi, uint2& lo) {
    const __half2 h0 = __floats2half2_rn(v.x * scale, v.y * scale), h1 = __floats2half2_rn(v.z * scale, v.w * scale);
    const float2 f0 = __half22float2(h0), f1 = __half22float2(h1);
    const __half2 l0 = __floats2half2_rn(v.x * scale - f0.x, v.y * scale - f0.y),
                  l1 = __floats2half2_rn(v.z * scale - f1.x, v.w * scale - f1.y);
    hi = make_uint2(*reinterpret_cast<const uint32_t*>(&h0), *reinterpret_cast<const uint32_t*>(&h1));
    lo = make_uint2(*reinterpret_cast<const uint32_t*>(&l0), *reinterpret_cast<const uint32_t*>(&l1));
}
template <bool ALIGNED>
__device__ __forceinline__ float4 four(const float* row, int column, int K) {
    if (ALIGNED && column + 4 <= K) return *reinterpret_cast<const float4*>(row + column);
    return make_float4(column < K ? row[column] : 0.f, column + 1 < K ? row[column + 1] : 0.f,
                       column + 2 < K ? row[column + 2] : 0.f, column + 3 < K ? row[column + 3] : 0.f);
}

template <bool ALIGNED>
__global__ void __launch_bounds__(256)
    split_kernel(const float* __restrict__ source, int64_t stride, int K, int padded, __half* __restrict__ hi,
                 __half* __restrict__ lo, float* __restrict__ undo, int* __restrict__ misfits) {
    constexpr int HELD = 8;  // float4 a thread keeps: rows of up to 8192 columns are read once
    __shared__ float highest_of[8], sum_of[8];
    __shared__ int count_of[8];
    const float* row = source + blockIdx.x * stride;
    float4 held[HELD];
    float highest = 0.f, sum = 0.f;
    int count = 0;
    auto look = [&](float4 v) {
        highest = fmaxf(fmaxf(highest, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
        sum += (fabsf(v.x) + fabsf(v.y)) + (fabsf(v.z) + fabsf(v.w));  // NaN if any element is
        count += (v.x != 0.f) + (v.y != 0.f) + (v.z != 0.f) + (v.w != 0.f);
    };
#pragma unroll
    for (int i = 0; i < HELD; ++i) held[i] = four<ALIGNED>(row, (threadIdx.x + i * 256) * 4, K);
#pragma unroll
    for (int i = 0; i < HELD; ++i) look(held[i]);
    for (int64_t column = (threadIdx.x + HELD * 256) * 4; column < K; column += 1024)
        look(four<ALIGNED>(row, int(column), K));
    for (int offset = 16; offset > 0; offset >>= 1) {
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, offset));
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        count += __shfl_xor_sync(0xffffffffu, count, offset);
    }
    if (threadIdx.x % 32 == 0)
        highest_of[threadIdx.x / 32] = highest, sum_of[threadIdx.x / 32] = sum, count_of[threadIdx.x / 32] = count;
    __syncthreads();
    highest = 0.f, sum = 0.f, count = 0;
    for (int w = 0; w < 8; ++w) highest = fmaxf(highest, highest_of[w]), sum += sum_of[w], count += count_of[w];

    const int exponent = static_cast<int>(__float_as_uint(highest) >> 23) - 127;
    const bool zero = count == 0;
    // Written so that NaN fails: Inf makes the exponent 128, NaN makes the sum NaN.
    const bool fits = zero || (exponent >= -60 && exponent <= 60 && highest * (count * 0x1p-14f) <= sum);
    const float scale = zero ? 1.f : fits ? __uint_as_float(static_cast<uint32_t>(14 - exponent + 127) << 23) : 0.f;
    if (threadIdx.x == 0) {
        undo[blockIdx.x] = zero   ? 1.f
                           : fits ? __uint_as_float(static_cast<uint32_t>(exponent - 14 + 127) << 23)
                                  : -1.f;
        if (!fits && misfits) misfits[1 + atomicAdd(misfits, 1)] = blockIdx.x;
    }
    uint2* h = reinterpret_cast<uint2*>(hi + int64_t(blockIdx.x) * padded);
    uint2* l = reinterpret_cast<uint2*>(lo + int64_t(blockIdx.x) * padded);
    auto put = [&](int piece, float4 v) {
        if (piece * 4 >= padded) return;
        uint2 a = make_uint2(0, 0), b = a;
        if (fits) split_four(v, scale, a, b);
        h[piece] = a, l[piece] = b;
    };
#pragma unroll
    for (int i = 0; i < HELD; ++i) put(threadIdx.x + i * 256, held[i]);
    for (int piece = threadIdx.x + HELD * 256; piece * 4 < padded; piece += 256)
        put(piece, four<ALIGNED>(row, piece * 4, K));
}

// ---- finish
// --------------------------------------------------------------------------------------------------------------
enum Activation { NONE, GELU_ERF, GELU_TANH, RELU, SILU };
struct Epilogue {
    const float *bias, *residual;  // null: left out
    int64_t residual_stride;
    float scale;
    int activation;
};
template <int ACTIVATION>
__device__ __forceinline__ float activate(float v) {
    if (ACTIVATION == GELU_ERF) return v * 0.5f * (1.f + erff(v * 0.70710678118654752f));
    if (ACTIVATION == GELU_TANH) return 0.5f * v * (1.f + tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v)));
    if (ACTIVATION == RELU) return v < 0.f ? 0.f : v;  // NaN stays
    if (ACTIVATION == SILU) return v / (1.f + expf(-v));
    return v;
}
template <int ACTIVATION>
__device__ __forceinline__ float finish_as(const Epilogue& e, float v, int64_t m, int n) {
    v = activate<ACTIVATION>(v) * e.scale;
    return e.residual ? v + e.residual[m * e.residual_stride + n] : v;
}
__device__ __noinline__ float finish_any(const Epilogue& e, float v, int64_t m, int n) {  // v with bias
    switch (e.activation) {
        case GELU_ERF:
            return finish_as<GELU_ERF>(e, v, m, n);
        case GELU_TANH:
            return finish_as<GELU_TANH>(e, v, m, n);
        case RELU:
            return finish_as<RELU>(e, v, m, n);
        case SILU:
            return finish_as<SILU>(e, v, m, n);
        default:
            return finish_as<NONE>(e, v, m, n);
    }
}

struct Product {
    const float *undo_x, *undo_w;
    float* out;      // [M][N]
    float* partial;  // [splits][M][N], or null
    int M, N, padded, splits;
    Epilogue epilogue;
    __device__ __forceinline__ float bias(int n) const { return epilogue.bias ? __ldg(epilogue.bias + n) : 0.f; }
    __device__ __forceinline__ float* target(int split) const {
        return partial ? partial + split * (int64_t(M) * N) : out;
    }
    // A thread's sums become results in place; at(i, m, n) tells the i-th's row and column, undo(i) and bias_of(i)
    // what belongs to them. Loop by loop and without branches inside: one element's erff alone would leave the
    // pipelines idle.
    template <int ACTIVATION, int COUNT, typename At, typename Undo, typename Bias>
    __device__ __forceinline__ void finish(float (&sum)[COUNT], At at, Undo undo, Bias bias_of) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) sum[i] *= undo(i);  // a power of two: exact
        if (partial) return;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) sum[i] = activate<ACTIVATION>(sum[i] + bias_of(i)) * epilogue.scale;
        if (!epilogue.residual) return;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            int m, n;
            at(i, m, n);
            sum[i] += epilogue.residual[min(m, M - 1) * epilogue.residual_stride + min(n, N - 1)];
        }
    }
};

__global__ void __launch_bounds__(256) reduce_kernel(const Product p) {
    const int64_t at = blockIdx.x * int64_t(256) + threadIdx.x, size = int64_t(p.M) * p.N;
    if (at >= size) return;
    const int n = static_cast<int>(at % p.N);
    float v = 0.f;
    for (int s = 0; s < p.splits; ++s) v += p.partial[s * size + at];
    p.out[at] = finish_any(p.epilogue, v + p.bias(n), at / p.N, n);
}

// Outputs of rows that the scheme does not fit, in plain float32: a warp an output. Without such rows it returns at
// once.
__global__ void __launch_bounds__(256)
    misfit_kernel(const Product p, const float* __restrict__ x, int64_t x_stride, const float* __restrict__ w,
                  int64_t w_stride, int K, const int* __restrict__ misfits) {
    const int count = misfits[0];
    for (int64_t first = blockIdx.x; first < p.M; first += int64_t(gridDim.x) * 256) {
        const int64_t mine = first + int64_t(threadIdx.x) * gridDim.x;
        if (!__syncthreads_or(mine < p.M && p.undo_x[mine] < 0.f) && count == 0) continue;
        for (int i = 0; i < 256; ++i) {
            const int64_t m = first + int64_t(i) * gridDim.x;
            if (m >= p.M) break;
            const bool whole = p.undo_x[m] < 0.f;
            const int wanted = whole ? p.N : count;
            for (int j = blockIdx.y * 8 + threadIdx.x / 32; j < wanted; j += gridDim.y * 8) {
                const int n = whole ? j : misfits[1 + j];
                const float *a = x + m * x_stride, *b = w + n * w_stride;
                float sum[4] = {};
                int64_t k = threadIdx.x % 32;
                for (; k + 96 < K; k += 128)
#pragma unroll
                    for (int u = 0; u < 4; ++u) sum[u] = fmaf(a[k + 32 * u], b[k + 32 * u], sum[u]);
                for (; k < K; k += 32) sum[0] = fmaf(a[k], b[k], sum[0]);
                float v = (sum[0] + sum[1]) + (sum[2] + sum[3]);
                for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
                if (threadIdx.x % 32 == 0) p.out[m * p.N + n] = finish_any(p.epilogue, v + p.bias(n), m, n);
            }
        }
    }
}

// Tiles in groups of 8 rows of tiles, so that the blocks that run together share both operands in L2.
__device__ __forceinline__ void tile_of(int t, int tiles_m, int tiles_n, int& tm, int& tn) {
    const int group = t / (8 * tiles_n), height = min(8, tiles_m - group * 8), within = t - group * 8 * tiles_n;
    tm = group * 8 + within % height, tn = within / height;
}

// ---- portable: 128 x 128 tiles, eight warps of 64 x 32, mma.sync m16n8k16
// ---------------------------------------------------
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int ACTIVATION>
__global__ void __launch_bounds__(256, 1)
    portable_kernel(const __half* __restrict__ x_hi, const __half* __restrict__ x_lo, const __half* __restrict__ w_hi,
                    const __half* __restrict__ w_lo, const Product p) {
    constexpr int STEP = 32,
                  WORDS = 20;  // 32 columns a stage; rows of 16 + 4 words: fragments are read without bank conflicts
    __shared__ __align__(16) uint32_t shared[4][128][WORDS];  // x hi, x lo, W hi, W lo
    const int tiles_m = (p.M + 127) / 128, tiles_n = (p.N + 127) / 128;
    const int split = blockIdx.x % p.splits;
    int tm, tn;
    tile_of(blockIdx.x / p.splits, tiles_m, tiles_n, tm, tn);
    const int m0 = tm * 128, n0 = tn * 128;
    const int blocks = p.padded / BLOCK_K;
    const int begin = int(int64_t(blocks) * split / p.splits) * BLOCK_K,
              end = int(int64_t(blocks) * (split + 1) / p.splits) * BLOCK_K;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int wm = warp % 2 * 64, wn = warp / 2 * 32;

    uint4 next[8];  // this thread's two 16-byte pieces of each plane's next stage
    auto fetch = [&](int k) {
#pragma unroll
        for (int q = 0; q < 8; ++q) {
            const int plane = q / 2, piece = q % 2 * 256 + threadIdx.x, r = piece / 4;
            const int64_t row = plane < 2 ? m0 + r : n0 + r;
            const __half* from = plane == 0 ? x_hi : plane == 1 ? x_lo : plane == 2 ? w_hi : w_lo;
            next[q] = row < (plane < 2 ? p.M : p.N)
                          ? *reinterpret_cast<const uint4*>(from + row * p.padded + k + piece % 4 * 8)
                          : make_uint4(0, 0, 0, 0);
        }
    };
    float sum[64] = {}, part[4][4][4];  // sum: [4][4][4], flat
    if (begin < end) fetch(begin);
    for (int k = begin; k < end; k += STEP) {
        __syncthreads();
#pragma unroll
        for (int q = 0; q < 8; ++q) {
            const int piece = q % 2 * 256 + threadIdx.x;
            *reinterpret_cast<uint4*>(&shared[q / 2][piece / 4][piece % 4 * 4]) = next[q];
        }
        __syncthreads();
        if (k + STEP < end) fetch(k + STEP);
        if (k % BLOCK_K == 0)
#pragma unroll
            for (int i = 0; i < 64; ++i) part[i / 16][i / 4 % 4][i % 4] = 0.f;
#pragma unroll
        for (int kk = 0; kk < STEP / 2; kk += 8) {  // words: 16 columns
            uint32_t a[2][4][4], b[2][4][2];
#pragma unroll
            for (int plane = 0; plane < 2; ++plane) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const uint32_t* q = &shared[plane][wm + i * 16 + g][kk + c];
                    a[plane][i][0] = q[0], a[plane][i][1] = q[8 * WORDS], a[plane][i][2] = q[4],
                    a[plane][i][3] = q[8 * WORDS + 4];
                    const uint32_t* r = &shared[2 + plane][wn + i * 8 + g][kk + c];
                    b[plane][i][0] = r[0], b[plane][i][1] = r[4];
                }
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    mma(part[i][j], a[1][i], b[0][j]);  // the small products first
                    mma(part[i][j], a[0][i], b[1][j]);
                    mma(part[i][j], a[0][i], b[0][j]);
                }
        }
        if (k % BLOCK_K != 0)
#pragma unroll
            for (int i = 0; i < 64; ++i) sum[i] += part[i / 16][i / 4 % 4][i % 4];
    }
    float undo_m[8], undo_n[8], bias_n[8];  // all loaded before the first result is stored
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int n = min(n0 + wn + i / 2 * 8 + c * 2 + i % 2, p.N - 1);
        undo_m[i] = __ldg(p.undo_x + min(m0 + wm + i * 8 + g, p.M - 1)), undo_n[i] = __ldg(p.undo_w + n),
        bias_n[i] = p.bias(n);
    }
    auto at = [&](int i, int& m, int& n) {
        m = m0 + wm + i / 16 * 16 + g + i / 2 % 2 * 8, n = n0 + wn + i / 4 % 4 * 8 + c * 2 + i % 2;
    };
    p.finish<ACTIVATION>(
        sum, at, [&](int i) { return undo_m[i / 16 * 2 + i / 2 % 2] * undo_n[i / 4 % 4 * 2 + i % 2]; },
        [&](int i) { return bias_n[i / 4 % 4 * 2 + i % 2]; });
    float* to = p.target(split);
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        int m, n;
        at(i, m, n);
        if (m < p.M && n < p.N) to[int64_t(m) * p.N + n] = sum[i];
    }
}

// ---- Hopper: wgmma; its rows are W's, its columns x's
// -------------------------------------------------------------------------
#ifdef GALLERY_HOPPER
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
__device__ __forceinline__ void tile_copy(uint32_t to, const CUtensorMap* map, int column, int row, uint64_t* b) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(to),
        "l"(map), "r"(column), "r"(row), "r"(shared_address(b))
        : "memory");
}
// A tile of rows of 64 halves in shared memory, 128-byte swizzled, as the tensor core addresses it.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address) {
    return static_cast<uint64_t>((address & 0x3ffff) >> 4) | (uint64_t(1) << 16) | (uint64_t(1024 >> 4) << 32) |
           (uint64_t(1) << 62);
}
#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
// d (64 x 128 or 64 x 32, a warpgroup's registers) = a (64 x 16) * b^T (16 x n), added to d unless `add` is 0
__device__ __forceinline__ void wgmma(float (&d)[64], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%"
        "29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,"
        "%59,%60,%61,%62,%63},"
        " %64, %65, p, 1, 1, 0, 0;\n}\n"
        : D16(0), D16(16), D16(32), D16(48)
        : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ void wgmma(float (&d)[16], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, 0;\n}\n"
        : D16(0)
        : "l"(a), "l"(b), "r"(add));
}
template <int N>
__device__ __forceinline__ void pin(float (&d)[N]) {  // the compiler must not move accesses to d across
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int GROUPS>
struct Running {
    static constexpr int value = GROUPS;
};
template <int WIDTH>
struct Ring {
    static constexpr int W_PLANE = 128 * BLOCK_K * 2, X_PLANE = WIDTH * BLOCK_K * 2, STAGE = 2 * (W_PLANE + X_PLANE);
    static constexpr int STAGES = WIDTH == 128 ? 3 : 5, BYTES = STAGES * STAGE + 1024;
};

template <int WIDTH, int ACTIVATION>
__global__ void __launch_bounds__(384, 1)
    hopper_kernel(const __grid_constant__ CUtensorMap w_hi, const __grid_constant__ CUtensorMap w_lo,
                  const __grid_constant__ CUtensorMap x_hi, const __grid_constant__ CUtensorMap x_lo,
                  const Product p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using R = Ring<WIDTH>;
    constexpr int REGISTERS = WIDTH / 2;
    extern __shared__ unsigned char raw[];
    __shared__ __align__(8) uint64_t full[R::STAGES], empty[R::STAGES];
    const uint32_t stages = (shared_address(raw) + 1023) & ~1023u;  // the swizzle pattern repeats every 1024 bytes
    if (threadIdx.x == 0) {
        for (int s = 0; s < R::STAGES; ++s) barrier_init(full + s, 1), barrier_init(empty + s, 8);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int tiles_m = (p.M + WIDTH - 1) / WIDTH, tiles_n = (p.N + 127) / 128, items = tiles_m * tiles_n * p.splits;
    const int blocks = p.padded / BLOCK_K;
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    int stage = 0;
    uint32_t parity = 0;
    auto advance = [&] {
        if (++stage == R::STAGES) stage = 0, parity ^= 1;
    };

    if (group == 0) {  // the producer: one thread
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != 0) return;
        for (int item = blockIdx.x; item < items; item += gridDim.x) {
            int tm, tn;
            tile_of(item / p.splits, tiles_m, tiles_n, tm, tn);
            const int split = item % p.splits;
            const int first = int(int64_t(blocks) * split / p.splits),
                      last = int(int64_t(blocks) * (split + 1) / p.splits);
            for (int b = first; b < last; ++b) {
                barrier_wait(empty + stage, parity ^ 1);
                barrier_expect(full + stage, R::STAGE);
                const uint32_t to = stages + stage * R::STAGE;
                tile_copy(to, &w_hi, b * BLOCK_K, tn * 128, full + stage);
                tile_copy(to + R::W_PLANE, &w_lo, b * BLOCK_K, tn * 128, full + stage);
                tile_copy(to + 2 * R::W_PLANE, &x_hi, b * BLOCK_K, tm * WIDTH, full + stage);
                tile_copy(to + 2 * R::W_PLANE + R::X_PLANE, &x_lo, b * BLOCK_K, tm * WIDTH, full + stage);
                advance();
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int wrow = (group - 1) * 64, lane = threadIdx.x % 32;
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        int tm, tn;
        tile_of(item / p.splits, tiles_m, tiles_n, tm, tn);
        const int split = item % p.splits;
        const int first = int(int64_t(blocks) * split / p.splits),
                  last = int(int64_t(blocks) * (split + 1) / p.splits);
        float sum[REGISTERS], even[REGISTERS], odd[REGISTERS];
#pragma unroll
        for (int i = 0; i < REGISTERS; ++i) sum[i] = 0.f;
        // The stage before the current one, whose products are still running.
        auto issue = [&](float (&d)[REGISTERS]) {  // one stage's three products, into d
            barrier_wait(full + stage, parity);
            const uint32_t at = stages + stage * R::STAGE;
            const uint64_t wh = tile_descriptor(at + wrow * BLOCK_K * 2),
                           wl = tile_descriptor(at + R::W_PLANE + wrow * BLOCK_K * 2);
            const uint64_t xh = tile_descriptor(at + 2 * R::W_PLANE),
                           xl = tile_descriptor(at + 2 * R::W_PLANE + R::X_PLANE);
            pin(d);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < BLOCK_K / 16; ++k) wgmma(d, wl + k * 2, xh + k * 2, k > 0);
#pragma unroll
            for (int k = 0; k < BLOCK_K / 16; ++k) wgmma(d, wh + k * 2, xl + k * 2, 1);
#pragma unroll
            for (int k = 0; k < BLOCK_K / 16; ++k) wgmma(d, wh + k * 2, xh + k * 2, 1);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        };
        auto collect = [&](float (&d)[REGISTERS]) {  // d's products are done: free their stage, add them
            pin(d);
            if (lane == 0) barrier_arrive(empty + (stage == 0 ? R::STAGES - 1 : stage - 1));
#pragma unroll
            for (int i = 0; i < REGISTERS; ++i) sum[i] += d[i];
        };
        auto wait = [&](auto running) {
            asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(decltype(running)::value) : "memory");
        };
        issue(even), advance();
        int b = first + 1;
        for (; b + 1 < last; b += 2) {  // one stage's products run while another's are added
            issue(odd), wait(Running<1>()), collect(even), advance();
            issue(even), wait(Running<1>()), collect(odd), advance();
        }
        if (b < last) {
            issue(odd), wait(Running<1>()), collect(even), advance();
            wait(Running<0>()), collect(odd);
        } else {
            wait(Running<0>()), collect(even);
        }

        const int row = tn * 128 + wrow + threadIdx.x / 32 % 4 * 16 + lane / 4, left = tm * WIDTH + lane % 4 * 2;
        float undo_m[REGISTERS / 2], undo_n[2], bias_n[2];  // all loaded before the first result is stored
#pragma unroll
        for (int i = 0; i < 2; ++i)
            undo_n[i] = __ldg(p.undo_w + min(row + i * 8, p.N - 1)), bias_n[i] = p.bias(min(row + i * 8, p.N - 1));
#pragma unroll
        for (int i = 0; i < REGISTERS / 2; ++i) undo_m[i] = __ldg(p.undo_x + min(left + i / 2 * 8 + i % 2, p.M - 1));
        auto where = [&](int i, int& m, int& n) { n = row + i / 2 % 2 * 8, m = left + i / 4 * 8 + i % 2; };
        p.finish<ACTIVATION>(
            sum, where, [&](int i) { return undo_m[i / 4 * 2 + i % 2] * undo_n[i / 2 % 2]; },
            [&](int i) { return bias_n[i / 2 % 2]; });
        float* to = p.target(split);
#pragma unroll
        for (int i = 0; i < REGISTERS; ++i) {
            int m, n;
            where(i, m, n);
            if (m < p.M && n < p.N) to[int64_t(m) * p.N + n] = sum[i];
        }
    }
#endif
}

inline CUresult tile_map(CUtensorMap* map, const void* planes, int64_t rows, int padded, int box_rows) {
    using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    static const Encode encode = [] {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
        return reinterpret_cast<Encode>(found);
    }();
    if (!encode) return CUDA_ERROR_NOT_SUPPORTED;
    const cuuint64_t size[2] = {cuuint64_t(padded), cuuint64_t(rows)}, stride[1] = {cuuint64_t(padded) * 2};
    const cuuint32_t box[2] = {BLOCK_K, cuuint32_t(box_rows)}, step[2] = {1, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<void*>(planes), size, stride, box, step,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
#endif

// ---- host
// ---------------------------------------------------------------------------------------------------------------------
inline cudaError_t split(const float* source, int64_t stride, int rows, int K, int padded, void* hi, void* lo,
                         float* undo, int* misfits, cudaStream_t stream) {
    const bool aligned = reinterpret_cast<uintptr_t>(source) % 16 == 0 && (rows == 1 || stride % 4 == 0);
    if (misfits)
        if (cudaError_t e = cudaMemsetAsync(misfits, 0, sizeof(int), stream)) return e;
    auto kernel = aligned ? split_kernel<true> : split_kernel<false>;
    kernel<<<rows, 256, 0, stream>>>(source, stride, K, padded, static_cast<__half*>(hi), static_cast<__half*>(lo),
                                     undo, misfits);
    return cudaGetLastError();
}

struct Planes {
    const void *x_hi, *x_lo, *w_hi, *w_lo;
};

template <int ACTIVATION>
cudaError_t multiply_as(int width, const Planes& planes, const Product& p, int sms, cudaStream_t stream) {
    const int rows = width ? width : 128;
    const int items = (p.M + rows - 1) / rows * ((p.N + 127) / 128) * p.splits;
    if (width == 0) {
        portable_kernel<ACTIVATION><<<items, 256, 0, stream>>>(
            static_cast<const __half*>(planes.x_hi), static_cast<const __half*>(planes.x_lo),
            static_cast<const __half*>(planes.w_hi), static_cast<const __half*>(planes.w_lo), p);
        return cudaGetLastError();
    }
#ifdef GALLERY_HOPPER
    CUtensorMap w_hi, w_lo, x_hi, x_lo;
    if (tile_map(&w_hi, planes.w_hi, p.N, p.padded, 128) || tile_map(&w_lo, planes.w_lo, p.N, p.padded, 128) ||
        tile_map(&x_hi, planes.x_hi, p.M, p.padded, width) || tile_map(&x_lo, planes.x_lo, p.M, p.padded, width))
        return cudaErrorNotSupported;
    auto kernel = width == 128 ? hopper_kernel<128, ACTIVATION> : hopper_kernel<32, ACTIVATION>;
    const int bytes = width == 128 ? Ring<128>::BYTES : Ring<32>::BYTES;
    if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return e;
    const int grid = items < sms ? items : sms;
    kernel<<<grid, 384, bytes, stream>>>(w_hi, w_lo, x_hi, x_lo, p);
    return cudaGetLastError();
#else
    return cudaErrorInvalidDeviceFunction;
#endif
}

// width: x rows of a Hopper tile (128 or 32), 0 for the portable kernel. Runs everything after the split.
inline cudaError_t multiply(int width, const Planes& planes, const Product& p, const float* x, int64_t x_stride,
                            const float* w, int64_t w_stride, int K, const int* misfits, int sms,
                            cudaStream_t stream) {
    cudaError_t e = cudaSuccess;
    switch (p.epilogue.activation) {
        case GELU_ERF:
            e = multiply_as<GELU_ERF>(width, planes, p, sms, stream);
            break;
#ifndef GALLERY_ERF_ONLY
        case GELU_TANH:
            e = multiply_as<GELU_TANH>(width, planes, p, sms, stream);
            break;
        case RELU:
            e = multiply_as<RELU>(width, planes, p, sms, stream);
            break;
        case SILU:
            e = multiply_as<SILU>(width, planes, p, sms, stream);
            break;
#endif
        default:
            e = multiply_as<NONE>(width, planes, p, sms, stream);
    }
    if (e) return e;
    if (p.partial) reduce_kernel<<<static_cast<unsigned>((int64_t(p.M) * p.N + 255) / 256), 256, 0, stream>>>(p);
    misfit_kernel<<<dim3(p.M < 256 ? p.M : 256, 8), 256, 0, stream>>>(p, x, x_stride, w, w_stride, K, misfits);
    return cudaGetLastError();
}
}  // namespace linear
// ---- end linear
// -----------------------------------------------------------------------------------------------------------------

extern "C" int linear_split(const float* source, int64_t stride, int rows, int K, int padded, void* hi, void* lo,
                            float* undo, int* misfits, void* stream) {
    return linear::split(source, stride, rows, K, padded, hi, lo, undo, misfits, static_cast<cudaStream_t>(stream));
}
extern "C" int linear_multiply(int width, int splits, int sms, int M, int N, int K, int padded, const float* x,
                               int64_t x_stride, const void* x_hi, const void* x_lo, const float* undo_x,
                               const float* w, int64_t w_stride, const void* w_hi, const void* w_lo,
                               const float* undo_w, const int* misfits, const float* bias, const float* residual,
                               int64_t residual_stride, float scale, int activation, float* partial, float* out,
                               void* stream) {
    const linear::Product p{undo_x,
                            undo_w,
                            out,
                            splits > 1 ? partial : nullptr,
                            M,
                            N,
                            padded,
                            splits,
                            {bias, residual, residual_stride, scale, activation}};
    return linear::multiply(width, {x_hi, x_lo, w_hi, w_lo}, p, x, x_stride, w, w_stride, K, misfits, sms,
                            static_cast<cudaStream_t>(stream));
}
"""

# The wrapper is C++ of its own, so that nvcc never parses torch's headers: that is most of a usual build.
CPP_SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

extern "C" int linear_split(const float* source, int64_t stride, int rows, int K, int padded, void* hi, void* lo,
                            float* undo, int* misfits, void* stream);
extern "C" int linear_multiply(int width, int splits, int sms, int M, int N, int K, int padded, const float* x,
                               int64_t x_stride, const void* x_hi, const void* x_lo, const float* undo_x,
                               const float* w, int64_t w_stride, const void* w_hi, const void* w_lo,
                               const float* undo_w, const int* misfits, const float* bias, const float* residual,
                               int64_t residual_stride, float scale, int activation, float* partial, float* out,
                               void* stream);

static void check_matrix(const torch::Tensor& t, const char* name) {
    TORCH_CHECK(t.is_cuda(), "linear: ", name, " must be on the GPU");
    TORCH_CHECK(t.scalar_type() == torch::kFloat32, "linear: ", name, " must be float32");
    TORCH_CHECK(t.dim() == 2 && (t.stride(1) == 1 || t.size(1) == 1), "linear: ", name,
                " must be a matrix with contiguous rows");
}

// planes [2, rows, K rounded up to 64] of fp16, undo [rows], and for a weight misfits [1 + rows]: their number, then
// the rows.
void split(torch::Tensor source, torch::Tensor planes, torch::Tensor undo, torch::Tensor misfits) {
    check_matrix(source, "the operand");
    const c10::cuda::CUDAGuard guard(source.device());
    char* data = static_cast<char*>(planes.data_ptr());
    const int error = linear_split(source.data_ptr<float>(), source.stride(0), static_cast<int>(source.size(0)),
                                   static_cast<int>(source.size(1)), static_cast<int>(planes.size(2)), data,
                                   data + planes.size(1) * planes.size(2) * 2, undo.data_ptr<float>(),
                                   misfits.numel() > 0 ? misfits.data_ptr<int>() : nullptr,
                                   c10::cuda::getCurrentCUDAStream().stream());
    C10_CUDA_CHECK(static_cast<cudaError_t>(error));
}

// bias and residual may be empty tensors: then the step is left out.
torch::Tensor multiply(torch::Tensor x, torch::Tensor x_planes, torch::Tensor x_undo, torch::Tensor w,
                       torch::Tensor w_planes, torch::Tensor w_undo, torch::Tensor misfits, torch::Tensor bias,
                       torch::Tensor residual, double scale, int64_t activation, int64_t width, int64_t splits,
                       int64_t sms) {
    check_matrix(x, "x");
    check_matrix(w, "the weight");
    TORCH_CHECK(x.size(1) == w.size(1), "linear: x has ", x.size(1), " columns, the weight ", w.size(1));
    const c10::cuda::CUDAGuard guard(x.device());
    const int64_t M = x.size(0), N = w.size(0), padded = x_planes.size(2);
    auto out = torch::empty({M, N}, x.options());
    torch::Tensor partial;
    if (splits > 1) partial = torch::empty({splits, M, N}, x.options());
    const char *x_data = static_cast<const char*>(x_planes.data_ptr()),
               *w_data = static_cast<const char*>(w_planes.data_ptr());
    const int error = linear_multiply(
        static_cast<int>(width), static_cast<int>(splits), static_cast<int>(sms), static_cast<int>(M),
        static_cast<int>(N), static_cast<int>(x.size(1)), static_cast<int>(padded), x.data_ptr<float>(), x.stride(0),
        x_data, x_data + M * padded * 2, x_undo.data_ptr<float>(), w.data_ptr<float>(), w.stride(0), w_data,
        w_data + N * padded * 2, w_undo.data_ptr<float>(), misfits.data_ptr<int>(),
        bias.numel() > 0 ? bias.data_ptr<float>() : nullptr,
        residual.numel() > 0 ? residual.data_ptr<float>() : nullptr, residual.numel() > 0 ? residual.stride(0) : 0,
        static_cast<float>(scale), static_cast<int>(activation), splits > 1 ? partial.data_ptr<float>() : nullptr,
        out.data_ptr<float>(), c10::cuda::getCurrentCUDAStream().stream());
    C10_CUDA_CHECK(static_cast<cudaError_t>(error));
    return out;
}
"""

ACTIVATIONS = {None: 0, "gelu": 1, "gelu_tanh": 2, "relu": 3, "silu": 4}
BLOCK_K = 64


@dataclass(frozen=True)
class Plan:
    """Which kernel runs, and among how many blocks the columns are divided."""

    width: int
    """Rows of x in a Hopper tile, 128 or 32; 0 for the portable kernel."""
    splits: int
    """Parts of K; above 1 a second kernel adds the partial results."""

    def __str__(self) -> str:
        kernel = f"hopper: wgmma, 128 x {self.width} tiles" if self.width else "portable: mma.sync, 128 x 128 tiles"
        return f"{kernel}, K in {self.splits} part{'s' if self.splits > 1 else ''}"


@functools.lru_cache(maxsize=4096)
def choose(M: int, N: int, K: int, sms: int, hopper: bool) -> Plan:
    """The plan for x [M, K] @ W [N, K].T: the fewest steps of 64 columns on the busiest multiprocessor.

    A second kernel that adds partial results costs about as much as four steps and their traffic. Figures:
    docs/gallery.md.
    """
    width = 0 if not hopper else 32 if M <= 32 else 128
    tiles = -(-M // (width or 128)) * -(-N // 128)
    steps = -(-K // BLOCK_K)
    best = (float(-(-tiles // sms) * steps), 1)
    for splits in range(2, min(steps // 4, 64) + 1):
        traffic = 1.5e-6 * splits * M * N * 8 / 4  # in steps of about 1.1 us, at 4 TB/s
        cost = -(-tiles * splits // sms) * -(-steps // splits) + 4 + traffic
        if cost < best[0]:
            best = (cost, splits)
    return Plan(width, best[1])


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
    return ["-DGALLERY_HOPPER", "-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_80,code=compute_80"]


@functools.cache
def extension() -> Any:
    """The compiled module, built on first use."""
    return load_inline(
        name="gallery_linear",
        cpp_sources=CPP_SOURCE,
        cuda_sources=CUDA_SOURCE,
        functions=["split", "multiply"],
        extra_cuda_cflags=["-O3", "-std=c++17", *hopper_flags()],
        no_implicit_headers=True,
    )


@functools.cache
def _device(index: int) -> tuple[int, bool]:
    """Multiprocessors, and whether the wgmma kernel was built for this device."""
    hopper = bool(hopper_flags()) and torch.cuda.get_device_capability(index) == (9, 0)
    return torch.cuda.get_device_properties(index).multi_processor_count, hopper


@dataclass(frozen=True)
class Split:
    """One operand in the scheme's form."""

    planes: torch.Tensor
    """[2, rows, K rounded up to 64] fp16: hi, lo."""
    undo: torch.Tensor
    """[rows]: the power of two that undoes the row's scaling; -1 where the scheme does not fit."""
    misfits: torch.Tensor
    """[1 + rows] int32: how many rows do not fit, then which; empty for x."""


def split(source: torch.Tensor, *, weight: bool) -> Split:
    """Split a [rows, K] float32 matrix."""
    rows, K = source.shape
    padded = -(-K // BLOCK_K) * BLOCK_K
    planes = torch.empty((2, rows, padded), dtype=torch.float16, device=source.device)
    undo = torch.empty(rows, dtype=torch.float32, device=source.device)
    misfits = torch.empty(rows + 1 if weight else 0, dtype=torch.int32, device=source.device)
    extension().split(source, planes, undo, misfits)
    return Split(planes, undo, misfits)


@dataclass(frozen=True)
class _Prepared:
    """A weight's split, with all that it depends on."""

    of: weakref.ref[torch.Tensor]
    state: tuple[Any, ...]
    storage: Any
    """Held so that no other tensor can come to lie at the same address."""
    split: Split
    stream: Any
    ready: Any
    """The stream that split the weight, and the event that tells others when it has."""


_prepared: dict[int, _Prepared] = {}


def forget(weight: torch.Tensor | None = None) -> None:
    """Drop the split of ``weight`` (of all weights): needed after a write that PyTorch does not count
    (``weight.data``, raw pointers)."""
    if weight is None:
        _prepared.clear()
    else:
        _prepared.pop(id(weight), None)


def prepared(weight: torch.Tensor) -> Split:
    """The split of a weight, made now unless its last one still holds (see the module's docstring)."""
    if weight.is_inference() or torch.cuda.is_current_stream_capturing():
        return split(weight, weight=True)
    state = (weight._version, weight.data_ptr(), tuple(weight.shape), weight.stride(), weight.device)
    known, stream = _prepared.get(id(weight)), torch.cuda.current_stream(weight.device)
    if known is not None and known.of() is weight and known.state == state:
        if stream != known.stream:
            stream.wait_event(known.ready)
            for tensor in (known.split.planes, known.split.undo, known.split.misfits):
                tensor.record_stream(stream)
        return known.split
    made, ready = split(weight.detach(), weight=True), torch.cuda.Event()
    ready.record(stream)
    key = id(weight)
    of = weakref.ref(weight, lambda _: _prepared.pop(key, None))
    _prepared[key] = _Prepared(of, state, weight.untyped_storage(), made, stream, ready)
    return made


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str | None = None,
    scale: float = 1.0,
    residual: torch.Tensor | None = None,
    plan: Plan | None = None,
) -> torch.Tensor:
    """activation(x @ weight.T + bias) * scale + residual; x [..., K], weight [N, K], bias [N], residual [..., N],
    all float32.

    ``activation``: None, "gelu" (erf), "gelu_tanh", "relu" or "silu". Raises ``RuntimeError`` for a wrong dtype,
    device or shape.
    """
    if activation not in ACTIVATIONS:
        raise RuntimeError(f"linear: activation one of {', '.join(map(repr, ACTIVATIONS))}, got {activation!r}")
    if weight.dim() != 2 or x.dim() < 1 or x.shape[-1] != weight.shape[1]:
        raise RuntimeError(f"linear: x [..., K] and weight [N, K], got {tuple(x.shape)} and {tuple(weight.shape)}")
    N, K = weight.shape
    shape = (*x.shape[:-1], N)
    given = {"x": x, "weight": weight, "bias": bias, "residual": residual}
    for name, tensor in given.items():
        if tensor is not None and (tensor.dtype != torch.float32 or not tensor.is_cuda or tensor.device != x.device):
            raise RuntimeError(f"linear: {name} must be float32 on x's GPU, got {tensor.dtype} on {tensor.device}")
    if bias is not None and bias.shape != (N,):
        raise RuntimeError(f"linear: bias must be [{N}], got {tuple(bias.shape)}")
    if residual is not None and residual.shape != shape:
        raise RuntimeError(f"linear: residual must be {shape}, got {tuple(residual.shape)}")
    if x.numel() == 0 or weight.numel() == 0:
        raise RuntimeError(f"linear: nothing to multiply, got {tuple(x.shape)} and {tuple(weight.shape)}")
    rows = x.reshape(-1, K)
    rows = rows if rows.stride(1) == 1 or K == 1 else rows.contiguous()
    if weight.stride(1) != 1 and K > 1:  # a copy each time: the split is not kept
        weight = weight.contiguous()
        w = split(weight, weight=True)
    else:
        w = prepared(weight)
    M = rows.shape[0]
    sms, hopper = _device(x.device.index or 0)
    plan = plan or choose(M, N, K, sms, hopper)
    xs = split(rows, weight=False)
    none = x.new_empty(0)
    out = extension().multiply(
        rows,
        xs.planes,
        xs.undo,
        weight.detach(),
        w.planes,
        w.undo,
        w.misfits,
        none if bias is None else bias.detach().contiguous(),
        none if residual is None else residual.reshape(M, N).contiguous(),
        scale,
        ACTIVATIONS[activation],
        plan.width,
        plan.splits,
        sms,
    )
    return out.reshape(shape)


class ModelNew(nn.Module):
    """Replaces ``F.gelu(nn.Linear(in_features, out_features)(x))``; ``activation=None`` gives the linear layer
    alone."""

    def __init__(self, in_features: int, out_features: int, activation: str | None = "gelu") -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.activation = activation
        extension()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.linear.weight, self.linear.bias, activation=self.activation)
