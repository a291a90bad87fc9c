"""Races in shared memory are named with both lines, whatever order the warps ran in; right twins are silent."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import DeviceArray, compiled, launch, needs_nvcc

from kernelwright.emulate.findings import own_frame
from kernelwright.emulate.module import LaunchOutcome
from kernelwright.records import Finding

pytestmark = [pytest.mark.emu, needs_nvcc]

SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;
extern "C" __global__ void tree(float* x, int first, int last) {
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = x[t];                                                                 // tree: write
    if (first) __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (t < s) part[t] += part[t + s];                                          // tree: read
        if (last) __syncthreads();
    }
    if (t == 0) x[0] = part[0];
}
extern "C" __global__ void rounds(float* x, int n, int barrier) {
    __shared__ float tile[128];
    float s = 0;
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        tile[threadIdx.x] = x[i * 128 + threadIdx.x];                               // rounds: write
        __syncthreads();
        s += tile[127 - threadIdx.x];                                               // rounds: read
        if (barrier) __syncthreads();
    }
    x[threadIdx.x] = s;
}
extern "C" __global__ void buffers(float* x, int n, int count) {
    __shared__ float tile[2][128];
    float s = 0;
    tile[0][threadIdx.x] = x[threadIdx.x];
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        if (count) __syncthreads();
        s += tile[i % 2][127 - threadIdx.x];                                        // buffers: read
        tile[(i + 1) % 2][threadIdx.x] = x[(i + 1) % n * 128 + threadIdx.x];        // buffers: write
    }
    x[threadIdx.x] = s;
}
extern "C" __global__ void all_store(int* x, int by) {
    __shared__ int flag;
    flag = 7 + by * (threadIdx.x / 32);                                             // all_store
    __syncthreads();
    x[threadIdx.x] = flag;
}
extern "C" __global__ void lanes_store(int* x, int same) {
    __shared__ int words[16];
    words[threadIdx.x / 2] = same ? 7 : x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = words[threadIdx.x / 2];
}
extern "C" __global__ void counts(int* x, int atomically) {
    __shared__ int bins[8];
    if (threadIdx.x < 8) bins[threadIdx.x] = 0;
    __syncthreads();
    if (atomically) atomicAdd(&bins[threadIdx.x % 8], 1);
    else bins[threadIdx.x % 8] += threadIdx.x;                                      // counts
    __syncthreads();
    if (threadIdx.x < 8) x[threadIdx.x] = bins[threadIdx.x];
}
extern "C" __global__ void atomic_then_plain(int* x, int barrier) {
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    atomicAdd(&total, 1);                                                           // atomic
    if (barrier) __syncthreads();
    x[threadIdx.x] = total;                                                         // after atomic
}
extern "C" __global__ void within_a_warp(float* x, int sync) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];                                                                    // warp: write
    if (sync) __syncwarp();
    x[t] = s[t ^ 1];                                                                // warp: read
}
extern "C" __global__ void legacy(volatile float* x) {
    __shared__ volatile float s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 16) { s[t] += s[t + 16]; s[t] += s[t + 8]; s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1]; }
    if (t == 0) x[0] = s[0];
}
extern "C" __global__ void legacy_synced(float* x) {
    __shared__ float s[32];
    int t = threadIdx.x;
    float v = s[t] = x[t];
    __syncwarp();
    for (int o = 16; o; o >>= 1) {
        v += s[(t + o) % 32]; __syncwarp();
        s[t] = v; __syncwarp();
    }
    if (t == 0) x[0] = s[0];
}
extern "C" __global__ void named(float* x, int consumer) {
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t < 64) {
        s[t] = x[t];                                                                // named: write
        asm volatile("bar.arrive 1, 128;" ::: "memory");
    } else {
        if (consumer) asm volatile("bar.sync 1, 128;" ::: "memory");
        x[t] = s[t - 64];                                                           // named: read
        if (!consumer) asm volatile("bar.sync 1, 128;" ::: "memory");
    }
}
extern "C" __global__ void pairs_of_warps(float* x, int together) {
    __shared__ float s[128];
    int t = threadIdx.x, group = t / 64;
    s[t] = x[t];                                                                    // pairs: write
    asm volatile("bar.sync %0, 64;" :: "r"(1 + group) : "memory");
    x[t] = together ? s[t ^ 32] : s[t ^ 64];                                        // pairs: read
}
extern "C" __global__ void flag(int* x, int fences) {
    __shared__ int data;
    __shared__ volatile int ready;
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        data = x[0];                                                                // flag: write
        if (fences) __threadfence_block();
        ready = 1;
    }
    if (threadIdx.x == 32) {
        while (!ready) {}
        if (fences) __threadfence_block();
        x[1] = data;                                                                // flag: read
    }
}
extern "C" __global__ void halves(half* x, int other) {
    __shared__ half s[256];
    int t = threadIdx.x;
    s[(t % 64) * 2 + t / 64] = x[t];                                                // halves: write
    half v = s[((t + other) % 64) * 2 + (t + other) / 64 % 2];                      // halves: read
    __syncthreads();
    x[t] = v;
}
extern "C" __global__ void asynchronous(float4* x, int waits) {
    __shared__ float4 s[128];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 16);                  // copy
    __pipeline_commit();
    if (waits) __pipeline_wait_prior(0);
    __syncthreads();
    float4 v = s[127 - threadIdx.x];                                                // copied: read
    if (!waits) __pipeline_wait_prior(0);
    __syncthreads();
    x[threadIdx.x] = v;
}
extern "C" __global__ void own_copy(float4* x, int waits) {
    __shared__ float4 s[128];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 16);                  // own copy
    __pipeline_commit();
    if (waits) __pipeline_wait_prior(0);
    float4 v = s[threadIdx.x];                                                      // own copy: read
    if (!waits) __pipeline_wait_prior(0);
    x[threadIdx.x] = make_float4(v.y, v.x, v.w, v.z);
}
extern "C" __global__ void own_pipeline(float* x, int n, int open) {
    __shared__ float s[3][128];
    int t = threadIdx.x;
    float sum = 0;
    for (int i = 0; i < 2; i++) { __pipeline_memcpy_async(&s[i][t], &x[i * 128 + t], 4); __pipeline_commit(); }
    for (int i = 0; i < n; i++) {
        if (open == 1) __pipeline_wait_prior(1);
        else __pipeline_wait_prior(2);
        sum += s[i % 3][t];                                                         // own pipeline: read
        if (i + 2 < n) __pipeline_memcpy_async(&s[(i + 2) % 3][t], &x[(i + 2) * 128 + t], 4);   // own pipeline: copy
        __pipeline_commit();
    }
    x[t] = sum;
}
extern "C" __global__ void pipeline(float4* x, int n, int depth) {
    __shared__ float4 s[3][128];
    int t = threadIdx.x;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int i = 0; i < 2; i++) { __pipeline_memcpy_async(&s[i][t], &x[i * 128 + t], 16); __pipeline_commit(); }
    for (int i = 0; i < n; i++) {
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = s[i % 3][127 - t];                                               // pipeline: read
        sum.x += v.x; sum.w += v.w;
        int next = i + depth;
        if (i + 2 < n) __pipeline_memcpy_async(&s[next % 3][t], &x[(i + 2) * 128 + t], 16);   // pipeline: copy
        __pipeline_commit();
    }
    x[t] = sum;
}
extern "C" __global__ void groups(float* x) {
    __shared__ float s[128];
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    s[block.thread_rank()] = x[block.thread_rank()];
    tile.sync();
    float v = s[threadIdx.x ^ 5];
    block.sync();
    s[threadIdx.x] = v;
    block.sync();
    x[threadIdx.x] = s[127 - threadIdx.x];
}
extern "C" __global__ void block_scan(int* x) {
    __shared__ int sums[4];
    int t = threadIdx.x, lane = t % 32, v = x[t];
    for (int o = 1; o < 32; o <<= 1) { int u = __shfl_up_sync(~0u, v, o); if (lane >= o) v += u; }
    if (lane == 31) sums[t / 32] = v;
    __syncthreads();
    if (t < 32) {
        int w = t < 4 ? sums[t] : 0;
        for (int o = 1; o < 4; o <<= 1) { int u = __shfl_up_sync(~0u, w, o); if (t >= o) w += u; }
        if (t < 4) sums[t] = w;
    }
    __syncthreads();
    x[t] = v + (t >= 32 ? sums[t / 32 - 1] : 0);
}
__device__ int finished;
extern "C" __global__ void last_block(float* x, float* parts) {
    __shared__ float s[128];
    __shared__ bool last;
    s[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x];
    __syncthreads();
    for (int o = 64; o; o >>= 1) { if (threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x + o]; __syncthreads(); }
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = s[0];
        __threadfence();
        last = atomicAdd(&finished, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float total = 0;
        for (int i = 0; i < gridDim.x; i++) total += ((volatile float*)parts)[i];
        x[0] = total;
    }
}
extern "C" __global__ void transpose(float* x) {
    __shared__ float s[32][33];
    for (int j = threadIdx.y; j < 32; j += 8) s[j][threadIdx.x] = x[j * 32 + threadIdx.x];
    __syncthreads();
    for (int j = threadIdx.y; j < 32; j += 8) x[j * 32 + threadIdx.x] = s[threadIdx.x][j];
}
extern "C" __global__ void rounds_of_many(float* x, int n) {
    __shared__ float s[1024];
    s[threadIdx.x] = 0;
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        __syncthreads();
        float v = s[1023 - threadIdx.x];
        __syncthreads();
        s[threadIdx.x] = v + s[threadIdx.x] * 0;
    }
    x[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void generic(float* x, float* y, int barrier, int which) {
    __shared__ float s[64];
    float* p = which ? x : s;
    p[threadIdx.x] = y[threadIdx.x];                                                // generic: write
    if (barrier) __syncthreads();
    y[threadIdx.x] = p[63 - threadIdx.x];                                           // generic: read
}
"""


def at(mark: str) -> int:
    """The line that ends in ``// mark``."""
    return next(n for n, text in enumerate(SOURCE.splitlines(), 1) if text.endswith(f"// {mark}"))


def run(
    kernel: str, threads: int | tuple[int, int], *values: int, size: int = 1024, dtype: type = np.float32
) -> LaunchOutcome:
    x = DeviceArray(np.arange(1, size + 1).astype(dtype))
    outcome = launch(compiled(SOURCE), kernel, 1, threads, x, *values)
    x.free()
    assert outcome.error == 0
    return outcome


def pairs(findings: tuple[Finding, ...]) -> set[tuple[int, int]]:
    """The earlier and the later line of each race."""
    assert {f.cause for f in findings} <= {"sync.shared-race"}
    return {(own_frame(f.other).line, own_frame(f.frames).line) for f in findings}


RACY = {
    "tree without its first barrier": ("tree", 256, (0, 1), {("tree: write", "tree: read")}),
    "tree without its last barrier": ("tree", 256, (1, 0), {("tree: read", "tree: read")}),
    "rounds without the barrier at their end": ("rounds", 128, (4, 0), {("rounds: read", "rounds: write")}),
    "warps store different values": ("all_store", 64, (1,), {("all_store", "all_store")}),
    "counts without atomics": ("counts", 64, (0,), {("counts", "counts")}),
    "plain read after atomics": ("atomic_then_plain", 64, (0,), {("atomic", "after atomic")}),
    "reads before the named barrier": ("named", 128, (0,), {("named: write", "named: read")}),
    "a named barrier of other warps": ("pairs_of_warps", 128, (0,), {("pairs: write", "pairs: read")}),
    "flag without fences": ("flag", 64, (0,), {("flag: write", "flag: read")}),
    "half words of other warps": ("halves", 128, (64,), {("halves: write", "halves: read")}),
    "a copy that nobody waits for": ("asynchronous", 128, (0,), {("copy", "copied: read")}),
    "a copy into the buffer still read": ("pipeline", 128, (6, 3), {("pipeline: read", "pipeline: copy")}),
}  # fmt: skip

RIGHT = {
    "tree": ("tree", 256, (1, 1)),
    "rounds": ("rounds", 128, (4, 1)),
    "double buffers": ("buffers", 128, (6, 1)),
    "all store the same": ("all_store", 64, (0,)),
    "counts with atomics": ("counts", 64, (1,)),
    "plain read behind a barrier": ("atomic_then_plain", 64, (1,)),
    "producer and consumer warps": ("named", 128, (1,)),
    "named barriers of two warps each": ("pairs_of_warps", 128, (1,)),
    "neighbouring half words": ("halves", 128, (0,)),
    "copy waited for": ("asynchronous", 128, (1,)),
    "pipeline of three stages": ("pipeline", 128, (6, 2)),
    "a thread's own copy waited for": ("own_copy", 128, (1,)),
    "a pipeline within each thread": ("own_pipeline", 128, (6, 1)),
    "within a warp, synchronised": ("within_a_warp", 64, (1,)),
    "warp reduction, synchronised": ("legacy_synced", 32, ()),
    "cooperative groups": ("groups", 128, ()),
    "block scan": ("block_scan", 128, ()),
    "transpose": ("transpose", (32, 8), ()),
}
"""Right kernels: no finding, and no observation either."""

DTYPES = {"all_store": np.int32, "counts": np.int32, "atomic_then_plain": np.int32, "flag": np.int32,
          "halves": np.float16, "block_scan": np.int32}  # fmt: skip


@pytest.mark.parametrize("name", RACY)
def test_a_race_is_named_with_the_line_of_either_side(name: str) -> None:
    kernel, threads, values, expected = RACY[name]
    outcome = run(kernel, threads, *values, size=8192, dtype=DTYPES.get(kernel, np.float32))
    assert pairs(outcome.findings) == {(at(earlier), at(later)) for earlier, later in expected}


@pytest.mark.parametrize("name", RIGHT)
def test_what_barriers_order_is_no_race(name: str) -> None:
    kernel, threads, values = RIGHT[name]
    outcome = run(kernel, threads, *values, size=8192, dtype=DTYPES.get(kernel, np.float32))
    assert (outcome.findings, outcome.observations) == ((), ())


@pytest.mark.parametrize(
    ("kernel", "values", "copy", "read"),
    [("own_copy", (0,), "own copy", "own copy: read"), ("asynchronous", (0,), "copy", "copied: read"),
     ("own_pipeline", (6, 2), "own pipeline: copy", "own pipeline: read")],
)  # fmt: skip
def test_a_copy_that_is_read_before_it_is_waited_for_is_named_even_within_a_thread(
    kernel: str, values: tuple[int, ...], copy: str, read: str
) -> None:
    outcome = run(kernel, 128, *values, size=8192)
    assert (at(copy), at(read)) in pairs(outcome.findings)
    assert {own_frame(f.frames).line for f in outcome.findings} == {at(read)}
    assert all(f.message.endswith("asynchronously and has not waited for that copy") for f in outcome.findings)


def test_one_barrier_too_few_between_two_buffers_is_a_race() -> None:
    outcome = run("buffers", 128, 6, 0)
    assert {at("buffers: write"), at("buffers: read")} <= {line for pair in pairs(outcome.findings) for line in pair}


def test_a_flag_with_fences_orders_what_it_guards() -> None:
    outcome = run("flag", 64, 1, dtype=np.int32)
    assert not outcome.findings
    assert {f.allocation.name for f in outcome.observations if f.allocation} == {"ready"}


@pytest.mark.parametrize(("kernel", "values"), [("within_a_warp", (0,)), ("legacy", ())])
def test_lanes_of_a_warp_without_syncwarp_are_observed_only(kernel: str, values: tuple[int, ...]) -> None:
    outcome = run(kernel, 32, *values)
    assert not outcome.findings
    assert outcome.observations and "no __syncwarp between" in outcome.observations[0].message
    assert pairs(outcome.observations)


@pytest.mark.parametrize("same", [0, 1])
def test_lanes_that_store_to_one_word_at_once_are_observed_where_values_differ(same: int) -> None:
    outcome = run("lanes_store", 32, same, dtype=np.int32)
    assert not outcome.findings
    assert [seen.count for seen in outcome.observations] == ([] if same else [16])


def test_the_last_block_pattern_is_no_race() -> None:
    x, parts = DeviceArray(np.ones(1024, np.float32)), DeviceArray(np.zeros(8, np.float32))
    outcome = launch(compiled(SOURCE), "last_block", 8, 128, x, parts)
    assert (outcome.error, outcome.findings, outcome.observations) == (0, (), ())
    assert x.get()[0] == 1024


@pytest.mark.parametrize("which", [0, 1])
def test_a_generic_pointer_into_shared_memory_is_watched_too(which: int) -> None:
    x, y = DeviceArray(np.ones(64, np.float32)), DeviceArray(np.ones(64, np.float32))
    wrong = launch(compiled(SOURCE), "generic", 1, 64, x, y, 0, which)
    right = launch(compiled(SOURCE), "generic", 1, 64, x, y, 1, which)
    assert {f.cause for f in wrong.findings} == {"sync.global-race" if which else "sync.shared-race"}
    assert [(own_frame(f.other).line, own_frame(f.frames).line) for f in wrong.findings] == [
        (at("generic: write"), at("generic: read"))
    ]
    assert not right.findings


def test_a_race_names_both_threads_and_the_array() -> None:
    found = run("tree", 256, 0, 1).findings[0]
    assert found.allocation is not None
    assert (found.allocation.kind, found.allocation.name, found.allocation.bytes) == ("shared", "part", 1024)
    assert (found.thread, found.access, found.space, found.bytes) == ((0, 0, 0), "load", "shared", 4)
    assert found.offset == 512
    line = at("tree: write")
    assert found.message == f"thread (128,0,0) wrote it at line {line}, with no barrier between"


def test_a_racy_launch_finds_the_same_every_time() -> None:
    first, second = (run("tree", 256, 0, 1) for _ in range(2))
    assert first.findings == second.findings


def test_event_numbers_that_run_out_bring_no_false_alarm() -> None:
    outcome = run("rounds_of_many", 1024, 40_000)
    assert (outcome.findings, outcome.observations) == ((), ())


def test_the_check_can_be_left_out_and_the_result_stays() -> None:
    x = DeviceArray(np.arange(256, dtype=np.float32), "x")
    assert launch(compiled(SOURCE), "tree", 1, 256, x, 0, 0).findings
    for first, last in ((0, 0), (1, 1)):
        y = DeviceArray(np.ones(256, np.float32), "y")
        outcome = launch(compiled(SOURCE), "tree", 1, 256, y, first, last, shared_races=False)
        assert (outcome.findings, outcome.observations) == ((), ())
    assert y.get()[0] == 256
