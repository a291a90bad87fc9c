"""What a GPU does not explain, on a real one: the cause comes from the emulated device, the verdict does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.check import CheckOptions, check
from kernelwright.explain import UNEXPLAINED
from kernelwright.records import Verdict, VerdictWord

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

PROBLEM = """
import torch

ROWS = 64
COLUMNS = 1024


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
RIGHT = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAException.h>

__global__ void total(const float* x, float* y, int columns) {
    extern __shared__ float part[];
    const float* row = x + (size_t)blockIdx.x * columns;
    float sum = 0.f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i];
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; ++w) sum += part[w];
        y[blockIdx.x] = sum;
    }
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    total<<<x.size(0), 256, 8 * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
ext = load_inline(name="total_ext", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA,
                  functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.run(x)
'''


def checked(tmp_path: Path, right: str, faulty: str, *, replay: bool = True) -> tuple[Verdict, int]:
    """The verdict on the candidate with ``right`` replaced, and the number of the line that holds ``faulty``."""
    assert right in RIGHT
    text = RIGHT.replace(right, faulty)
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "candidate.py").write_text(text)
    options = CheckOptions(device="cuda", timing=False, trials=1, replay=replay)
    verdict = check(tmp_path / "problem.py", tmp_path / "candidate.py", options=options, progress=print)
    return verdict, 1 + next(n for n, line in enumerate(text.splitlines()) if faulty in line)


def test_the_twin_is_right_and_nothing_is_replayed(tmp_path: Path) -> None:
    verdict, _ = checked(tmp_path, "ext.run(x)", "ext.run(x)")
    assert (verdict.verdict, verdict.causes, verdict.findings) == (VerdictWord.CORRECT, (), ())


def test_a_wrong_result_gets_the_line_that_the_emulated_device_saw(tmp_path: Path) -> None:
    faulty = "total<<<x.size(0) - 1, 256, 8 * sizeof(float)>>>"
    verdict, _ = checked(tmp_path, "total<<<x.size(0), 256, 8 * sizeof(float)>>>", faulty)
    assert verdict.verdict is VerdictWord.WRONG
    cause = verdict.causes[0]
    assert cause.id == "memory.unwritten-output"
    assert cause.evidence[-1] == "seen on the emulated device at the same size"
    left, _ = checked(tmp_path, "total<<<x.size(0), 256, 8 * sizeof(float)>>>", faulty, replay=False)
    assert [cause.id for cause in left.causes] == [UNEXPLAINED]


def test_a_launch_error_gets_its_limit(tmp_path: Path) -> None:
    faulty = "total<<<x.size(0), 256, 65536>>>"
    verdict, line = checked(tmp_path, "total<<<x.size(0), 256, 8 * sizeof(float)>>>", faulty)
    assert verdict.verdict is VerdictWord.FAILED
    assert [(cause.id, cause.line) for cause in verdict.causes] == [("launch.shared-memory", line)]
