"""Cheats that launch nothing of their own, on a real GPU, each beside its honest twin."""

from __future__ import annotations

import pytest
import torch
from tests.worker.conftest import Run
from tests.worker.test_conduct import CANDIDATE, CONSTANT_PROBLEM

from kernelwright.judge.launched import launched, own
from kernelwright.records import VerdictWord

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

BUILT = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void halve(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] / 2;
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    halve<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
ext = load_inline(name="halve_ext", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA,
                  functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.softmax(x, 1).mean(1)
        return {body}
'''
DECOY_LINE = 1 + next(n for n, line in enumerate(BUILT.splitlines()) if "torch.softmax" in line)


def checked(run: Run, text: str) -> tuple[VerdictWord, list[tuple[str, int]]]:
    verdict = run(text, CONSTANT_PROBLEM, device="cuda", trials=2, timing=False)
    return verdict.verdict, [(cause.id, cause.line) for cause in verdict.causes]


def test_a_constant_is_told_from_its_honest_twin(run: Run) -> None:
    constant = CANDIDATE.format(body="torch.full((x.size(0),), 1 / x.size(1), device=x.device)")
    assert checked(run, constant) == (VerdictWord.CHEATING, [("cheat.constant-output", 10)])
    honest = CANDIDATE.format(body="torch.softmax(x, 1).sum(1) / x.size(1)")
    assert checked(run, honest) == (VerdictWord.CORRECT, [])


def test_a_decoy_is_told_from_a_candidate_whose_kernel_runs(run: Run) -> None:
    decoy = BUILT.replace("{body}", "y if not self.training or True else ext.run(y)")
    assert checked(run, decoy) == (VerdictWord.CHEATING, [("cheat.calls-reference", DECOY_LINE)])
    honest = BUILT.replace("{body}", "2 * ext.run(y)")
    assert checked(run, honest) == (VerdictWord.CORRECT, [])


def test_the_driver_tells_libraries_kernels_by_names_that_are_known() -> None:
    x = torch.randn(256, 1024, device="cuda")
    w, image = torch.randn(1024, 1024, device="cuda"), torch.randn(4, 8, 32, 32, device="cuda")
    taps, half = torch.randn(8, 8, 3, 3, device="cuda"), x.half()

    def forward() -> None:
        torch.softmax(x @ w, 1).sum(0).sort()
        torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (1024,))).max(1)
        torch.nn.functional.conv2d(image, taps).mean()
        torch.cumsum(half @ half.t(), 1).clone()
        torch.mv(w, x[0]).zero_()

    names = launched(forward)
    assert names is not None and len(names) > 8
    assert own(names, ()) == ()
