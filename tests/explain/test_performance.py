"""Advice: named where counters prove it at a line, silent on a kernel that is good, never beside a failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelwright.counters import metrics as m
from kernelwright.counters.records import KernelCounters, LineCounters
from kernelwright.explain import advice, explain
from kernelwright.records import (
    BuildRecord,
    Cause,
    Evidence,
    KernelFacts,
    LaunchFact,
    SourceLine,
    Stage,
    StageResult,
    StageStatus,
)

pytestmark = pytest.mark.tiny

TEXT = "\n".join(
    ["# one", "x[i * stride]", "tile[c][r]", "atomicAdd(y, v)", "own[k]", 'extra_cuda_cflags=["-maxrregcount=32"]']
)


def line(number: int, metrics: dict[str, float]) -> LineCounters:
    return LineCounters((SourceLine("header.cuh", 9), SourceLine("candidate.py", number)), metrics)


def loads(requests: float, sectors: float, ideal: float, op: str = "ld") -> dict[str, float]:
    return {m.requests("global", op): requests, m.sectors("global", op): sectors, m.ideal_sectors(op): ideal}


def shared(requests: float, wavefronts: float, ideal: float) -> dict[str, float]:
    return {m.shared_requests("ld"): requests, m.wavefronts("ld"): wavefronts, m.ideal_wavefronts("ld"): ideal}


def given(*lines: LineCounters, status: StageStatus = StageStatus.PASSED, **more: float) -> tuple[Cause, ...]:
    whole: dict[str, float] = dict(more)
    for one in lines:
        whole = m.added(whole, one.metrics)
    kernel = KernelCounters("k(float*)", (8, 1, 1), (128, 1, 1), metrics=whole, lines=lines)
    return advice(evidence(kernel, status=status))


def evidence(*kernels: KernelCounters, status: StageStatus = StageStatus.PASSED, spilled: int = 0) -> Evidence:
    return Evidence(
        problem_file="problem.py",
        candidate_file="candidate.py",
        candidate_text=TEXT,
        stages=(StageResult(Stage.RUN, status),),
        builds=(
            BuildRecord(
                "e", "fast", False, 1.0, True, None, kernels=(KernelFacts("k(float*)", 32, 0, spilled, spilled, 0),)
            ),
        ),
        launches=(LaunchFact("k(float*)", (8, 1, 1), (128, 1, 1), 0, site=SourceLine("candidate.py", 6)),),
        counters=kernels,
    )  # fmt: skip


def test_loads_that_touch_many_sectors_are_named_at_their_line_with_figures() -> None:
    (found,) = given(line(2, loads(100, 3200, 400)))
    assert (found.id, found.line, found.stage) == ("performance.uncoalesced", 2, Stage.MEASURE)
    assert "32.0 sectors per request, 4 would do" in found.sentence


MAPPED = '''SOURCE = r"""
__global__ void k(float* x, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int column = blockIdx.y, lane = threadIdx.x % 32;
    x[(size_t)row * columns + column] = lane;
}
"""
'''


def test_the_line_that_maps_threads_to_elements_is_named_where_the_text_shows_it() -> None:
    stores = line(5, loads(100, 3200, 400, "st"))
    kernel = KernelCounters("k(float*, int)", (8, 1, 1), (128, 1, 1), metrics=stores.metrics, lines=(stores,))
    (found,) = advice(replace(evidence(kernel), candidate_text=MAPPED))
    assert (found.id, found.line) == ("performance.uncoalesced", 3)
    assert "line 5: x[(size_t)row * columns + column] = lane;" in found.evidence[0]


def test_good_accesses_stay_without_advice() -> None:
    assert given(line(2, loads(100, 400, 400)), line(3, shared(100, 100, 100))) == ()


def test_a_corner_that_wastes_little_of_the_kernels_traffic_is_left_alone() -> None:
    assert given(line(2, loads(1000, 4000, 4000)), line(4, loads(10, 320, 40))) == ()


def test_accesses_a_little_off_are_left_alone() -> None:
    assert given(line(2, loads(100, 500, 400))) == ()


def test_bank_conflicts_are_named() -> None:
    (found,) = given(line(3, shared(10, 320, 10)))
    assert (found.id, found.line) == ("performance.bank-conflicts", 3)
    assert "32.0 wavefronts per request, 1 would do" in found.sentence


def test_atomics_that_take_turns_are_named_and_one_a_warp_is_not() -> None:
    (found,) = given(line(4, loads(100, 3200, 100, "red")))
    assert (found.id, found.line) == ("performance.atomics", 4)
    assert given(line(4, loads(100, 100, 100, "red"))) == ()


def test_the_line_that_wastes_most_is_the_one_that_is_named() -> None:
    found = given(line(2, loads(100, 3200, 400)), line(5, loads(50, 1600, 200)))
    assert [cause.line for cause in found] == [2]


def test_local_arrays_are_named() -> None:
    (found,) = given(line(5, {m.requests("local", "st"): 320.0, m.requests("local", "ld"): 80.0}))
    assert (found.id, found.line) == ("performance.local-array", 5)


def test_spills_of_a_kernel_that_ran_are_named_at_the_flag_that_caps_registers() -> None:
    kernel = KernelCounters("k(float*)", (800, 1, 1), (128, 1, 1))
    (found,) = advice(evidence(kernel, spilled=64))
    assert (found.id, found.line) == ("performance.spills", 6)
    assert advice(evidence(spilled=64)) == ()
    assert advice(evidence(kernel, spilled=28)) == ()


def test_few_blocks_that_run_long_are_named_at_the_launch() -> None:
    limits = {m.LIMIT_BLOCKS: 32.0, m.LIMIT_WARPS: 16.0, m.WAVES: 8 / (16 * 132)}
    (found,) = given(**limits, **{m.INST: 32 * 5000.0})
    assert (found.id, found.line) == ("performance.low-parallelism", 6)
    assert "8 blocks for 132 multiprocessors" in found.sentence
    assert given(**limits, **{m.INST: 32 * 1500.0}) == ()


def test_advice_is_no_cause_and_a_failure_gets_none() -> None:
    kernel = KernelCounters("k(float*)", (8, 1, 1), (128, 1, 1), lines=(line(2, loads(100, 3200, 400)),))
    assert explain(evidence(kernel)) == ()
    assert given(line(2, loads(100, 3200, 400)), status=StageStatus.FAILED) == ()
