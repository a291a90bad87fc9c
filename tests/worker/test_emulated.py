"""A whole check on the emulated device: the right kernel, and one that never ends."""

from __future__ import annotations

import pytest
from tests.worker.conftest import Run

from kernelwright.check import exit_status
from kernelwright.counters import metrics as m
from kernelwright.records import Stage, VerdictWord

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


def test_a_problem_that_asks_for_a_gpu_by_name_needs_none(run: Run) -> None:
    problem = PROBLEM.replace("torch.randn(64, 100)", "torch.randn(64, 100, device='cuda')")
    problem = problem.replace("2 * x + 1", "2 * x + torch.ones(1).cuda()")
    verdict = run(
        CANDIDATE.replace("{body}", "if (i < n) y[i] = 2 * x[i] + 1;"), problem, device="emulated", confirm=False
    )
    assert verdict.verdict is VerdictWord.CORRECT, verdict.causes
    assert verdict.numerics is not None
    assert verdict.numerics.oracle == "float64"


def test_extensions_that_are_built_side_by_side_take_the_time_of_both_only_once(run: Run) -> None:
    text = CANDIDATE.replace("{body}", "if (i < n) y[i] = SCALE * x[i] + SHIFT;").replace(
        """ext = load_inline(name="affine_ext", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA,
                  functions=["run"])
""",
        """from concurrent.futures import ThreadPoolExecutor

def built(scale):
    source = CUDA.replace("SCALE", scale).replace("SHIFT", "1" if scale == "2" else "0")
    return load_inline(name="affine" + scale, cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=source,
                       functions=["run"])

with ThreadPoolExecutor(2) as pool:
    double, same = pool.map(built, ["2", "1"])
""",
    )
    text = text.replace("return ext.run(x)", "return double.run(same.run(x))")
    verdict = run(text, PROBLEM, device="emulated", confirm=False)
    assert verdict.verdict is VerdictWord.CORRECT, verdict.causes
    assert sorted((record.name, record.ok) for record in verdict.build) == [("affine1", True), ("affine2", True)]
    (took,) = [stage.seconds for stage in verdict.stages if stage.stage is Stage.BUILD]
    one, other = sorted(record.seconds for record in verdict.build)
    # They began together: whatever of the shorter one was on its own is what the stage took beyond the longer one.
    assert other - 0.05 <= took < one + other


def test_an_instruction_that_is_not_emulated_decides_nothing_and_is_named_at_its_line(run: Run) -> None:
    body = "if (i < n) y[i] = tex1Dfetch<float>(0, i);"
    verdict = run(CANDIDATE.replace("{body}", body), PROBLEM, device="emulated", confirm=False)
    assert verdict.verdict is VerdictWord.UNSURE
    assert exit_status(verdict) == 1
    stages = {stage.stage.value: (stage.status.value, stage.note) for stage in verdict.stages}
    assert stages["run"] == ("not_run", "not checked: the emulated device does not know tex.1d.v4.f32.s32")
    assert stages["judge"] == ("not_run", "run was not finished")
    (cause,) = verdict.causes
    assert (cause.id, cause.line) == ("device.refused", BODY_LINE)
    assert "Nothing was decided about the candidate." in cause.sentence


def test_counters_are_of_one_forward_pass_and_bring_advice_without_changing_the_word(run: Run) -> None:
    body = "int j = i % 100 * 64 + i / 100; if (i < n) y[j] = 2 * x[j] + 1;"
    verdict = run(CANDIDATE.replace("{body}", body), PROBLEM, device="emulated", confirm=False, counted=True)
    assert verdict.verdict is VerdictWord.CORRECT and verdict.causes == ()
    assert verdict.counters is not None
    (kernel,) = verdict.counters
    assert (kernel.launches, kernel.grid, verdict.launches[0].count) == (1, (50, 1, 1), 2)
    assert kernel.metrics[m.requests("global", "ld")] == 200
    assert (verdict.advice[0].id, verdict.advice[0].line) == ("performance.uncoalesced", BODY_LINE)


@pytest.mark.slow
def test_a_kernel_that_never_ends_is_stopped_at_its_line(run: Run) -> None:
    body = "volatile float* v = y; while (v[i % n] == v[i % n] || n > 0) { }"
    verdict = run(CANDIDATE.replace("{body}", body), PROBLEM, device="emulated", confirm=False, timeout_s=60.0)
    assert verdict.verdict is VerdictWord.FAILED
    (note,) = [stage.note for stage in verdict.stages if stage.note.startswith("it ran out of time")]
    assert note == "it ran out of time during kernel affine(float const*, float*, int)<<<(50, 1, 1), (128, 1, 1)>>>"
    assert verdict.causes[0].line == BODY_LINE


def test_a_launch_that_wants_more_registers_than_there_are_is_refused_by_ptxas_own_count(run: Run) -> None:
    body = """float a[96]; float s = 0.f;
#pragma unroll
    for (int k = 0; k < 96; ++k) a[k] = x[(i * 7 + k * 13) % n];
#pragma unroll
    for (int k = 0; k < 96; ++k) s += a[k] * a[(k * 5 + 31) % 96] * a[(k * 7 + 5) % 96];
    if (i < n) y[i] = s;"""
    text = CANDIDATE.replace("{body}", body).replace("127) / 128, 128>>>", "1023) / 1024, 1024>>>")
    verdict = run(text, PROBLEM, device="emulated", confirm=False, trials=1)
    (kernel,) = verdict.build[0].kernels
    assert kernel.name == "affine(float const*, float*, int)"
    assert kernel.registers > 64
    assert [cause.id for cause in verdict.causes] == ["launch.registers", "launch.unchecked"]
    assert f"1024 threads of {-(-kernel.registers // 8) * 8} registers" in verdict.causes[0].sentence


def test_a_kernel_that_leaves_its_slice_of_a_tensor_is_told_so_beside_the_wrong_result(run: Run) -> None:
    body = "if (i < n) y[i] = 2 * x[i + 100] + 1;"
    whole = CANDIDATE.replace("{body}", body).replace(
        "        return ext.run(x)", "        return torch.cat([ext.run(x[:32]), 2 * x[32:] + 1])"
    )
    verdict = run(whole.replace("i + 100", "i"), PROBLEM, device="emulated", confirm=False)
    assert verdict.verdict is VerdictWord.CORRECT
    verdict = run(whole.replace("i + 100", "i < 3000 ? i : i + 100"), PROBLEM, device="emulated", confirm=False)
    assert verdict.verdict is not VerdictWord.CORRECT
    named = [cause for cause in verdict.causes if cause.id == "memory.out-of-bounds"]
    assert named and named[0].line == BODY_LINE
    assert "the view that was passed" in named[0].sentence
