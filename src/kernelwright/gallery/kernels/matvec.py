"""Matrix-vector product y = A @ x at memory speed, for any shape: six kernels and a rule that chooses one.

The product reads A once and does one multiply-add an element, so only bytes count, and below some 20 MB the time until
the first bytes come and the last sums meet. What differs between shapes is how enough loads stay in flight:

  narrow  K of at most 256 pieces of 16 bytes: 1 to 32 lanes share a row, x stays in registers, rows stream past.
  direct  a block takes 1 to 16 rows and one segment of the columns; its rows share each load of x.
  walk    A column-major (that is A.T @ x of a row-major A): a thread owns a piece of the columns and walks down rows.
          Rows may begin anywhere: a block takes rows of one alignment, so that all loads are of 16 bytes.
  column  walk where rows are whole pieces: a lane takes four rows side by side, and a warp sends its sums straight to
          the block of the cluster that owns them.
  element column's place where they are not: a lane has a column, and loads it element by element.
  ring    direct on Hopper: a producer thread streams 4 rows x 4 KB with the bulk copy engine (cp.async.bulk) into
          ten stages of shared memory, eight warps consume them; the loads never wait for arithmetic or a block's
          start.

Where K is split, there are three ways to add the segments' sums: the blocks of a cluster send them to one another's
shared memory (Hopper, up to sixteen segments); blocks post them in memory, where an empty slot holds a NaN that no sum
is, so that a sum is its own flag and no fence is waited for (who waits was the last to begin, or all run at once: a
cooperative launch); or a second kernel adds them, in float64. Each adds in a fixed order, so that the result is the
same bit for bit in every run. float32 chains are short: an H200's errors lie about torch.mv's, on most shapes below.
NaN and Inf propagate (no product is left out, none is added).

Limits: float32, float16, bfloat16; A is M x K with one unit stride and any other stride (rows may overlap or be far
apart; any alignment); other layouts and a strided x are copied first. M and K up to 2^31 - 1, more than 2^31 elements
in all. Posted sums need 32 MB of memory a device, kept. Forward only.

Measured (docs/gallery.md has the grid): H200s, A 2048 x 2^20 float32, 8.6 GB: ring 1.843 to 1.886 ms (4556 to 4663
GB/s, 99 % of what a kernel reads that does nothing else), torch.mv 2.297 to 2.303 ms.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
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
#include <set>
#include <type_traits>
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
// stream() and once() are volatile: otherwise the compiler moves each load to its use, and one is in flight where eight
// were meant. once() keeps nothing in L1, where x stays then: up to 5 % less time on an H200 (2^20 x 64).
template <typename T, int V>
struct Piece {
    uint4 raw;
    __device__ __forceinline__ void load(const T* p) { raw = *reinterpret_cast<const uint4*>(p); }
#define PIECE(LOAD)                                                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\n"         \
                 "mov.b32 %3, 0;\n@p " LOAD ".v4.b32 {%0, %1, %2, %3}, [%4];\n}"                                     \
                 : "=&r"(raw.x), "=&r"(raw.y), "=&r"(raw.z), "=&r"(raw.w)                                           \
                 : "l"(p), "r"(int(wanted)))
    // Zeros where not wanted.
    __device__ __forceinline__ void stream(const T* p, bool wanted) { PIECE("ld.global.nc"); }
    __device__ __forceinline__ void once(const T* p, bool wanted) { PIECE("ld.global.nc.L1::no_allocate"); }
#undef PIECE
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
    __device__ __forceinline__ void once(const T* p, bool wanted) { stream(p, wanted); }
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

// ---- mail: blocks that all run at once hand each other sums, each its own sign that it has come
// ----------------------------
constexpr uint32_t EMPTY = 0xffffffffu;  // a NaN that no sum is: post() sees to it
__device__ __forceinline__ void set(float* slot, uint32_t bits) {
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(slot), "r"(bits) : "memory");
}
__device__ __forceinline__ void post(float* slot, float v) {
    const uint32_t bits = __float_as_uint(v);
    set(slot, bits == EMPTY ? 0x7fffffffu : bits);
}
__device__ __forceinline__ uint32_t look(const float* slot) {
    uint32_t bits;
    asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(bits) : "l"(slot) : "memory");
    return bits;
}
template <bool NAMED>
__device__ __forceinline__ void block_barrier() {
    if (NAMED) asm volatile("bar.sync 1, 256;" ::: "memory");  // without ring's producer
    else __syncthreads();
}
// The sums of `segments` segments for M results; the grid's blocks divide the results among them, `share` each. Where a
// block has one, its slots lie side by side, else those of a segment.
struct Mail {
    float* slots;  // all EMPTY; null: sums are not posted
    int segments, M, share;
    __device__ __forceinline__ float* slot(int segment, int result) const {
        return slots + (share == 1 ? result * segments + segment : segment * M + result);
    }
};
struct Share {
    int first, mine, log;  // the block's results, 1 << log at a time
    __device__ __forceinline__ explicit Share(const Mail& mail) {
        first = ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * mail.share;
        mine = min(mail.share, mail.M - first), log = mine > 1 ? min(32 - __clz(mine - 1), 8) : 0;
    }
};
// Brings the block's slots into L2 while A is on its way.
__device__ __forceinline__ void expect(const Mail& mail) {
    const Share my(mail);
    const int lane = threadIdx.x & ((1 << my.log) - 1);
    if (lane < my.mine && (my.log ? lane : threadIdx.x) % 8 == 0)  // 32 bytes are fetched at a time
        for (int s = threadIdx.x >> my.log; s < mail.segments; s += THREADS >> my.log)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(mail.slot(s, my.first + lane)));
}
// A block adds what was posted of its results, and empties their slots for the next launch. All threads of all blocks
// call it.
template <bool NAMED, typename T>
__device__ __forceinline__ void collect(const Mail& mail, T* y) {
    __shared__ float parts[THREADS];
    const Share my(mail);
    if (my.mine <= 0) return;
    const int lanes = 1 << my.log, lane = threadIdx.x & (lanes - 1), slots = THREADS >> my.log;
    for (int base = 0; base < my.mine; base += lanes) {
        const int result = my.first + base + lane;
        float sum = 0.f;
        if (base + lane < my.mine)
            for (int s = threadIdx.x >> my.log; s < mail.segments; s += slots * 4) {
                uint32_t bits[4];
#pragma unroll
                for (int u = 0; u < 4; ++u)
                    bits[u] = s + u * slots < mail.segments ? look(mail.slot(s + u * slots, result)) : 0;
#pragma unroll
                for (int u = 0; u < 4; ++u) {
                    while (bits[u] == EMPTY) {
                        __nanosleep(20);  // the others still load
                        bits[u] = look(mail.slot(s + u * slots, result));
                    }
                    if (s + u * slots < mail.segments) set(mail.slot(s + u * slots, result), EMPTY);
                    sum += __uint_as_float(bits[u]);
                }
            }
        if (slots > 1) {  // then all results are done in one go
#pragma unroll
            for (int offset = 16; offset > 0; offset >>= 1)
                if (offset >= lanes) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
            parts[threadIdx.x] = sum;
            block_barrier<NAMED>();
            if (threadIdx.x < lanes) {
                sum = 0.f;
#pragma unroll 1
                for (int at = threadIdx.x; at < THREADS; at += max(lanes, 32)) sum += parts[at];
            }
        }
        if (threadIdx.x < lanes && base + lane < my.mine) store(y + result, sum);
    }
}

// The same for blocks that need not all run at once: of the blocks that share results the last to begin adds what the
// others post, so that nobody waits for a block that may not have begun. Each takes a ticket as it begins.
struct LateMail {
    float* slots;  // all EMPTY; null: sums are not posted
    int* tickets;  // all -1
};
__device__ __forceinline__ void request_ticket(int* counter, int& ticket) {  // which comes while A is on its way
    asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(ticket) : "l"(counter) : "memory");
}
__device__ __forceinline__ void fetch(const float* slot) {  // into L2: what only a part is written of is read first
    asm volatile("prefetch.global.L2 [%0];" ::"l"(slot));
}
// Adds `mine` and the others' sums in the order of their numbers s, s + step, ... below `end`, and empties their slots
// for the next launch.
__device__ __forceinline__ float received(float* slots, int64_t apart, int s, int step, int end, int me, float mine) {
    float sum = 0.f;
#pragma unroll 1
    for (; s < end; s += 4 * step) {
        uint32_t bits[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const int from = s + u * step;
            bits[u] = from == me ? __float_as_uint(mine) : from < end ? look(slots + from * apart) : 0;
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const int from = s + u * step;
            if (from != me && from < end) {
                while (bits[u] == EMPTY) {
                    __nanosleep(20);  // it still loads
                    bits[u] = look(slots + from * apart);
                }
                set(slots + from * apart, EMPTY);
            }
            sum += __uint_as_float(bits[u]);
        }
    }
    return sum;
}

// Where a result goes: y itself, or this segment's row of partial sums.
template <typename T>
struct Output {
    T* y;
    float* partial;   // [segments][M], or null
    int64_t M;
    Mail mail;
    int log_cluster;  // the segments are the 1 << log_cluster blocks of a cluster; 0: they are not
    __device__ __forceinline__ void put(int64_t row, int64_t segment, float v) const {
        if (mail.slots) post(mail.slot(static_cast<int>(segment), static_cast<int>(row)), v);
        else if (partial) partial[segment * M + row] = v;
        else store(y + row, v);
    }
};

// ---- narrow: LANES lanes share a row, each keeps its PIECES pieces of x in registers
// ------------------------------- PIECES * IN_FLIGHT loads a thread before the first use
template <typename T, int V, int LANES, int PIECES, int IN_FLIGHT>
__global__ void __launch_bounds__(THREADS, 2)  // else ptxas saves registers and has one load in flight
    narrow_kernel(const T* __restrict__ A, int64_t stride, const T* __restrict__ x, T* __restrict__ y, int64_t M,
                  int64_t K) {
    constexpr int ROWS = THREADS / LANES;
    const int lane = threadIdx.x % LANES, columns = static_cast<int>(K);
    Piece<T, V> b[PIECES];
#pragma unroll
    for (int p = 0; p < PIECES; ++p) b[p].stream(x + (p * LANES + lane) * V, (p * LANES + lane) * V < columns);
    for (int64_t first = int64_t(blockIdx.x) * ROWS * IN_FLIGHT; first < M;
         first += int64_t(gridDim.x) * ROWS * IN_FLIGHT) {
        const int row = threadIdx.x / LANES;  // and every ROWS-th behind it
        const int rows = static_cast<int>(min(M - first, int64_t(ROWS) * IN_FLIGHT));
        const T* from = A + (first + row) * stride + lane * V;
        Piece<T, V> a[IN_FLIGHT][PIECES];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; ++u, from += ROWS * stride)
#pragma unroll
            for (int p = 0; p < PIECES; ++p)
                a[u][p].once(from + p * LANES * V, row + u * ROWS < rows && (p * LANES + lane) * V < columns);
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; ++u) {
            float sum = 0.f;
#pragma unroll
            for (int p = 0; p < PIECES; ++p) {
                float xs[V];
                b[p].floats(xs);
                sum = dot(a[u][p], xs, sum);
            }
            sum = lane_sum<LANES>(sum);
            if (lane == 0 && row + u * ROWS < rows) store(y + first + row + u * ROWS, sum);
        }
    }
}

// ---- a cluster's blocks add their sums through shared memory (Hopper)
// --------------------------------
__device__ __forceinline__ void cluster_arrive() {
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
#ifdef GALLERY_HOPPER
// ---- barriers in shared memory
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
__device__ __forceinline__ uint32_t in_block(uint32_t address, int rank) {  // the same shared variable of another block
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}
__device__ __forceinline__ void barrier_wait(uint64_t* b, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\n"
        "bra again;\nover:\n}" ::"r"(shared_address(b)),
        "r"(parity)
        : "memory");
}
// Sends floats to shared memory of another block, whose barrier counts the bytes.
__device__ __forceinline__ void send(uint32_t there, uint32_t barrier, float v) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(there), "f"(v),
                 "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void send(uint32_t there, uint32_t barrier, float2 v) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(there),
                 "f"(v.x), "f"(v.y), "r"(barrier)
                 : "memory");
}
#endif
__device__ __forceinline__ void next_kernel_may_start() {
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");  // combine_kernel: it waits for this grid's results
#endif
}

// ---- direct: a block takes R rows and one segment of the columns
// ---------------------------------------------------
// KIND: what becomes of the sums. WHOLE: put(); PARTS: put(), or posted; MET: added in a cluster.
enum { WHOLE, PARTS, MET };
template <typename T, int V, int R, int FLIGHT, int KIND>
__global__ void __launch_bounds__(THREADS, 2)
    direct_kernel(const T* __restrict__ A, int64_t stride, const T* __restrict__ x, Output<T> out, LateMail late,
                  int64_t M, int64_t K, int64_t segment, int segments) {
    constexpr int U = FLIGHT / R;  // FLIGHT loads a thread before the first use
    __shared__ float shared[WARPS][R], inbox[WARPS * (R + 15)];  // inbox: [senders][owned rows]
    __shared__ __align__(8) uint64_t met;
    __shared__ bool latest;
    unsigned group = blockIdx.x, part = 0;
    int ticket = 0;
    if (KIND != WHOLE) {
        if (KIND == PARTS) next_kernel_may_start();
        group = KIND == MET ? group >> out.log_cluster : group / segments, part = blockIdx.x - group * segments;
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
        if (KIND == MET) {
            if (threadIdx.x == 0) {
                barrier_init(&met, 1);
                asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            }
            cluster_arrive();
        }
#endif
        if (KIND == PARTS && late.slots && threadIdx.x == 0) request_ticket(late.tickets + group, ticket);
        const int64_t mine = group * int64_t(R) + threadIdx.x;
        if (KIND == PARTS && late.slots && threadIdx.x < R && mine < M) fetch(late.slots + mine * segments + part);
    }
    const int64_t row = group * int64_t(R), begin = KIND == WHOLE ? 0 : part * segment;
    const int length = static_cast<int>(KIND == WHOLE ? K : max(int64_t(0), min(segment, K - begin)));
    const int whole = length & ~(V - 1), after = static_cast<int>(min(M - row, int64_t(R)));
    const T* rows[R];
    float sum[R] = {};
    rows[0] = A + row * stride + begin;
#pragma unroll
    for (int r = 1; r < R; ++r) rows[r] = rows[r - 1] + (r < after ? stride : 0);  // the last row again, for the rest
    const T* const from = x + begin;
#pragma unroll 1
    for (int column = threadIdx.x * V; column < whole; column += THREADS * V * U) {
        Piece<T, V> a[U][R], b[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int at = u * THREADS * V;
#pragma unroll
            for (int r = 0; r < R; ++r) a[u][r].once(rows[r] + column + at, column + at < whole);
            b[u].stream(from + column + at, column + at < whole);
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            float xs[V];
            b[u].floats(xs);
#pragma unroll
            for (int r = 0; r < R; ++r) sum[r] = dot(a[u][r], xs, sum[r]);
        }
    }
    const int last = whole + threadIdx.x;
    if (V > 1 && last < length) {  // fewer than V columns are left
        const float xs = as_float(from[last]);
#pragma unroll
        for (int r = 0; r < R; ++r) sum[r] = fmaf(as_float(rows[r][last]), xs, sum[r]);
    }
    float mine = 0.f;  // lane r: the warp's sum of row r
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const float total = lane_sum<32>(sum[r]);
        if (threadIdx.x % 32 == r) mine = total;
    }
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    if (KIND == MET) {  // as in column_kernel: each warp sends to the rows' owners, no barrier between
        const int log = out.log_cluster, ranks = 1 << log, owned = (R + ranks - 1) >> log, lane = threadIdx.x % 32;
        const int rows_here = part < R ? (R - part + ranks - 1) >> log : 0;
        cluster_wait();
        if (threadIdx.x == 0) barrier_expect(&met, rows_here * WARPS * ranks * 4);
        if (lane < R) {
            float* const to = inbox + (part * WARPS + threadIdx.x / 32) * owned + (lane >> log);
            const int owner = lane & (ranks - 1);
            send(in_block(shared_address(to), owner), in_block(shared_address(&met), owner), mine);
        }
        barrier_wait(&met, 0);
        for (int i = threadIdx.x / 32; i < rows_here; i += WARPS) {
            float total = 0.f;
            for (int s = lane; s < WARPS * ranks; s += 32) total += inbox[s * owned + i];
            total = lane_sum<32>(total);
            const int64_t at = row + (i << log) + part;
            if (lane == 0 && at < M) store(out.y + at, total);
        }
        return;
    }
#endif
    if (threadIdx.x % 32 < R) shared[threadIdx.x / 32][threadIdx.x % 32] = mine;
    if (KIND == PARTS && threadIdx.x == 0) latest = ticket == segments - 2;  // the first ticket is -1
    __syncthreads();
    if (threadIdx.x < R) {
        float total = 0.f;
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp) total += shared[warp][threadIdx.x];
        if (KIND == PARTS && late.slots) {
            if (latest) inbox[threadIdx.x] = total;
            else if (row + threadIdx.x < M) post(late.slots + (row + threadIdx.x) * segments + part, total);
        } else if (row + threadIdx.x < M) out.put(row + threadIdx.x, part, total);
    }
    if (KIND == PARTS && late.slots && latest) {  // R sums of `segments` parts, in the same order whoever was the last
        __syncthreads();
        const int r = threadIdx.x % R;
        float total = 0.f;
        if (row + r < M)
            total = received(late.slots + (row + r) * segments, 1, threadIdx.x / R, THREADS / R, segments, part,
                             inbox[r]);
#pragma unroll
        for (int offset = 16; offset >= R; offset >>= 1) total += __shfl_xor_sync(0xffffffffu, total, offset);
        if (threadIdx.x % 32 < R) shared[threadIdx.x / 32][r] = total;
        __syncthreads();
        if (threadIdx.x == 0) late.tickets[group] = -1;
        if (threadIdx.x < R && row + threadIdx.x < M) {
            total = 0.f;
#pragma unroll
            for (int warp = 0; warp < WARPS; ++warp) total += shared[warp][threadIdx.x];
            store(out.y + row + threadIdx.x, total);
        }
    }
}

// ---- walk: y[j] = sum over i of A[i, j] x[i], with 16-byte loads whatever the rows' alignment
// ----------------------------
// Rows whose addresses agree modulo 16 bytes are a class: of 1 << log classes, a block takes one (blockIdx.z), so that
// a thread's pieces hold the same columns in each of its rows, and columns that are not there need not be told apart:
// their sums are never written. A block is `across` pieces wide and `slots` rows high. What the host makes of these:
struct Walk {
    int64_t stride, apart, step;  // elements from a row to the next, of its class, `slots` further
    int64_t columns;
    int rows, segment;  // of a class, in a block
    int log, across, slots, reciprocal, chunk, ragged;
};
// KIND: how x is read and what becomes of the sums. BARE: from memory, put(); STAGED: through shared memory, put();
// POSTED: through shared memory, and sums are added by mail.
enum { BARE, STAGED, POSTED };
template <typename T, int V, int U, int KIND>
__global__ void __launch_bounds__(THREADS, 2)
    walk_kernel(const T* __restrict__ A, const T* __restrict__ x, Output<T> out, const Walk w) {
    __shared__ float xs[KIND == BARE ? 1 : 2048];
    __shared__ float sums[THREADS * V];
    const int slot = threadIdx.x * w.reciprocal >> 16, piece = threadIdx.x - slot * w.across;
    const int period = 1 << w.log, first = blockIdx.z, skipped = blockIdx.y * w.segment;
    const int part = blockIdx.z * gridDim.y + blockIdx.y;
    const int row0 = first + (skipped << w.log);
    const int n = min(w.segment, ((w.rows - first + period - 1) >> w.log) - skipped);  // rows of this block
    const T* const begin = A + row0 * w.stride;
    const int shift = w.ragged ? static_cast<int>(reinterpret_cast<uint64_t>(begin) % 16 / sizeof(T)) : 0;
    const int64_t left = (int64_t(blockIdx.x) * w.across + piece) * V - shift;  // this thread's first column
    const bool active = slot < w.slots && left < w.columns;
    int least = 0, limit = active ? n : 0;
    if (w.ragged && active && n > 0) {  // pieces that begin before A or end behind it are not loaded whole
        if (left < 0 && row0 == 0 && slot == 0) least = 1;
        if (left + V > w.columns && row0 + ((n - 1) << w.log) == w.rows - 1) limit = n - 1;
    }
    const T* p = begin + slot * w.apart + left;
    if (KIND == POSTED) expect(out.mail);
    float sum[V] = {};
    int staged = 0;
#pragma unroll 1
    for (int top = 0; top < n; top += U * w.slots) {
        const bool stage = KIND != BARE && top == staged;  // the next `chunk` of x, loaded beside A
        const int here = stage ? min(w.chunk, n - top) : 0;
        const T* const from = x + row0 + (int64_t(top) << w.log);
        Piece<T, 1> own;
        if (KIND != BARE) own.stream(from + (threadIdx.x << w.log), threadIdx.x < here);
        Piece<T, V> a[U];
        int i = top + slot;
#pragma unroll
        for (int u = 0; u < U; ++u, i += w.slots, p += w.step) a[u].once(p, i < limit && i >= least);
        i = top + slot;
        float by[U], some[V] = {};
        if (KIND == BARE) {
#pragma unroll
            for (int u = 0; u < U; ++u)
                by[u] = i + u * w.slots < limit ? as_float(from[int64_t(slot + u * w.slots) << w.log]) : 0.f;
        } else {
            if (stage) {
                if (top > 0) __syncthreads();
                if (threadIdx.x < here) xs[threadIdx.x] = as_float(own.raw);
#pragma unroll 1
                for (int k = threadIdx.x + THREADS; k < here; k += THREADS)
                    xs[k] = as_float(from[int64_t(k) << w.log]);
                __syncthreads();
                staged += w.chunk;
            }
            const float* const xi = xs + (top - staged + w.chunk + slot);
#pragma unroll
            for (int u = 0; u < U; ++u) by[u] = i + u * w.slots < limit ? xi[u * w.slots] : 0.f;
        }
        if (i < least) by[0] = 0.f;  // A's piece is zero too: an Inf times it would be NaN
#pragma unroll
        for (int u = 0; u < U; ++u) {
            float f[V];
            a[u].floats(f);
#pragma unroll
            for (int v = 0; v < V; ++v) some[v] = fmaf(f[v], by[u], some[v]);
        }
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += some[v];
    }
    if (w.ragged) {
#pragma unroll 1
        for (int edge = 0; edge < 2; ++edge) {
            const int row = edge ? w.rows - 1 : 0;
            const bool whole = edge ? limit == n : least == 0;
            if (active && n > 0 && !whole && (edge ? (n - 1) % w.slots == slot && !(least && n == 1) : true))
#pragma unroll
                for (int v = 0; v < V; ++v)
                    if (left + v >= 0 && left + v < w.columns)
                        sum[v] = fmaf(as_float(A[row * w.stride + left + v]), as_float(x[row]), sum[v]);
        }
    }
    const int width = w.across * V;
    if (w.slots == 1) {
        if (KIND != POSTED && active && V > 1 && !w.ragged && !out.partial) {
            alignas(16) T packed[V];
#pragma unroll
            for (int v = 0; v < V; ++v) store(packed + v, sum[v]);
            *reinterpret_cast<uint4*>(out.y + left) = *reinterpret_cast<uint4*>(packed);
        } else if (active)
#pragma unroll
            for (int v = 0; v < V; ++v)
                if (left + v >= 0 && left + v < w.columns) out.put(left + v, part, sum[v]);
    } else {
        if (slot < w.slots)
#pragma unroll
            for (int v = 0; v < V; ++v) sums[slot * width + piece * V + v] = sum[v];
        __syncthreads();
        for (int c = threadIdx.x; c < width; c += THREADS) {
            float total = 0.f;
#pragma unroll 8
            for (int s = 0; s < w.slots; ++s) total += sums[s * width + c];
            const int64_t column = int64_t(blockIdx.x) * width - shift + c;
            if (column >= 0 && column < w.columns) out.put(column, part, total);
        }
    }
    if (KIND == POSTED) collect<false>(out.mail, out.y);
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
        for (int s = 0; s < RING_STAGES; ++s) barrier_init(full + s, 1), barrier_init(empty + s, THREADS);
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
    if (out.mail.slots) expect(out.mail);
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
            barrier_arrive(empty + stage);  // every thread: racecheck does not follow a warp's one arrival
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
    }
    if (out.mail.slots) collect<true>(out.mail, out.y);
#endif
}

#endif

// ---- a meeting: the warps of a block, or of all blocks of a cluster (Hopper), add what they have of the same columns
// ----------------
// A unit is E columns, which a lane sends, as they leave its shuffles, straight to the block that owns them and waits
// for the bytes of all: no barrier lies between. `senders` warps have something for each unit, and senders times a
// block's own units are 256: one for each thread, so that nobody loops but where there are more than 32 senders.
template <int E>
struct Inbox {
    float sums[(256 + 128) * E];  // [senders][owned units + 1]: no two lanes meet in a bank
    uint64_t met;
};
struct Meeting {
    int rank, log, owned, senders;  // this block's number of 1 << log, and how many units it owns
    int log_lanes, part, own;       // 1 << log_lanes lanes side by side add unit `own`; which of them this is
    __device__ __forceinline__ Meeting(int units, int log_warps, int rank, int log)
        : rank(rank), log(log), owned(units >> log), senders(1 << (log_warps + log)),
          log_lanes(min(log_warps + log, 5)), part(threadIdx.x & ((1 << log_lanes) - 1)),
          own(threadIdx.x >> log_lanes) {}
    template <int E>
    __device__ __forceinline__ float* slot(Inbox<E>& inbox, int sender, int i) const {
        return inbox.sums + (sender * (owned + 1) + i) * E;
    }
};
// All threads call it while their loads are on their way.
template <bool CLUSTER, int E>
__device__ __forceinline__ void open_meeting(Inbox<E>& inbox, const Meeting& m) {
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
    if (!CLUSTER) return;
    if (threadIdx.x == 0) {
        barrier_init(&inbox.met, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        barrier_expect(&inbox.met, m.senders * m.owned * E * 4);
    }
    cluster_arrive();  // relaxed: a release would first wait for the loads
#endif
}
// Adds v over 1 << log_lanes lanes side by side, of which every FIRST-th counts.
template <int FIRST>
__device__ __forceinline__ float over_lanes(float v, int log_lanes) {
#pragma unroll
    for (int offset = 16; offset >= FIRST; offset >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, v, offset);
        v += offset >> log_lanes ? 0.f : other;
    }
    return v;
}
// Sends this lane's columns of `unit`, as the block's `sender`-th warp with these columns, and gives this thread the
// sums of its own unit. In a cluster it is called twice: first not in earnest, with the loads on their way, so that the
// code behind them has been fetched when they have come. On an H200, that is 0.1 to 0.3 us of 6.6.
template <bool CLUSTER, int E>
__device__ __forceinline__ void meet(Inbox<E>& inbox, const Meeting& m, int sender, int unit, const float (&mine)[E],
                                     bool in_earnest, float (&total)[E]) {
    float* const to = m.slot(inbox, (m.senders >> m.log) * m.rank + sender, unit >> m.log);
    if (CLUSTER) {
#if defined(GALLERY_HOPPER) && __CUDA_ARCH__ >= 900
        if (!in_earnest) cluster_wait();
        const int owner = unit & ((1 << m.log) - 1);
        const uint32_t there = in_block(shared_address(to), owner), met = in_block(shared_address(&inbox.met), owner);
        if (in_earnest) {
            if constexpr (E == 2) send(there, met, make_float2(mine[0], mine[1]));
            else send(there, met, mine[0]);
            barrier_wait(&inbox.met, 0);
        }
#endif
    } else if (in_earnest) {
#pragma unroll
        for (int e = 0; e < E; ++e) to[e] = mine[e];
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < E; ++e) total[e] = 0.f;
    if (in_earnest && m.own < m.owned)
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (m.part + k * 32 < m.senders)
#pragma unroll
                for (int e = 0; e < E; ++e) total[e] += m.slot(inbox, m.part + k * 32, m.own)[e];
#pragma unroll
    for (int e = 0; e < E; ++e) total[e] = over_lanes<1>(total[e], m.log_lanes);
}

// ---- column: what walk does where no row begins amiss, with less in front of the first load and behind the last
// ----------------
// A warp is 8 pieces wide and its four groups of lanes take 4 rows each, so that one load brings a group's x. A block
// is 1 << log_across warps wide; the blocks of a cluster take a segment of the rows each, and there may be several such
// sets: of the owners of a column in these the last to begin adds the others' sums. What the host makes of the plan:
struct Columns {
    int64_t stride, far, next;  // elements from a row to the next, to a lane's next 4 rows, to the block's next `step`
    int columns, rows, segment, step;  // rows: of A.T; segment: of a block, which takes `step` at a time
    int log_across, log_cluster, sets;
    bool whole_x;  // 4 of x can be loaded at once
    LateMail late;
};
template <typename T, int U, bool CLUSTER, bool LATE>
__global__ void __launch_bounds__(THREADS, U == 4 ? 4 : U == 8 ? 3 : 2)
    column_kernel(const T* __restrict__ A, const T* __restrict__ x, T* __restrict__ y, const Columns w) {
    constexpr int V = 16 / sizeof(T), S = U / 4, E = V / 4;
    using Four = std::conditional_t<V == 4, uint4, uint2>;  // elements
    __shared__ __align__(16) Inbox<E> inbox;
    __shared__ bool latest;
    const int lane = threadIdx.x % 32, piece = lane % 8, group = lane / 8;
    const int across = threadIdx.x / 32 & ((1 << w.log_across) - 1), down = threadIdx.x / 32 >> w.log_across;
    const int height = WARPS * 16 >> w.log_across;  // rows of which a block has 4 a group
    const Meeting m(32 << w.log_across, 3 - w.log_across, CLUSTER ? blockIdx.y : 0, CLUSTER ? w.log_cluster : 0);
    const int begin = ((blockIdx.z << m.log) + m.rank) * w.segment, end = min(w.rows, begin + w.segment);
    const int left = (blockIdx.x << w.log_across) * 8 * V, column = left + (across * 8 + piece) * V;
    float* const slots = w.late.slots + int64_t(blockIdx.z) * w.columns;  // this set's
    int* const counter = w.late.tickets + ((blockIdx.x << m.log) + m.rank);
    int ticket = 0, row = begin, at = begin + (down * 4 + group) * 4;  // the block's next row, and this lane's
    const T* p = A + at * w.stride + column;
    const bool there = column < w.columns;
    uint4 a[S][4];
    alignas(16) T by[S][4];
    const auto load = [&] {
        const bool full = row + height * S <= end;
        if (!full || !there)  // zeros where nothing is loaded
#pragma unroll
            for (int s = 0; s < S; ++s)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    asm volatile("mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;"
                                 : "=r"(a[s][i].x), "=r"(a[s][i].y), "=r"(a[s][i].z), "=r"(a[s][i].w));
#pragma unroll
        for (int s = 0; s < S; ++s)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                asm volatile(
                    "{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
                    "@p ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
                    : "+r"(a[s][i].x), "+r"(a[s][i].y), "+r"(a[s][i].z), "+r"(a[s][i].w)
                    : "l"(p + s * w.far + i * w.stride), "r"(int(there && at + s * height + i < end)));
        const T* const from = x + at;
        if (full && w.whole_x) {
#pragma unroll
            for (int s = 0; s < S; ++s)
                *reinterpret_cast<Four*>(by[s]) = *reinterpret_cast<const Four*>(from + s * height);
        } else {
#pragma unroll
            for (int s = 0; s < S; ++s)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    store(by[s] + i, 0.f);
                    if (at + s * height + i < end) by[s][i] = from[s * height + i];
                }
        }
    };
    load();
    if (LATE) {  // beside the loads
        if (threadIdx.x == 0) request_ticket(counter, ticket);
        const int mine = left + ((threadIdx.x << m.log) + m.rank) * E;
        if (threadIdx.x < m.owned && mine < w.columns) fetch(slots + mine);
    }
    open_meeting<CLUSTER>(inbox, m);
    float sum[V] = {};
#pragma unroll 1
    for (int turn = CLUSTER ? 0 : 1; turn < 2; ++turn) {  // see meet()
#pragma unroll 1
        while (turn) {
            float some[V] = {};
#pragma unroll
            for (int s = 0; s < S; ++s)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float f[V];
                    Piece<T, V>{a[s][i]}.floats(f);
#pragma unroll
                    for (int v = 0; v < V; ++v) some[v] = fmaf(f[v], as_float(by[s][i]), some[v]);
                }
#pragma unroll
            for (int v = 0; v < V; ++v) sum[v] += some[v];
            row += w.step, at += w.step, p += w.next;
            if (row >= end) break;
            load();
        }
        float half[V / 2], mine[E], total[E];  // the groups have the same columns: each keeps a half, then a quarter
        const bool upper = group & 2, odd = group & 1;
#pragma unroll
        for (int v = 0; v < V / 2; ++v)
            half[v] = (upper ? sum[V / 2 + v] : sum[v]) +
                      __shfl_xor_sync(0xffffffffu, upper ? sum[v] : sum[V / 2 + v], 16);
#pragma unroll
        for (int e = 0; e < E; ++e)
            mine[e] = (odd ? half[E + e] : half[e]) + __shfl_xor_sync(0xffffffffu, odd ? half[e] : half[E + e], 8);
        if (LATE && turn) {
            if (threadIdx.x == 0) latest = ticket == w.sets - 2;  // the first ticket is -1
            if (CLUSTER) __syncthreads();
        }
        meet<CLUSTER>(inbox, m, down, (across * 8 + piece) * 4 + group, mine, turn, total);
        const int result = left + ((m.own << m.log) + m.rank) * E;
        const bool owner = m.own < m.owned && result < w.columns;
        if (!LATE) {
            if (owner && m.part == 0 && turn) {
                alignas(4) T packed[E];
#pragma unroll
                for (int e = 0; e < E; ++e) store(packed + e, total[e]);
                *reinterpret_cast<uint32_t*>(y + result) = *reinterpret_cast<uint32_t*>(packed);
            }
        } else if (turn) {  // a lane has one column of its unit from here on
            const int mine_of = result + m.part % E;
            float sum_of_all = m.part % E ? total[E - 1] : total[0];
            if (!latest) {
                if (owner && m.part < E) post(slots + mine_of, sum_of_all);
                return;
            }
            if (owner)
                sum_of_all = received(w.late.slots + mine_of, w.columns, m.part / E, (1 << m.log_lanes) / E, w.sets,
                                      blockIdx.z, sum_of_all);
            sum_of_all = over_lanes<E>(sum_of_all, m.log_lanes);
            if (owner && m.part < E) store(y + mine_of, sum_of_all);
            if (threadIdx.x == 0) *counter = -1;
        }
    }
}

// ---- element: column's place where rows begin anywhere: a lane has a column, and loads it element by element
// ----------------
// A warp takes U rows at a time; a lane loads one of their elements of x and hands it round.
struct Elements {
    int64_t stride;
    int columns, rows, segment, log_cluster;
};
__device__ __forceinline__ void take(float& v, const float* p, bool wanted) {  // zero where not wanted
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.nc.b32 %0, [%1];\n}"
                 : "=&f"(v)
                 : "l"(p), "r"(int(wanted)));
}
template <typename T>
__device__ __forceinline__ void take(T& v, const T* p, bool wanted) {
    uint16_t bits;
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\nmov.b16 %0, 0;\n@p ld.global.nc.b16 %0, [%1];\n}"
                 : "=&h"(bits)
                 : "l"(p), "r"(int(wanted)));
    v = *reinterpret_cast<const T*>(&bits);
}
template <typename T, int U, bool CLUSTER>
__global__ void __launch_bounds__(THREADS, U == 8 ? 8 : U == 16 ? 6 : 4)
    element_kernel(const T* __restrict__ A, const T* __restrict__ x, T* __restrict__ y, const Elements w) {
    __shared__ __align__(16) Inbox<1> inbox;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    const Meeting m(32, 3, CLUSTER ? blockIdx.y : 0, CLUSTER ? w.log_cluster : 0);
    const int begin = m.rank * w.segment, end = min(w.rows, begin + w.segment);
    int row = begin + warp * U;
    const T* p = A + row * w.stride + column;
    T a[U], own;
    const auto load = [&] {
        const T* from = p;
#pragma unroll
        for (int u = 0; u < U; ++u, from += w.stride) take(a[u], from, column < w.columns && row + u < end);
        take(own, x + row + lane, lane < U && row + lane < end);
        row += WARPS * U, p += w.stride * (WARPS * U);
    };
    load();
    open_meeting<CLUSTER>(inbox, m);
    float sum[1] = {}, total[1];
#pragma unroll 1
    for (int turn = CLUSTER ? 0 : 1; turn < 2; ++turn) {  // see meet()
#pragma unroll 1
        while (turn) {
            const float xs = as_float(own);
            float some = 0.f;
#pragma unroll
            for (int u = 0; u < U; ++u) some = fmaf(as_float(a[u]), __shfl_sync(0xffffffffu, xs, u), some);
            sum[0] += some;
            if (row - warp * U >= end) break;
            load();
        }
        meet<CLUSTER>(inbox, m, warp, lane, sum, turn, total);
        const int result = blockIdx.x * 32 + (m.own << m.log) + m.rank;
        if (m.own < m.owned && m.part == 0 && result < w.columns && turn) store(y + result, total[0]);
    }
}

// ---- host
// ------------------------------------------------------------------------------------------------------------
struct Request {
    const void *A, *x;
    void* y;
    float* partial;
    int64_t M, K, stride, segment;
    int segments, rows, lanes, sms, cluster;
    float* mail;
    int depth;  // loads that a thread has in flight
    int device;
    cudaStream_t stream;
    LateMail late() const { return {mail, mail ? reinterpret_cast<int*>(mail + segments * M) : nullptr}; }
    template <typename T>
    Output<T> output(int64_t blocks) const {
        int log = 0;
        while (1 << log < cluster) ++log;
        const int share = static_cast<int>((M + blocks - 1) / blocks);
        return {static_cast<T*>(y), partial, M, {mail, segments, static_cast<int>(M), share}, log};
    }
};

// Memory for posted sums: all EMPTY, and left so by the kernel that used it. One stream's launches follow one another,
// so that they share it; a captured launch may be replayed beside any other and gets its own. Null: there is none.
inline float* mailbox(int64_t wanted, int device, cudaStream_t stream) {
    constexpr int64_t POOL = 1 << 23, LEAST = 1 << 18;  // floats
    using Slice = std::pair<float*, int64_t>;
    static std::mutex mutex;
    static std::map<std::pair<int, cudaStream_t>, Slice> of_stream;
    static std::map<int, Slice> pools;  // of a device: memory, and how much of it is given away
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &status)) return nullptr;
    const bool capturing = status != cudaStreamCaptureStatusNone;
    const std::lock_guard<std::mutex> lock(mutex);
    if (!capturing) {
        const auto known = of_stream.find({device, stream});
        if (known != of_stream.end() && known->second.second >= wanted) return known->second.first;
    }
    auto& [memory, used] = pools[device];
    if (!memory) {
        if (capturing) return nullptr;  // a capture may not allocate
        void* made = nullptr;
        if (cudaMalloc(&made, POOL * sizeof(float)) || cudaMemset(made, 0xff, POOL * sizeof(float)) ||
            cudaStreamSynchronize(nullptr))
            return nullptr;
        memory = static_cast<float*>(made);
    }
    int64_t size = capturing ? wanted : LEAST;
    while (size < wanted) size *= 2;
    if (used + size > POOL) return nullptr;
    float* const slice = memory + used;
    used += size;
    if (!capturing) of_stream[{device, stream}] = {slice, size};
    return slice;
}

#ifdef GALLERY_HOPPER
// Sets a kernel's one attribute, once a device: the driver takes as long for that as for a launch.
inline cudaError_t permit(const void* kernel, cudaFuncAttribute attribute, int value, int device) {
    static std::mutex mutex;
    static std::set<std::pair<const void*, int>> permitted;
    const std::lock_guard<std::mutex> lock(mutex);
    if (permitted.count({kernel, device})) return cudaSuccess;
    const cudaError_t e = cudaFuncSetAttribute(kernel, attribute, value);
    if (!e) permitted.insert({kernel, device});
    return e;
}
#endif

// cluster: blocks of a cluster, or 1; early: may start before the kernel in front of it has ended (Hopper); together:
// all blocks run at once, or the launch fails
template <typename... Parameters, typename... Given>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, int bytes, int cluster, bool early,
                   bool together, const Request& q, Given... given) {
    cudaLaunchAttribute attributes[3] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = dim3(threads), config.dynamicSmemBytes = bytes;
    config.stream = q.stream, config.attrs = attributes;
    if (together) {
        auto& a = attributes[config.numAttrs++];
        a.id = cudaLaunchAttributeCooperative, a.val.cooperative = 1;
    }
#ifdef GALLERY_HOPPER
    if (cluster > 1) {
        auto& a = attributes[config.numAttrs++];
        a.id = cudaLaunchAttributeClusterDimension;
        a.val.clusterDim.x = grid.y > 1 ? 1 : cluster, a.val.clusterDim.y = grid.y > 1 ? cluster : 1;
        a.val.clusterDim.z = 1;
        if (cluster > 8)
            if (cudaError_t e = permit(reinterpret_cast<const void*>(kernel),
                                       cudaFuncAttributeNonPortableClusterSizeAllowed, 1, q.device))
                return e;
    }
    if (early) {
        auto& a = attributes[config.numAttrs++];
        a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        a.val.programmaticStreamSerializationAllowed = 1;
    }
#endif
    return cudaLaunchKernelEx(&config, kernel, Parameters(given)...);
}

template <typename T, int V>
cudaError_t narrow(const Request& q) {
    const int64_t pieces = (q.K + V - 1) / V;
    const int per_lane = static_cast<int>((pieces + q.lanes - 1) / q.lanes), rows = THREADS / q.lanes;
    const int least = per_lane > 4 ? 8 : per_lane > 2 ? 4 : per_lane > 1 ? 2 : 1;
    const int64_t steps = (q.M + rows * q.depth - 1) / (rows * q.depth), resident = int64_t(q.sms) * q.rows;
    const int64_t grid = q.rows && resident < steps ? resident : steps;
#define NARROW(LANES, PIECES, IN_FLIGHT)                                                                          \
    if (q.lanes == LANES && least == PIECES && q.depth == IN_FLIGHT)                                              \
        return launch(narrow_kernel<T, V, LANES, PIECES, IN_FLIGHT>, grid, THREADS, 0, 1, false, false, q, \
                      static_cast<const T*>(q.A), q.stride, static_cast<const T*>(q.x), static_cast<T*>(q.y), q.M, \
                      q.K);
#define NARROWS(LANES, PIECES) NARROW(LANES, PIECES, 1) NARROW(LANES, PIECES, 2)
    NARROWS(1, 1) NARROWS(2, 1) NARROWS(4, 1) NARROWS(8, 1) NARROWS(16, 1) NARROWS(32, 1)
    NARROW(1, 1, 4) NARROW(2, 1, 4) NARROW(4, 1, 4) NARROW(8, 1, 4) NARROW(16, 1, 4) NARROW(32, 1, 4)
    NARROW(1, 1, 8) NARROW(2, 1, 8) NARROW(4, 1, 8) NARROW(8, 1, 8) NARROW(16, 1, 8) NARROW(32, 1, 8)
    NARROWS(32, 2) NARROW(32, 2, 4) NARROW(32, 2, 8) NARROWS(32, 4) NARROW(32, 4, 4) NARROWS(32, 8)
#undef NARROW
    return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t combine(const Request& q) {
    if (!q.partial || q.mail) return cudaSuccess;
    int lanes = 32;  // fewer where that still gives every multiprocessor a block
    while (lanes > 1 && (lanes / 2 >= q.M || q.M < int64_t(lanes) * q.sms / 2)) lanes /= 2;
    return launch(combine_kernel<T>, (q.M + lanes - 1) / lanes, COMBINERS, 0, 1, true, false, q, q.partial,
                  static_cast<T*>(q.y), q.M, q.segments, lanes);
}

template <typename T, int V>
cudaError_t direct(const Request& q) {
    const int64_t blocks = (q.M + q.rows - 1) / q.rows * q.segments;
    Output<T> out = q.output<T>(blocks);
    out.mail.slots = nullptr;
    auto kernel = direct_kernel<T, V, 1, 8, PARTS>;
#define DIRECT(R, FLIGHT)                 \
    if (q.rows == R && q.depth == FLIGHT) \
        kernel = q.segments > 1 ? direct_kernel<T, V, R, FLIGHT, PARTS> : direct_kernel<T, V, R, FLIGHT, WHOLE>;
#define IN_CLUSTER(R) \
    if (q.rows == R && q.cluster > 1) kernel = direct_kernel<T, V, R, 8, MET>;
    DIRECT(1, 8) DIRECT(2, 8) DIRECT(4, 8) DIRECT(8, 8)
    if constexpr (V > 1) {
        DIRECT(1, 16) DIRECT(2, 16) DIRECT(4, 16) DIRECT(8, 16) DIRECT(16, 16)
    }
#ifdef GALLERY_HOPPER
    IN_CLUSTER(1) IN_CLUSTER(2) IN_CLUSTER(4) IN_CLUSTER(8)
#endif
#undef IN_CLUSTER
#undef DIRECT
    const cudaError_t e = launch(kernel, blocks, THREADS, 0, q.cluster, false, false, q, static_cast<const T*>(q.A),
                                 q.stride, static_cast<const T*>(q.x), out, q.late(), q.M, q.K, q.segment, q.segments);
    return e ? e : combine<T>(q);
}

template <typename T, int V>
cudaError_t walk(Request q) {
    const int64_t apart = q.K > 1 && V > 1 ? q.stride * sizeof(T) % 16 : 0;
    Walk w;
    w.log = apart == 0 ? 0 : apart % 8 == 0 ? 1 : apart % 4 == 0 ? 2 : 3;
    const bool shifted = V > 1 && (apart || reinterpret_cast<uint64_t>(q.A) % 16);
    const int64_t pieces = (q.M + (shifted ? V - 1 : 0) + V - 1) / V, tiles = (pieces + q.lanes - 1) / q.lanes;
    const int64_t period = 1 << w.log, ranges = q.segments / period > 1 ? q.segments / period : 1;
    q.segments = static_cast<int>(ranges * period);
    if (q.segments > 1 && !q.partial && !q.mail) return cudaErrorInvalidValue;  // no plan for such rows
    w.stride = q.stride, w.apart = q.stride * period, w.columns = q.M, w.rows = static_cast<int>(q.K);
    w.segment = static_cast<int>(((q.K + period - 1) / period + ranges - 1) / ranges);
    w.across = q.lanes, w.slots = THREADS / q.lanes, q.depth = w.slots * q.depth > 2048 ? 8 : q.depth;
    w.reciprocal = (65536 + q.lanes - 1) / q.lanes;
    w.step = w.apart * w.slots, w.chunk = 2048 / (w.slots * q.depth) * w.slots * q.depth;
    w.ragged = shifted || q.M % V;
    const Output<T> out = q.output<T>(tiles * q.segments);
#define WALK(U) \
    q.mail ? walk_kernel<T, V, U, POSTED> : q.rows ? walk_kernel<T, V, U, STAGED> : walk_kernel<T, V, U, BARE>
    auto kernel = walk_kernel<T, V, 8, BARE>;
    if constexpr (V > 1) kernel = q.depth == 16 ? (WALK(16)) : q.depth == 8 ? (WALK(8)) : (WALK(4));
#undef WALK
    const cudaError_t e = launch(kernel, dim3(tiles, ranges, period), THREADS, 0, 1, false, q.mail != nullptr, q,
                                 static_cast<const T*>(q.A), static_cast<const T*>(q.x), out, w);
    return e ? e : combine<T>(q);
}

template <typename T>
cudaError_t ring(const Request& q) {
#ifdef GALLERY_HOPPER
    constexpr int bytes = RING_STAGES * STAGE_BYTES;
    if (cudaError_t e = permit(reinterpret_cast<const void*>(ring_kernel<T>),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, bytes, q.device))
        return e;
    const int64_t items = (q.M + RING_ROWS - 1) / RING_ROWS * q.segments, blocks = items < q.sms ? items : q.sms;
    const Output<T> out = q.output<T>(blocks);
    const cudaError_t e = launch(ring_kernel<T>, blocks, THREADS + 32, bytes, 1, false, q.mail != nullptr, q,
                                 static_cast<const T*>(q.A), q.stride, static_cast<const T*>(q.x), out, q.M, q.K,
                                 q.segment, q.segments);
    return e ? e : combine<T>(q);
#else
    return cudaErrorInvalidDeviceFunction;
#endif
}

// How many blocks meet in column and element, and the logarithm of that; 0 where the plan does not come out even.
inline int meeting(const Request& q, int* log_cluster) {
    const int blocks = q.cluster > 1 ? q.cluster : 1;
    *log_cluster = 0;
    while (1 << *log_cluster < blocks) ++*log_cluster;
    return blocks <= 16 && 1 << *log_cluster == blocks && q.segments % blocks == 0 ? blocks : 0;
}

template <typename T>
cudaError_t column(const Request& q) {
    constexpr int V = 16 / sizeof(T);
    Columns w;
    const int blocks = meeting(q, &w.log_cluster), sets = blocks ? q.segments / blocks : 0;
    w.log_across = 0, w.sets = sets, w.late = q.late();
    while (8 << w.log_across < q.lanes) ++w.log_across;
    const uint64_t apart = q.K > 1 ? q.stride * sizeof(T) : 0;
    const bool whole = q.M % V == 0 && (reinterpret_cast<uint64_t>(q.A) | apart) % 16 == 0;
    const bool alone = q.lanes == 64 && blocks == 1;  // a warp has its units to itself: too few lanes for posting
    if (!blocks || !whole || 8 << w.log_across != q.lanes || q.lanes > 64 || (sets > 1 && (!q.mail || alone)))
        return cudaErrorInvalidValue;
    const int height = WARPS * 16 >> w.log_across;
    w.columns = static_cast<int>(q.M), w.rows = static_cast<int>(q.K), w.step = height * q.depth / 4;
    w.segment = static_cast<int>((q.K + q.segments - 1) / q.segments + 3) / 4 * 4;
    w.stride = q.stride, w.far = q.stride * height, w.next = q.stride * w.step;
    w.whole_x = reinterpret_cast<uint64_t>(q.x) % (4 * sizeof(T)) == 0;
    const dim3 grid((q.M + V * q.lanes - 1) / (V * q.lanes), blocks, sets);
#ifdef GALLERY_HOPPER
#define COLUMN(U)                                                                                \
    sets > 1 ? (blocks > 1 ? column_kernel<T, U, true, true> : column_kernel<T, U, false, true>) \
             : (blocks > 1 ? column_kernel<T, U, true, false> : column_kernel<T, U, false, false>)
#else
    if (blocks > 1) return cudaErrorInvalidDeviceFunction;
#define COLUMN(U) sets > 1 ? column_kernel<T, U, false, true> : column_kernel<T, U, false, false>
#endif
    const auto kernel = q.depth == 16 ? (COLUMN(16)) : q.depth == 8 ? (COLUMN(8)) : (COLUMN(4));
#undef COLUMN
    return launch(kernel, grid, THREADS, 0, blocks, false, false, q, static_cast<const T*>(q.A),
                  static_cast<const T*>(q.x), static_cast<T*>(q.y), w);
}

template <typename T>
cudaError_t element(const Request& q) {
    Elements w;
    const int blocks = meeting(q, &w.log_cluster);
    if (!blocks || blocks != q.segments) return cudaErrorInvalidValue;
    w.stride = q.stride, w.columns = static_cast<int>(q.M), w.rows = static_cast<int>(q.K);
    w.segment = static_cast<int>((q.K + blocks - 1) / blocks);
#ifdef GALLERY_HOPPER
#define ELEMENT(U) blocks > 1 ? element_kernel<T, U, true> : element_kernel<T, U, false>
#else
    if (blocks > 1) return cudaErrorInvalidDeviceFunction;
#define ELEMENT(U) element_kernel<T, U, false>
#endif
    const auto kernel = q.depth == 24 ? (ELEMENT(24)) : q.depth == 16 ? (ELEMENT(16)) : (ELEMENT(8));
#undef ELEMENT
    return launch(kernel, dim3((q.M + 31) / 32, blocks), THREADS, 0, blocks, false, false, q,
                  static_cast<const T*>(q.A), static_cast<const T*>(q.x), static_cast<T*>(q.y), w);
}

template <typename T>
cudaError_t run(int variant, bool aligned, const Request& q) {
    constexpr int V = 16 / sizeof(T);
    if (variant == 3) return ring<T>(q);
    if (variant == 5 && !q.partial) return column<T>(q);
    if (variant == 6 && !q.partial) return element<T>(q);
    if (variant == 2 || variant > 4) {  // with a second kernel the others' segments are walk's
        if (q.stride >= V || q.K == 1) return walk<T, V>(q);
        Request narrow = q;  // a piece would hold several rows
        narrow.lanes = q.M < 32 ? static_cast<int>(q.M) : 32, narrow.depth = 8;
        return walk<T, 1>(narrow);
    }
    if (variant == 0) return aligned ? narrow<T, V>(q) : narrow<T, 1>(q);
    return aligned ? direct<T, V>(q) : direct<T, 1>(q);
}

// variant: 0 narrow, 1 direct, 2 walk, 3 ring, 5 column, 6 element; dtype: 0 float, 1 half, 2 bfloat16; cluster: the
// segments are its blocks, 1: they are not; posted: sums are, and walk's and ring's blocks all run at once; partial:
// for a second kernel, or null. Returns a cudaError_t, or -1 where `partial` is needed after all.
extern "C" int matvec_launch(int variant, int dtype, int aligned, const void* A, const void* x, void* y,
                             float* partial, int64_t M, int64_t K, int64_t stride, int64_t segment, int segments,
                             int cluster, int posted, int depth, int rows, int lanes, int sms, int device,
                             void* stream) {
    const bool pieces_of_rows = variant != 2 || stride * (dtype == 0 ? 4 : 2) >= 16 || K == 1;
    const bool one_kernel = segments > 1 && !partial && pieces_of_rows;
    const int64_t tickets = variant == 1 ? M : variant == 5 ? 2 * M + 64 : 0;  // of which there are fewer
    float* const mail =
        one_kernel && posted ? mailbox(segments * M + tickets, device, static_cast<cudaStream_t>(stream)) : nullptr;
    if (segments > 1 && !partial && !mail && (posted || cluster == 1 || !one_kernel)) return -1;
    float* const sums = segments > 1 ? partial : nullptr;
    const Request q{A,        x,    y,    sums,  M,   K,                      stride, segment,
                    segments, rows, lanes, sms, one_kernel ? cluster : 1, mail,   depth,
                    device,   static_cast<cudaStream_t>(stream)};
    const cudaError_t e = dtype == 0   ? run<float>(variant, aligned, q)
                          : dtype == 1 ? run<__half>(variant, aligned, q)
                                       : run<__nv_bfloat16>(variant, aligned, q);
    const bool refused = e == cudaErrorCooperativeLaunchTooLarge || e == cudaErrorLaunchOutOfResources ||
                         e == cudaErrorNotSupported || e == cudaErrorInvalidConfiguration ||
                         e == cudaErrorInvalidClusterSize;
    if (!one_kernel || !refused) return e;
    cudaGetLastError();  // blocks that cannot all run at once: a part of the device (MIG, MPS), or a smaller one
    return -1;
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
#include <ATen/ops/addmv_cuda_dispatch.h>
#define WITHOUT_DISPATCHER
#endif
#endif

#include <array>
#include <map>
#include <optional>
#include <utility>

extern "C" int matvec_launch(int variant, int dtype, int aligned, const void* A, const void* x, void* y,
                             float* partial, int64_t M, int64_t K, int64_t stride, int64_t segment, int segments,
                             int cluster, int posted, int depth, int rows, int lanes, int sms, int device,
                             void* stream);

namespace {
constexpr int WALK = 2, TORCH = 4, COLUMN = 5, ELEMENT = 6;
bool by_columns(int variant) { return variant == WALK || variant == COLUMN || variant == ELEMENT; }
struct Plan {
    int variant;
    bool aligned;
    int64_t segment;
    int segments;
    int cluster;
    bool posted;
    int depth, rows, lanes, sms;
};
// Device, M, K, and type * 4 + (column-major ? 2 : 0) + (16-byte aligned ? 1 : 0).
using Key = std::array<int64_t, 4>;
std::map<Key, Plan> plans;

int type_of(const torch::Tensor& t) {
    const auto type = t.scalar_type();
    return type == torch::kFloat32 ? 0 : type == torch::kFloat16 ? 1 : type == torch::kBFloat16 ? 2 : -1;
}

// The current device while it is another than A's; to set the same one again would cost as much as a small kernel.
struct OnDeviceOf {
    std::optional<c10::cuda::CUDAGuard> guard;
    explicit OnDeviceOf(const torch::Tensor& A) {
#ifdef WITHOUT_DISPATCHER
        if (c10::cuda::current_device() == A.device().index()) return;
#endif
        guard.emplace(A.device());
    }
};

// Memory on A's device for `size` results, [size, 1] where they shall be a column.
torch::Tensor made(const torch::Tensor& A, int64_t size, bool column) {
#ifdef WITHOUT_DISPATCHER
    const std::array<int64_t, 2> shape{size, 1};
    return at::detail::empty_cuda(c10::IntArrayRef(shape.data(), column ? 2 : 1), A.scalar_type(), A.device(),
                                  std::nullopt);
#else
    return column ? torch::empty({size, 1}, A.options()) : torch::empty({size}, A.options());
#endif
}

// A [M, K] @ x, of K elements side by side, as [M] or [M, 1].
torch::Tensor run(const torch::Tensor& A, const torch::Tensor& x, const Plan& p, bool column) {
    const bool columns = by_columns(p.variant);
    const int64_t M = A.size(0), K = A.size(1);
    const OnDeviceOf guard(A);
    auto y = made(A, M, column);
    torch::Tensor partial;
    const auto attempt = [&](bool two_kernels) {
        if (two_kernels)
            partial = torch::empty({p.segments, M}, A.options().dtype(torch::kFloat32));
        return matvec_launch(p.variant, type_of(A), p.aligned, A.data_ptr(), x.data_ptr(), y.data_ptr(),
                             partial.defined() ? partial.data_ptr<float>() : nullptr, M, K, A.stride(columns ? 1 : 0),
                             p.segment, p.segments, p.cluster, p.posted, p.depth, p.rows, p.lanes, p.sms,
                             static_cast<int>(A.device().index()), c10::cuda::getCurrentCUDAStream().stream());
    };
    int error = attempt(p.segments > 1 && p.cluster == 1 && !p.posted);
    if (error < 0) error = attempt(true);
    C10_CUDA_CHECK(static_cast<cudaError_t>(error));
    return y;
}

torch::Tensor without_gradient(const torch::Tensor& t) { return t.requires_grad() ? t.detach() : t; }

// What torch.mv runs: the operator below it, called as it is, without a gradient and in A's dtype whatever autocast
// wants.
torch::Tensor by_torch(const torch::Tensor& A, const torch::Tensor& x, bool column) {
#ifdef WITHOUT_DISPATCHER
    const at::AutoDispatchBelowADInplaceOrView below;
    const torch::Tensor flat = x.dim() == 1 ? x : x.view({A.size(1)});
    auto y = made(A, A.size(0), false);
    at::cuda::addmv_out(y, y, A, flat, 0, 1);
#else
    const torch::Tensor flat = x.dim() == 1 ? x : x.view({A.size(1)});
    const torch::Tensor y = without_gradient(A).mv(without_gradient(flat));
#endif
    return column ? y.view({A.size(0), 1}) : y;
}

// The product where a plan for such operands is remembered, else an undefined tensor: the way of all calls but the
// first.
torch::Tensor attempt(const torch::Tensor& A, const torch::Tensor& x) {
    const torch::Tensor none;
    if (plans.empty() || !A.is_cuda() || A.dim() != 2 || x.dim() < 1 || x.dim() > 2 || x.device() != A.device() ||
        x.scalar_type() != A.scalar_type() || !x.is_contiguous())
        return none;
    const int64_t M = A.size(0), K = A.size(1), row = A.stride(0), column = A.stride(1);
    const int type = type_of(A);
    if (type < 0 || x.size(0) != K || (x.dim() == 2 && x.size(1) != 1) || (column != 1 && row != 1)) return none;
    const bool transposed = column != 1 && (K > 1 || row == 1);
    const uint64_t apart = (transposed ? K : M) > 1 ? uint64_t(transposed ? column : row) * A.element_size() : 0;
    const uint64_t by_pieces = transposed ? 0 : reinterpret_cast<uint64_t>(x.data_ptr());  // walk reads x one by one
    const bool aligned = ((reinterpret_cast<uint64_t>(A.data_ptr()) | by_pieces | apart) & 15) == 0;
    const auto found = plans.find({A.device().index(), M, K, type * 4 + transposed * 2 + aligned});
    if (found == plans.end()) return none;
    return found->second.variant == TORCH ? by_torch(A, x, x.dim() == 2) : run(A, x, found->second, x.dim() == 2);
}

#ifdef WITH_PYTHON
// attempt() for Python, without what pybind11 costs: (A, x); None where there is no plan, or for a subclass of Tensor.
PyObject* attempt_for_python(PyObject*, PyObject* const* given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    if (count != 2 || !THPVariable_CheckExact(given[0]) || !THPVariable_CheckExact(given[1])) Py_RETURN_NONE;
    auto y = attempt(THPVariable_Unpack(given[0]), THPVariable_Unpack(given[1]));
    if (!y.defined()) Py_RETURN_NONE;
    return THPVariable_Wrap(std::move(y));
    END_HANDLE_TH_ERRORS
}
PyMethodDef attempt_method = {"known", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(attempt_for_python)),
                              METH_FASTCALL, "see known()"};
#endif
}  // namespace

torch::Tensor matvec(torch::Tensor A, torch::Tensor x, int64_t variant, bool aligned, int64_t segment,
                     int64_t segments, int64_t cluster, bool posted, int64_t depth, int64_t rows,
                     int64_t lanes, int64_t sms) {
    TORCH_CHECK(A.is_cuda() && x.is_cuda(), "matvec: A and x must be on the GPU");
    TORCH_CHECK(type_of(A) >= 0, "matvec: float32, float16 or bfloat16");
    TORCH_CHECK(x.scalar_type() == A.scalar_type(), "matvec: A and x must have one dtype");
    TORCH_CHECK(A.dim() == 2 && x.dim() == 1 && x.size(0) == A.size(1), "matvec: A [M, K], x [K]");
    TORCH_CHECK(x.is_contiguous(), "matvec: contiguous x");
    if (variant == TORCH) return by_torch(A, x, false);
    const int unit = by_columns(static_cast<int>(variant)) ? 0 : 1;
    TORCH_CHECK(A.stride(unit) == 1 || A.size(unit) == 1, "matvec: the layout does not fit the variant");
    return run(A, x,
               {static_cast<int>(variant), aligned, segment, static_cast<int>(segments), static_cast<int>(cluster),
                posted, static_cast<int>(depth), static_cast<int>(rows), static_cast<int>(lanes),
                static_cast<int>(sms)},
               false);
}

// Keeps what known() shall do for such operands.
void remember(int64_t device, int64_t M, int64_t K, int64_t kind, int64_t variant, bool aligned, int64_t segment,
              int64_t segments, int64_t cluster, bool posted, int64_t depth, int64_t rows,
              int64_t lanes, int64_t sms) {
    plans[{device, M, K, kind}] = {
        static_cast<int>(variant), aligned, segment, static_cast<int>(segments), static_cast<int>(cluster), posted,
        static_cast<int>(depth), static_cast<int>(rows), static_cast<int>(lanes), static_cast<int>(sms)};
}
void forget() { plans.clear(); }

torch::Tensor known(torch::Tensor A, torch::Tensor x) { return attempt(A, x); }
// known() as a function that costs a twentieth to call, or 0 where PyTorch's headers do not let it be made.
#ifdef WITH_PYTHON
py::object quick() { return py::reinterpret_steal<py::object>(PyCFunction_New(&attempt_method, nullptr)); }
#else
int64_t quick() { return 0; }
#endif
"""

NARROW, DIRECT, WALK, RING, TORCH, COLUMN, ELEMENT = range(7)
VARIANTS = ("narrow", "direct", "walk", "ring", "torch", "column", "element")
DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


@dataclass(frozen=True)
class Plan:
    """Which kernel runs, and how the work is cut."""

    variant: int
    """Index in ``VARIANTS``."""
    aligned: bool
    """Whether every row starts at a multiple of 16 bytes, so that 16-byte loads are used."""
    segment: int
    """Columns of a segment (rows of A.T of one alignment, for walk)."""
    segments: int
    """How many segments; above 1 their sums are combined."""
    cluster: int
    """How many blocks a cluster has: all segments, whose sums it adds (Hopper); 1: none."""
    rows: int
    """Rows a block (direct); blocks a multiprocessor that stay for all rows, 0: a block for each cut (narrow); whether
    x is staged in shared memory (walk)."""
    lanes: int
    """Lanes that share a row (narrow), pieces of 16 bytes that a block is wide (walk, column), or columns (element)."""
    posted: bool = False
    """Whether blocks hand each other the segments' sums through memory: walk's and ring's, all of which run at once, to
    all; direct's and column's to the last to begin of those that share results."""
    depth: int = 8
    """Loads that a thread has in flight (direct, walk, column, element), or rows that it has (narrow)."""

    def __str__(self) -> str:
        if self.variant == TORCH:
            return "torch: torch.mv, which was measured to be faster here"
        how = "posted" if self.posted else "in a cluster" if self.cluster > 1 else "then combine"
        how = f"in clusters of {self.cluster}, {how}" if self.posted and self.cluster > 1 else how
        cut = f"{self.segments} segments of {self.segment}, {how}" if self.segments > 1 else "one segment"
        shape = {
            NARROW: f"{self.lanes} lanes a row",
            DIRECT: f"{self.rows} rows a block",
            RING: "4 rows x 4 KB x 10 stages",
            WALK: f"{self.lanes} pieces wide, {self.depth} loads deep",
            COLUMN: f"{self.lanes} pieces wide, {self.depth} loads deep",
            ELEMENT: f"{self.lanes} columns wide, {self.depth} loads deep",
        }
        loads = "16-byte" if self.aligned or self.variant == WALK else "one-element"
        return f"{VARIANTS[self.variant]}: {shape[self.variant]}, {cut}, {loads} loads"


def _power_of_two(n: int, most: int) -> int:
    """The least power of two that is at least n, at most ``most``."""
    return min(most, 1 << max(0, n - 1).bit_length())


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
    found = {"rule": _rule(M, K, itemsize, aligned, transposed, sms, hopper)}
    if transposed:
        found |= _walks(M, K, itemsize, aligned, sms)
        if aligned and M * itemsize % 16 == 0:
            found |= _columns(M, K, itemsize, sms, hopper)
        else:
            found |= _elements(M, K, sms, hopper)
    else:
        per_piece = 16 // itemsize if aligned else 1
        pieces = -(-K // per_piece)
        if pieces <= 256 and K % per_piece == 0:
            found |= _narrows(M, K, pieces, aligned)
        found |= _directs(M, K, per_piece, aligned, sms, hopper)
        if hopper and aligned and K % per_piece == 0 and K * itemsize >= 8192:
            plan = _choose_ring(M, K, itemsize, sms)
            found["ring"] = plan
            if 1 < plan.segments <= MAIL // M:
                found["ring post"] = replace(plan, posted=True)
    found["torch"] = Plan(TORCH, aligned, K, 1, 1, 1, 1)
    return found


MAIL = 1 << 22
"""The most partial sums that are posted."""


def _narrows(M: int, K: int, pieces: int, aligned: bool) -> dict[str, Plan]:
    lanes = _power_of_two(pieces, 32)
    each = _power_of_two(-(-pieces // lanes), 8)
    return {
        f"narrow {depth} / {resident}": Plan(NARROW, aligned, K, 1, 1, resident, lanes, depth=depth)
        for depth in (1, 2, 4, 8)
        for resident in (0, 8)
        if depth * each <= 16
    }


def _directs(M: int, K: int, per_piece: int, aligned: bool, sms: int, hopper: bool) -> dict[str, Plan]:
    found = {}
    unit = 256 * per_piece
    units = -(-K // unit)
    for rows, depth in [(rows, depth) for rows in (1, 2, 4, 8, 16) for depth in (8, 16)]:
        if rows > depth or rows > _power_of_two(M, 16) or (depth == 16 and not aligned):
            continue
        groups, name = -(-M // rows), f"direct {rows} / {depth}"
        if units <= 128:
            found[name] = _cut(DIRECT, aligned, K, unit, 1, rows, depth=depth)
        for together in (2, 4, 8, 16) if hopper and depth == 8 else ():
            if together <= units <= 128 * together and groups * together <= 4 * sms:
                found[f"{name} cluster {together}"] = _cut(
                    DIRECT, aligned, K, unit, together, rows, depth=depth, cluster=together
                )
        for times in (0.5, 1, 2):
            parts = min(units, int(times * sms // groups))
            if parts > 1 and parts * 256 >= units and parts * M <= MAIL:
                plan = _cut(DIRECT, aligned, K, unit, parts, rows, depth=depth)
                found[f"{name} post {times}"] = replace(plan, posted=True)
    return found


def _walks(M: int, K: int, itemsize: int, aligned: bool, sms: int) -> dict[str, Plan]:
    found = {}
    V = 16 // itemsize
    classes = 1 if aligned else V
    pieces = -(-M // V) + (0 if aligned else 1)
    for width in (8, 16, 32, 64, 128, 192, 256):
        tiles = -(-pieces // width)
        across = -(-pieces // tiles)  # as even as it gets
        slots = 256 // across
        if slots * across < 176 or (tiles == 1 and width > 8 and across <= width // 2):
            continue
        for depth in (4, 8, 16):
            if aligned and slots * 4096 >= K and (tiles >= sms // 4 or K <= 1024):
                for staged in (0, 1):
                    name = f"walk {width} / {depth}{'' if staged else ' bare'}"
                    found[name] = Plan(WALK, aligned, K, 1, 1, staged, across, depth=depth)
            for times in (0.5, 1, 2):
                parts = int(times * sms // (tiles * classes)) * classes
                parts = min(parts, -(-K // slots // classes) * classes)
                if parts > 1 and parts * M <= MAIL and parts * slots * 4096 >= K:
                    plan = _posted(M, K, classes, parts, across, aligned, depth)
                    found[f"walk {width} post {times} / {depth}"] = plan
    return found


def _columns(M: int, K: int, itemsize: int, sms: int, hopper: bool) -> dict[str, Plan]:
    found = {}
    pieces, least = M * itemsize // 16, 0.35 * sms if M * K * itemsize > 4 << 20 else 8
    for across in (8, 16, 32, 64):
        tiles, height = -(-pieces // across), 256 // across
        if across > 8 and across >= 2 * pieces:
            continue
        for together in (1, 2, 4, 8, 16) if hopper else (1,):
            blocks = tiles * together
            split = blocks < 0.9 * sms and together != 2 and (across, together) != (64, 1)
            for times in (0, 1, 2, 3, 4) if split else (0,):
                sets = int(times * sms // blocks) if times else 1
                segments, name = together * sets, f"column {across}" + f" cluster {together}" * (together > 1)
                if (times and sets < 2) or segments * 16 > max(K, 16) or sets * M > MAIL:
                    continue
                if (not least <= blocks * sets <= 8.5 * sms and segments > 1) or 4096 * height * segments < K:
                    continue
                for depth in (4, 8, 16):
                    if depth == 4 or K / segments > 0.45 * height * depth:  # else most loads would fetch nothing
                        plan = Plan(COLUMN, True, -(-K // segments), segments, together, 0, across, sets > 1, depth)
                        found[f"{name}{f' post {times}' if times else ''} / {depth}"] = plan
    return found


def _elements(M: int, K: int, sms: int, hopper: bool) -> dict[str, Plan]:
    return {
        "element" + f" cluster {together}" * (together > 1) + f" / {depth}": Plan(
            ELEMENT, False, -(-K // together), together, together, 0, 32, depth=depth
        )
        for together in ((1, 2, 4, 8, 16) if hopper else (1,))
        for depth in (8, 16, 24)
        if together <= K <= 32768 * together and (together == 1 or 0.4 * sms <= -(-M // 32) * together <= 4.5 * sms)
    }


def _posted(M: int, K: int, classes: int, parts: int, across: int, aligned: bool, depth: int) -> Plan:
    """Rows of A.T in ``parts`` segments, of each of the ``classes`` as many."""
    of_class = -(-K // classes)
    segment = -(-of_class // (parts // classes))
    return Plan(WALK, aligned, segment, parts, 1, 1, across, posted=parts * M <= MAIL, depth=depth)


def _narrow(M: int, K: int, pieces: int, aligned: bool, sms: int) -> Plan:
    lanes = _power_of_two(pieces, 32)
    each = -(-pieces // lanes)
    most = 2 if each > 2 else 4 if each > 1 else 8  # rows in flight where there are enough of them
    depth = most if 256 // lanes * most * sms * 2 <= M else 1
    return Plan(NARROW, aligned, K, 1, 1, 4 if each > 2 else 6 if each > 1 else 8, lanes, depth=depth)


def _rule(M: int, K: int, itemsize: int, aligned: bool, transposed: bool, sms: int, hopper: bool) -> Plan:
    """The plan where nothing near was measured. Figures behind it: docs/gallery.md."""
    per_piece = 16 // itemsize if aligned else 1
    if transposed:
        plan = _choose_column(M, K, itemsize, sms) if hopper and aligned and M % per_piece == 0 else None
        return plan or _choose_walk(M, K, itemsize, aligned, sms)
    pieces = -(-K // per_piece)
    if pieces <= 128 and (not aligned or K % per_piece == 0):
        return _narrow(M, K, pieces, aligned, sms)
    size, ringable, unit = M * K * itemsize, hopper and aligned and K % per_piece == 0, 256 * per_piece
    if ringable and K * itemsize >= 16384 and (size >= 1 << 29 or (4 <= M < 3 * sms and size >= 32 << 20)):
        return _choose_ring(M, K, itemsize, sms)  # with a second kernel: posting was not measured at such sizes
    in_row = -(-K // unit)  # loads a thread for one row
    if 3 * sms <= M:  # enough rows: eight loads a thread from as many rows as that takes, if blocks enough remain
        rows = next(r for r in (8, 4, 2, 1) if r == 1 or (r * in_row <= 8 and 2 * r * sms <= M))
        segments = -(-in_row // 128)  # float32 chains of at most 128 pieces
        return _cut(DIRECT, aligned, K, unit, segments, rows)
    rows = next(r for r in (4, 2, 1) if r <= M)
    parts = min(in_row, max(1, 2 * sms // -(-M // rows)))
    if parts * 128 < in_row:
        return _cut(DIRECT, aligned, K, unit, -(-in_row // 128), rows)
    plan = _cut(DIRECT, aligned, K, unit, parts, rows)
    return replace(plan, posted=plan.segments > 1)


def _cut(
    variant: int,
    aligned: bool,
    K: int,
    unit: int,
    segments: int,
    rows: int,
    *,
    depth: int = 8,
    cluster: int = 1,
) -> Plan:
    """K in about ``segments`` parts, each a multiple of ``unit``; clusters keep their number (parts may be empty)."""
    units = -(-K // unit)
    segment = -(-units // segments) * unit
    used = segments if cluster > 1 else -(-K // segment)
    return Plan(variant, aligned, segment, used, cluster, rows, 1, depth=depth)


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
    return Plan(RING, True, best[1] * chunk, -(-chunks // best[1]), 1, 4, 1)


def _choose_column(M: int, K: int, itemsize: int, sms: int) -> Plan | None:
    """On Hopper, up to two blocks a multiprocessor: tiles of 128 bytes or more, and as large clusters as leave each
    thread four loads; where these are so few that posting costs less, sets of clusters. None where walk does better."""
    pieces = M * itemsize // 16
    across = next((width for width in (8, 16, 32) if pieces <= 2 * sms * width), 64)
    tiles, height = -(-pieces // across), 256 // across
    together = next(n for n in (16, 8, 4, 2, 1) if n == 1 or (tiles * n <= 2 * sms and 4 * height * n <= K))
    sets = 1
    if M * K * itemsize * (sms / (tiles * together) - 1) > 8 << 20:  # what blocks that are missing would have read
        together = min(together, 8)
        sets = max(1, min(2 * sms // (tiles * together), K // (4 * height * together)))
    segments = together * sets
    if K < 64 or 4096 * height * segments < K:
        return None
    deepest = 16 if tiles * segments <= sms else 8  # of which three blocks fit a multiprocessor
    depth = next((depth for depth in (deepest, 8) if 0.9 * height * depth * segments <= K), 4)
    return Plan(COLUMN, True, -(-K // segments), segments, together, 0, across, sets > 1, depth)


def _choose_walk(M: int, K: int, itemsize: int, aligned: bool, sms: int) -> Plan:
    """Two blocks a multiprocessor, tiles of 512 bytes to 1 KB; few rows need no split."""
    V = 16 // itemsize
    classes = 1 if aligned else V
    pieces = -(-M // V) + (0 if aligned else 1)
    tiles = -(-pieces // (256 if K < 64 else 16 * itemsize))
    across = -(-pieces // tiles)
    slots = 256 // across
    if aligned and (K < 64 or tiles >= 1.5 * sms) and slots * 4096 >= K:
        return Plan(WALK, aligned, K, 1, 1, 1 if K >= 64 else 0, across)
    parts = min(int(2 * sms // (tiles * classes)), -(-K // (2 * slots * classes))) * classes
    least = -(-K // (4096 * slots * classes)) * classes  # float32 chains of at most 4096 terms
    plan = _posted(M, K, classes, max(parts, least, classes), across, aligned, 8)
    together = plan.posted and plan.segments * tiles <= 2 * sms and plan.segments > 1
    return replace(plan, posted=together)


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
        name="gallery_matvec",
        cpp_sources=CPP_SOURCE,
        cuda_sources=CUDA_SOURCE,
        functions=["matvec", "known", "quick", "remember", "forget"],
        extra_cflags=["-O2", "-DTORCH_HAS_CUDA"] if cuda else ["-O2"],
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


def _first_known(A: torch.Tensor, x: torch.Tensor) -> torch.Tensor | None:
    """``known`` until the extension is there."""
    global known
    if not A.is_cuda or torch.compiler.is_compiling():
        return None
    known = extension().quick() or extension().known
    y: torch.Tensor | None = known(A, x)
    return y


known: Any = _first_known
"""``matvec`` where a plan for such operands is remembered, else None, with as little of the host's time as there is a
way to."""


def matvec(A: torch.Tensor, x: torch.Tensor, plan: Plan | None = None) -> torch.Tensor:
    """A [M, K] @ x [K] or [K, 1] -> [M] or [M, 1], in A's dtype. ``plan`` overrides the choice.

    Raises ``RuntimeError`` for a wrong dtype, device or shape.
    """
    y: torch.Tensor | None = known(A, x) if plan is None else None
    return _planned(A, x, plan) if y is None else y


def _planned(A: torch.Tensor, x: torch.Tensor, plan: Plan | None) -> torch.Tensor:
    """The product of any operands, by ``plan`` or by the one chosen, which is remembered."""
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
    aligned = (A.data_ptr() | (0 if transposed else flat.data_ptr()) | apart) % 16 == 0  # walk reads x one by one
    sms, hopper, device = _device(index)
    chosen = plan or choose(M, K, itemsize, aligned, transposed, sms, hopper, device)
    how = (
        chosen.variant,
        chosen.aligned,
        chosen.segment,
        chosen.segments,
        chosen.cluster,
        chosen.posted,
        chosen.depth,
        chosen.rows,
        chosen.lanes,
        sms,
    )
    if plan is None:
        extension().remember(index, M, K, DTYPES[A.dtype] * 4 + transposed * 2 + aligned, *how)
    y = extension().matvec(A, flat, *how)
    return y.unsqueeze(1) if x.dim() == 2 else y


class ModelNew(nn.Module):
    """Replaces ``torch.matmul(A, B)`` with B one column."""

    def __init__(self) -> None:
        super().__init__()
        extension()

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return matvec(A, B)
