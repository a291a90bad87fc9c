"""float32 linear layer on the fp16 tensor cores, more accurate than cuBLAS's float32 product and several times faster.

out = activation(x @ W.T + bias) * scale + residual, float32 in and out. The scheme:

  split     Each row of x and W is multiplied by a power of two that brings its largest magnitude into [2^14, 2^15),
            then every element v becomes hi = fp16(v), lo = fp16(v - hi): 22 bits. (Unscaled, nn.Linear's small
            weights would put lo into fp16's denormals.) Columns are padded with zeros to a multiple of 64.
  multiply  lo*hi + hi*lo + hi*hi on the tensor cores, three fp16 products. Hopper's accumulator truncates; that, not
            the split, would cost the accuracy. So every 64 columns start from zero and are added to float32
            registers with ordinary rounding.
  finish    The powers of two are undone exactly; bias, activation, scale and residual are applied in registers.

Kernels: `hopper` (wgmma, tiles of 128, 64 or 32 rows of x, a TMA ring, one producer and two consumer warpgroups, two
temporaries so that additions overlap the next product) and `portable` (mma.sync m16n8k16, sm_80 and newer, plain
loads, 40 KB of static shared memory). With few tiles the columns are divided among blocks, whose partial results a
second kernel adds in a fixed order; with a few tiles too many for the device, `hopper` shares these among blocks and
adds inside. Deterministic. A large x with long rows is split by `hopper` itself, each block some rows before its first
tile, which saves a launch. Up to 16 rows of x the weight's bytes are all that counts: `rows` reads W once, as it is,
and multiplies in plain float32 with short chains; it needs no split at all. 64, 128 or 256 threads lie side by side
along K and take two to eight rows of W. Small products of up to 128 rows go the same way, up to 16 rows a block.

Rows that the scheme does not fit are found on the device while splitting, and their outputs are computed in plain
float32 behind the tile's own: rows with Inf or NaN (their hi/lo split would be NaN), rows whose largest
magnitude lies outside 2^-60..2^60, and rows whose largest magnitude exceeds 2^14 times the mean magnitude of their
non-zero elements. Such rows are slow (a warp for one output after the other), never wrong. Within a row, elements
below 2^-15 of the largest keep an absolute precision of 2^-39 of the largest: the error is as small as float32's
relative to max|x_m| * sum|w_n|, not relative to each product (graded matrices whose small elements meet the other
side's large ones lose bits; multiply those in float32).

Weights are split once: the planes are kept while the weight is the same tensor with the same `_version`, storage,
shape and strides, and the storage is held, so that its address cannot be reused meanwhile. An in-place operation,
`load_state_dict`, `.to()`, an optimiser step or a new `.data` changes one of these (a fused optimiser's does not, so
that each optimiser's step drops the splits of its parameters). During a CUDA-graph capture and
for inference tensors (no `_version`) the split is part of each call, in one launch with that of x. What PyTorch
itself does not count cannot be seen: writes through `weight.data` and by raw pointers; after those, call
`forget(weight)`. Planes take as much memory as the weight.

Limits: float32; x [..., K], W [N, K], contiguous last dimension (others are copied); M, N, K up to 2^31 - 1. Forward
only. Measured: docs/gallery.md.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
// ---- begin linear: shared with linear_gelu_softmax.py
// --------------------------------------------------------------------
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <mutex>
#include <set>
#include <utility>

namespace linear {

constexpr int BLOCK_K = 64;  // columns summed inside the tensor core before they are added to float32 registers

// Launches may overlap the end of the kernel in front of them: nothing is read or written before this (Hopper).
__device__ __forceinline__ void earlier_kernels_have_ended() {
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

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
// The factor for a row with this largest magnitude, sum of magnitudes and number of non-zero elements. undo: what
// undoes it, or -1 where the scheme does not fit (then the factor is 0).
__device__ __forceinline__ float scale_of(float highest, float sum, int count, float& undo) {
    const int exponent = static_cast<int>(__float_as_uint(highest) >> 23) - 127;
    const bool zero = count == 0;
    // Written so that NaN fails: Inf makes the exponent 128, NaN makes the sum NaN. Up to 2^14 columns the sum decides
    // nothing, since it is no less than the highest.
    const bool fits = zero || (exponent >= -60 && exponent <= 60 && highest * (count * 0x1p-14f) <= sum);
    undo = zero ? 1.f : fits ? __uint_as_float(static_cast<uint32_t>(exponent - 14 + 127) << 23) : -1.f;
    return zero ? 1.f : fits ? __uint_as_float(static_cast<uint32_t>(14 - exponent + 127) << 23) : 0.f;
}
template <bool ALIGNED>
__device__ __forceinline__ float4 four(const float* row, int column, int K) {
    if (ALIGNED && column + 4 <= K) return *reinterpret_cast<const float4*>(row + column);
    return make_float4(column < K ? row[column] : 0.f, column + 1 < K ? row[column + 1] : 0.f,
                       column + 2 < K ? row[column + 2] : 0.f, column + 3 < K ? row[column + 3] : 0.f);
}

struct Operand {
    const float* source;
    int64_t stride;
    int rows;
    __half *hi, *lo;
    float* undo;
};
// (By value: a reference chosen at run time would put both operands into local memory.)
__device__ __forceinline__ Operand one_of(bool is_first, const Operand& a, const Operand& b) {
    return {is_first ? a.source : b.source, is_first ? a.stride : b.stride, is_first ? a.rows : b.rows,
            is_first ? a.hi : b.hi,         is_first ? a.lo : b.lo,         is_first ? a.undo : b.undo};
}
__device__ __forceinline__ void look_at(float4 v, float& highest, float& sum, int& count) {
    highest = fmaxf(fmaxf(highest, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
    sum += (fabsf(v.x) + fabsf(v.y)) + (fabsf(v.z) + fabsf(v.w));  // NaN if any element is
    count += (v.x != 0.f) + (v.y != 0.f) + (v.z != 0.f) + (v.w != 0.f);
}
// What a block's warps found of a row, on which its factor depends; all threads learn that.
template <int WARPS>
__device__ __forceinline__ float agree(float highest, float sum, int count, float& undo) {
    __shared__ struct {
        float highest[WARPS], sum[WARPS];
        int count[WARPS];
    } found;
    for (int offset = 16; offset > 0; offset >>= 1) {
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, offset));
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        count += __shfl_xor_sync(0xffffffffu, count, offset);
    }
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) found.highest[warp] = highest, found.sum[warp] = sum, found.count[warp] = count;
    __syncthreads();
    highest = 0.f, sum = 0.f, count = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w)
        highest = fmaxf(highest, found.highest[w]), sum += found.sum[w], count += found.count[w];
    return scale_of(highest, sum, count, undo);
}
// One block a row, the first operand's rows and then the second's.
template <int THREADS, bool ALIGNED>
__global__ void __launch_bounds__(THREADS) split_kernel(const Operand first, const Operand second, int K, int padded) {
    constexpr int HELD = 4;  // float4 a thread keeps: rows of up to 16 * THREADS columns are read once
    const bool is_first = blockIdx.x < first.rows;
    const Operand o = one_of(is_first, first, second);
    const int64_t r = is_first ? blockIdx.x : blockIdx.x - first.rows;
    const float* row = o.source + r * o.stride;
    float4 held[HELD];
    earlier_kernels_have_ended();
    float highest = 0.f, sum = 0.f;
    int count = 0;
#pragma unroll
    for (int i = 0; i < HELD; ++i) held[i] = four<ALIGNED>(row, (threadIdx.x + i * THREADS) * 4, K);
#pragma unroll
    for (int i = 0; i < HELD; ++i) look_at(held[i], highest, sum, count);
    for (int64_t column = (threadIdx.x + HELD * THREADS) * 4; column < K; column += THREADS * 4)
        look_at(four<ALIGNED>(row, int(column), K), highest, sum, count);
    float undo;
    const float scale = agree<THREADS / 32>(highest, sum, count, undo);
    if (threadIdx.x == 0) o.undo[r] = undo;
    uint2* h = reinterpret_cast<uint2*>(o.hi + r * padded);
    uint2* l = reinterpret_cast<uint2*>(o.lo + r * padded);
    auto put = [&](int piece, float4 v) {
        if (piece * 4 >= padded) return;
        uint2 a = make_uint2(0, 0), b = a;
        if (undo > 0.f) split_four(v, scale, a, b);
        h[piece] = a, l[piece] = b;
    };
#pragma unroll
    for (int i = 0; i < HELD; ++i) put(threadIdx.x + i * THREADS, held[i]);
    for (int piece = threadIdx.x + HELD * THREADS; piece * 4 < padded; piece += THREADS)
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
// v times the normal distribution's integral, by Abramowitz and Stegun's 26.2.17 (error at most 7.5e-8): half the
// instructions of erff, and to 3.3e-7 right over all v, where PyTorch's own formula is to 4.5e-7 (float32).
__device__ __forceinline__ float power_of_two(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
__device__ __forceinline__ float one_over(float v) {  // __fdividef guards against denormals, with six instructions
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
__device__ __forceinline__ float gelu_erf(float v) {
    const float size = fabsf(v), t = one_over(fmaf(size, 0.231641888f, 1.f));
    float h = fmaf(t, 0.530702714f, -0.726576013f);
    h = fmaf(h, t, 0.710706870f), h = fmaf(h, t, -0.142248368f), h = fmaf(h, t, 0.127414796f);
    h *= t * power_of_two(v * v * -0.721347520f);
    return fmaf(-size, h, fmaxf(v, 0.f));
}
template <int ACTIVATION>
__device__ __forceinline__ float activate(float v) {
    if (ACTIVATION == GELU_ERF) return gelu_erf(v);
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
    const float *x, *w;  // the operands themselves
    int64_t x_stride, w_stride;
    int K;
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
    // Those of a warp's outputs whose row of x or W the scheme does not fit (`any`: this thread has some): the columns
    // begin .. end once more, in plain float32, by all lanes for one output after the other. After the stores.
    template <int ACTIVATION, int COUNT, typename At>
    __device__ __forceinline__ void redo(float* to, int begin, int end, At at, bool any) const {
        if (!__any_sync(0xffffffffu, any)) return;
#pragma unroll 1
        for (int i = 0; i < COUNT; ++i) {
            int m, n;
            at(i, m, n);
            const bool mine = m < M && n < N && (undo_x[min(m, M - 1)] < 0.f || undo_w[min(n, N - 1)] < 0.f);
            for (uint32_t who = __ballot_sync(0xffffffffu, mine); who; who &= who - 1) {
                const int lane = __ffs(who) - 1;
                const int row = __shfl_sync(0xffffffffu, m, lane), column = __shfl_sync(0xffffffffu, n, lane);
                const float *a = x + row * x_stride, *b = w + column * w_stride;
                float parts[4] = {};
                int64_t k = begin + threadIdx.x % 32;
                for (; k + 96 < end; k += 128)
#pragma unroll
                    for (int u = 0; u < 4; ++u) parts[u] = fmaf(a[k + 32 * u], b[k + 32 * u], parts[u]);
                for (; k < end; k += 32) parts[0] = fmaf(a[k], b[k], parts[0]);
                float v = (parts[0] + parts[1]) + (parts[2] + parts[3]);
                for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
                if (threadIdx.x % 32 == lane)
                    to[int64_t(row) * N + column] =
                        partial ? v : finish_as<ACTIVATION>(epilogue, v + bias(column), row, column);
            }
        }
    }
};

__global__ void __launch_bounds__(256) reduce_kernel(const Product p) {
    const int64_t at = blockIdx.x * int64_t(256) + threadIdx.x, size = int64_t(p.M) * p.N;
    earlier_kernels_have_ended();
    if (at >= size) return;
    const int n = static_cast<int>(at % p.N);
    float v = 0.f;
    for (int s = 0; s < p.splits; ++s) v += p.partial[s * size + at];
    p.out[at] = finish_any(p.epilogue, v + p.bias(n), at / p.N, n);
}

// ---- rows: few rows of x, in plain float32; W is read once, as it is. SIDE threads of a block take R rows of W and a
// segment of the columns, along which they lie side by side: all their loads are on their way at once. x comes through
// L1, which W passes by where x needs the room.
// volatile: all of a step's loads before the first use; predicated: no branch between them. Zeros where not wanted. Not
// .nc: when this kernel starts, the one in front may still write x.
template <bool PASSING>
__device__ __forceinline__ float4 streamed(const float* p, bool wanted) {
    float4 v;
#define STREAMED(HOW)                                                                                             \
    asm volatile(                                                                                                 \
        "{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n" \
        "@p ld.global" HOW ".v4.f32 {%0, %1, %2, %3}, [%4];\n}"                                                \
        : "=&f"(v.x), "=&f"(v.y), "=&f"(v.z), "=&f"(v.w)                                                          \
        : "l"(p), "r"(int(wanted)))
    if (PASSING) STREAMED(".L1::no_allocate");
    else STREAMED("");
#undef STREAMED
    return v;
}
__device__ __forceinline__ float streamed_one(const float* p, bool wanted) {
    float v;
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.f32 %0, [%1];\n}"
                 : "=&f"(v)
                 : "l"(p), "r"(int(wanted)));
    return v;
}
// Four of a row's columns from k on: side by side, or where rows begin anywhere SIDE apart, so that lanes are side by
// side.
template <int SIDE, bool ALIGNED, bool PASSING>
__device__ __forceinline__ float4 four_streamed(const float* row, int k, int count) {
    const float* const at = row + k;
    if (ALIGNED) return streamed<PASSING>(at, k < count);
    return make_float4(streamed_one(at, k < count), streamed_one(at + SIDE, k + SIDE < count),
                       streamed_one(at + 2 * SIDE, k + 2 * SIDE < count),
                       streamed_one(at + 3 * SIDE, k + 3 * SIDE < count));
}
template <int SIDE, bool ALIGNED>
__device__ __forceinline__ float4 four_of(const float* at, int left) {
    if (ALIGNED) {
        float4 v;  // said to be global memory, as the address has been through asm
        asm("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(at));
        return v;
    }
    return make_float4(at[0], SIDE < left ? at[SIDE] : 0.f, 2 * SIDE < left ? at[2 * SIDE] : 0.f,
                       3 * SIDE < left ? at[3 * SIDE] : 0.f);
}
// Adds each of COUNT sums over a warp's lanes; the lanes from i * 32 / COUNT on get the i-th.
template <int COUNT, int BIT = 16>
__device__ __forceinline__ float lanes_sum(float* v) {
    if constexpr (COUNT > 1) {
        const bool upper = threadIdx.x & BIT;
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) {
            const float mine = upper ? v[i + COUNT / 2] : v[i], other = upper ? v[i] : v[i + COUNT / 2];
            v[i] = mine + __shfl_xor_sync(0xffffffffu, other, BIT);
        }
        return lanes_sum<COUNT / 2, BIT / 2>(v);
    } else {
        float sum = v[0];
#pragma unroll
        for (int bit = BIT; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
        return sum;
    }
}
// MX: the most rows of x that a block takes, of which half exist. TALL: the grid's other dimension divides x's rows,
// each block takes `height` (one more than half need not exist). One or two rows wait for both operands at once, eight
// pieces of W at a time; more take as many rows of W as 32 sums are, and x row by row.
template <int MX, int SIDE>
struct Rows {
    static constexpr int R = MX <= 2 ? 2 : 32 / MX, THREADS = SIDE < 128 ? 128 : SIDE, GROUPS = THREADS / SIDE;
};
template <int MX, int SIDE, bool ALIGNED, bool TALL>
__global__ void __launch_bounds__(Rows<MX, SIDE>::THREADS, 512 / Rows<MX, SIDE>::THREADS)
    rows_kernel(const Product p, int segment, int height) {
    constexpr int R = Rows<MX, SIDE>::R, GROUPS = Rows<MX, SIDE>::GROUPS, U = MX <= 2 ? 4 : 1, STEP = SIDE * 4;
    constexpr int COUNT = MX * R, EACH = 32 / COUNT;
    __shared__ float parts[GROUPS][SIDE / 32][COUNT];
    const int group = threadIdx.x / SIDE, t = threadIdx.x % SIDE, lane = threadIdx.x % 32;
    const int split = blockIdx.x % p.splits, n0 = (blockIdx.x / p.splits * GROUPS + group) * R;
    const int begin = split * segment, count = min(segment, p.K - begin);
    const int m0 = TALL ? blockIdx.y * height : 0, M = TALL ? min(height, p.M - m0) : p.M;  // this block's rows of x
    earlier_kernels_have_ended();
    const float *rows[R], *const x = p.x + m0 * p.x_stride + begin;
#pragma unroll
    for (int r = 0; r < R; ++r) rows[r] = p.w + min(n0 + r, p.N - 1) * p.w_stride + begin;
    const int m = t / R, n = n0 + t % R;  // of this thread's result, where there is one
    const bool has = t < COUNT && m < M && n < p.N;
    const float bias = has ? p.bias(n) : 0.f;  // on its way with the rest
    float sum[COUNT] = {};
    auto add = [&](float& to, float4 w, float4 v) {
        to += fmaf(w.w, v.w, fmaf(w.z, v.z, fmaf(w.y, v.y, w.x * v.x)));
    };
#pragma unroll 1
    for (int first = ALIGNED ? t * 4 : t; first < count; first += STEP * U) {
        float4 w[U][R], v[U][MX <= 2 ? MX : 1];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int k = first + u * STEP;
#pragma unroll
            for (int r = 0; r < R; ++r) w[u][r] = four_streamed<SIDE, ALIGNED, (MX > 2)>(rows[r], k, count);
            if (MX <= 2)
#pragma unroll
                for (int i = 0; i < MX; ++i)
                    v[u][i] = four_streamed<SIDE, ALIGNED, false>(x + i * p.x_stride, k, count);
        }
        if (MX <= 2) {  // past the end zeros meet zeros
#pragma unroll
            for (int u = 0; u < U; ++u)
#pragma unroll
                for (int i = 0; i < MX; ++i)
#pragma unroll
                    for (int r = 0; r < R; ++r) add(sum[i * R + r], w[u][r], v[u][i]);
        } else {
            const float* row = x + first;
#pragma unroll
            for (int i = 0; i < MX; ++i) {  // rows that are not there are the last once more, and never written
                const float4 of_x = four_of<SIDE, ALIGNED>(row, count - first);
#pragma unroll
                for (int r = 0; r < R; ++r) add(sum[i * R + r], w[0][r], of_x);
                if (i < MX / 2 - TALL || i + 1 < M) row += p.x_stride;
                asm("" : "+l"(row));  // else the addresses of all rows are kept, and registers spilled
            }
        }
    }
    const float mine = lanes_sum<COUNT>(sum);
    if (lane % EACH == 0) parts[group][t / 32][lane / EACH] = mine;
    __syncthreads();
    if (!has) return;
    float total = 0.f;
#pragma unroll
    for (int i = 0; i < SIDE / 32; ++i) total += parts[group][i][t];
    float* const to = p.target(split) + int64_t(m0 + m) * p.N + n;
    if (p.partial) {
        *to = total;
        return;
    }
    switch (p.epilogue.activation) {  // as finish_any(), which wants the epilogue in memory
        case GELU_ERF:
            *to = finish_as<GELU_ERF>(p.epilogue, total + bias, m0 + m, n);
            break;
        case GELU_TANH:
            *to = finish_as<GELU_TANH>(p.epilogue, total + bias, m0 + m, n);
            break;
        case RELU:
            *to = finish_as<RELU>(p.epilogue, total + bias, m0 + m, n);
            break;
        case SILU:
            *to = finish_as<SILU>(p.epilogue, total + bias, m0 + m, n);
            break;
        default:
            *to = finish_as<NONE>(p.epilogue, total + bias, m0 + m, n);
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

    earlier_kernels_have_ended();
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
    bool any = false;
#pragma unroll
    for (int i = 0; i < 8; ++i) any |= undo_m[i] < 0.f || undo_n[i] < 0.f;
    p.redo<ACTIVATION, 64>(to, begin, min(end, p.K), at, any);
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
// d (64 x 128, 64 x 64 or 64 x 32, a warpgroup's registers) = a (64 x 16) * b^T (16 x n), added to d unless `add` is 0
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
__device__ __forceinline__ void wgmma(float (&d)[32], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%"
        "29,%30,%31}, %32, %33, p, 1, 1, 0, 0;\n}\n"
        : D16(0), D16(16)
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
    static constexpr int STAGES = WIDTH == 128 ? 3 : WIDTH == 64 ? 4 : 5, BYTES = STAGES * STAGE + 1024;
};

// x's split inside the product's kernel: two teams of every block take some of x's rows before its first tile, and
// whoever loads a tile waits until the rows of that tile are done. Rows are taken by counting, so that nobody waits for
// a block that has not begun (another kernel may have its multiprocessor). The last block to have loaded all leaves
// the counts at 0.
constexpr int MOST_DEPTH = 6;
struct Inside {
    Operand x;
    int at_once;  // rows that a team takes each time
    int depth;    // rows that a team has under way, in the memory of the ring
    int* counts;  // [0]: rows taken; [1]: blocks that have loaded all; [2 + tile]: its rows that are done. Null: x is
                  // split already
};
// The largest of them, NaN if any element is.
__device__ __forceinline__ float largest(float4 v, float highest) {
    auto most = [&](float f) { asm("max.NaN.f32 %0, %0, %1;" : "+f"(highest) : "f"(fabsf(f))); };
    most(v.x), most(v.y), most(v.z), most(v.w);
    return highest;
}
__device__ __forceinline__ void split_rows(const Inside& in, int K, int padded, int width, unsigned char* room) {
    constexpr int TEAM = 192, WARPS = TEAM / 32;
    __shared__ float found[2][WARPS];
    __shared__ __align__(8) uint64_t arrived[2][MOST_DEPTH], told[2];
    __shared__ int taken[2];
    const int team = threadIdx.x / TEAM, thread = threadIdx.x % TEAM;
    auto together = [&] { asm volatile("bar.sync %0, 192;" ::"r"(1 + team) : "memory"); };
    if (thread == 0) {
        for (int s = 0; s < in.depth; ++s) barrier_init(&arrived[team][s], 1);
        barrier_init(&told[team], 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    together();
    auto row_of = [&](int s) { return room + (team * in.depth + s) * K * 4; };
    auto fetch = [&](int r, int s) {
        barrier_expect(&arrived[team][s], K * 4);
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                shared_address(row_of(s))),
            "l"(in.x.source + r * in.x.stride), "r"(K * 4), "r"(shared_address(&arrived[team][s]))
            : "memory");
    };
    int slot = 0;
    uint32_t parity = 0, turn = 0;
    for (;; turn ^= 1) {
        if (thread == 0) {
            const int first = atomicAdd(in.counts, in.at_once);
            for (int i = 0; i < in.depth && i < in.at_once && first + i < in.x.rows; ++i)
                fetch(first + i, (slot + i) % in.depth);
            taken[team] = first;
            barrier_arrive(&told[team]);
        }
        barrier_wait(&told[team], turn);
        const int begin = taken[team], end = min(begin + in.at_once, in.x.rows);
        if (begin >= in.x.rows) return;
        for (int r = begin; r < end; ++r) {
            const float4* row = reinterpret_cast<const float4*>(row_of(slot));
            barrier_wait(&arrived[team][slot], parity);
            float highest = 0.f;
#pragma unroll 4
            for (int i = thread; i * 4 < K; i += TEAM) highest = largest(row[i], highest);
#pragma unroll
            for (int offset = 16; offset > 0; offset >>= 1) {
                const float other = __shfl_xor_sync(0xffffffffu, highest, offset);
                asm("max.NaN.f32 %0, %0, %1;" : "+f"(highest) : "f"(other));
            }
            if (thread % 32 == 0) found[team][thread / 32] = highest;
            together();
#pragma unroll
            for (int w = 0; w < WARPS; ++w) asm("max.NaN.f32 %0, %0, %1;" : "+f"(highest) : "f"(found[team][w]));
            float undo;  // a row of up to 2^14 columns fits whatever its sum is: see scale_of
            const float scale = scale_of(highest, highest, highest != 0.f, undo);
            if (thread == 0) in.x.undo[r] = undo;
            uint4* h = reinterpret_cast<uint4*>(in.x.hi + int64_t(r) * padded);
            uint4* l = reinterpret_cast<uint4*>(in.x.lo + int64_t(r) * padded);
#pragma unroll 4
            for (int i = thread; i * 8 < padded; i += TEAM) {
                uint2 hi[2] = {}, lo[2] = {};
                if (undo > 0.f && i * 8 < K) split_four(row[i * 2], scale, hi[0], lo[0]);
                if (undo > 0.f && i * 8 + 4 < K) split_four(row[i * 2 + 1], scale, hi[1], lo[1]);
                h[i] = make_uint4(hi[0].x, hi[0].y, hi[1].x, hi[1].y);
                l[i] = make_uint4(lo[0].x, lo[0].y, lo[1].x, lo[1].y);
            }
            together();
            if (thread == 0 && r + in.depth < end) fetch(r + in.depth, slot);
            if (++slot == in.depth) slot = 0, parity ^= 1;
        }
        __threadfence();
        asm volatile("fence.proxy.async;" ::: "memory");  // the copy engine reads what was written
        together();
        for (int r = begin + thread; r < end; r += TEAM) atomicAdd(in.counts + 2 + r / width, 1);
    }
}
__device__ __forceinline__ void wait_for_rows(const Inside& in, int tile, int wanted) {
    for (int done = 0; done < wanted;)
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(done) : "l"(in.counts + 2 + tile) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

// The last tiles, where they leave half of the device or more idle: several blocks share the columns of each, and its
// parts are added in their order by the warpgroup that comes last: nobody waits. (Sharing more tiles than that was
// measured on an H200: an equal share of all their columns for every block is a sixth slower, since blocks no longer
// read the same rows together, and more helpers for a nearly full wave gain what the power limit takes.)
struct Shared {
    int tiles;      // how many, at the end; 0: none
    int parts;      // of each tile's columns, for as many blocks
    float* sums;    // [tiles][parts][2][64 * WIDTH]: a warpgroup's half of each part
    int* arrivals;  // [tiles][2], zeros before and after
};
// A block's n-th piece of work: a tile and its steps first .. last of 64 columns. False: there are no more.
struct Walk {
    int steps, splits, whole;  // steps of a tile; parts of K; items before the shared tiles: with any, a multiple of
                               // the grid
    Shared shared;
    __device__ __forceinline__ bool piece(int n, int& tile, int& part, int& first, int& last) const {
        const int block = blockIdx.x, blocks = gridDim.x, item = block + n * blocks;
        if (item < whole) {
            tile = item / splits, part = item % splits;
            first = int(int64_t(steps) * part / splits), last = int(int64_t(steps) * (part + 1) / splits);
            return true;
        }
        if (!shared.tiles) return false;
        tile = whole + block % shared.tiles, part = block / shared.tiles;
        first = steps * part / shared.parts, last = steps * (part + 1) / shared.parts;
        return n == whole / blocks && part < shared.parts;
    }
    // Whether this warpgroup's sums, of a part of a shared tile, are the last to come; then they become the whole
    // tile's.
    template <int COUNT>
    __device__ __forceinline__ bool completes(float (&sum)[COUNT], int tile, int part, int half) const {
        __shared__ int arrived[2];
        const int thread = threadIdx.x % 128, at = tile - whole;
        auto together = [&] { asm volatile("bar.sync %0, 128;" ::"r"(2 + half) : "memory"); };
        auto sums_of = [&](int of) {
            return shared.sums + ((int64_t(at) * shared.parts + of) * 2 + half) * (COUNT * 128) + thread;
        };
        float* mine = sums_of(part);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) __stcg(mine + i * 128, sum[i]);
        __threadfence();
        together();
        if (thread == 0) arrived[half] = atomicAdd(shared.arrivals + at * 2 + half, 1) + 1;
        together();
        if (arrived[half] != shared.parts) return false;
        if (thread == 0) shared.arrivals[at * 2 + half] = 0;
        __threadfence();
#pragma unroll
        for (int i = 0; i < COUNT; ++i) sum[i] = 0.f;
        for (int of = 0; of < shared.parts; ++of) {
            const float* from = sums_of(of);
#pragma unroll
            for (int i = 0; i < COUNT; ++i) sum[i] += __ldcg(from + i * 128);
        }
        return true;
    }
};

template <int WIDTH, int ACTIVATION>
__global__ void __launch_bounds__(384, 1)
    hopper_kernel(const __grid_constant__ CUtensorMap w_hi, const __grid_constant__ CUtensorMap w_lo,
                  const __grid_constant__ CUtensorMap x_hi, const __grid_constant__ CUtensorMap x_lo, const Product p,
                  const Inside inside, const Shared shared) {
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
    earlier_kernels_have_ended();
    if (inside.counts) {
        split_rows(inside, p.K, p.padded, WIDTH, raw + (stages - shared_address(raw)));
        __syncthreads();  // the ring's memory is free
    }
    const int tiles_m = (p.M + WIDTH - 1) / WIDTH, tiles_n = (p.N + 127) / 128;
    const Walk walk{p.padded / BLOCK_K, p.splits, tiles_m * tiles_n * p.splits - shared.tiles, shared};
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    int stage = 0;
    uint32_t parity = 0;
    auto advance = [&] {
        if (++stage == R::STAGES) stage = 0, parity ^= 1;
    };

    if (group == 0) {  // the producer: one thread
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != 0) return;
        for (int n = 0, tile, part, first, last, tm, tn; walk.piece(n, tile, part, first, last); ++n) {
            tile_of(tile, tiles_m, tiles_n, tm, tn);
            if (inside.counts) wait_for_rows(inside, tm, min(WIDTH, p.M - tm * WIDTH));
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
        if (inside.counts && atomicAdd(inside.counts + 1, 1) == gridDim.x - 1)
            for (int i = 0; i < 2 + tiles_m; ++i) inside.counts[i] = 0;
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int wrow = (group - 1) * 64, lane = threadIdx.x % 32;
    for (int n = 0, tile, part, first, last, tm, tn; walk.piece(n, tile, part, first, last); ++n) {
        tile_of(tile, tiles_m, tiles_n, tm, tn);
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
        if (tile >= walk.whole) {
            if (!walk.completes(sum, tile, part, group - 1)) continue;
            first = 0, last = walk.steps;
        }

        const int row = tn * 128 + wrow + threadIdx.x / 32 % 4 * 16 + lane / 4, left = tm * WIDTH + lane % 4 * 2;
        float undo_m[REGISTERS / 2], undo_n[2], bias_n[2];  // all loaded before the first result is stored
#pragma unroll
        for (int i = 0; i < 2; ++i)
            undo_n[i] = __ldg(p.undo_w + min(row + i * 8, p.N - 1)), bias_n[i] = p.bias(min(row + i * 8, p.N - 1));
#pragma unroll
        for (int i = 0; i < REGISTERS / 2; ++i) undo_m[i] = __ldcg(p.undo_x + min(left + i / 2 * 8 + i % 2, p.M - 1));
        bool any = undo_n[0] < 0.f || undo_n[1] < 0.f;
#pragma unroll
        for (int i = 0; i < REGISTERS / 2; ++i) any |= undo_m[i] < 0.f;
        float* const to = p.target(p.partial ? part : 0);
        float* at = to + int64_t(left) * p.N + row;
        // In pieces, each moved to the front in its turn: all 64 at once are 40 KB of code that runs once a tile
        // (8192 x 512 x 512 on an H200: 35.8 us instead of 33.5).
        constexpr int PIECE = 16;
#pragma unroll 1
        for (int from = 0; from < REGISTERS; from += PIECE) {
            float v[PIECE];
#pragma unroll
            for (int i = 0; i < PIECE; ++i) v[i] = sum[i];
            auto where = [&](int i, int& m, int& n) {
                m = left + from * 2 + i / 4 * 8 + i % 2, n = row + i / 2 % 2 * 8;
            };
            p.finish<ACTIVATION>(
                v, where, [&](int i) { return undo_m[i / 4 * 2 + i % 2] * undo_n[i / 2 % 2]; },
                [&](int i) { return bias_n[i / 2 % 2]; });
#pragma unroll
            for (int i = 0; i < PIECE; ++i) {
                int m, n;
                where(i, m, n);
                if (m < p.M && n < p.N) at[(i / 4 * 8 + i % 2) * int64_t(p.N) + i / 2 % 2 * 8] = v[i];
            }
            at += int64_t(p.N) * (PIECE * 2);
#pragma unroll
            for (int i = 0; i + PIECE < REGISTERS; ++i) sum[i] = sum[i + PIECE];
#pragma unroll
            for (int i = 0; i + PIECE / 2 < REGISTERS / 2; ++i) undo_m[i] = undo_m[i + PIECE / 2];
        }
        auto where = [&](int i, int& m, int& n) { m = left + i / 4 * 8 + i % 2, n = row + i / 2 % 2 * 8; };
        p.redo<ACTIVATION, REGISTERS>(to, first * BLOCK_K, min(last * BLOCK_K, p.K), where, any);
    }
#endif
}

// Kept: encoding is a microsecond of the host's, and planes come to lie where others lay. (A map holds an address, not
// memory: a kept one is what encoding would give again.)
inline CUresult tile_map(CUtensorMap* map, const void* planes, int64_t rows, int padded, int box_rows) {
    struct Known {
        const void* planes;
        int64_t rows;
        int padded, box_rows;
        CUtensorMap map;
    };
    static std::mutex mutex;
    static Known all[256];
    const uint64_t hash = (reinterpret_cast<uintptr_t>(planes) / 16 + rows * 31 + box_rows) * 0x9e3779b97f4a7c15ull;
    const std::lock_guard<std::mutex> lock(mutex);
    Known& known = all[hash >> 56];
    if (known.planes == planes && known.rows == rows && known.padded == padded && known.box_rows == box_rows) {
        *map = known.map;
        return CUDA_SUCCESS;
    }
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
    const CUresult e = encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<void*>(planes), size, stride, box,
                              step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (!e) known = {planes, rows, padded, box_rows, *map};
    return e;
}
// A kernel's shared memory, permitted once a device: the driver takes as long for that as for a launch.
inline cudaError_t permit(const void* kernel, int bytes) {
    static std::mutex mutex;
    static std::set<std::pair<const void*, int>> permitted;
    int device = 0;
    if (cudaError_t e = cudaGetDevice(&device)) return e;
    const std::lock_guard<std::mutex> lock(mutex);
    if (permitted.count({kernel, device})) return cudaSuccess;
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (!e) permitted.insert({kernel, device});
    return e;
}
#endif

// ---- host
// ---------------------------------------------------------------------------------------------------------------------
// On Hopper a launch may overlap the end of the kernel in front of it.
template <typename... Parameters, typename... Given>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, int bytes, cudaStream_t stream,
                   const Given&... given) {
#ifdef GALLERY_HOPPER
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = dim3(threads);
    config.dynamicSmemBytes = bytes, config.stream = stream, config.attrs = &attribute, config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, given...);
#else
    kernel<<<grid, threads, bytes, stream>>>(given...);
    return cudaGetLastError();
#endif
}

inline cudaError_t split(const Operand& first, const Operand& second, int K, int padded, cudaStream_t stream) {
    auto aligned = [](const Operand& o) {
        return o.rows == 0 || (reinterpret_cast<uintptr_t>(o.source) % 16 == 0 && (o.rows == 1 || o.stride % 4 == 0));
    };
    const bool all_aligned = aligned(first) && aligned(second), wide = K > 2048;
    auto kernel = wide ? all_aligned ? split_kernel<512, true> : split_kernel<512, false>
                  : all_aligned ? split_kernel<128, true>
                                : split_kernel<128, false>;
    return launch(kernel, int64_t(first.rows) + second.rows, wide ? 512 : 128, 0, stream, first, second, K, padded);
}

enum Variant { PORTABLE, HOPPER_32, HOPPER_64, HOPPER_128, ROWS_64, ROWS_128, ROWS_256 };
inline bool is_rows(int variant) { return variant >= ROWS_64; }

inline int width_of(int variant) { return variant == HOPPER_32 ? 32 : variant == HOPPER_64 ? 64 : 128; }

struct Planes {
    const void *x_hi, *x_lo, *w_hi, *w_lo;
};

#ifdef GALLERY_HOPPER
constexpr int MOST_TILES = 4096, MOST_SMS = 1024;  // for which there are counts; of x's rows and of multiprocessors
// x with rows of 2560 to 16384 columns (two must fit in the ring's memory) and a million elements is split inside;
// else a kernel in front is as fast or faster, whose blocks are as many as rows (H200).
constexpr int LEAST_COLUMNS = 2560, MOST_COLUMNS = 16384;
constexpr int64_t LEAST_ELEMENTS = 1 << 20;

// Which tiles are shared, where that is worth it: adding the parts takes about as long as three steps.
inline Shared shared_tiles(int64_t items, int splits, int steps, int sms) {
    const int left = int(items % sms), parts = left == 0 ? 0 : sms / left < 8 ? sms / left : 8;
    const bool worth = splits == 1 && items > sms && sms <= MOST_SMS && parts >= 2 && steps >= 2 * parts &&
                       steps - steps / parts >= 6;
    return {worth ? left : 0, worth ? parts : 0, nullptr, nullptr};
}
#endif

template <int ACTIVATION>
cudaError_t multiply_as(int variant, const Planes& planes, const Product& p, bool split_inside, int* counts,
                        float* sums, int sms, cudaStream_t stream) {
    const int width = width_of(variant);
    const int64_t items = int64_t((p.M + width - 1) / width) * ((p.N + 127) / 128) * p.splits;
    if (variant == PORTABLE)
        return launch(portable_kernel<ACTIVATION>, items, 256, 0, stream, static_cast<const __half*>(planes.x_hi),
                      static_cast<const __half*>(planes.x_lo), static_cast<const __half*>(planes.w_hi),
                      static_cast<const __half*>(planes.w_lo), p);
#ifdef GALLERY_HOPPER
    CUtensorMap w_hi, w_lo, x_hi, x_lo;
    if (tile_map(&w_hi, planes.w_hi, p.N, p.padded, 128) || tile_map(&w_lo, planes.w_lo, p.N, p.padded, 128) ||
        tile_map(&x_hi, planes.x_hi, p.M, p.padded, width) || tile_map(&x_lo, planes.x_lo, p.M, p.padded, width))
        return cudaErrorNotSupported;
    auto kernel = width == 128  ? hopper_kernel<128, ACTIVATION>
                  : width == 64 ? hopper_kernel<64, ACTIVATION>
                                : hopper_kernel<32, ACTIVATION>;
    const int bytes = width == 128 ? Ring<128>::BYTES : width == 64 ? Ring<64>::BYTES : Ring<32>::BYTES;
    if (cudaError_t e = permit(reinterpret_cast<const void*>(kernel), bytes)) return e;
    const int grid = static_cast<int>(items < sms ? items : sms);
    const Inside inside{{p.x, p.x_stride, p.M, static_cast<__half*>(const_cast<void*>(planes.x_hi)),
                         static_cast<__half*>(const_cast<void*>(planes.x_lo)), const_cast<float*>(p.undo_x)},
                        (p.M + 2 * grid - 1) / (2 * grid),
                        p.K <= 4096 ? MOST_DEPTH : 3 * 8192 / p.K,
                        split_inside ? counts : nullptr};
    Shared shared = shared_tiles(items, p.splits, p.padded / BLOCK_K, sms);
    if (shared.tiles) shared.sums = sums, shared.arrivals = counts + 2 + MOST_TILES;
    return launch(kernel, grid, 384, bytes, stream, w_hi, w_lo, x_hi, x_lo, p, inside, shared);
#else
    return cudaErrorInvalidDeviceFunction;
#endif
}

template <int MX, int SIDE, bool TALL>
cudaError_t rows_as(const Product& p, cudaStream_t stream) {
    const auto in_pieces = [&](const float* of, int64_t stride, int rows) {
        return reinterpret_cast<uintptr_t>(of) % 16 == 0 && (rows == 1 || stride % 4 == 0) && p.K % 4 == 0;
    };
    const bool aligned = in_pieces(p.w, p.w_stride, p.N) && in_pieces(p.x, p.x_stride, p.M);
    const int segment = ((p.K + p.splits - 1) / p.splits + 127) / 128 * 128;
    constexpr int THREADS = Rows<MX, SIDE>::THREADS, TOGETHER = Rows<MX, SIDE>::R * Rows<MX, SIDE>::GROUPS;
    const int64_t blocks = (int64_t(p.N) + TOGETHER - 1) / TOGETHER * p.splits;
    const int high = (p.M + MX - 1) / MX;  // even parts: the last one has MX / 2 rows at least (to 150)
    return launch(aligned ? rows_kernel<MX, SIDE, true, TALL> : rows_kernel<MX, SIDE, false, TALL>,
                  dim3(static_cast<unsigned>(blocks), high), THREADS, 0, stream, p, segment, (p.M + high - 1) / high);
}
template <int MX, bool TALL = false>
cudaError_t rows_beside(int variant, const Product& p, cudaStream_t stream) {
    return variant == ROWS_64    ? rows_as<MX, 64, TALL>(p, stream)
           : variant == ROWS_128 ? rows_as<MX, 128, TALL>(p, stream)
                                 : rows_as<MX, 256, TALL>(p, stream);
}
inline cudaError_t rows(int variant, const Product& p, cudaStream_t stream) {
    return p.M <= 1     ? rows_beside<1>(variant, p, stream)
           : p.M <= 2   ? rows_beside<2>(variant, p, stream)
           : p.M <= 4   ? rows_beside<4>(variant, p, stream)
           : p.M <= 8   ? rows_beside<8>(variant, p, stream)
           : p.M <= 16  ? rows_beside<16>(variant, p, stream)
           : p.M <= 128 ? rows_beside<16, true>(variant, p, stream)
                        : cudaErrorInvalidValue;
}

// Runs everything after the split.
inline cudaError_t multiply(int variant, const Planes& planes, const Product& p, bool split_inside, int* counts,
                            float* sums, int sms, cudaStream_t stream) {
    cudaError_t e = cudaSuccess;
    if (is_rows(variant)) {
        e = rows(variant, p, stream);
    } else {
        switch (p.epilogue.activation) {
            case GELU_ERF:
                e = multiply_as<GELU_ERF>(variant, planes, p, split_inside, counts, sums, sms, stream);
                break;
#ifndef GALLERY_ERF_ONLY
            case GELU_TANH:
                e = multiply_as<GELU_TANH>(variant, planes, p, split_inside, counts, sums, sms, stream);
                break;
            case RELU:
                e = multiply_as<RELU>(variant, planes, p, split_inside, counts, sums, sms, stream);
                break;
            case SILU:
                e = multiply_as<SILU>(variant, planes, p, split_inside, counts, sums, sms, stream);
                break;
#endif
            default:
                e = multiply_as<NONE>(variant, planes, p, split_inside, counts, sums, sms, stream);
        }
    }
    if (e || !p.partial) return e;
    return launch(reduce_kernel, (int64_t(p.M) * p.N + 255) / 256, 256, 0, stream, p);
}
}  // namespace linear
// ---- end linear
// -----------------------------------------------------------------------------------------------------------------

// Splits x [M, K] and W [N, K]; M or N may be 0.
extern "C" int linear_split(const float* x, int64_t x_stride, int M, void* x_hi, void* x_lo, float* undo_x,
                            const float* w, int64_t w_stride, int N, void* w_hi, void* w_lo, float* undo_w, int K,
                            int padded, void* stream) {
    return linear::split({x, x_stride, M, static_cast<__half*>(x_hi), static_cast<__half*>(x_lo), undo_x},
                         {w, w_stride, N, static_cast<__half*>(w_hi), static_cast<__half*>(w_lo), undo_w}, K, padded,
                         static_cast<cudaStream_t>(stream));
}
// Whether the product's kernel splits x itself, so that linear_split needs to split W alone, if anything.
extern "C" int linear_splits_inside(int variant, int M, int K, const float* x, int64_t x_stride) {
#ifdef GALLERY_HOPPER
    using namespace linear;
    return variant != PORTABLE && !is_rows(variant) && M <= MOST_TILES * width_of(variant) && K >= LEAST_COLUMNS &&
           K <= MOST_COLUMNS && int64_t(M) * K >= LEAST_ELEMENTS && K % 4 == 0 && (M == 1 || x_stride % 4 == 0) &&
           reinterpret_cast<uintptr_t>(x) % 16 == 0;
#else
    return 0;
#endif
}
// Memory for linear_multiply: how many ints of zeros it needs (which are zeros again after it) and how many floats.
extern "C" void linear_room(int variant, int splits, int sms, int M, int N, int padded, int64_t* counts,
                            int64_t* sums) {
    *counts = *sums = 0;
#ifdef GALLERY_HOPPER
    using namespace linear;
    if (variant == PORTABLE || is_rows(variant)) return;
    const int width = width_of(variant);
    const int64_t items = int64_t((M + width - 1) / width) * ((N + 127) / 128) * splits;
    const Shared shared = shared_tiles(items, splits, padded / BLOCK_K, sms);
    *counts = 2 + MOST_TILES + 2 * MOST_SMS, *sums = int64_t(shared.tiles) * shared.parts * 128 * width;
#endif
}
extern "C" int linear_multiply(int variant, int splits, int sms, int M, int N, int K, int padded, const float* x,
                               int64_t x_stride, const void* x_hi, const void* x_lo, const float* undo_x,
                               const float* w, int64_t w_stride, const void* w_hi, const void* w_lo,
                               const float* undo_w, int split_inside, int* counts, float* sums, const float* bias,
                               const float* residual, int64_t residual_stride, float scale, int activation,
                               float* partial, float* out, void* stream) {
    const linear::Product p{x,
                            w,
                            x_stride,
                            w_stride,
                            K,
                            undo_x,
                            undo_w,
                            out,
                            splits > 1 ? partial : nullptr,
                            M,
                            N,
                            padded,
                            splits,
                            {bias, residual, residual_stride, scale, activation}};
    return linear::multiply(variant, {x_hi, x_lo, w_hi, w_lo}, p, split_inside, counts, sums, sms,
                            static_cast<cudaStream_t>(stream));
}
"""

# The wrapper is C++ of its own, so that nvcc never parses torch's headers: that is most of a usual build.
CPP_SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#if __has_include(<torch/csrc/autograd/python_variable.h>)  // PyTorch's own headers, not a lighter stand-in for them
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#define WITH_PYTHON
#ifdef TORCH_HAS_CUDA
#include <ATen/Context.h>
#include <ATen/cuda/EmptyTensor.h>
#define WITHOUT_DISPATCHER
#endif
#endif

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

extern "C" int linear_split(const float* x, int64_t x_stride, int M, void* x_hi, void* x_lo, float* undo_x,
                            const float* w, int64_t w_stride, int N, void* w_hi, void* w_lo, float* undo_w, int K,
                            int padded, void* stream);
extern "C" int linear_multiply(int variant, int splits, int sms, int M, int N, int K, int padded, const float* x,
                               int64_t x_stride, const void* x_hi, const void* x_lo, const float* undo_x,
                               const float* w, int64_t w_stride, const void* w_hi, const void* w_lo,
                               const float* undo_w, int split_inside, int* counts, float* sums, const float* bias,
                               const float* residual, int64_t residual_stride, float scale, int activation,
                               float* partial, float* out, void* stream);
extern "C" int linear_splits_inside(int variant, int M, int K, const float* x, int64_t x_stride);
extern "C" void linear_room(int variant, int splits, int sms, int M, int N, int padded, int64_t* counts,
                            int64_t* sums);

namespace {
void check_matrix(const torch::Tensor& t, const char* name) {
    TORCH_CHECK(t.is_cuda(), "linear: ", name, " must be on the GPU");
    TORCH_CHECK(t.scalar_type() == torch::kFloat32, "linear: ", name, " must be float32");
    TORCH_CHECK(t.dim() == 2 && (t.stride(1) == 1 || t.size(1) == 1), "linear: ", name,
                " must be a matrix with contiguous rows");
}
int64_t padded_of(const torch::Tensor& t) { return (t.size(1) + 63) / 64 * 64; }
// Memory on t's device.
torch::Tensor made(const torch::Tensor& t, at::IntArrayRef shape, at::ScalarType type) {
#ifdef WITHOUT_DISPATCHER
    return at::detail::empty_cuda(shape, type, t.device(), std::nullopt);
#else
    return torch::empty(shape, t.options().dtype(type));
#endif
}
// A split operand in one allocation: planes hi and lo [rows, K rounded up to 64] of fp16, then the rows' factors.
torch::Tensor made_for(const torch::Tensor& t, int64_t rows, int64_t padded) {
    const std::array<int64_t, 1> size{rows * (padded * 2 + 2)};
    return made(t, at::IntArrayRef(size.data(), 1), torch::kFloat16);
}
struct Halves {
    char *hi = nullptr, *lo = nullptr;
    float* undo = nullptr;
    Halves() = default;
    Halves(const torch::Tensor& t, int64_t rows, int64_t padded) {
        const int64_t plane = rows * padded * 2;
        hi = static_cast<char*>(t.data_ptr()), lo = hi + plane, undo = reinterpret_cast<float*>(lo + plane);
    }
};

// Zeros that a product leaves as zeros: one set a stream, whose kernels run one after the other. A graph under capture
// gets its own, since it may be replayed beside anything.
torch::Tensor zeros_for(const torch::Tensor& x, int64_t count, cudaStream_t stream) {
    static std::mutex mutex;
    static auto& known = *new std::map<std::pair<int, cudaStream_t>, torch::Tensor>;  // outlives CUDA: never freed
    const auto options = x.options().dtype(torch::kInt32);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    if (status != cudaStreamCaptureStatusNone || stream == cudaStreamPerThread) return torch::zeros({count}, options);
    const std::lock_guard<std::mutex> lock(mutex);
    torch::Tensor& zeros = known[{x.device().index(), stream}];
    if (!zeros.defined()) zeros = torch::zeros({count}, options);
    return zeros;
}

constexpr int FIRST_ROWS = 4, TORCH = 7;  // from FIRST_ROWS on no split is needed
struct Plan {
    int variant, splits, sms;
};
using Key = std::array<int64_t, 4>;  // device, M, N, K
std::map<Key, Plan> plans;

// The current device while it is another than x's; to set the same one again is not free.
struct OnDeviceOf {
    std::optional<c10::cuda::CUDAGuard> guard;
    explicit OnDeviceOf(const torch::Tensor& x) {
#ifdef WITHOUT_DISPATCHER
        if (c10::cuda::current_device() == x.device().index()) return;
#endif
        guard.emplace(x.device());
    }
};

// x holds M rows of w's columns, `stride` apart; the result has `shape`. `rows` needs no split; else W is split beside
// x, into w_split where that is to be kept, unless w_split already holds it.
torch::Tensor run(const torch::Tensor& x, int64_t M, int64_t stride, at::IntArrayRef shape, const torch::Tensor& w,
                  const torch::Tensor* w_split, bool is_split, const torch::Tensor* bias,
                  const torch::Tensor* residual, double scale, int64_t activation, const Plan& plan) {
    const OnDeviceOf guard(x);
    const auto stream = c10::cuda::getCurrentCUDAStream().stream();
    const int64_t N = w.size(0);
    const int K = static_cast<int>(w.size(1)), padded = static_cast<int>(padded_of(w));
    torch::Tensor x_made, w_made, partial, zeros, sums;
    Halves xs, ws;
    bool inside = false;
    if (plan.variant < FIRST_ROWS) {
        x_made = made_for(x, M, padded), xs = Halves(x_made, M, padded);
        w_made = w_split ? *w_split : made_for(w, N, padded), ws = Halves(w_made, N, padded);
        // Beside a weight's split, that of x costs no launch of its own.
        inside = is_split && linear_splits_inside(plan.variant, static_cast<int>(M), K, x.data_ptr<float>(), stride);
        if (!inside) {
            const int error = linear_split(x.data_ptr<float>(), stride, static_cast<int>(M), xs.hi, xs.lo, xs.undo,
                                           w.data_ptr<float>(), w.stride(0), is_split ? 0 : static_cast<int>(N), ws.hi,
                                           ws.lo, ws.undo, K, padded, stream);
            C10_CUDA_CHECK(static_cast<cudaError_t>(error));
        }
        int64_t count = 0, floats = 0;
        linear_room(plan.variant, plan.splits, plan.sms, static_cast<int>(M), static_cast<int>(N), padded, &count,
                    &floats);
        if (inside || floats) zeros = zeros_for(x, count, stream);
        if (floats) sums = torch::empty({floats}, x.options());
    }
    auto out = made(x, shape, torch::kFloat32);
    if (plan.splits > 1) {
        const std::array<int64_t, 3> parts{plan.splits, M, N};
        partial = made(x, at::IntArrayRef(parts.data(), 3), torch::kFloat32);
    }
    const int error = linear_multiply(
        plan.variant, plan.splits, plan.sms, static_cast<int>(M), static_cast<int>(N), K, padded, x.data_ptr<float>(),
        stride, xs.hi, xs.lo, xs.undo, w.data_ptr<float>(), w.stride(0), ws.hi, ws.lo, ws.undo, inside,
        zeros.defined() ? zeros.data_ptr<int>() : nullptr, sums.defined() ? sums.data_ptr<float>() : nullptr,
        bias ? bias->data_ptr<float>() : nullptr, residual ? residual->data_ptr<float>() : nullptr,
        residual ? residual->stride(0) : 0, static_cast<float>(scale), static_cast<int>(activation),
        plan.splits > 1 ? partial.data_ptr<float>() : nullptr, out.data_ptr<float>(), stream);
    C10_CUDA_CHECK(static_cast<cudaError_t>(error));
    return out;
}
bool is_plain(const torch::Tensor& t, const torch::Tensor& beside) {
    return t.is_cuda() && t.device() == beside.device() && t.scalar_type() == torch::kFloat32 && t.is_contiguous();
}
}  // namespace

// Memory for a weight's split, to be kept.
torch::Tensor room(torch::Tensor w) {
    check_matrix(w, "the weight");
    return made_for(w, w.size(0), padded_of(w));
}

torch::Tensor multiply(torch::Tensor x, torch::Tensor w, std::optional<torch::Tensor> w_split, bool is_split,
                       std::optional<torch::Tensor> bias, std::optional<torch::Tensor> residual, double scale,
                       int64_t activation, int64_t variant, int64_t splits, int64_t sms) {
    check_matrix(x, "x");
    check_matrix(w, "the weight");
    TORCH_CHECK(x.size(1) == w.size(1), "linear: x has ", x.size(1), " columns, the weight ", w.size(1));
    const std::array<int64_t, 2> shape{x.size(0), w.size(0)};
    return run(x, x.size(0), x.stride(0), at::IntArrayRef(shape.data(), 2), w, w_split ? &*w_split : nullptr, is_split,
               bias ? &*bias : nullptr, residual ? &*residual : nullptr, scale, activation,
               {static_cast<int>(variant), static_cast<int>(splits), static_cast<int>(sms)});
}

// Keeps which plan known() shall take for such operands.
void remember(int64_t device, int64_t M, int64_t N, int64_t K, int64_t variant, int64_t splits, int64_t sms) {
    plans[{device, M, N, K}] = {static_cast<int>(variant), static_cast<int>(splits), static_cast<int>(sms)};
}
void forget_plans() { plans.clear(); }

namespace {
#ifdef WITHOUT_DISPATCHER
// By PyTorch's own operators, without a gradient and in float32 whatever autocast wants.
torch::Tensor by_torch(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor* bias, double scale,
                       int64_t activation) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const c10::impl::ExcludeDispatchKeyGuard as_they_are(c10::autocast_dispatch_keyset);
    auto out = at::linear(x, w, bias ? std::optional<torch::Tensor>(*bias) : std::nullopt);
    if (activation == 1) at::gelu_(out);
    if (activation == 2) at::gelu_(out, "tanh");
    if (activation == 3) at::relu_(out);
    if (activation == 4) at::silu_(out);
    if (scale != 1.0) out.mul_(scale);
    return out;
}
#endif

// See known(). split(): the weight's split that is at hand, or null.
template <typename Split>
torch::Tensor attempt(const torch::Tensor& x, const torch::Tensor& w, Split split, const torch::Tensor* bias,
                      double scale, int64_t activation) {
    const torch::Tensor none;
    if (plans.empty() || x.dim() < 1 || w.dim() != 2 || !is_plain(x, x) || !is_plain(w, x)) return none;
    const int64_t N = w.size(0), K = w.size(1);
    if (K == 0 || x.numel() == 0 || x.size(-1) != K) return none;
    if (bias && (bias->dim() != 1 || bias->size(0) != N || !is_plain(*bias, x))) return none;
    const int64_t M = x.numel() / K;
    const auto found = plans.find({x.device().index(), M, N, K});
    if (found == plans.end()) return none;
    if (found->second.variant == TORCH) {
#ifdef WITHOUT_DISPATCHER
        if (at::globalContext().float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST) return none;
        return by_torch(x, w, bias, scale, activation);
#else
        return none;
#endif
    }
    const torch::Tensor* const w_split = found->second.variant >= FIRST_ROWS ? nullptr : split();
    if (!w_split && found->second.variant < FIRST_ROWS) return none;
    std::array<int64_t, 8> shape{M, N};
    const int64_t dims = x.dim();
    if (dims > 8) return none;
    for (int64_t d = 0; d + 1 < dims; ++d) shape[d] = x.size(d);
    shape[dims - 1] = N;
    return run(x, M, K, at::IntArrayRef(shape.data(), dims), w, w_split, true, bias, nullptr, scale, activation,
               found->second);
}

#ifdef WITH_PYTHON
// What linear.py keeps of weights, once more: by the address of the Python object, which linear.py watches. It is
// what it was while all of this is the same.
struct Kept {
    c10::weak_intrusive_ptr<c10::TensorImpl> of;
    uint32_t version;
    const void* data;
    std::array<int64_t, 4> layout;  // sizes and strides
    torch::Tensor split;
    std::set<cudaStream_t> ready;  // the streams that run behind its making
};
std::map<PyObject*, Kept>& kept() {
    static auto& all = *new std::map<PyObject*, Kept>;  // outlives CUDA: never freed
    return all;
}
std::array<int64_t, 4> layout_of(const torch::Tensor& w) {
    return {w.size(0), w.size(1), w.stride(0), w.stride(1)};
}
const torch::Tensor* split_of(PyObject* object, const torch::Tensor& w) {
    const auto found = kept().find(object);
    if (found == kept().end() || w.is_inference()) return nullptr;
    const Kept& k = found->second;
    const auto* const impl = w.unsafeGetTensorImpl();
    if (k.of._unsafe_get_target() != impl || k.version != impl->version_counter().current_version() ||
        k.data != w.data_ptr() || k.layout != layout_of(w))
        return nullptr;
    const auto stream = c10::cuda::getCurrentCUDAStream(w.device().index()).stream();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (!k.ready.count(stream) || cudaStreamIsCapturing(stream, &status) || status != cudaStreamCaptureStatusNone)
        return nullptr;
    return &k.split;
}

// attempt() for Python, without what pybind11 costs: (x, weight, bias, scale, activation's number); None where there
// is no plan, no split, or a subclass of Tensor.
PyObject* attempt_for_python(PyObject*, PyObject* const* given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    if (count != 5 || !THPVariable_CheckExact(given[0]) || !THPVariable_CheckExact(given[1]) ||
        !(given[2] == Py_None || THPVariable_CheckExact(given[2])))
        Py_RETURN_NONE;
    const double scale = PyFloat_AsDouble(given[3]);
    const long activation = PyLong_AsLong(given[4]);
    if (PyErr_Occurred()) return nullptr;
    const torch::Tensor& w = THPVariable_Unpack(given[1]);
    auto out = attempt(THPVariable_Unpack(given[0]), w, [&] { return split_of(given[1], w); },
                       given[2] == Py_None ? nullptr : &THPVariable_Unpack(given[2]), scale, activation);
    if (!out.defined()) Py_RETURN_NONE;
    return THPVariable_Wrap(std::move(out));
    END_HANDLE_TH_ERRORS
}
PyMethodDef attempt_method = {"known", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(attempt_for_python)),
                              METH_FASTCALL, "see known()"};
#endif
}  // namespace

// The result where a plan for such operands is remembered and the weight's split is at hand or not needed, else an
// undefined tensor: the way of all calls but the first, which costs the host one call. Contiguous operands.
torch::Tensor known(torch::Tensor x, torch::Tensor w, std::optional<torch::Tensor> w_split,
                    std::optional<torch::Tensor> bias, double scale, int64_t activation) {
    return attempt(x, w, [&] { return w_split ? &*w_split : nullptr; }, bias ? &*bias : nullptr, scale, activation);
}

#ifdef WITH_PYTHON
// known() as a function that costs a twentieth to call and finds the split itself, or 0 where PyTorch's headers do not
// let it be made; and what tells it of splits: that the current stream runs behind that of a weight, and that there is
// none any more (of none of them: 0).
py::object quick() { return py::reinterpret_steal<py::object>(PyCFunction_New(&attempt_method, nullptr)); }
void hold(py::object weight, torch::Tensor split) {
    const torch::Tensor& w = THPVariable_Unpack(weight.ptr());
    const auto stream = c10::cuda::getCurrentCUDAStream(w.device().index()).stream();
    const auto found = kept().find(weight.ptr());
    if (found != kept().end() && found->second.split.is_same(split)) {
        found->second.ready.insert(stream);
        return;
    }
    kept().erase(weight.ptr());
    kept().emplace(weight.ptr(), Kept{c10::weak_intrusive_ptr<c10::TensorImpl>(w.getIntrusivePtr()),
                                      w.unsafeGetTensorImpl()->version_counter().current_version(), w.data_ptr(),
                                      layout_of(w), split, {stream}});
}
void drop(int64_t id) {
    if (id) kept().erase(reinterpret_cast<PyObject*>(id));
    else kept().clear();
}
#else
int64_t quick() { return 0; }
void hold(torch::Tensor weight, torch::Tensor split) {}
void drop(int64_t id) {}
#endif
"""

ACTIVATIONS = {None: 0, "gelu": 1, "gelu_tanh": 2, "relu": 3, "silu": 4}
BLOCK_K = 64


PORTABLE, HOPPER_32, HOPPER_64, HOPPER_128, ROWS_64, ROWS_128, ROWS_256, TORCH = range(8)
VARIANTS = ("portable", "hopper 32", "hopper 64", "hopper 128", "rows 64", "rows 128", "rows 256", "torch")
WIDTHS = {PORTABLE: 128, HOPPER_32: 32, HOPPER_64: 64, HOPPER_128: 128}
"""Rows of x in a tile."""
SIDES = {ROWS_64: 64, ROWS_128: 128, ROWS_256: 256}
"""Threads of `rows` side by side along K."""
FEW_ROWS, MOST_ROWS = 16, 128
"""The most rows of x that `rows` multiplies at a time, and that it takes."""


@dataclass(frozen=True)
class Plan:
    """Which kernel runs, and among how many blocks the columns are divided."""

    variant: int
    """Index in ``VARIANTS``."""
    splits: int
    """Parts of K; above 1 a second kernel adds the partial results."""

    def __str__(self) -> str:
        if self.variant == TORCH:
            return "torch: F.linear, which was measured to be faster here"
        kernel = {
            PORTABLE: "split x, then portable: mma.sync, 128 x 128 tiles",
            **{v: f"rows: plain float32, W read once as it is, {side} threads abreast" for v, side in SIDES.items()},
        }.get(self.variant, f"split x, then hopper: wgmma, 128 x {WIDTHS.get(self.variant)} tiles")
        return f"{kernel}, K in {self.splits} part{'s' if self.splits > 1 else ''}"


TUNED: dict[str, tuple[tuple[int, int, int, str], ...]] = {}
"""Measured choices: for (part of) a device's name, rows of M, N, K and a key of ``recipes``."""


@functools.lru_cache(maxsize=4096)
def choose(M: int, N: int, K: int, sms: int, hopper: bool, device: str = "") -> Plan:
    """The plan for x [M, K] @ W [N, K].T.

    What was measured on ``device`` at the nearest shape, at most a factor of two away in all, goes before the rule.
    """
    known, row = recipes(M, N, K, sms, hopper), measured(M, N, K, device)
    return known.get(row[-1] if row else "rule", known["rule"])


def measured(M: int, N: int, K: int, device: str) -> tuple[int, int, int, str] | None:
    """The row of ``TUNED`` that decides, or None."""
    rows = TUNED.get(device) or next((rows for name, rows in TUNED.items() if name and name in device), ())
    near = [(abs(math.log2(M / row[0])) + abs(math.log2(N / row[1])) + abs(math.log2(K / row[2])), row) for row in rows]
    distance, row = min(near, default=(2.0, None))
    return row if distance <= 1 else None


def recipes(M: int, N: int, K: int, sms: int, hopper: bool) -> dict[str, Plan]:
    """Every plan that is worth measuring, by a name that means the same at another shape. "rule" is the rule's."""
    found = {"rule": _rule(M, N, K, sms, hopper)}
    steps = -(-K // BLOCK_K)
    for variant in _tensor_variants(M, hopper):
        for splits in (1, 2, 3, 4, 8, 16, 32):
            if splits == 1 or (splits * 4 <= steps and splits * M * N <= 1 << 26):
                found[f"{VARIANTS[variant]} / {splits}"] = Plan(variant, splits)
    if M <= FEW_ROWS or (M <= MOST_ROWS and M * N * K <= 1 << 26):
        for variant, side in SIDES.items():
            for splits in (1, 2, 4, 8, 16):
                if splits == 1 or (splits * 1024 <= K and N * splits <= 32 * sms):
                    found[f"{VARIANTS[variant]} / {splits}"] = Plan(variant, _row_splits(K, splits, side))
    found["torch"] = Plan(TORCH, 1)
    return found


def _tensor_variants(M: int, hopper: bool) -> tuple[int, ...]:
    """The tensor cores' kernels whose tiles are not for the most part empty."""
    hoppers = tuple(v for v in (HOPPER_32, HOPPER_64, HOPPER_128) if v == HOPPER_32 or WIDTHS[v] < 4 * M)
    return hoppers if hopper else (PORTABLE,)


def _row_splits(K: int, splits: int, side: int) -> int:
    """Parts of K, of equal multiples of 128 columns: ``splits``, or as many as keep a thread to 128 additions a sum."""
    splits = max(splits, -(-K // (side * 4 * 128)))
    segment = -(-K // (splits * 128)) * 128
    return -(-K // segment)


def _rows_rule(M: int, N: int, K: int, sms: int) -> Plan:
    """`rows` with as many threads abreast as keep a multiprocessor's loads on their way (H200: docs/gallery.md)."""
    groups = -(-N // (2 if M <= 2 or M > 8 else 32 >> (M - 1).bit_length())) * -(-M // FEW_ROWS)
    if M <= 2:
        variant = ROWS_256 if M == 1 and K >= 4096 and K % 4 == 0 else ROWS_128
    else:
        variant = ROWS_256 if groups <= 2 * sms and K > 512 else ROWS_64 if M > 4 and groups >= 7 * sms else ROWS_128
    return Plan(variant, _row_splits(K, max(1, min(16, sms // groups, K // 4096)), SIDES[variant]))


STEP_US = {PORTABLE: 3.3, HOPPER_32: 0.5, HOPPER_64: 0.6, HOPPER_128: 1.1}
"""Microseconds that a multiprocessor takes for 64 columns of a tile; read off an H200's times, but for the portable
kernel's."""
END_US = {PORTABLE: 6.0, HOPPER_32: 1.5, HOPPER_64: 2.5, HOPPER_128: 5.0}
"""And for a tile's epilogue."""
BYTES_A_US = 4.1e6
"""Of device memory (H200)."""
SECOND_US = 8.0
"""What a second kernel costs beside its traffic."""


def _rule(M: int, N: int, K: int, sms: int, hopper: bool) -> Plan:
    """The plan where nothing near was measured: the least time by the figures above.

    Few rows of x go without a split where the weight is small for them, or the tensor cores' kernel is portable.
    """
    few = M <= FEW_ROWS and (not hopper or M <= 8 or N * K <= 1 << 22)
    if few or (M <= MOST_ROWS and M * N * K <= 1 << 25):
        return _rows_rule(M, N, K, sms)
    steps = -(-K // BLOCK_K)
    floor = N * K * 4 / BYTES_A_US
    best: tuple[float, Plan] | None = None
    for variant in _tensor_variants(M, hopper):
        tiles = -(-M // WIDTHS[variant]) * -(-N // 128)
        for splits in range(1, max(1, min(steps // 4, 64)) + 1):
            full, left = divmod(tiles * splits, sms)
            waves = float(full + (left > 0))
            if full and left and splits == 1 and variant != PORTABLE:
                waves = full + 1 / min(sms // left, 8)  # blocks share the tiles that are left
            busy = waves * (-(-steps // splits) * STEP_US[variant] + END_US[variant])
            more = SECOND_US + splits * M * N * 8 / BYTES_A_US if splits > 1 else 0.0
            cost = max(busy, floor) + more
            if best is None or cost < best[0]:
                best = (cost, Plan(variant, splits))
    assert best is not None
    return best[1]


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
    targets = ["-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_80,code=compute_80"]
    return ["-DGALLERY_HOPPER", "--threads=2", *targets]


@functools.cache
def extension() -> Any:
    """The compiled module, built on first use."""
    cuda = Path(torch.__file__).with_name("lib").joinpath("libtorch_cuda.so").exists()
    return load_inline(
        name="gallery_linear",
        cpp_sources=CPP_SOURCE,
        cuda_sources=CUDA_SOURCE,
        functions=["room", "multiply", "known", "quick", "hold", "drop", "remember", "forget_plans"],
        extra_cflags=["-O2", "-DTORCH_HAS_CUDA"] if cuda else ["-O2"],
        extra_cuda_cflags=["-O3", "-std=c++17", *hopper_flags()],
        no_implicit_headers=True,
    )


@functools.cache
def _device(index: int) -> tuple[int, bool, str]:
    """Multiprocessors, whether the wgmma kernels were built for this device, and its name ("" where they should be and
    are not: what was measured with them does not hold)."""
    wanted = torch.cuda.get_device_capability(index) == (9, 0)
    hopper = wanted and bool(hopper_flags())
    name = torch.cuda.get_device_name(index) if hopper == wanted else ""
    return torch.cuda.get_device_properties(index).multi_processor_count, hopper, name


def forget_plans() -> None:
    """Choose anew at the next call of each shape: needed after a change of ``TUNED``."""
    choose.cache_clear()
    if extension.cache_info().currsize:
        extension().forget_plans()


@dataclass(frozen=True)
class _Prepared:
    """A weight's split, with all that it depends on."""

    of: weakref.ref[torch.Tensor]
    state: tuple[Any, ...]
    storage: Any
    """Held so that no other tensor can come to lie at the same address."""
    split: torch.Tensor
    """Its planes, and the factors that undo the scaling."""
    stream: int
    ready: Any
    """The stream that split the weight, and the event that tells others when it has."""


_prepared: dict[int, _Prepared] = {}


def forget(weight: torch.Tensor | None = None) -> None:
    """Drop the split of ``weight`` (of all weights): needed after a write that PyTorch does not count
    (``weight.data``, raw pointers)."""
    if weight is None:
        for key in tuple(_prepared):
            _drop(key)
    else:
        _drop(id(weight))


def _drop(key: int) -> None:
    if _prepared.pop(key, None) is not None:
        extension().drop(key)


def may_keep(weight: torch.Tensor) -> bool:
    """Whether a split of this weight, now, may be kept, or a kept one be used (see the module's docstring)."""
    return not (weight.is_inference() or torch.cuda.is_current_stream_capturing())


def prepared(weight: torch.Tensor) -> torch.Tensor | None:
    """The weight's split, where one is kept and holds."""
    known = _prepared.get(id(weight))
    if known is None or known.of() is not weight or known.state != _state(weight) or not may_keep(weight):
        return None
    if _stream_of(weight.device.index or 0) != known.stream:
        stream = torch.cuda.current_stream(weight.device)
        stream.wait_event(known.ready)
        known.split.record_stream(stream)
        extension().hold(weight, known.split)
    return known.split


def _stream_of(index: int) -> int:
    """The current stream's handle, without the object around it where PyTorch has a way: microseconds a call."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw(index) if raw else torch.cuda.current_stream(index).cuda_stream


def _state(weight: torch.Tensor) -> tuple[Any, ...]:
    return (weight._version, weight.data_ptr(), weight.shape, weight.stride(), weight.device)


@functools.cache
def _watch_optimisers() -> None:
    """Fused optimisers write parameters without counting it in `_version` (seen in PyTorch 2.11 and 2.13), so every
    optimiser's step lets go of the splits of what it may have changed."""

    def stepped(optimiser: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimiser.param_groups:
            for parameter in group["params"]:
                _drop(id(parameter))

    register_optimizer_step_post_hook(stepped)


def kept(weight: torch.Tensor, made: torch.Tensor) -> None:
    """Keep ``made``, which now holds the weight's split."""
    _watch_optimisers()
    stream, ready = _stream_of(weight.device.index or 0), torch.cuda.Event()
    ready.record(torch.cuda.current_stream(weight.device))
    key = id(weight)
    of = weakref.ref(weight, lambda _: _drop(key))
    _prepared[key] = _Prepared(of, _state(weight), weight.untyped_storage(), made, stream, ready)
    extension().hold(weight, made)


def _first_known(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, scale: float, number: int
) -> torch.Tensor | None:
    """``known`` until the extension is there."""
    global known
    if not x.is_cuda or torch.compiler.is_compiling():
        return None
    known = extension().quick() or _known_to_any
    y: torch.Tensor | None = known(x, weight, bias, scale, number)
    return y


def _known_to_any(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, scale: float, number: int
) -> torch.Tensor | None:
    """``known`` where it cannot be made of PyTorch's own headers."""
    y: torch.Tensor | None = extension().known(x, weight, prepared(weight), bias, scale, number)
    return y


known: Any = _first_known
"""``linear`` where a plan for such operands is remembered and the weight's split is kept, else None, with as little of
the host's time as there is a way to: x, weight, bias, scale, and the activation as a number of ``ACTIVATIONS``."""


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
    number = ACTIVATIONS.get(activation)
    if number is None:
        raise RuntimeError(f"linear: activation one of {', '.join(map(repr, ACTIVATIONS))}, got {activation!r}")
    if residual is None and plan is None:
        out: torch.Tensor | None = known(x, weight, bias, scale, number)
        if out is not None:
            return out
    return _planned(x, weight, bias, activation, number, scale, residual, plan)


def _planned(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    number: int,
    scale: float,
    residual: torch.Tensor | None,
    plan: Plan | None,
) -> torch.Tensor:
    """``linear`` of any operands, by ``plan`` or by the one chosen, which is remembered."""
    if weight.dim() != 2 or x.dim() < 1 or x.shape[-1] != weight.shape[1]:
        raise RuntimeError(f"linear: x [..., K] and weight [N, K], got {tuple(x.shape)} and {tuple(weight.shape)}")
    N, K = weight.shape
    flat = x.dim() == 2
    shape = (*x.shape[:-1], N)
    for name, tensor in (("x", x), ("weight", weight), ("bias", bias), ("residual", residual)):
        if tensor is not None and not (tensor.is_cuda and tensor.dtype is torch.float32 and tensor.device == x.device):
            raise RuntimeError(f"linear: {name} must be float32 on x's GPU, got {tensor.dtype} on {tensor.device}")
    if bias is not None and bias.shape != (N,):
        raise RuntimeError(f"linear: bias must be [{N}], got {tuple(bias.shape)}")
    if residual is not None and residual.shape != shape:
        raise RuntimeError(f"linear: residual must be {shape}, got {tuple(residual.shape)}")
    if x.numel() == 0 or N * K == 0:
        raise RuntimeError(f"linear: nothing to multiply, got {tuple(x.shape)} and {tuple(weight.shape)}")
    rows = x if flat else x.reshape(-1, K)
    M = rows.shape[0]
    index = x.device.index or 0
    sms, hopper, device = _device(index)
    chosen = plan or choose(M, N, K, sms, hopper, device)
    if plan is None:
        extension().remember(index, M, N, K, chosen.variant, chosen.splits, sms)
    if chosen.variant == TORCH and plan is None and torch.get_float32_matmul_precision() != "highest":
        chosen = _rule(M, N, K, sms, hopper)  # PyTorch may use TF32: less than we promise
    if chosen.variant == TORCH:
        return _by_torch(x, weight, bias, activation, scale, residual)
    rows = rows if rows.stride(1) == 1 or K == 1 else rows.contiguous()
    split, is_split, given_weight = None, False, weight
    if weight.stride(1) != 1 and K > 1:  # a copy each time: its split is not kept
        weight = weight.contiguous()
    elif chosen.variant not in SIDES:
        split = prepared(weight)
        is_split = split is not None
        if split is None and may_keep(weight):
            split = extension().room(weight)
    out = extension().multiply(
        rows,
        weight,
        split,
        is_split,
        bias if bias is None or bias.is_contiguous() else bias.contiguous(),
        None if residual is None else residual.reshape(M, N).contiguous(),
        scale,
        number,
        chosen.variant,
        chosen.splits,
        sms,
    )
    if split is not None and not is_split:
        kept(given_weight, split)
    return out if flat else out.reshape(shape)


def _by_torch(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    scale: float,
    residual: torch.Tensor | None,
) -> torch.Tensor:
    """The same by PyTorch's own operators, for the shapes at which they were measured to be faster."""
    with torch.no_grad(), torch.autocast("cuda", enabled=False):
        out = F.linear(x, weight, bias)
        if activation in ("gelu", "gelu_tanh"):
            out = F.gelu(out, approximate="tanh" if activation == "gelu_tanh" else "none")
        elif activation is not None:
            out = (F.relu if activation == "relu" else F.silu)(out)
        out = out if scale == 1.0 else out * scale
        return out if residual is None else out + residual


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
