"""Row softmax with its prologue in one pass: softmax(activation(z + bias) * scale + mask), each row read once,
written once.

PyTorch runs bias, GELU, scale, mask and softmax as separate kernels, and its softmax reads a long row two or three
times. Here a row stays in registers from its only read to its only write:

  exact     rows of 1, 2, 4 or 8 whole pieces of 16 bytes a thread, of one, two or four warps, with bias and GELU or
            without: short code, which is what small calls wait for.
  warp      N up to 1024: a warp a row, eight rows a block, no barrier at all.
  block     a block a row, 16 or 32 values a thread; on Hopper also a cluster of blocks, through distributed shared
            memory.
  stream    on Hopper, for long rows: blocks stay, claim rows as they come to need them, and the bulk copy engine brings
            a cluster's next row into shared memory while one is computed and written. Bias stays in registers or in
            shared memory for all rows.
  online    anything else: one pass keeps a running (highest, sum) pair, a second recomputes and writes (two reads,
            one write).

A row's warps meet once: each takes exp relative to its own highest value, in powers of two with whole exponents, so
that bringing them together afterwards is exact. Rows that begin anywhere (N = 50257) are read and written by 16 bytes
all the same where z and y begin alike: only the pieces at both ends go by element.

Arithmetic is float32 whatever the dtype. exp is one multiplication and ex2.approx; GELU (erf) a polynomial and
ex2.approx, to 2.5e-7 right (PyTorch's own: 4.5e-7; half types: 5.5e-5) and without a division.
Special values act as in PyTorch: NaN or +Inf in a row make the row NaN, -Inf counts nothing, a row of -Inf only is NaN.
Deterministic: sums have a fixed order.

Limits: float32, float16, bfloat16; softmax over the last dimension; z [M, N] with any row stride >= N; bias [N];
mask [N] or [M, N], added where it is floating point, and where it is bool, False means left out. N below 2^31 - 2^16.
Forward only.

Measured: docs/gallery.md.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from dataclasses import dataclass
from pathlib import Path
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

// V consecutive elements that one instruction moves: 16 bytes, or one element where z and y allow no more.
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

__device__ __forceinline__ float power_of_two(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
__device__ __forceinline__ float inverse(float v) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
constexpr float LOG2_E = 1.4426950409f;

enum Activation { NONE, GELU_ERF, GELU_TANH };
// v times the normal distribution's integral: the tail beyond |v| is a power of two whose exponent is a polynomial of
// |v|, fitted for the least error of the result. float32: to 2.5e-7 right over all v, most of it the result's own
// rounding, where PyTorch's formula with erff is to 4.5e-7, and a third of its instructions. Half types: to 5.5e-5, a
// ninth of what rounding a softmax of it to float16 may cost.
template <typename T>
__device__ __forceinline__ float gelu_erf(float v) {
    const float size = fabsf(v);
    float h;
    if constexpr (sizeof(T) == 4) {
        h = fmaf(size, -1.69039652e-06f, 2.50832363e-05f);
        h = fmaf(h, size, -0.000114462273f), h = fmaf(h, size, -0.000323343353f), h = fmaf(h, size, 0.00733338622f);
        h = fmaf(h, size, -0.0527142026f), h = fmaf(h, size, -0.459115446f), h = fmaf(h, size, -1.15112329f);
        h = fmaf(h, size, -0.999998868f);
    } else {
        h = fmaf(size, -0.024873944f, -0.498854548f), h = fmaf(h, size, -1.12921774f), h = fmaf(h, size, -1.00353765f);
    }
    return fmaf(-size, power_of_two(h), fmaxf(v, 0.f));
}
// 0.5 v (1 + tanh(u)) is v / (1 + exp(-2 u)), without the cancellation and the branches of tanhf.
__device__ __forceinline__ float gelu_tanh(float v) {
    return v * inverse(1.f + power_of_two(-2.3022081984f * (v + 0.044715f * v * v * v)));
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

    __host__ __device__ __forceinline__ bool others() const { return scale != 1.f || mask; }
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

// Where a thread's pieces of a row lie. Positions count from a boundary before the row, of 16 bytes or (in a stream
// where rows begin anywhere) of 128: position = column + shift, and pieces begin at `at`, `at + step`, ... Of the
// warp's pieces `present`, a bit each, begin before the row's end, and the `inside` leading ones are inside it, but for
// the first where the row begins in it (`front`).
struct Place {
    int at, shift, end, inside, present, front;
};
// Of rows that end at `end`, or up to `spare` positions behind it.
template <int V, int PIECES>
__device__ __forceinline__ Place place_of(int begin, int end, int shift, int thread, int step, int spare = 0) {
    const int first = begin + thread / 32 * 32 * V;  // the warp's
    Place w{begin + thread * V, shift, end, 0, 0, 0};
    const int count = first < end + spare ? min(PIECES, (end + spare - first - 1) / step + 1) : 0;
    if (count) w.present = static_cast<int>(0xffffffffu >> (32 - count));
    if (end - first >= 32 * V) w.inside = min(PIECES, (end - first - 32 * V) / step + 1);
    // In uniform registers, if the compiler sees it.
    w.inside = __shfl_sync(0xffffffffu, w.inside, 0), w.present = __shfl_sync(0xffffffffu, w.present, 0);
    if (shift) w.front = __shfl_sync(0xffffffffu, first < shift, 0);
    return w;
}
__device__ __forceinline__ bool begins(const Place& w, int p) { return w.present >> p & 1; }
// Whether elements of the warp's piece may lie outside the row.
__device__ __forceinline__ bool ragged(const Place& w, int p) { return p >= w.inside || (p == 0 && w.front); }
// The compiler may not keep what it has derived from a place: dozens of positions and predicates.
__device__ __forceinline__ Place anew(Place w) {
    asm volatile("" : "+r"(w.at), "+r"(w.end), "+r"(w.inside), "+r"(w.present));
    __builtin_assume(w.at >= 0);
    return w;
}
__device__ __forceinline__ bool holds(const Place& w, int position) { return position >= w.shift && position < w.end; }

// Elements of `from`, which begins at column 0, beside the piece at `position`.
template <bool WHOLE, bool SHIFTED, typename T, int V>
__device__ __forceinline__ void beside(const T* from, const Place& w, int position, float (&b)[V]) {
    if constexpr (!SHIFTED) {
        if (WHOLE || position < w.end) load<T, V>(from + position, b);
    } else {
#pragma unroll
        for (int v = 0; v < V; ++v)
            if (WHOLE || holds(w, position + v)) b[v] = as_float(from[position + v - w.shift]);
    }
}

// The prologue over all of a thread's pieces, then -Inf for what is outside the row. `bias` gives the elements beside a
// piece. Returns the highest value. FULL: nothing is outside, and there is neither scale nor mask; the branches are
// outside the loops then. Elsewhere bias with GELU has a loop of its own: a jump over a kilobyte of code in every piece
// costs as much as what the piece needs (8192 x 50256: 948 us instead of 815).
template <bool FULL, bool SHIFTED, typename T, int V, int PIECES, typename Bias>
__device__ __forceinline__ float prepare(const Prologue<T>& prologue, float (&f)[PIECES][V], int64_t row, Place w,
                                         int step, Bias bias) {
    float highest = -INFINITY;
    auto each = [&](auto what) {
#pragma unroll
        for (int p = 0; p < PIECES; ++p)
            if (FULL || begins(w, p)) what(p);
    };
    auto one = [&](int p, auto function) {
#pragma unroll
        for (int v = 0; v < V; ++v) f[p][v] = function(f[p][v]);
    };
    auto biased = [&](int p, auto function) {
        float b[V] = {};
        bias(p, b);
#pragma unroll
        for (int v = 0; v < V; ++v) f[p][v] = function(f[p][v] + b[v]);
    };
    auto finished = [&](int p) {
        if (!FULL && ragged(w, p)) {
            const Place here = anew(w);
#pragma unroll
            for (int v = 0; v < V; ++v)
                if (!holds(here, here.at + p * step + v)) f[p][v] = -INFINITY;
        }
#pragma unroll
        for (int v = 0; v < V; ++v) highest = fmaxf(highest, f[p][v]);
    };
    auto erf = [](float v) { return gelu_erf<T>(v); };
    auto tanh = [](float v) { return gelu_tanh(v); };
    auto same = [](float v) { return v; };
    const bool is_erf = prologue.activation == GELU_ERF;
    if constexpr (FULL) {
        if (is_erf && prologue.bias) each([&](int p) { biased(p, erf); });
        else if (is_erf) each([&](int p) { one(p, erf); });
        else if (prologue.bias) each([&](int p) { biased(p, same); });
        if (prologue.activation == GELU_TANH) each([&](int p) { one(p, tanh); });
        each(finished);
    } else {
        auto usual = [&](int p) {
            if (prologue.bias) biased(p, same);
            if (is_erf) one(p, erf);
        };
        auto seldom = [&](int p) {
            if (prologue.activation == GELU_TANH) one(p, tanh);
            if (!prologue.others()) return;
            const Place here = anew(w);
            const int position = here.at + p * step;
#pragma unroll
            for (int v = 0; v < V; ++v) f[p][v] *= prologue.scale;
            if (prologue.mask && prologue.mask_is_bool) {
                const unsigned char* keep =
                    static_cast<const unsigned char*>(prologue.mask) + row * prologue.mask_stride - here.shift;
#pragma unroll
                for (int v = 0; v < V; ++v)
                    if (holds(here, position + v) && !keep[position + v]) f[p][v] = -INFINITY;
            } else if (prologue.mask) {
                const T* mask = static_cast<const T*>(prologue.mask) + row * prologue.mask_stride;
                float add[V] = {};
                beside<false, SHIFTED>(mask, here, position, add);
#pragma unroll
                for (int v = 0; v < V; ++v) f[p][v] += add[v];
            }
        };
        const bool first = prologue.bias || is_erf, then = prologue.activation == GELU_TANH || prologue.others();
        if (SHIFTED && is_erf && prologue.bias && !then) {
            each([&](int p) { biased(p, erf), finished(p); });
            return highest;
        }
        if (!SHIFTED && (first || then)) each([&](int p) { usual(p), seldom(p); });
        if (SHIFTED && first) each(usual);
        if (SHIFTED && then) each(seldom);
        each(finished);
    }
    return highest;
}
// The row's piece at `y + position`.
template <bool FULL, typename T, int V, int PIECES>
__device__ __forceinline__ void write_row(T* y, float (&f)[PIECES][V], Place w, int step, float factor) {
    if (!FULL) w = anew(w);
    T* at = y + w.at;
    if (!FULL) asm volatile("" : "+l"(at));  // not to be derived again for each piece
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
        if (!FULL && !begins(w, p)) continue;
#pragma unroll
        for (int v = 0; v < V; ++v) f[p][v] *= factor;
        if (V > 1 && (FULL || !ragged(w, p))) {
            store<T, V>(at + p * step, f[p]);
            continue;
        }
        const Place here = V > 1 ? anew(w) : w;
        const int position = here.at + p * step;
        if ((V == 1 && p < w.inside) || (position >= here.shift && position + V <= here.end)) {
            store<T, V>(at + p * step, f[p]);
        } else {
#pragma unroll
            for (int v = 0; v < V; ++v)
                if (holds(here, position + v)) rounded(f[p][v], at[p * step + v]);
        }
    }
}

// As integers, which one instruction compares over a warp: those of negative floats rise where the floats fall.
__device__ __forceinline__ float highest_of_warp(float v) {
    const int bits = __float_as_int(v);
    const int highest = __reduce_max_sync(0xffffffffu, bits ^ (bits >> 31 & 0x7fffffff));
    return __int_as_float(highest ^ (highest >> 31 & 0x7fffffff));
}
__device__ __forceinline__ float sum_of_warp(float v) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
    return v;
}
// 1 / v to the last bit or so; 1 / 0 is NaN here, as the result of a row of -Inf has to be.
__device__ __forceinline__ float one_by(float v) {
    const float r = inverse(v);
    return fmaf(r, fmaf(-v, r, 1.f), r);
}
// A row's warps each take their own highest value for exp's argument and meet once, when they know it and their sum.
// So that nothing is lost by it, a warp's exponentials are 2^(v log2(e) - k) with a whole number k, and bringing two
// warps' together is exact. (Where |k| would be 2^30 or more, floats lie 64 apart: k is the highest value's own.)
// The pair: k / 2, for it may not overflow, and the sum of the warp's exponentials, which are in f then.
template <bool FULL, int V, int PIECES>
__device__ __forceinline__ float2 pair_of_warp(float (&f)[PIECES][V], const Place& w, float highest) {
    highest = highest_of_warp(highest);
    float half = highest * (0.5f * LOG2_E), power = ceilf(2.f * half), total = 0.f;
    if (fabsf(power) < 0x1p30f) {
        half = 0.5f * power;
    } else {
        power = 0.f;
        const float safe = highest == -INFINITY ? 0.f : highest;  // -Inf - -Inf would be NaN
#pragma unroll
        for (int i = 0; i < PIECES * V; ++i) f[i / V][i % V] -= safe;
    }
#pragma unroll
    for (int p = 0; p < PIECES; ++p)
        if (FULL || begins(w, p)) {
#pragma unroll
            for (int v = 0; v < V; ++v) total += f[p][v] = power_of_two(fmaf(f[p][v], LOG2_E, -power));
        }
    return make_float2(half, sum_of_warp(total));
}
// What exponentials relative to a pair's k are to be multiplied by to be relative to another's. Special values need no
// case: -Inf beside a number gives 0, and a row of -Inf alone NaN, as it has to be, for Inf - Inf is.
__device__ __forceinline__ float brought(float half, float to) { return power_of_two(2.f * (half - to)); }
// The pair of all that `pairs` stand for, WARPS in each of `blocks` blocks. Few of them are joined by a short loop:
// unrolled, it took 265 us instead of 259 at 8192 x 16384.
template <int WARPS>
__device__ __forceinline__ float2 joined(const float2* pairs, int blocks) {
    constexpr int AT_ONCE = WARPS > 8 ? 4 : 1;
    const int count = WARPS * blocks;
    float highest = -INFINITY, total = 0.f;
#pragma unroll(AT_ONCE)
    for (int i = threadIdx.x % 32; i < count; i += 32) highest = fmaxf(highest, pairs[i].x);
    highest = highest_of_warp(highest);
#pragma unroll(AT_ONCE)
    for (int i = threadIdx.x % 32; i < count; i += 32) total += pairs[i].y * brought(pairs[i].x, highest);
    return make_float2(highest, sum_of_warp(total));
}

template <bool B>
struct Truth {
    static constexpr bool value = B;
};

// With 65 registers three blocks run on a multiprocessor instead of four: 134 us instead of 132.7 at 65536 x 1024.
template <typename T, int V, int PIECES>
__global__ void __launch_bounds__(256, V > 1 && PIECES * V > 16 ? 4 : 0) warp_kernel(const Rows<T> rows) {
    constexpr int STEP = 32 * V;
    const int64_t row = blockIdx.x * int64_t(8) + threadIdx.x / 32;
    earlier_kernels_have_ended();
    if (row >= rows.M) return;
    const Place w = place_of<V, PIECES>(0, rows.N, 0, threadIdx.x % 32, STEP);
    const T* z = rows.z + row * rows.stride + w.at;
    float f[PIECES][V];
    auto work = [&](auto full) {
        constexpr bool FULL = decltype(full)::value;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
#pragma unroll
            for (int v = 0; v < V; ++v) f[p][v] = 0.f;
            if (FULL || w.at + p * STEP < w.end) load<T, V>(z + p * STEP, f[p]);
        }
        const float highest = prepare<FULL, false>(rows.prologue, f, row, w, STEP, [&](int p, float (&b)[V]) {
            beside<FULL, false>(rows.prologue.bias, w, w.at + p * STEP, b);
        });
        const float2 pair = pair_of_warp<FULL>(f, w, highest);
        write_row<FULL>(rows.y + row * rows.N, f, w, STEP, one_by(pair.y));
    };
    if (V > 1 && w.inside == PIECES && !rows.prologue.others()) work(Truth<(V > 1)>());
    else work(Truth<false>());
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// The address, in the cluster's block `rank`, of what is at `here` in this one.
__device__ __forceinline__ uint32_t in_block(uint32_t here, int rank) {
    uint32_t there = here;
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
#endif
    return there;
}

#ifdef GALLERY_HOPPER
__device__ __forceinline__ void init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void expect(uint64_t* barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void until(const uint64_t* barrier, int parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\n"
        "bra again;\nover:\n}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}
// A warp's pair to `at` in each of the cluster's blocks, whose barrier at `met` counts the bytes.
__device__ __forceinline__ void tell_cluster(float2 pair, const float2* at, const uint64_t* met, int blocks) {
    const int rank = threadIdx.x % 32;
    if (rank < blocks)
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                         in_block(shared_address(at), rank)),
                     "f"(pair.x), "f"(pair.y), "r"(in_block(shared_address(met), rank))
                     : "memory");
}
#endif

// Rows of exactly 32 * V * PIECES * WARPS values, with bias and GELU or without, four warps a block: nothing is asked
// that the compiler can know, and the code is a fraction of the others', which small calls wait for.
template <typename T, int PIECES, int WARPS, bool GELU>
__global__ void __launch_bounds__(128)
    exact_kernel(const T* z, int64_t stride, T* y, int64_t M, const T* bias) {
    constexpr int V = 16 / sizeof(T), STEP = 32 * V, N = STEP * PIECES * WARPS;
    __shared__ __align__(8) float2 pairs[4];
    const int warp = threadIdx.x / 32, at = warp % WARPS * (STEP * PIECES) + threadIdx.x % 32 * V;
    const int64_t row = blockIdx.x * int64_t(4 / WARPS) + warp / WARPS;
    earlier_kernels_have_ended();
    if (row >= M && WARPS == 1) return;
    const T* const from = z + (row < M ? row : M - 1) * stride + at;
    float f[PIECES][V], highest = -INFINITY;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) load<T, V>(from + p * STEP, f[p]);
    if (bias) {
        float b[PIECES][V];
#pragma unroll
        for (int p = 0; p < PIECES; ++p) load<T, V>(bias + at + p * STEP, b[p]);
#pragma unroll
        for (int i = 0; i < PIECES * V; ++i) f[i / V][i % V] += b[i / V][i % V];
    }
#pragma unroll
    for (int i = 0; i < PIECES * V; ++i) {
        if (GELU) f[i / V][i % V] = gelu_erf<T>(f[i / V][i % V]);
        highest = fmaxf(highest, f[i / V][i % V]);
    }
    const float2 pair = pair_of_warp<true>(f, Place{}, highest);
    float factor = one_by(pair.y);
    if (WARPS > 1) {
        if (threadIdx.x % 32 == 0) pairs[warp] = pair;
        __syncthreads();
        const float2* const all = pairs + warp / WARPS * WARPS;
        float half = all[0].x, total = 0.f;
#pragma unroll
        for (int w = 1; w < WARPS; ++w) half = fmaxf(half, all[w].x);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) total += all[w].y * brought(all[w].x, half);
        factor = brought(pair.x, half) * one_by(total);
        if (row >= M) return;
    }
    T* const to = y + row * N + at;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
#pragma unroll
        for (int v = 0; v < V; ++v) f[p][v] *= factor;
        store<T, V>(to + p * STEP, f[p]);
    }
}

// `blocks` blocks, a cluster where they are more than one, hold a row in registers.
template <typename T, int V, int PIECES, int THREADS, bool SHIFTED>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS) block_kernel(const Rows<T> rows, int blocks) {
    constexpr int STEP = THREADS * V, WARPS = THREADS / 32;
    __shared__ __align__(8) float2 pairs[WARPS * 16];
    if (V == 1) blocks = 1;  // no recipe has more
    const int64_t row = blocks == 1 ? blockIdx.x : blockIdx.x / blocks;
    const int rank = blocks == 1 ? 0 : blockIdx.x % blocks, warp = threadIdx.x / 32;
#ifdef GALLERY_HOPPER
    __shared__ __align__(8) uint64_t met;
    if (blocks > 1) {
        if (threadIdx.x == 0) {
            init(&met, 1);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            expect(&met, WARPS * blocks * 8);
        }
        __syncwarp();
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    }
#endif
    const int shift = SHIFTED ? static_cast<int>(row * rows.N & (V - 1)) : 0;
    const int width = (rows.N + (SHIFTED ? V - 1 : 0) + blocks * V - 1) / (blocks * V) * V;  // positions of a block
    const int begin = rank * width, end = min(begin + width, rows.N + shift);
    const Place w = place_of<V, PIECES>(begin, end, shift, threadIdx.x, STEP);
    earlier_kernels_have_ended();
    const T* z = rows.z + row * rows.stride - shift;
    float f[PIECES][V];
    float2 pair;
    auto read = [&](auto full) {
        constexpr bool FULL = decltype(full)::value;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            const int position = w.at + p * STEP;
            if (!FULL) {
#pragma unroll
                for (int v = 0; v < V; ++v) f[p][v] = 0.f;
            }
            if (FULL || !ragged(w, p) || (position >= w.shift && position + V <= w.end)) {
                load<T, V>(z + position, f[p]);
            } else if (SHIFTED && begins(w, p)) {
#pragma unroll
                for (int v = 0; v < V; ++v)
                    if (holds(w, position + v)) f[p][v] = as_float(z[position + v]);
            }
        }
        const float highest = prepare<FULL, SHIFTED>(rows.prologue, f, row, w, STEP, [&](int p, float (&b)[V]) {
            beside<FULL, SHIFTED>(rows.prologue.bias, w, w.at + p * STEP, b);
        });
        pair = pair_of_warp<FULL>(f, w, highest);
    };
    constexpr bool MAY = V > 1 && !SHIFTED;  // fewer kernels' worth of code, and of compiling
    const bool full = MAY && w.inside == PIECES && !rows.prologue.others();
    if (full) read(Truth<MAY>());
    else read(Truth<false>());
    if (blocks == 1) {
        if (threadIdx.x % 32 == 0) pairs[warp] = pair;
        __syncthreads();
    } else {
#ifdef GALLERY_HOPPER
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory");  // all blocks have started
        tell_cluster(pair, pairs + rank * WARPS + warp, &met, blocks);
        until(&met, 0);  // a cluster's barrier would wait for all writes to memory, too
#endif
    }
    const float2 all = joined<WARPS>(pairs, blocks);
    const float factor = brought(pair.x, all.x) * one_by(all.y);
    T* y = rows.y + row * rows.N - shift;
    if (full) write_row<MAY>(y, f, w, STEP, factor);
    else write_row<false>(y, f, w, STEP, factor);
}

// One pass for the pair (highest, sum of exp(v - highest)), a second for the result.
template <typename T, int V>
__global__ void __launch_bounds__(1024, 1) online_kernel(const Rows<T> rows) {
    constexpr int PIECES = V == 1 ? 8 : 16 / V, STEP = 1024 * V;
    __shared__ __align__(8) float2 pairs[32];
    const int64_t row = blockIdx.x;
    const T* z = rows.z + row * rows.stride;
    earlier_kernels_have_ended();
    float f[PIECES][V];
    auto read = [&](int begin) {
        const Place w = place_of<V, PIECES>(begin, rows.N, 0, threadIdx.x, STEP);
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
#pragma unroll
            for (int v = 0; v < V; ++v) f[p][v] = 0.f;
            if (begins(w, p) && w.at + p * STEP < w.end) load<T, V>(z + w.at + p * STEP, f[p]);
        }
        return w;
    };
    auto pair_of = [&](const Place& w) {
        return pair_of_warp<false>(
            f, w, prepare<false, false>(rows.prologue, f, row, w, STEP, [&](int p, float (&b)[V]) {
                beside<false, false>(rows.prologue.bias, w, w.at + p * STEP, b);
            }));
    };
    float half = -INFINITY, total = 0.f;
    for (int64_t begin = 0; begin < rows.N; begin += STEP * PIECES) {
        const float2 pair = pair_of(read(static_cast<int>(begin)));
        const float now = fmaxf(half, pair.x);
        total = now == -INFINITY ? total + pair.y : total * brought(half, now) + pair.y * brought(pair.x, now);
        half = now;
    }
    if (threadIdx.x % 32 == 0) pairs[threadIdx.x / 32] = make_float2(half, total);
    __syncthreads();
    const float2 all = joined<32>(pairs, 1);
    const float factor = one_by(all.y);
    for (int64_t begin = 0; begin < rows.N; begin += STEP * PIECES) {
        const Place w = read(static_cast<int>(begin));
        const float2 pair = pair_of(w);
        write_row<false>(rows.y + row * rows.N, f, w, STEP, factor * brought(pair.x, all.x));
    }
}

#ifdef GALLERY_HOPPER
// A launch's counts of rows that were taken, one for each way in which rows may begin, and of clusters that have ended:
// the last leaves zeros.
constexpr int ENDED = 8, CLAIMS = ENDED + 1, MOST_CLAIMS = 4096;
__device__ int all_claims[MOST_CLAIMS][CLAIMS];

// Clusters stay, and the bulk copy engine brings their next rows, `stages` of them, into shared memory while one is
// computed and written. Multiprocessors do not get equal parts of the memory's bandwidth, so that rows dealt out
// beforehand wait for the slowest (8192 x 16384 on an H200: 284 us instead of 266): a cluster claims a row when it has
// begun the one `stages + 1` before it, by one atomic addition whose result travels with the exchange that the row
// needs anyway. Without `claims` rows are dealt out.
//
// Where rows begin anywhere, positions count from a boundary of 128 bytes, so that copies and stores have whole lines
// (8192 x 50257 with GELU: 835 us instead of 885). Bias in shared memory (keep_bias) is read by 16 bytes all the same:
// it is laid as one of `kinds` of rows needs it, which begin alike within 16 bytes, and a cluster takes rows of its
// kind while there are any. Where all rows begin at a boundary, bias stays in registers if they suffice.
template <typename T, int V, int PIECES, int THREADS, bool SHIFTED>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    stream_kernel(const Rows<T> rows, int blocks, int width, int stages, int keep_bias, int kinds, int* claims) {
#if __CUDA_ARCH__ >= 900
    constexpr int STEP = THREADS * V, WARPS = THREADS / 32, NONE_LEFT = 0x7fffffff, LINE = 128 / sizeof(T);
    extern __shared__ __align__(128) unsigned char arrived[];
    __shared__ __align__(8) uint64_t full[4], empty[4], met[2];
    __shared__ __align__(8) float2 pairs[2][WARPS * 16];
    // coming[turn % 8]: the row of that turn. A row is told stages + 1 <= 4 turns before it is begun.
    __shared__ int coming[8];
    __shared__ volatile int kind, claimed;  // the second warp's: where it claims rows, and the last claim, or -1
    const int M = static_cast<int>(rows.M), clusters = gridDim.x / blocks, cluster = blockIdx.x / blocks;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);  // so that the compiler sees that it is a warp's
    auto rank_of_block = [] {
        int rank;
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        return rank;
    };
    // How many rows of its kind a cluster and its peers take at a time, and one of those beyond what they begin with.
    if (!SHIFTED) kinds = 1;
    auto taken_by = [&](int kind) { return kinds > 1 ? (clusters - kind + V - 1) / V * V : clusters; };
    auto row_of = [&](int kind, int claim) { return kind + taken_by(kind) * (stages + 1) + claim * kinds; };
    auto shift_of = [&](int row) { return SHIFTED ? row * static_cast<uint32_t>(rows.N) % LINE : 0; };
    const int begin = rank_of_block() * width, stage = width * static_cast<int>(sizeof(T));
    constexpr int WITHIN = SHIFTED ? LINE - 1 : 0;  // the longest shift
    const int least = min(begin + width, rows.N), most = min(begin + width, rows.N + WITHIN);
    const Place everywhere = place_of<V, PIECES>(begin, least, WITHIN, threadIdx.x, STEP, most - least);
    constexpr bool HELD = PIECES * V <= 16 && !SHIFTED;
    Piece<T, V> held[HELD ? PIECES : 1] = {};
    // Bias beside position `begin`, in rows whose shift is `laid`, less than 16 bytes.
    int laid = -1;
    T* const kept = reinterpret_cast<T*>(arrived + stages * stage) + (SHIFTED ? LINE - V : 0);
    // Whole pieces: the last may reach into the next row. Where there is none its elements come by themselves.
    auto request = [&](int row, int slot) {
        const int shift = shift_of(row), from = max(begin, shift / V * V);
        const int count = max(0, min(begin + width, rows.N + shift) - from);
        const int whole = (count + (row + 1 == M ? 0 : V - 1)) / V * V;
        T* const to = reinterpret_cast<T*>(arrived + slot * stage) + (from - begin);
        const T* const source = rows.z + (row * rows.stride - shift + from);
        for (int i = whole; i < count; ++i) to[i] = source[i];
        const uint32_t bytes = whole * static_cast<uint32_t>(sizeof(T));
        expect(full + slot, bytes);
        if (bytes)
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    shared_address(to)),
                "l"(source), "r"(bytes), "r"(shared_address(full + slot))
                : "memory");
    };
    if (threadIdx.x == 0) {
        for (int i = 0; i < 4; ++i) init(full + i, 1), init(empty + i, THREADS);
        init(met, 1), init(met + 1, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        kind = cluster % kinds;
        for (int i = 0; i <= stages; ++i) coming[i] = cluster + i * taken_by(kind);
    }
    __syncthreads();
    if (blocks > 1)  // every block of the cluster has started
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    earlier_kernels_have_ended();
    if (threadIdx.x == 32) claimed = claims && rank_of_block() == 0 ? atomicAdd(claims + kind, 1) : -1;
    if (threadIdx.x == 0)
        for (int s = 0; s < stages; ++s)
            if (coming[s] < M) request(coming[s], s);
    if (HELD && rows.prologue.bias) {
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            const int position = everywhere.at + p * STEP;
            const T* from = rows.prologue.bias + position;
            if (position < rows.N) *reinterpret_cast<uint4*>(held + p) = *reinterpret_cast<const uint4*>(from);
        }
    }
    int slots = 0, turn = 0;  // slots: the turn's stage, and 4 in every other round
    for (int row = cluster; row < M; row = __shfl_sync(0xffffffffu, coming[++turn & 7], 0)) {
        const int slot = slots & 3, phase = slots >> 2, side = turn & 1;
        Place w = anew(everywhere);
        if (SHIFTED) w.shift = shift_of(row), w.end = min(rows.N + w.shift, begin + width);
        const T* const here = reinterpret_cast<const T*>(arrived + slot * stage) - begin + w.at;
        if (!HELD && keep_bias && w.shift % V != laid) {
            laid = w.shift % V;
            __syncthreads();
#pragma unroll 8
            for (int i = static_cast<int>(threadIdx.x) - (SHIFTED ? LINE - V : 0); i < width; i += THREADS) {
                const int column = begin + i - laid;
                rounded(column >= 0 && column < rows.N ? as_float(rows.prologue.bias[column]) : 0.f, kept[i]);
            }
            __syncthreads();
        }
        float f[PIECES][V];
        float2 pair;
        Prologue<T> prologue = rows.prologue;
        const bool early = !SHIFTED && !HELD && prologue.bias && !keep_bias;
        if (early) prologue.bias = nullptr;
        auto read = [&](auto all) {
            constexpr bool FULL = decltype(all)::value;
            if (early) {  // bias on its way while the row is
#pragma unroll
                for (int p = 0; p < PIECES; ++p)
                    if (FULL || begins(w, p)) beside<FULL, SHIFTED>(rows.prologue.bias, w, w.at + p * STEP, f[p]);
            }
            until(full + slot, phase);
#pragma unroll
            for (int p = 0; p < PIECES; ++p) {
                if (!FULL && !begins(w, p)) continue;
                float z[V];
                load<T, V>(here + p * STEP, z);
#pragma unroll
                for (int v = 0; v < V; ++v) f[p][v] = early ? z[v] + f[p][v] : z[v];
            }
        };
        auto computed = [&](auto all) {
            constexpr bool FULL = decltype(all)::value;
            const float highest = prepare<FULL, SHIFTED>(prologue, f, row, w, STEP, [&](int p, float (&b)[V]) {
                if constexpr (HELD) {
#pragma unroll
                    for (int v = 0; v < V; ++v) b[v] = as_float(held[p].value[v]);
                } else if (!SHIFTED || keep_bias) {
                    load<T, V>(kept + (w.at - begin - w.shift / V * V) + p * STEP, b);
                } else {
                    beside<FULL, SHIFTED>(rows.prologue.bias, w, w.at + p * STEP, b);
                }
            });
            pair = pair_of_warp<FULL>(f, w, highest);
        };
        const bool whole = !SHIFTED && w.inside == PIECES && !rows.prologue.others();
        if (warp == 1 && rank_of_block() == 0) {
            const int lane = threadIdx.x % 32;
            __syncwarp();
            int next = NONE_LEFT;
            if (!claims) next = coming[turn & 7] + taken_by(kind) * (stages + 1);
            if (claimed >= 0) next = row_of(kind, claimed);
            if (claimed >= 0 && next >= M) {  // its kind's rows are used up
                int other = 0;
                for (next = NONE_LEFT; SHIFTED && next == NONE_LEFT;) {
                    int count = lane < kinds ? static_cast<volatile int*>(claims)[lane] : 0;
                    // As many as are left, and the kind's number in place of the lowest bits.
                    const int left = lane < kinds ? max(0, M - row_of(lane, count) + V - 1) / V * V + lane : 0;
                    const int most = __reduce_max_sync(0xffffffffu, left);
                    if (most < V) break;
                    other = most % V;
                    if (lane == 0) count = atomicAdd(claims + other, 1);
                    count = __shfl_sync(0xffffffffu, count, 0);
                    if (row_of(other, count) < M) next = row_of(other, count);
                }
                __syncwarp();
                if (lane == 0) kind = other, claimed = next == NONE_LEFT ? -1 : 0;
            }
            int* const to = coming + ((turn + stages + 1) & 7);
            if (blocks == 1 && lane == 0) *to = next;
            if (blocks > 1 && lane < blocks)
                asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                                 in_block(shared_address(to), lane)),
                             "r"(next), "r"(in_block(shared_address(met + side), lane))
                             : "memory");
            __syncwarp();
        }
        if (whole) read(Truth<!SHIFTED>());
        else read(Truth<false>());
        // All have read the row from its stage. Every thread arrives: racecheck does not see that one lane's arrival
        // stands for its warp's. Where a multiprocessor has one block, a barrier without memory is quicker.
        const bool named = THREADS == 1024 && !SHIFTED && blocks > 1;
        if (!named) arrive(empty + slot);
        else if (warp > 0) asm volatile("bar.arrive 1, %0;" ::"n"(THREADS) : "memory");
        if (warp == 0) {  // all of it: code that the compiler cannot see to come together again is far slower
            if (named) asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
            else until(empty + slot, phase);
            if (threadIdx.x == 0 && coming[(turn + stages) & 7] < M) request(coming[(turn + stages) & 7], slot);
            __syncwarp();
        }
        if (whole) computed(Truth<!SHIFTED>());
        else computed(Truth<false>());
        if (blocks == 1) {
            if (threadIdx.x % 32 == 0) pairs[side][warp] = pair;
            __syncthreads();
        } else {
            tell_cluster(pair, pairs[side] + rank_of_block() * WARPS + warp, met + side, blocks);
            if (threadIdx.x == 0) expect(met + side, WARPS * blocks * 8 + 4);
            until(met + side, turn >> 1 & 1);
        }
        int taken = -1;
        if (threadIdx.x == 32 && claimed >= 0) taken = atomicAdd(claims + kind, 1);
        const float2 all = joined<WARPS>(pairs[side], blocks);
        const float factor = brought(pair.x, all.x) * one_by(all.y);
        T* y = rows.y + int64_t(coming[turn & 7]) * rows.N - w.shift;  // not kept in a register meanwhile
        if (whole) write_row<!SHIFTED>(y, f, w, STEP, factor);
        else write_row<false>(y, f, w, STEP, factor);
        if (threadIdx.x == 32) claimed = taken;  // it has come by now
        slots = slot + 1 < stages ? slots + 1 : phase ? 0 : 4;
    }
    if (claims && threadIdx.x == 32 && rank_of_block() == 0 && atomicAdd(claims + ENDED, 1) == clusters - 1)
        for (int i = 0; i < CLAIMS; ++i) claims[i] = 0;
#endif
}
#endif

// ---- host
// ------------------------------------------------------------------------------------------------------------
enum Variant { WARP, BLOCK, ONLINE, STREAM, EXACT = 5 };  // 4: PyTorch's own

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
constexpr int SHARED_OF_SM = 228 << 10;  // bytes, 1024 of them for each block's own use

// How many clusters of `blocks` blocks run at once, or 0: asked once for each kernel and size, for asking is slow.
inline int resident(const void* kernel, int threads, int bytes, int blocks) {
    static std::mutex mutex;
    static std::map<std::tuple<int, const void*, int, int>, int> known;
    int device = 0, found = 0, sms = 0, per_sm = 0;
    cudaFuncAttributes facts = {};
    if (cudaGetDevice(&device)) return 0;
    const std::lock_guard<std::mutex> lock(mutex);
    const auto key = std::make_tuple(device, kernel, bytes, blocks);
    const auto at = known.find(key);
    if (at != known.end()) return at->second;
    // Of every size that this kernel may ask for: the last call would count, and smaller rows follow longer ones.
    if (cudaFuncGetAttributes(&facts, kernel)) return 0;
    const int largest = SHARED_OF_SM - 1024 - static_cast<int>(facts.sharedSizeBytes);
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, largest)) return 0;
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
#endif

// The kernels that there are: how many values a thread holds, 16 and 32 or one of them (0: no such kernel).
// softmax.py's VALUES says the same.
constexpr int most_values(int variant, int V, bool shifted, int threads) {
    if (variant == STREAM && shifted) return threads == 256 || threads == 1024 ? 32 : 0;
    if (variant == STREAM) return threads < 256 ? 0 : V == 4 && threads < 1024 ? 16 : 32;
    if (V == 1) return threads == 256 || threads == 1024 ? 32 : 0;
    if (shifted) return threads == 64 ? 16 : threads == 256 || threads == 1024 ? 32 : 0;
    return 32;
}
constexpr int least_values(int variant, int V, bool shifted, int threads) {
    if (variant == STREAM) return shifted || V == 8 ? 32 : 16;
    return V == 1 || threads == 1024 ? 32 : 16;
}

#ifdef GALLERY_HOPPER
// Counts for a launch on `stream`: one set a stream, whose kernels run one after the other, and one for each launch
// that a graph captures, since that may be replayed beside anything. Null, and rows are dealt out, where none are left,
// or where several streams have one name.
inline int* claims_for(cudaStream_t stream) {
    static std::mutex mutex;
    static std::map<int, std::pair<int*, int>> known;  // of each device, and how many are in use
    static std::map<std::pair<int, cudaStream_t>, int*> of_stream;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    int device = 0;
    if (stream == cudaStreamPerThread || cudaGetDevice(&device) || cudaStreamIsCapturing(stream, &status))
        return nullptr;
    const bool captured = status != cudaStreamCaptureStatusNone;
    const std::lock_guard<std::mutex> lock(mutex);
    auto& [base, used] = known[device];
    void* address = nullptr;
    if (!base && !cudaGetSymbolAddress(&address, all_claims)) base = static_cast<int*>(address);
    int* const fresh = base && used < MOST_CLAIMS ? base + CLAIMS * used : nullptr;
    if (captured) return used += fresh != nullptr, fresh;
    int*& found = of_stream[{device, stream}];
    if (!found && fresh) found = fresh, ++used;
    return found;
}

// Rows on their way at a time: one where a multiprocessor has four blocks, for with rows claimed as they are needed
// more are slower (1024 x 8192: 23.5 us instead of 22.1), else two (1024 x 131072 with GELU: 278 instead of 289).
// Beside them, bias in shared memory where registers cannot hold it and there is room.
template <typename T, int V, int VALUES, int THREADS, bool SHIFTED>
cudaError_t stream_of(int blocks, int width, const Rows<T>& rows, cudaStream_t stream) {
    auto kernel = stream_kernel<T, V, VALUES / V, THREADS, SHIFTED>;
    const int stage = width * static_cast<int>(sizeof(T));
    constexpr int wanted = THREADS <= 256 ? 1 : 2, room = SHARED_OF_SM / (1024 / THREADS) - 1024 - 384 - THREADS * 8;
    const int fit = room / stage;
    if (fit < 1) return cudaErrorInvalidValue;
    const bool keep = (SHIFTED || VALUES > 16) && rows.prologue.bias && fit > 1;
    const int stages = fit - keep < wanted ? fit - keep : wanted, bytes = (stages + keep) * stage + 128 * SHIFTED;
    int64_t most = resident(reinterpret_cast<const void*>(kernel), THREADS, bytes, blocks);
    if (most == 0) return cudaErrorInvalidConfiguration;
    // As many of each kind: in float32 two clusters more gain less than it costs to lay bias for other kinds in the end
    // (8192 x 50257: 850 us instead of 841). With half types it would leave out six (545 instead of 516).
    if (SHIFTED && V == 4 && keep && most > V) most -= most % V;
    if (rows.M > 0x7fffff00 - most * 8) return cudaErrorInvalidValue;
    const int64_t clusters = rows.M < most ? rows.M : most;
    const int kinds = keep && rows.N % V && clusters >= V ? V : 1;
    int* const claims = rows.M > clusters * (stages + 1) ? claims_for(stream) : nullptr;
    return launch(kernel, clusters * blocks, THREADS, bytes, blocks, stream, rows, blocks, width, stages,
                  static_cast<int>(keep), kinds, claims);
}
#endif

// Positions of each of a row's blocks: whole pieces, or a stream's whole warps of pieces.
template <int variant, typename T, int V, bool SHIFTED>
int width_of(int N, int blocks) {
    constexpr int UNIT = variant == STREAM ? 32 * V : V;
    constexpr int WITHIN = !SHIFTED ? 0 : (variant == STREAM ? 128 : 16) / sizeof(T) - 1;  // the longest shift
    return static_cast<int>((int64_t(N) + WITHIN + blocks * UNIT - 1) / (blocks * UNIT) * UNIT);
}
// One of `variant`'s kernels with this many threads, as the row needs it.
template <int variant, typename T, int V, int THREADS, bool SHIFTED>
cudaError_t kernel_of(int blocks, const Rows<T>& rows, cudaStream_t stream) {
    constexpr int MOST = most_values(variant, V, SHIFTED, THREADS), LEAST = least_values(variant, V, SHIFTED, THREADS);
    if constexpr (MOST > 0) {
        if (blocks < 1 || blocks > 16) return cudaErrorInvalidValue;
        const int width = width_of<variant, T, V, SHIFTED>(rows.N, blocks);
        if (width > THREADS * MOST) return cudaErrorInvalidValue;
        const bool few = width <= THREADS * LEAST;
        // Where not all of a warp's pieces are inside, what rows have that begin anywhere is quicker (8192 x 50256 with
        // GELU: 826 us instead of 942).
        constexpr int MOST_SHIFTED = variant == STREAM && !SHIFTED ? most_values(STREAM, V, true, THREADS) : 0;
        if constexpr (MOST_SHIFTED > 0) {
            const int most = blocks * THREADS * (few ? LEAST : MOST);
            const bool filled = rows.N > (few && LEAST <= 16 ? most / 16 * 15 : most - 1);
            const bool fits = width_of<STREAM, T, V, true>(rows.N, blocks) <= THREADS * MOST_SHIFTED;
            if (!filled && fits && rows.stride == rows.N)
                return kernel_of<STREAM, T, V, THREADS, true>(blocks, rows, stream);
        }
        if constexpr (variant == STREAM) {
#ifdef GALLERY_HOPPER
            return few ? stream_of<T, V, LEAST, THREADS, SHIFTED>(blocks, width, rows, stream)
                       : stream_of<T, V, MOST, THREADS, SHIFTED>(blocks, width, rows, stream);
#endif
        } else {
            auto kernel = few ? block_kernel<T, V, LEAST / V, THREADS, SHIFTED>
                              : block_kernel<T, V, MOST / V, THREADS, SHIFTED>;
#ifdef GALLERY_HOPPER
            if (blocks > 1 && !resident(reinterpret_cast<const void*>(kernel), THREADS, 0, blocks))
                return cudaErrorInvalidConfiguration;
#else
            if (blocks > 1) return cudaErrorInvalidDeviceFunction;
#endif
            return launch(kernel, rows.M * blocks, THREADS, 0, blocks, stream, rows, blocks);
        }
    }
    return cudaErrorInvalidValue;
}
template <int variant, typename T, int V, bool SHIFTED>
cudaError_t kernels_of(int threads, int blocks, const Rows<T>& rows, cudaStream_t stream) {
    switch (threads) {
        case 64: return kernel_of<variant, T, V, 64, SHIFTED>(blocks, rows, stream);
        case 128: return kernel_of<variant, T, V, 128, SHIFTED>(blocks, rows, stream);
        case 256: return kernel_of<variant, T, V, 256, SHIFTED>(blocks, rows, stream);
        case 512: return kernel_of<variant, T, V, 512, SHIFTED>(blocks, rows, stream);
        case 1024: return kernel_of<variant, T, V, 1024, SHIFTED>(blocks, rows, stream);
    }
    return cudaErrorInvalidValue;
}

template <typename T, int WARPS, bool GELU>
cudaError_t exact_of(const Rows<T>& rows, cudaStream_t stream) {
    constexpr int PIECE = 16 / sizeof(T) * 32 * WARPS;
    const int pieces = rows.N % PIECE ? 0 : rows.N / PIECE;
    auto go = [&](auto kernel) {
        return launch(kernel, (rows.M + 4 / WARPS - 1) / (4 / WARPS), 128, 0, 1, stream, rows.z, rows.stride, rows.y,
                      rows.M, rows.prologue.bias);
    };
    if (pieces == 1) return go(exact_kernel<T, 1, WARPS, GELU>);
    if (pieces == 2) return go(exact_kernel<T, 2, WARPS, GELU>);
    if (pieces == 4) return go(exact_kernel<T, 4, WARPS, GELU>);
    if constexpr (sizeof(T) == 4)
        if (pieces == 8) return go(exact_kernel<T, 8, WARPS, GELU>);
    return cudaErrorInvalidValue;
}
template <typename T>
cudaError_t exact(int threads, const Rows<T>& rows, cudaStream_t stream) {
    const bool gelu = rows.prologue.activation == GELU_ERF;
    switch (threads) {
        case 32: return gelu ? exact_of<T, 1, true>(rows, stream) : exact_of<T, 1, false>(rows, stream);
        case 64: return gelu ? exact_of<T, 2, true>(rows, stream) : exact_of<T, 2, false>(rows, stream);
        case 128: return gelu ? exact_of<T, 4, true>(rows, stream) : exact_of<T, 4, false>(rows, stream);
    }
    return cudaErrorInvalidValue;
}

template <typename T, int V, bool SHIFTED>
cudaError_t run(int variant, int threads, int blocks, const Rows<T>& rows, cudaStream_t stream) {
    if (variant == BLOCK) return kernels_of<BLOCK, T, V, SHIFTED>(threads, blocks, rows, stream);
    if constexpr (V > 1)
        if (variant == STREAM) return kernels_of<STREAM, T, V, SHIFTED>(threads, blocks, rows, stream);
    if constexpr (!SHIFTED && V > 1)
        if (variant == EXACT) {  // with another prologue `warp` or `block` takes these rows
            const bool usual = !rows.prologue.others() && rows.prologue.activation != GELU_TANH;
            return usual ? exact<T>(threads, rows, stream)
                         : run<T, V, false>(rows.N <= 1024 ? WARP : BLOCK, 128, 1, rows, stream);
        }
    if constexpr (!SHIFTED) {
        constexpr int FEW = V > 8 ? 1 : 8 / V, SOME = 16 / V, MANY = 32 / V;  // pieces of 8, 16, 32 values a thread
        if (variant == ONLINE) return launch(online_kernel<T, V>, rows.M, 1024, 0, 1, stream, rows);
        auto kernel = rows.N <= 256   ? warp_kernel<T, V, FEW>
                      : rows.N <= 512 ? warp_kernel<T, V, SOME>
                                      : warp_kernel<T, V, MANY>;
        if (variant == WARP && rows.N <= 1024) return launch(kernel, (rows.M + 7) / 8, 256, 0, 1, stream, rows);
    }
    return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t start(int variant, int threads, int blocks, int aligned, const Rows<T>& rows, cudaStream_t stream) {
    constexpr int V = 16 / sizeof(T);
    const cudaError_t error = aligned == 1   ? run<T, V, false>(variant, threads, blocks, rows, stream)
                              : aligned == 2 ? run<T, V, true>(variant, threads, blocks, rows, stream)
                                             : run<T, 1, false>(variant, threads, blocks, rows, stream);
    if (error != cudaErrorInvalidConfiguration) return error;
    cudaGetLastError();  // no cluster of that size runs on this device (part of one, say): any device takes this
    return aligned == 1 ? run<T, V, false>(ONLINE, 1024, 1, rows, stream)
                        : run<T, 1, false>(ONLINE, 1024, 1, rows, stream);
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

#if __has_include(<torch/csrc/autograd/python_variable.h>)  // PyTorch's own headers, not a lighter stand-in for them
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#define WITH_PYTHON
#ifdef TORCH_HAS_CUDA
#include <ATen/cuda/EmptyTensor.h>
#endif
#endif

#include <array>
#include <map>
#include <optional>
#include <utility>

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

// Memory for a result of z's shape.
torch::Tensor beside(const torch::Tensor& z) {
#if defined(WITH_PYTHON) && defined(TORCH_HAS_CUDA)
    return at::detail::empty_cuda(z.sizes(), z.scalar_type(), z.device(), std::nullopt);  // spares the dispatcher
#else
    return torch::empty(z.sizes(), z.options());
#endif
}

// z, of any shape, holds M rows of N elements, `stride` apart.
torch::Tensor run(const torch::Tensor& z, int64_t M, int64_t N, int64_t stride, const torch::Tensor* bias,
                  const torch::Tensor* mask, double scale, int64_t activation, const Plan& p, bool in_place) {
    const c10::cuda::CUDAGuard guard(z.device());
    auto y = in_place ? z : beside(z);
    const int error = softmax_launch(
        p.variant, p.threads, p.blocks, static_cast<int>(activation), type_of(z), p.aligned, z.data_ptr(), stride,
        bias ? bias->data_ptr() : nullptr, static_cast<float>(scale), mask ? mask->data_ptr() : nullptr,
        mask && mask->dim() == 2 ? mask->stride(0) : 0, mask && mask->scalar_type() == torch::kBool, y.data_ptr(), M,
        static_cast<int>(N), c10::cuda::getCurrentCUDAStream().stream());
    C10_CUDA_CHECK(static_cast<cudaError_t>(error));
    return y;
}

// The result where a plan for such operands is remembered, else an undefined tensor: the way of all calls but the
// first. Contiguous z, no mask.
torch::Tensor attempt(const torch::Tensor& z, const torch::Tensor* bias, double scale, int64_t activation,
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
    return run(z, size / N, N, N, bias, nullptr, scale, activation, found->second, in_place);
}

#ifdef WITH_PYTHON
// attempt() for Python, without what pybind11 costs: (z, bias, scale, activation's number, in_place); None where there
// is no plan.
PyObject* attempt_for_python(PyObject*, PyObject* const* given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    if (count != 5 || !THPVariable_CheckExact(given[0]) ||
        !(given[1] == Py_None || THPVariable_CheckExact(given[1])))
        Py_RETURN_NONE;
    const double scale = PyFloat_AsDouble(given[2]);
    const long activation = PyLong_AsLong(given[3]);
    if (PyErr_Occurred()) return nullptr;
    const torch::Tensor* bias = given[1] == Py_None ? nullptr : &THPVariable_Unpack(given[1]);
    auto y = attempt(THPVariable_Unpack(given[0]), bias, scale, activation, given[4] == Py_True);
    if (!y.defined()) Py_RETURN_NONE;
    return THPVariable_Wrap(std::move(y));
    END_HANDLE_TH_ERRORS
}
PyMethodDef attempt_method = {"known", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(attempt_for_python)),
                              METH_FASTCALL, "see known()"};
#endif
}  // namespace

torch::Tensor softmax(torch::Tensor z, std::optional<torch::Tensor> bias, std::optional<torch::Tensor> mask,
                      double scale, int64_t activation, int64_t variant, int64_t threads, int64_t blocks,
                      int64_t aligned, bool in_place) {
    TORCH_CHECK(z.is_cuda() && z.dim() == 2 && (z.stride(1) == 1 || z.size(1) == 1),
                "softmax: z [M, N] on the GPU, rows contiguous");
    TORCH_CHECK(type_of(z) >= 0, "softmax: float32, float16 or bfloat16");
    TORCH_CHECK(!in_place || z.is_contiguous(), "softmax: in place needs a contiguous z");
    TORCH_CHECK(z.size(1) < (int64_t(1) << 31) - (1 << 16), "softmax: rows of less than 2^31 - 2^16 elements");
    return run(z, z.size(0), z.size(1), z.stride(0), bias ? &*bias : nullptr, mask ? &*mask : nullptr, scale,
               activation,
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

torch::Tensor known(torch::Tensor z, std::optional<torch::Tensor> bias, double scale, int64_t activation,
                    bool in_place) {
    return attempt(z, bias ? &*bias : nullptr, scale, activation, in_place);
}
// known() as a function that costs a twentieth to call, or 0 where PyTorch's headers do not let it be made.
#ifdef WITH_PYTHON
py::object quick() { return py::reinterpret_steal<py::object>(PyCFunction_New(&attempt_method, nullptr)); }
#else
int64_t quick() { return 0; }
#endif
"""

WARP, BLOCK, ONLINE, STREAM, TORCH, EXACT = range(6)
VARIANTS = ("warp", "block", "online", "stream", "torch", "exact")
DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
ROWS, WHOLE = 1, 2
ACTIVATIONS = {None: 0, "gelu": 1, "gelu_tanh": 2}


@dataclass(frozen=True)
class Plan:
    """Which kernel runs, and with how many threads and blocks a row."""

    variant: int
    """Index in ``VARIANTS``."""
    threads: int
    """Threads of a block; of a row where a block may have several (``exact``)."""
    blocks: int
    """Blocks of a cluster; 1 elsewhere."""
    aligned: int
    """Whether 16-byte loads and stores are used: ``ROWS``, as every row starts at a multiple of 16 bytes; ``WHOLE``,
    as z and y do and are contiguous; else 0, element by element."""

    def __str__(self) -> str:
        if self.variant == TORCH:
            return "torch: torch.softmax, which was measured to be faster here"
        if self.variant == EXACT:
            return f"exact: {self.threads} threads a row, four warps a block, 16-byte loads and stores"
        width = ("one-element", "16-byte", "16-byte, shifted,")[self.aligned]
        shape = f"{self.threads} threads a block, {self.blocks} block{'s' if self.blocks > 1 else ''} a row"
        return f"{VARIANTS[self.variant]}: {shape}, {width} loads and stores"


VALUES: dict[tuple[int, int], dict[int, int]] = {
    (BLOCK, ROWS): {64: 32, 128: 32, 256: 32, 512: 32, 1024: 32},
    (BLOCK, WHOLE): {64: 16, 256: 32, 1024: 32},
    (BLOCK, 0): {256: 32, 1024: 32},
    (STREAM, ROWS): {256: 16, 512: 16, 1024: 32},
    (STREAM, WHOLE): {256: 32, 1024: 32},
}
"""The kernels that there are: by variant and how rows are read, the threads of a block, and the most values of each."""
HALF_VALUES: dict[tuple[int, int], dict[int, int]] = {(STREAM, ROWS): {256: 32, 512: 32, 1024: 32}}
"""Where half types have others: a thread holds as many bytes."""
LONGEST_ROWS = (
    (4 << 10, WARP, 256, 1),
    (4 << 10, BLOCK, 64, 1),
    (8 << 10, BLOCK, 128, 1),
    (16 << 10, BLOCK, 256, 1),
    (64 << 10, BLOCK, 512, 1),
)
"""The longest row in bytes that is left to variant, threads and blocks, on any device, where they can hold it.
Figures: docs/gallery.md."""
LONGER_ROWS = ((128 << 10, BLOCK, 1024, 1),)
"""What follows without clusters; beyond it, online."""
LONGER_ROWS_HOPPER = (
    (64 << 10, STREAM, 256, 4),
    (128 << 10, STREAM, 256, 8),
    (256 << 10, STREAM, 512, 8),
    (1 << 20, STREAM, 1024, 8),
)
"""What follows on Hopper."""
LONGER_SHIFTED_ROWS = ((32768, BLOCK, 1024, 1),)
"""The same, without clusters and on Hopper, where rows begin anywhere: by positions."""
LONGER_SHIFTED_ROWS_HOPPER = (
    (32768, STREAM, 256, 4),
    (65536, STREAM, 256, 8),
    (131072, STREAM, 1024, 4),
    (262144, STREAM, 1024, 8),
)
SHIFTED_ROWS = ((1024, BLOCK, 64, 1), (8192, BLOCK, 256, 1))
"""The start of both ladders where rows begin anywhere."""
UNALIGNED_ROWS = ((1024, WARP, 256, 1), (8192, BLOCK, 256, 1), (32768, BLOCK, 1024, 1))
"""Rows that are read element by element."""
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
    found = {"rule": _rule(N, itemsize, aligned, hopper)}
    if N <= 1024:
        found["warp"] = Plan(WARP, 256, 1, aligned if aligned == ROWS else 0)
    for warps in (1, 2, 4) if aligned == ROWS else ():
        if N * itemsize in [512 * warps * pieces for pieces in ((1, 2, 4, 8) if itemsize == 4 else (1, 2, 4))]:
            found[f"exact {warps}"] = Plan(EXACT, 32 * warps, 1, aligned)
    for blocks in (1, 2, 4, 8, 16) if hopper and aligned else (1,):
        width = _width(N, itemsize, aligned, blocks, BLOCK)
        for threads, values in VALUES[BLOCK, aligned].items():
            if threads * (4 if blocks == 1 else 12) <= width <= threads * values:
                found[f"block {threads}" + f" {blocks}" * (blocks > 1)] = Plan(BLOCK, threads, blocks, aligned)
    # Rows of no round length: any number of blocks may leave the fewest warps and multiprocessors without work.
    for blocks in ((*range(1, 9), 16) if aligned == WHOLE else (1, 2, 4, 8, 16)) if hopper and aligned else ():
        width = _width(N, itemsize, aligned, blocks, STREAM)
        for threads, values in values_of(STREAM, aligned, itemsize).items():
            if max(2048, threads * 8) <= width <= threads * values:
                found[f"stream {threads} {blocks}"] = Plan(STREAM, threads, blocks, aligned)
    if N >= 16384:
        found["online"] = Plan(ONLINE, 1024, 1, aligned if aligned == ROWS else 0)
    if plain:
        found["torch"] = Plan(TORCH, 0, 1, aligned)
    return found


def values_of(variant: int, aligned: int, itemsize: int) -> dict[int, int]:
    """The most values of a thread, by the threads of a block."""
    found = VALUES.get((variant, aligned), {})
    return HALF_VALUES.get((variant, aligned), found) if itemsize == 2 else found


def _values(variant: int, threads: int, itemsize: int) -> int:
    """The most values of a thread where rows start at multiples of 16 bytes; a warp's row is 1024 at most."""
    return 4 if variant == WARP else values_of(variant, ROWS, itemsize)[threads]


def _width(N: int, itemsize: int, aligned: int, blocks: int, variant: int) -> int:
    """Positions of a block, where ``blocks`` hold a row: whole pieces, or a stream's whole warps of pieces. Rows that
    begin anywhere begin within a piece, or within a stream's line of 128 bytes."""
    unit = (512 if variant == STREAM else 16) // itemsize if aligned else 1
    within = (128 if variant == STREAM else 16) // itemsize if aligned == WHOLE else 1
    return -(-(N + within - 1) // (blocks * unit)) * unit


def _rule(N: int, itemsize: int, aligned: int, hopper: bool) -> Plan:
    """The plan where nothing near was measured. Figures behind it: docs/gallery.md."""
    ladder: tuple[tuple[int, int, int, int], ...] = UNALIGNED_ROWS
    if aligned == WHOLE:
        ladder = (*SHIFTED_ROWS, *(LONGER_SHIFTED_ROWS_HOPPER if hopper else LONGER_SHIFTED_ROWS))
    elif aligned:
        ladder = tuple(
            (min(size // itemsize, threads * _values(variant, threads, itemsize) * blocks), variant, threads, blocks)
            for size, variant, threads, blocks in (*LONGEST_ROWS, *(LONGER_ROWS_HOPPER if hopper else LONGER_ROWS))
        )
    for longest, variant, threads, blocks in ladder:
        if _width(N, itemsize, aligned, blocks, variant) * blocks <= longest:
            return Plan(variant, threads, blocks, aligned)
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
    targets = ["-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_80,code=compute_80"]
    return ["-DGALLERY_HOPPER", "--threads=2", *targets]


@functools.cache
def extension() -> Any:
    """The compiled module, built on first use."""
    cuda = Path(torch.__file__).with_name("lib").joinpath("libtorch_cuda.so").exists()
    return load_inline(
        name="gallery_softmax",
        cpp_sources=CPP_SOURCE,
        cuda_sources=CUDA_SOURCE,
        functions=["softmax", "known", "quick", "remember", "forget"],
        extra_cflags=["-O2", "-DTORCH_HAS_CUDA"] if cuda else ["-O2"],
        extra_cuda_cflags=["-O3", "-std=c++17", *hopper_flags()],
        no_implicit_headers=True,
    )


@functools.cache
def _known() -> Any:
    """What answers a call whose plan is remembered, with as little of the host's time as there is a way to."""
    return extension().quick() or extension().known


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
    number = ACTIVATIONS.get(activation)
    if number is None:
        raise RuntimeError(f"softmax: activation None, 'gelu' or 'gelu_tanh', got {activation!r}")
    if plan is None and mask is None:
        y = _known()(z, bias, scale, number, in_place)
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
