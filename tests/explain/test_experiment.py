"""What an experiment showed is named at the line that does it, and a fault of the run is named before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernelwright.explain import explain
from kernelwright.records import Allocation, Confidence, Experiment, LaunchFact

pytestmark = pytest.mark.tiny

Make = Callable[..., Any]

TEXT = '''import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__device__ float act(float v) {
    // tanhf() would be wrong here
    return 0.5f * v * (1.f + tanhf(0.79788f * v));
}

__global__ void first(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = act(x[i]);
}

__global__ void never(const float* x, float* y, float* z, int n) {
    y[0] = tanhf(x[0]);
    float mean = x[1];
    z[0] = rsqrtf(x[0] / n - mean * mean);
}
"""
'''
LAUNCH = LaunchFact("first(float const*, float*, int)", (1, 1, 1), (64, 1, 1), 0)


def experiment(variant: str, *, exact: bool = True) -> Experiment:
    return Experiment(variant, "something else", 1e-7, 4e-4, 1e-8, exact)


def at(piece: str) -> int:
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if piece in line)


def test_the_line_is_the_one_of_the_kernel_that_ran_and_no_comment(evidence: Make, wrong: Make) -> None:
    given = evidence(TEXT, numerics=wrong(), launches=(LAUNCH,), experiments=(experiment("other-gelu"),))
    (cause,) = explain(given)
    assert (cause.id, cause.line) == ("numeric.other-function", at("return 0.5f"))
    assert cause.sentence.startswith("The output is the reference's with something else: the two differ by up to 5e-4")
    assert cause.confidence is Confidence.LIKELY
    assert "the largest difference is 1e-07" in cause.evidence[0]


def test_without_a_pattern_the_only_store_of_the_kernels_that_ran_is_named(evidence: Make, wrong: Make) -> None:
    given = evidence(TEXT, numerics=wrong(), launches=(LAUNCH,), experiments=(experiment("left-out"),))
    (cause,) = explain(given)
    assert (cause.id, cause.line) == ("logic.formula", at("y[i] = act"))


def test_rounding_errors_of_the_right_size_are_named_only_beside_the_formula(evidence: Make, wrong: Make) -> None:
    seen = (experiment("difference-of-squares", exact=False),)
    (cause,) = explain(evidence(TEXT, numerics=wrong(), experiments=seen))
    assert (cause.id, cause.line) == ("numeric.cancellation", at("mean * mean"))
    without = TEXT.replace(" - mean * mean", "")
    assert [c.id for c in explain(evidence(without, numerics=wrong(), experiments=seen))] == ["unexplained"]


def test_a_fault_of_the_run_is_not_explained_by_what_came_out(evidence: Make, wrong: Make, finding: Make) -> None:
    seen = finding("memory.out-of-bounds", 12, offset=8, allocation=Allocation("global", 4, "x"))
    given = evidence(TEXT, numerics=wrong(), findings=(seen,), experiments=(experiment("left-out"),))
    assert [cause.id for cause in explain(given)] == ["memory.out-of-bounds"]


def test_what_was_never_written_comes_before_what_the_rest_looks_like(evidence: Make, wrong: Make) -> None:
    given = evidence(TEXT, numerics=wrong(unwritten=3), launches=(LAUNCH,), experiments=(experiment("left-out"),))
    assert explain(given)[0].id == "memory.unwritten-output"
