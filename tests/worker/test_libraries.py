"""Candidates that call NVIDIA's libraries: what the emulated device serves is checked, the rest decides nothing."""

from __future__ import annotations

import pytest
from tests.worker.conftest import Run

from kernelwright.records import Verdict, VerdictWord

pytestmark = pytest.mark.emu

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, w):
        return torch.relu(x @ w.t())


def get_inputs():
    return [torch.randn(33, 48), torch.randn(40, 48)]


def get_init_inputs():
    return []
"""
CANDIDATE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>

__global__ void relu(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(y[i], 0.f);
}

torch::Tensor run(torch::Tensor x, torch::Tensor w) {
    int m = x.size(0), k = x.size(1), n = w.size(0);
    auto y = torch::empty({m, n}, x.options());
    cublasHandle_t handle;
    cublasCreate(&handle);
    const float one = 1.f, zero = 0.f;
    cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, w.data_ptr<float>(), k, x.data_ptr<float>(), k, &zero,
                y.data_ptr<float>(), n);
    cublasDestroy(handle);
    relu<<<(m * n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>(), m * n);
    return y;
}
"""
ext = load_inline(name="blas_ext", cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor w);",
                  cuda_sources=CUDA, functions=["run"], extra_ldflags=["-lcublas"])


class ModelNew(torch.nn.Module):
    def forward(self, x, w):
        return ext.run(x, w)
'''


def checked(run: Run, old: str = "", new: str = "") -> Verdict:
    assert old in CANDIDATE
    return run(CANDIDATE.replace(old, new) if old else CANDIDATE, PROBLEM, device="emulated", confirm=False)


def line(piece: str) -> int:
    return 1 + next(number for number, text in enumerate(CANDIDATE.splitlines()) if piece in text)


def test_a_product_of_cublas_is_the_references(run: Run) -> None:
    verdict = checked(run)
    assert verdict.verdict is VerdictWord.CORRECT, verdict.causes
    assert [record.tier for record in verdict.build] == ["fast"]
    assert verdict.numerics is not None
    assert verdict.numerics.trials[0].outputs[0].max_abs_error < 1e-4


def test_its_header_is_no_part_of_the_users_where_the_real_headers_confirm(run: Run) -> None:
    verdict = run(CANDIDATE, PROBLEM, device="emulated", timeout_s=200.0)
    assert [(record.confirmed, record.confirm_note) for record in verdict.build] == [(True, "splice")]


def test_pytorchs_own_handle_is_one(run: Run) -> None:
    lent = CANDIDATE.replace("    cublasCreate(&handle);\n", "").replace("    cublasDestroy(handle);\n", "")
    lent = lent.replace("cublasHandle_t handle;", "cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();")
    verdict = run(lent, PROBLEM, device="emulated", confirm=False)
    assert verdict.verdict is VerdictWord.CORRECT, verdict.causes


@pytest.mark.parametrize(
    ("old", "new", "what", "at"),
    [
        ("#include <cublas_v2.h>", "#include <cudnn.h>", "cudnn.h", "#include <cublas_v2.h>"),
        ("cublasDestroy(handle);", "cublasSger(handle, 1, 1, &one, 0, 1, 0, 1, 0, 1);", "cublasSger", "cublasDestroy("),
    ],
)
def test_what_is_not_served_decides_nothing_and_is_named_at_its_line(
    run: Run, old: str, new: str, what: str, at: str
) -> None:
    verdict = checked(run, old, new)
    assert verdict.verdict is VerdictWord.UNSURE
    (cause,) = verdict.causes
    assert (cause.id, cause.line) == ("device.refused", line(at))
    assert f"does not know {what}, which belongs to a library of NVIDIA's" in cause.sentence
