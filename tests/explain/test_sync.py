"""Races are named where the barrier is missing, and memory that nobody wrote where it was made or left unwritten."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from kernelwright.explain import explain
from kernelwright.records import Allocation, Confidence, Evidence, Finding, Numerics, SourceLine, Stage

Make = Callable[..., Evidence]
At = Callable[..., int]
Find = Callable[..., Finding]

REDUCTION = '''SOURCE = r"""
__global__ void scale(const float* x, float* y, int n) {
    __shared__ float part[64];
    if (threadIdx.x >= n) return;
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = part[63 - threadIdx.x];
}
"""
'''


def frames(line: int) -> tuple[SourceLine, ...]:
    return (SourceLine("header.hpp", 3), SourceLine("candidate.py", line))


def race(finding: Find, earlier: int, later: int) -> Finding:
    part = Allocation("shared", 256, name="part")
    return finding(
        "sync.shared-race", later, access="load", space="shared", allocation=part, offset=4,
        message=f"thread (32,0,0) wrote it at line {earlier}, with no barrier between", other=frames(earlier),
    )  # fmt: skip


def test_a_race_is_named_by_its_earlier_access(evidence: Make, finding: Find, at: At) -> None:
    write, read = at("part[threadIdx.x] = x", REDUCTION), at("y[threadIdx.x] = part", REDUCTION)
    (cause,) = explain(evidence(REDUCTION, findings=(race(finding, write, read),)))
    assert (cause.id, cause.line, cause.text) == ("sync.shared-race", write, "part[threadIdx.x] = x[threadIdx.x];")
    assert cause.stage is Stage.RUN
    assert f"between line {write} and line {read}," in cause.fix
    assert any(f"line {read}: y[threadIdx.x]" in fact for fact in cause.evidence)
    assert any("thread (32,0,0) wrote it" in fact for fact in cause.evidence)


def test_a_race_with_the_next_round_of_a_loop_says_so(evidence: Make, finding: Find, at: At) -> None:
    write, read = at("part[threadIdx.x] = x", REDUCTION), at("y[threadIdx.x] = part", REDUCTION)
    (cause,) = explain(evidence(REDUCTION, findings=(race(finding, read, write),)))
    assert cause.line == read
    assert f"line {write} of the next round" in cause.fix


def test_a_copy_nobody_waited_for_is_no_matter_of_a_barrier_alone(evidence: Make, finding: Find, at: At) -> None:
    write, read = at("part[threadIdx.x] = x", REDUCTION), at("y[threadIdx.x] = part", REDUCTION)
    said = f"thread (32,0,0) copies it at line {write} asynchronously and has not waited for that copy"
    found = dataclasses.replace(race(finding, write, read), message=said)
    (cause,) = explain(evidence(REDUCTION, findings=(found,)))
    assert cause.line == write
    assert cause.fix.startswith("Wait for the copy")


@pytest.mark.parametrize(
    ("said", "barrier"), [("nothing that orders the two blocks between", False), ("no barrier between", True)]
)
def test_a_race_between_blocks_is_not_mended_by_a_barrier_of_one(
    evidence: Make, finding: Find, at: At, said: str, barrier: bool
) -> None:
    write, read = at("part[threadIdx.x] = x", REDUCTION), at("y[threadIdx.x] = part", REDUCTION)
    found = finding(
        "sync.global-race", read, access="load", space="global", allocation=Allocation("global", 256, name="y"),
        offset=4, message=f"thread (32,0,0) wrote it at line {write}, with {said}", other=frames(write),
    )  # fmt: skip
    (cause,) = explain(evidence(REDUCTION, findings=(found,)))
    assert (cause.id, cause.line) == ("sync.global-race", write)
    assert ("__syncthreads()" in cause.fix) == barrier


def test_what_is_only_observed_of_global_memory_explains_no_wrong_result(
    evidence: Make, finding: Find, at: At, wrong: Callable[..., Numerics]
) -> None:
    write = at("y[threadIdx.x] = part", REDUCTION)
    observed = finding("sync.global-race", write, access="store", space="global", other=frames(write))
    made = evidence(REDUCTION, observations=(observed,), numerics=wrong())
    assert "sync.global-race" not in {cause.id for cause in explain(made)}


def test_a_stale_read_is_named_at_the_load_with_the_line_that_writes(evidence: Make, finding: Find, at: At) -> None:
    write, read = at("part[threadIdx.x] = x", REDUCTION), at("y[threadIdx.x] = part", REDUCTION)
    found = finding(
        "memory.stale-read", read, access="load", space="global", allocation=Allocation("global", 256, name="y"),
        offset=4, other=frames(write),
    )  # fmt: skip
    (cause,) = explain(evidence(REDUCTION, findings=(found,)))
    assert (cause.id, cause.line) == ("memory.stale-read", read)
    assert any(f"written at line {write}" in fact for fact in cause.evidence)
    assert "__restrict__" in cause.fix


def test_an_atomic_on_unwritten_memory_is_named_where_the_memory_was_made(
    evidence: Make, finding: Find, at: At
) -> None:
    found = finding(
        "memory.uninitialised", at("if (i <= n)"), access="atomic", allocation=Allocation("global", 64), offset=0
    )
    (cause,) = explain(evidence(findings=(found,)))
    assert (cause.id, cause.line) == ("memory.uninitialised", at("torch::empty_like"))
    assert any(f"read at line {at('if (i <= n)')}" in fact for fact in cause.evidence)


def test_a_nan_from_poison_is_named_at_the_load_that_was_observed(
    evidence: Make, finding: Find, wrong: Callable[..., Numerics], at: At
) -> None:
    read = at("y[threadIdx.x] = part", REDUCTION)
    part = Allocation("shared", 256, name="part")
    seen = finding("memory.uninitialised", read, access="load", space="shared", allocation=part, offset=8)
    (cause,) = explain(evidence(REDUCTION, numerics=wrong(tainted=5, nan=5), observations=(seen,)))
    assert (cause.id, cause.line, cause.confidence) == ("memory.uninitialised", read, Confidence.LIKELY)


def test_shared_memory_left_unwritten_by_an_early_return_is_the_returns_fault(
    evidence: Make, finding: Find, wrong: Callable[..., Numerics], at: At
) -> None:
    part = Allocation("shared", 256, name="part")
    read = finding("memory.uninitialised", at("= part", REDUCTION), access="load", space="shared",
                   allocation=part, offset=8)  # fmt: skip
    barrier = finding("sync.divergent-barrier", at("__syncthreads", REDUCTION), access="barrier", space="", bytes=0)
    (cause,) = explain(evidence(REDUCTION, numerics=wrong(tainted=5, nan=5), observations=(read, barrier)))
    assert (cause.id, cause.line) == ("sync.divergent-barrier", at("return;", REDUCTION))


def test_observations_beside_a_right_result_are_silent(evidence: Make, finding: Find, at: At) -> None:
    seen = finding("memory.uninitialised", at("y[threadIdx.x] = part", REDUCTION), access="load", space="shared")
    assert explain(evidence(REDUCTION, observations=(seen,))) == ()
