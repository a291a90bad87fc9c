"""Races in global memory, within and between blocks, are named with both lines; right twins are silent."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from emulated import DeviceArray, compiled, launch, needs_nvcc

from kernelwright.emulate.findings import own_frame
from kernelwright.emulate.module import LaunchOutcome
from kernelwright.records import Finding

pytestmark = [pytest.mark.emu, needs_nvcc]

SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda/atomic>
namespace cg = cooperative_groups;
__device__ unsigned int ticket, arrived, generation, held, served;
__device__ volatile int flags[64];
__device__ float totals[64];
extern "C" __global__ void neighbours(float* x, float* y, int in_place) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    float v = x[(i + 64) % n];                                                      // neighbours: read
    if (in_place) x[i] = v + 1;                                                     // neighbours: write
    else y[i] = v + 1;
}
extern "C" __global__ void within(float* x, int barrier) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = i;                                                                       // within: write
    if (barrier) __syncthreads();
    float v = x[i ^ 32];                                                            // within: read
    __syncthreads();
    x[i] = v;
}
extern "C" __global__ void normalise(float* x, float* total, int grid_wide) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(total, x[i]);                                                         // normalise: atomic
    if (grid_wide) cg::this_grid().sync();
    else __syncthreads();
    x[i] /= *total;                                                                 // normalise: read
}
extern "C" __global__ void one_word(int* x, int differs) {
    *x = 7 + differs * blockIdx.x;                                                  // one_word
}
extern "C" __global__ void last_block(float* x, float* parts, int fence, int waits) {
    __shared__ float s[2];
    __shared__ bool last;
    int t = threadIdx.x;
    parts[blockIdx.x * 64 + t] = x[blockIdx.x * 64 + t];                            // last_block: write
    if (fence == 2) __threadfence();
    if (waits) __syncthreads();
    if (t == 0) {
        if (fence == 1) __threadfence();
        last = atomicAdd(&ticket, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    float v = 0;
    for (int i = t; i < gridDim.x * 64; i += 64) v += parts[i];                     // last_block: read
    for (int o = 16; o; o >>= 1) v += __shfl_down_sync(~0u, v, o);
    if (t % 32 == 0) s[t / 32] = v;
    __syncthreads();
    if (t == 0) ticket = 0;
    if (t == 0) x[0] = s[0] + s[1];                                                 // last_block: result
}
extern "C" __global__ void look_back(float* x, int fence) {
    __shared__ float before;
    int t = threadIdx.x, b = blockIdx.x;
    if (t == 0) {
        float mine = 0;
        for (int i = 0; i < 64; i++) mine += x[b * 64 + i];
        before = 0;
        if (b) {
            while (flags[b - 1] == 0) {}
            if (fence) __threadfence();
            before = totals[b - 1];                                                 // look_back: read
        }
        totals[b] = before + mine;                                                  // look_back: write
        if (fence) __threadfence();
        flags[b] = 1;
    }
    __syncthreads();
    x[b * 64 + t] += before;
}
extern "C" __global__ void locked(int* x, int fence) {
    if (threadIdx.x == 0) {
        while (atomicCAS(&held, 0, 1) != 0) {}
        if (fence) __threadfence();
        *x += 1;                                                                    // locked
        if (fence) __threadfence();
        atomicExch(&held, 0);
    }
}
extern "C" __global__ void standard(int* x, int* word, int relaxed) {
    cuda::atomic_ref<int, cuda::thread_scope_device> ready(*word);
    if (threadIdx.x) return;
    if (blockIdx.x == 1) {
        x[0] = 41;                                                                  // standard: write
        if (relaxed) ready.store(1, cuda::memory_order_relaxed);
        else ready.store(1, cuda::memory_order_release);
    } else {
        while (!ready.load(cuda::memory_order_acquire)) {}
        x[1] = x[0] + 1;                                                            // standard: read
    }
}
__device__ void wait_for_all(int all) {
    __syncthreads();
    if (threadIdx.x == 0) {
        volatile unsigned int* now = &generation;
        unsigned int old = *now;
        __threadfence();
        if (atomicAdd(&arrived, 1) == gridDim.x - 1) { arrived = 0; __threadfence(); *now = old + 1; }
        else while (*now == old) {}
        __threadfence();
    }
    if (all) __syncthreads();
}
extern "C" __global__ void home_made(float* x, float* y, int rounds, int all) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
#pragma unroll 1
    for (int r = 0; r < rounds; r++) {
        y[i] = x[(i + 64) % n] + 1;                                                 // home_made: write
        wait_for_all(all);
        x[i] = y[(i + 160) % n];                                                    // home_made: read
        wait_for_all(1);
    }
}
extern "C" __global__ void rounds(float* x, float* y, int n_rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    auto grid = cg::this_grid();
    for (int r = 0; r < n_rounds; r++) {
        y[i] = x[(i + 64) % n] + 1;
        grid.sync();
        x[i] = y[(i + 160) % n];
        grid.sync();
    }
}
extern "C" __global__ void bytes(char* x, int shift) {
    int i = blockIdx.x + gridDim.x * (threadIdx.x >> shift);
    x[i] = threadIdx.x;                                                             // bytes
}
extern "C" __global__ void counts(int* bins, int atomically) {
    int b = (blockIdx.x + threadIdx.x) % 16;
    if (atomically) atomicAdd(&bins[b], 1);
    else bins[b] += 1;                                                              // counts
}
extern "C" __global__ void cached(const int* __restrict__ x, int* y, int at) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2 * i;                                                                   // cached: write
    __syncthreads();
    y[i] += x[i ^ at];                                                              // cached: read
}
extern "C" __global__ void in_place(const float* __restrict__ x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2 * x[i];
}
struct two { float* from; float* to; };
extern "C" __global__ void pointers(two* p, int shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    p->to[i] = p->from[i + shift];                                                  // pointers
}
extern "C" __global__ void compare_and_swap(float* x, float* y, int plainly) {
    unsigned* word = (unsigned*)y;
    float v = x[blockIdx.x * blockDim.x + threadIdx.x] + threadIdx.x + blockIdx.x;
    unsigned old = *word;                                                           // compare_and_swap: read
    if (plainly) { if (v > __uint_as_float(old)) *y = v; }                          // compare_and_swap: write
    else while (v > __uint_as_float(old)) {
        unsigned before = atomicCAS(word, old, __float_as_uint(v));
        if (before == old) break;
        old = before;
    }
}
extern "C" __global__ void largest(int* best) {
    __shared__ int mine;
    if (threadIdx.x == 0) mine = 0;
    __syncthreads();
    int v = threadIdx.x * 37 % 64 + blockIdx.x;
    if (v > mine) atomicMax(&mine, v);
    __syncthreads();
    if (threadIdx.x == 0 && mine > *best) atomicMax(best, mine);
}
extern "C" __global__ void handed_over(float* x, int publishes) {
    int t = threadIdx.x;
    if (blockIdx.x == 1) {
        x[64 + t] = t;                                                              // handed_over: write
        __syncthreads();
        if (t == 0) { if (publishes) __threadfence(); flags[63] = 1; }
    } else {
        if (t == 0) { while (!flags[63]) {} __threadfence(); }
        __syncthreads();
        x[t] = x[64 + (t ^ 33)];                                                    // handed_over: read
    }
}
"""

VARIABLES = {"ticket": 4, "arrived": 4, "generation": 4, "held": 4, "flags": 256}


def at(mark: str) -> int:
    """The line that ends in ``// mark``."""
    return next(n for n, text in enumerate(SOURCE.splitlines(), 1) if text.endswith(f"// {mark}"))


def run(kernel: str, grid: int, threads: int, *values: int, arrays: int = 1, dtype: type = np.float32, **options: bool
        ) -> LaunchOutcome:  # fmt: skip
    module = compiled(SOURCE)
    for name, size in VARIABLES.items():
        ctypes.memset(module.symbol(name)[0], 0, size)
    given = [DeviceArray(np.full(4096, name == "x", dtype), name) for name in "xy"[:arrays]]
    outcome = launch(module, kernel, grid, threads, *given, *values, **options)
    for array in given:
        array.free()
    assert outcome.error == 0
    return outcome


def pairs(findings: tuple[Finding, ...]) -> set[tuple[int, int]]:
    """The earlier and the later line of each race."""
    assert {f.cause for f in findings} <= {"sync.global-race"}
    return {(own_frame(f.other).line, own_frame(f.frames).line) for f in findings}


RACY = {
    "neighbours in place": ("neighbours", 4, 64, (1,), 2, {("neighbours: write", "neighbours: read")}),
    "warps of a block without a barrier": ("within", 2, 64, (0,), 1, {("within: write", "within: read")}),
    "a sum read before all blocks added": ("normalise", 4, 64, (0,), 2, {("normalise: atomic", "normalise: read")}),
    "blocks store different values": ("one_word", 4, 1, (1,), 1, {("one_word", "one_word")}),
    "last block without a fence": (
        "last_block", 4, 64, (0, 1), 2,
        {("last_block: write", "last_block: read"), ("last_block: result", "last_block: write")},
    ),
    "last block whose fence comes too early": (
        "last_block", 4, 64, (1, 0), 2, {("last_block: write", "last_block: read")},
    ),
    "look-back without fences": ("look_back", 4, 64, (0,), 1, {("look_back: write", "look_back: read")}),
    "lock without fences": ("locked", 4, 32, (0,), 1, {("locked", "locked")}),
    "relaxed where release is meant": ("standard", 2, 32, (1,), 2, {("standard: write", "standard: read")}),
    "home-made barrier that one thread waits at": (
        "home_made", 4, 64, (2, 0), 2,
        {("home_made: write", "home_made: read"), ("home_made: read", "home_made: write")},
    ),
    "counts without atomics": ("counts", 4, 32, (0,), 1, {("counts", "counts")}),
    "a maximum without an atomic": (
        "compare_and_swap", 4, 64, (1,), 2, {("compare_and_swap: write", "compare_and_swap: write"),
                                            ("compare_and_swap: write", "compare_and_swap: read")},
    ),
    "one byte of two threads": ("bytes", 4, 64, (1,), 1, None),
    "a flag without a fence before it": (
        "handed_over", 2, 64, (0,), 1, {("handed_over: write", "handed_over: read")},
    ),
}  # fmt: skip

RIGHT = {
    "neighbours into another array": ("neighbours", 4, 64, (0,), 2),
    "warps of a block with a barrier": ("within", 2, 64, (1,), 1),
    "last block": ("last_block", 4, 64, (1, 1), 2),
    "last block in which every thread fences": ("last_block", 4, 64, (2, 1), 2),
    "lock": ("locked", 4, 32, (1,), 1),
    "release and acquire": ("standard", 2, 32, (0,), 2),
    "home-made grid barrier": ("home_made", 4, 64, (8, 1), 2),
    "counts with atomics": ("counts", 4, 32, (1,), 1),
    "compare and swap after a first look": ("compare_and_swap", 4, 64, (0,), 2),
    "a test before an atomic maximum": ("largest", 4, 64, (), 1),
    "neighbouring bytes of other blocks": ("bytes", 4, 64, (0,), 1),
}

DTYPES = {"one_word": np.int32, "locked": np.int32, "standard": np.int32, "counts": np.int32, "bytes": np.int8,
          "largest": np.int32}  # fmt: skip


@pytest.mark.parametrize("name", RACY)
def test_a_race_is_named_with_the_line_of_either_side(name: str) -> None:
    kernel, grid, threads, values, arrays, expected = RACY[name]
    outcome = run(kernel, grid, threads, *values, arrays=arrays, dtype=DTYPES.get(kernel, np.float32))
    found = pairs(outcome.findings + (outcome.observations if expected is None else ()))
    assert found == ({(at(kernel), at(kernel))} if expected is None else {(at(a), at(b)) for a, b in expected})


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_ordered_is_no_race(name: str) -> None:
    kernel, grid, threads, values, arrays = RIGHT[name]
    dtype = DTYPES.get(kernel, np.float32)
    outcome = run(kernel, grid, threads, *values, arrays=arrays, dtype=dtype)
    assert outcome.findings == ()


def test_a_look_back_over_flags_is_no_race() -> None:
    outcome = run("look_back", 4, 64, 1)
    assert outcome.findings == ()
    assert {f.allocation.name for f in outcome.observations if f.allocation} <= {"flags"}


def test_a_flag_behind_a_fence_hands_memory_over() -> None:
    assert run("handed_over", 2, 64, 1).findings == ()


@pytest.mark.parametrize("kernel", ["normalise", "rounds"])
def test_a_grid_barrier_orders_all_blocks(kernel: str) -> None:
    outcome = run(kernel, 4, 64, 5, arrays=2, cooperative=True)
    assert (outcome.findings, outcome.observations) == ((), ())


def test_blocks_that_store_one_value_are_observed_only() -> None:
    outcome = run("one_word", 4, 1, 0, dtype=np.int32)
    assert outcome.findings == ()
    assert pairs(outcome.observations) == {(at("one_word"), at("one_word"))}


def test_a_race_between_blocks_names_both_and_the_array() -> None:
    found = run("normalise", 4, 64, 0, arrays=2).findings[0]
    assert found.allocation is not None
    assert (found.allocation.kind, found.allocation.name, found.offset) == ("global", "y", 0)
    assert (found.block, found.thread, found.access, found.space) == ((0, 0, 0), (63, 0, 0), "load", "global")
    assert found.message.startswith("thread (0,0,0) of block (1,0,0) updated it at line ")
    assert found.message.endswith(", with nothing that orders the two blocks between")


def test_a_read_through_the_read_only_cache_of_what_the_launch_wrote_is_named() -> None:
    module = compiled(SOURCE)
    x = DeviceArray(np.zeros(256, np.int32), "x")
    wrong = launch(module, "cached", 2, 64, x, x, 0)
    right = launch(module, "in_place", 4, 64, x, x)
    assert [(f.cause, own_frame(f.frames).line) for f in wrong.findings] == [("memory.stale-read", at("cached: read"))]
    assert own_frame(wrong.findings[0].other).line == at("cached: write")
    assert (right.findings, right.observations) == ((), ())


@pytest.mark.parametrize(("shift", "lines"), [(0, set()), (64, {"pointers"})])
def test_pointers_out_of_memory_are_watched_too(shift: int, lines: set[str]) -> None:
    x = DeviceArray(np.arange(1024, dtype=np.float32), "x")
    both = DeviceArray(np.array([x.address, x.address], np.uint64))
    outcome = launch(compiled(SOURCE), "pointers", 4, 64, both, shift)
    assert pairs(outcome.findings) == {(at(line), at(line)) for line in lines}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_racy_launch_finds_the_same_however_its_blocks_ran(workers: int) -> None:
    module = compiled(SOURCE)
    lines = set()
    for _ in range(10):
        x = DeviceArray(np.ones(65536, np.float32), "x")
        outcome = launch(module, "neighbours", 1024, 64, x, x, 1, workers=workers)
        lines |= {frozenset(pairs(outcome.findings))}
        x.free()
    assert lines == {frozenset({(at("neighbours: write"), at("neighbours: read"))})}


def test_a_later_launch_owes_nothing_to_an_earlier_one() -> None:
    x = DeviceArray(np.ones(256, np.float32), "x")
    for _ in range(3):
        outcome = launch(compiled(SOURCE), "in_place", 4, 64, x, x)
        assert (outcome.findings, outcome.observations) == ((), ())


def test_the_check_can_be_left_out() -> None:
    x = DeviceArray(np.ones(256, np.float32), "x")
    outcome = launch(compiled(SOURCE), "neighbours", 4, 64, x, x, 1, global_races=False)
    assert (outcome.findings, outcome.observations) == ((), ())
