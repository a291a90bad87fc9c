"""A whole check on the emulated device: the right kernel, and one that never ends."""

from __future__ import annotations

import pytest
from tests.worker.conftest import Run

from kernelwright.records import VerdictWord

pytestmark = pytest.mark.emu

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x + 1


def get_inputs():
    return [torch.randn(64, 100)]


def get_init_inputs():
    return []
"""

CANDIDATE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>

__global__ void affine(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    affine<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
ext = load_inline(name="affine_ext", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA,
                  functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.run(x)
'''
BODY_LINE = 10


def test_a_right_kernel_is_correct_and_its_launches_are_counted(run: Run) -> None:
    body = "if (i < n) y[i] = 2 * x[i] + 1;"
    verdict = run(CANDIDATE.replace("{body}", body), PROBLEM, device="emulated", confirm=False, trials=2)
    assert verdict.verdict is VerdictWord.CORRECT
    assert verdict.device is not None
    assert verdict.device.kind == "emulated"
    (launch,) = verdict.launches
    assert (launch.grid, launch.block, launch.count) == ((50, 1, 1), (128, 1, 1), 3)
    assert [record.ok for record in verdict.build] == [True]


@pytest.mark.slow
def test_a_kernel_that_never_ends_is_stopped_at_its_line(run: Run) -> None:
    body = "volatile float* v = y; while (v[i % n] == v[i % n] || n > 0) { }"
    verdict = run(CANDIDATE.replace("{body}", body), PROBLEM, device="emulated", confirm=False, timeout_s=60.0)
    assert verdict.verdict is VerdictWord.FAILED
    (note,) = [stage.note for stage in verdict.stages if stage.note.startswith("it ran out of time")]
    assert note == "it ran out of time during kernel affine(float const*, float*, int)<<<(50, 1, 1), (128, 1, 1)>>>"
    assert verdict.causes[0].line == BODY_LINE
