"""Evidence for rules: a small candidate of our own, and records as the device and the judge make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernelwright.records import Evidence, Finding, Mismatch, Numerics, OutputNumerics, Precision, SourceLine, Trial

CANDIDATE = '''import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
template <typename T>
__device__ T twice(T v) { return v + v; }

__global__ void scale(const float* __restrict__ in, float* __restrict__ out, int n) {
    float window[3], other;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // out[i] = 0; a comment is no store, and neither is in[i] == out[i]
    if (i <= n) out[i] = twice(in[i]);
    window[i % 5] = 0.f;
}

void scale_raw(const float* in, float* out, int n) {
    dim3 threads(64, 32);
    dim3 blocks((n + 63) / 64);
    scale<<<blocks, threads>>>(in, out, n);
}

torch::Tensor scale_tensor(torch::Tensor x) {
    auto host = torch::zeros({x.numel()});
    auto y = torch::empty_like(x);
    scale<<<
        (x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), host.data_ptr<float>(), x.numel());
    return y;
}
"""

extension = load_inline(name="scales", cpp_sources="", cuda_sources=SOURCE, functions=["scale_raw", "scale_tensor"])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.second = torch.nn.Linear(4, 4)
        self.first = torch.nn.Linear(4, 4)

    def forward(self, x):
        view = x[3:]
        x.mul_(2)
        return extension.scale_tensor(view)
'''


def line_of(piece: str, text: str = CANDIDATE) -> int:
    """The only line of ``text`` that holds ``piece``."""
    lines = [number for number, line in enumerate(text.splitlines(), 1) if piece in line]
    assert len(lines) == 1, (piece, lines)
    return lines[0]


@pytest.fixture
def at() -> Callable[..., int]:
    """Line of a piece of the candidate's text."""
    return line_of


@pytest.fixture
def evidence() -> Callable[..., Evidence]:
    """Evidence about the candidate; keywords are the fields that a test sets."""

    def make(text: str = CANDIDATE, **fields: Any) -> Evidence:
        return Evidence(
            problem_file="nowhere/problem.py",
            candidate_file="some/candidate.py",
            candidate_text=text,
            stages=fields.pop("stages", ()),
            **fields,
        )

    return make


@pytest.fixture
def finding() -> Callable[..., Finding]:
    """A finding in kernel ``scale`` at one line of the candidate; keywords replace fields."""

    def make(cause: str, line: int, **fields: Any) -> Finding:
        values: dict[str, Any] = {
            "cause": cause,
            "kernel": "scale(float const*, float*, int)",
            "frames": (SourceLine("candidate.py", line, function="scale"),),
            "block": (0, 0, 0),
            "thread": (0, 0, 0),
            "access": "store",
            "space": "global",
            "bytes": 4,
            "grid": (4, 1, 1),
            "block_size": (64, 1, 1),
        }
        return Finding(**{**values, **fields})

    return make


@pytest.fixture
def wrong() -> Callable[..., Numerics]:
    """Numerics of one failed trial; keywords are the mismatch's fields."""

    def make(shape: tuple[int, ...] = (8, 32), **fields: Any) -> Numerics:
        values: dict[str, Any] = {
            "count": 5, "total": 256, "nan": 0, "inf": 0, "unwritten": 0, "tainted": 0, "description": "",
            "first": (0, 1), "first_got": 1.0, "first_expected": 2.0,
            "worst": (3, 1), "worst_got": -7.0, "worst_expected": 2.0,
        }  # fmt: skip
        output = OutputNumerics(
            "output", shape, "float32", 9.0, 1.0, 1e-7, 2e-8, 5e7, False, Precision.WORSE,
            Mismatch(**{**values, **fields}),
        )  # fmt: skip
        return Numerics(1e-4, 1e-4, "float64", "none", (Trial(0, False, (output,)),), Precision.WORSE, True)

    return make
