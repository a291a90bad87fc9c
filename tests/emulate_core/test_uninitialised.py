"""Reads of what nobody wrote are seen: by a shadow in shared memory, by their bits in global and local memory."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import DeviceArray, compiled, launch, needs_nvcc

from kernelwright.emulate import runtime
from kernelwright.emulate.module import LaunchOutcome
from kernelwright.records import Finding

pytestmark = [pytest.mark.emu, needs_nvcc]

SOURCE = r"""
extern "C" __global__ void copies(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }     // copies
extern "C" __global__ void first_three(const float4* x, float* y) {
    float4 v = x[threadIdx.x];                                                                        // first_three
    y[threadIdx.x] = v.x + v.y + v.z;
}
extern "C" __global__ void adds(float* x, const float* y) { atomicAdd(&x[threadIdx.x], y[threadIdx.x]); }
extern "C" __global__ void swaps(int* x, int* y) { y[threadIdx.x] = atomicExch(&x[threadIdx.x], 1); }
extern "C" __global__ void shared_past_written(float* x, int n) {
    __shared__ float s[64];
    if (threadIdx.x < n) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[63 - threadIdx.x];                                                             // shared
}
extern "C" __global__ void shared_bins(int* x, int cleared) {
    __shared__ int bins[32];
    if (cleared) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[x[threadIdx.x] & 31], 1);
    __syncthreads();
    x[threadIdx.x] = bins[threadIdx.x];
}
extern "C" __global__ void local_array(float* x, int n, int k) {
    float v[16];
    for (int i = 0; i < n; i++) v[i] = x[i];
    float s = 0;
    for (int i = 0; i < 16; i++) s += v[(i * k) & 15];                                                // local
    x[threadIdx.x] = s;
}
extern "C" __global__ void bytes(unsigned char* x, int n) {
    __shared__ unsigned char s[64];
    if (threadIdx.x < n) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x];
}
"""


class Unwritten(DeviceArray):
    """Device memory as it is handed out."""

    def __init__(self, like: np.ndarray, name: str = "") -> None:
        self._like = like
        self.address = runtime.library().kw_alloc(like.nbytes, runtime.GLOBAL, name.encode())


def floats(n: int) -> DeviceArray:
    return DeviceArray(np.arange(n, dtype=np.float32))


def at(mark: str) -> int:
    return next(n for n, text in enumerate(SOURCE.splitlines(), 1) if text.endswith(f"// {mark}"))


def run(kernel: str, threads: int, *values: DeviceArray | int) -> LaunchOutcome:
    outcome = launch(compiled(SOURCE), kernel, 1, threads, *values)
    assert outcome.error == 0
    return outcome


def only(findings: tuple[Finding, ...]) -> Finding:
    (found,) = findings
    assert found.cause == "memory.uninitialised"
    return found


def test_reading_what_nobody_wrote_is_observed_with_allocation_and_line() -> None:
    x, y = Unwritten(np.zeros(64, np.float32), "x"), floats(64)
    outcome = run("copies", 64, x, y)
    seen = only(outcome.observations)
    assert not outcome.findings
    assert seen.allocation is not None
    assert (seen.frames[0].line, seen.count, seen.access, seen.space) == (at("copies"), 64, "load", "global")
    assert (seen.allocation.name, seen.offset, seen.thread) == ("x", 0, (0, 0, 0))


def test_reading_what_was_written_is_silent() -> None:
    outcome = run("copies", 64, floats(64), floats(64))
    assert (outcome.findings, outcome.observations) == ((), ())


@pytest.mark.parametrize(("dead", "count"), [(3, 0), (1, 8)])
def test_a_vector_component_that_nobody_uses_may_be_unwritten(dead: int, count: int) -> None:
    x, y = Unwritten(np.zeros((8, 4), np.float32)), floats(8)
    written = np.ones((8, 4), np.float32)
    written.view(np.uint32)[:, dead] = 0x7FA57FA5
    run("copies", 32, DeviceArray(written), x)
    observed = run("first_three", 8, x, y).observations
    assert [seen.count for seen in observed] == ([count] if count else [])


def test_an_atomic_on_unwritten_memory_is_a_finding() -> None:
    found = only(run("adds", 32, Unwritten(np.zeros(32, np.float32), "sum"), floats(32)).findings)
    assert found.allocation is not None
    assert (found.access, found.count, found.allocation.name) == ("atomic", 32, "sum")
    assert not run("adds", 32, floats(32), floats(32)).findings


def test_an_exchange_may_find_anything() -> None:
    assert not run("swaps", 32, Unwritten(np.zeros(32, np.int32)), floats(32)).findings


def test_a_shared_word_that_no_thread_wrote_is_observed() -> None:
    seen = only(run("shared_past_written", 64, floats(64), 40).observations)
    assert seen.allocation is not None
    assert (seen.frames[0].line, seen.count, seen.offset, seen.space) == (at("shared"), 24, 63 * 4, "shared")
    assert seen.allocation.name == "s"
    assert not run("shared_past_written", 64, floats(64), 64).observations


def test_what_another_block_wrote_does_not_count() -> None:
    outcome = launch(compiled(SOURCE), "shared_past_written", 2, 64, floats(64), 40, workers=1)
    shared = only(tuple(seen for seen in outcome.observations if seen.space == "shared"))
    assert (shared.count, shared.block) == (24, (0, 0, 0))
    again = launch(compiled(SOURCE), "shared_past_written", 1, 64, floats(64), 40, workers=1)
    assert only(again.observations).count == 24


def test_shared_bins_that_are_not_cleared_are_a_finding() -> None:
    x = DeviceArray(np.arange(32, dtype=np.int32))
    assert only(run("shared_bins", 32, x, 0).findings).access == "atomic"
    outcome = run("shared_bins", 32, x, 1)
    assert (outcome.findings, outcome.observations) == ((), ())


@pytest.mark.parametrize(("n", "count"), [(16, 0), (8, 1)])
def test_a_local_array_that_is_half_written_is_observed(n: int, count: int) -> None:
    observed = run("local_array", 32, floats(64), n, 3).observations
    unwritten = [seen for seen in observed if seen.cause == "memory.uninitialised"]
    assert {seen.frames[0].line for seen in unwritten} == ({at("local")} if count else set())
    assert all(seen.space == "local" for seen in unwritten)


def test_single_bytes_of_shared_memory_are_told_apart() -> None:
    x = DeviceArray(np.arange(64, dtype=np.uint8))
    assert only(run("bytes", 64, x, 63).observations).count == 1
    assert not run("bytes", 64, x, 64).observations
