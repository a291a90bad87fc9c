"""A loop and its launch, followed with the launch's own numbers; right and unknown loops are silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernelwright.explain import explain
from kernelwright.explain.logic import halvings
from kernelwright.records import Confidence, LaunchFact, SourceLine

pytestmark = pytest.mark.tiny

Make = Callable[..., Any]

TEXT = '''import torch

SOURCE = r"""
constexpr int THREADS = 256;
__device__ float tree(float* part) {
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    return part[0];
}
__global__ void rows(const float* x, float* y) { __shared__ float part[512]; y[blockIdx.x] = tree(part); }
__global__ void total(const float* x, float* y, int n) {
    float v = 0.f;
    int first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = first; i < n; i += THREADS) v += x[i];
    atomicAdd(y, v);
}
torch::Tensor run(torch::Tensor x) {
    rows<<<8, 192>>>(x.data_ptr<float>(), x.data_ptr<float>());
    return x;
}
"""
'''


def at(piece: str) -> int:
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if piece in line)


def launch(kernel: str, *, grid: int = 8, block: int = 256, line: int = 0) -> LaunchFact:
    site = SourceLine("candidate.py", line) if line else None
    return LaunchFact(f"{kernel}(float const*)", (grid, 1, 1), (block, 1, 1), 0, site=site)


def test_a_tree_over_three_times_a_power_of_two_loses_a_slot_where_it_is_launched(evidence: Make, wrong: Make) -> None:
    given = evidence(TEXT, numerics=wrong(), launches=(launch("rows", block=192, line=at("<<<8, 192>>>")),))
    (cause,) = explain(given)
    assert (cause.id, cause.line) == ("logic.power-of-two", at("<<<8, 192>>>"))
    assert "by s = 96, 48, 24, 12, 6, 3, 1: where 3 are left" in cause.sentence
    assert cause.confidence is Confidence.LIKELY
    assert f"the tree is at line {at('for (int s')}" in cause.evidence[0]


def test_a_stride_of_one_block_from_an_index_in_the_grid_adds_elements_again(evidence: Make, wrong: Make) -> None:
    (cause,) = explain(evidence(TEXT, numerics=wrong(first_got=16.0), launches=(launch("total"),)))
    assert (cause.id, cause.line) == ("logic.repeated-work", at("for (int i = first"))
    assert "at [0, 1] the output is 8 times what it should be" in cause.evidence


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (launch("rows", block=256), TEXT),
        (launch("rows", block=192), TEXT.replace("s >>= 1", "s = (s + 1) / 2")),
        (launch("total", grid=1), TEXT),
        (launch("total"), TEXT.replace("+= THREADS", "+= blockDim.x * gridDim.x")),
        (launch("total"), TEXT.replace("first = blockIdx.x * blockDim.x + threadIdx.x", "first = threadIdx.x")),
        (launch("total"), TEXT.replace("v += x[i]", "y[i] = x[i]")),
        (launch("total"), TEXT.replace("float v = 0.f;", "float v = 0.f; n = min(n, 64 * (int)blockIdx.x);")),
    ],
)
def test_right_loops_and_such_as_cannot_be_followed_are_silent(
    evidence: Make, wrong: Make, fact: LaunchFact, text: str
) -> None:
    assert [cause.id for cause in explain(evidence(text, numerics=wrong(), launches=(fact,)))] == ["unexplained"]


def test_a_right_result_needs_no_loop_followed(evidence: Make, wrong: Make) -> None:
    assert explain(evidence(TEXT, launches=(launch("rows", block=192), launch("total")))) == ()


def test_halvings_are_those_of_integer_division() -> None:
    assert halvings(256) == ([128, 64, 32, 16, 8, 4, 2, 1], 0)
    assert halvings(192) == ([96, 48, 24, 12, 6, 3, 1], 3)
    assert halvings(7) == ([3, 1], 7)
