"""What a correct candidate does that goes wrong in other hands is advice at its line, never a cause."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelwright.explain import explain, remarks
from kernelwright.records import Conduct, LaunchFact, Numerics, OperatorFact, Trial

pytestmark = pytest.mark.tiny

Make = Callable[..., Any]

TEXT = '''import torch

SOURCE = r"""
__global__ void scale(const float* x, float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = 2.f * x[threadIdx.x]; }

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    float* kept;
    cudaMalloc(&kept, 4);
    if (x.numel() > 9) cudaDeviceSynchronize();
    scale<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    CHECK(cudaStreamSynchronize(stream));
    return y;
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Linear(4, 4).weight
'''
RIGHT = Numerics(1e-4, 1e-4, "float64", "none", (Trial(0, True),), None, True)
LAUNCH = LaunchFact("scale(float const*, float*, int)", (1, 1, 1), (64, 1, 1), 0)


def at(piece: str) -> int:
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if piece in line)


def named(given: Any) -> list[tuple[str, int]]:
    assert explain(given) == ()
    return [(remark.id, remark.line) for remark in remarks(given)]


def test_a_launch_without_a_stream_and_a_wrapper_that_waits_are_remarked(evidence: Make) -> None:
    given = evidence(TEXT, numerics=RIGHT, launches=(LAUNCH,))
    assert named(given) == [("interface.wrong-stream", at("<<<1, 64>>>")), ("performance.host-sync", at("cudaMalloc"))]
    assert "runs cudaMalloc, cudaStreamSynchronize: cudaMalloc waits" in remarks(given)[1].sentence


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float* kept;", "static float* kept = nullptr;"),
        ("cudaMalloc(&kept, 4);", "if (cudaMalloc(&kept, 4)) return y;"),
        ("    cudaMalloc(&kept, 4);", "    if (!kept) { cudaMalloc(&kept, 4); } return y;"),
    ],
)
def test_what_not_every_call_comes_to_is_not_remarked(evidence: Make, old: str, new: str) -> None:
    text = TEXT.replace(old, new).replace("<<<1, 64>>>", "<<<1, 64, 0, stream>>>")
    assert named(evidence(text, numerics=RIGHT, launches=(LAUNCH,))) == []


def test_a_kernel_that_never_ran_is_not_remarked(evidence: Make) -> None:
    assert named(evidence(TEXT, numerics=RIGHT)) == []


def test_weights_that_do_not_load_are_remarked_where_the_first_is_made(evidence: Make, tmp_path: Path) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text("class Model:\n    def __init__(self):\n        self.fc = torch.nn.Linear(4, 4)\n")
    numerics = dataclasses.replace(RIGHT, weights="rng", weights_note="it has no fc.weight")
    given = dataclasses.replace(evidence(TEXT, numerics=numerics), problem_file=str(problem))
    assert named(given) == [("semantic.weights", at("self.weight ="))]


def test_a_value_taken_to_the_host_is_remarked_unless_the_reference_does_so(evidence: Make) -> None:
    item = OperatorFact("_local_scalar_dense", (), 20)
    conduct = Conduct(operators=(item,), reads_input=True, reference_operators=())
    assert named(evidence(TEXT, numerics=RIGHT, conduct=conduct)) == [("performance.host-sync", 20)]
    conduct = dataclasses.replace(conduct, reference_operators=(item,))
    assert named(evidence(TEXT, numerics=RIGHT, conduct=conduct)) == []


def test_a_failure_has_causes_and_no_remarks(evidence: Make, wrong: Make) -> None:
    assert remarks(evidence(TEXT, numerics=wrong(), launches=(LAUNCH,))) == ()
