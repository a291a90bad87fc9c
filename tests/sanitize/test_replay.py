"""A crash that no tool can look at, replayed: the real emulated device, at a size that was chosen by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.check import CheckOptions, check
from kernelwright.explain import explain
from kernelwright.problem.layout import outline
from kernelwright.records import (
    Confidence,
    DeviceFact,
    Evidence,
    ExceptionFact,
    Stage,
    StageResult,
    StageStatus,
    Verdict,
    VerdictWord,
)
from kernelwright.sanitize import Question, crashed, sanitize, tools
from kernelwright.sanitize.report import Log, Place, Report
from kernelwright.worker.alone import Alone

pytestmark = pytest.mark.emu

PROBLEM = """
import torch

ROWS = 65536
COLUMNS = 1000003


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
CANDIDATE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>

__global__ void total(const float* x, float* y, int columns) {
    const float4* row = reinterpret_cast<const float4*>(x + (long long)blockIdx.x * columns);
    float sum = 0.f;
    for (int i = threadIdx.x; i < columns / 4; i += 32) sum += row[i].x + row[i].y + row[i].z + row[i].w;
    atomicAdd(&y[blockIdx.x], sum);
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::zeros({x.size(0)}, x.options());
    total<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""
ext = load_inline(name="total_ext", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA,
                  functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.run(x)
'''
LINE = 11
MISALIGNED = ExceptionFact("torch.AcceleratorError", "CUDA error: misaligned address")


@pytest.fixture
def question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Question:
    problem, candidate = tmp_path / "problem.py", tmp_path / "candidate.py"
    problem.write_text(PROBLEM)
    candidate.write_text(CANDIDATE)
    monkeypatch.setattr(tools, "find", lambda: None)
    alone = Alone(str(problem), str(candidate), CANDIDATE, {}, 0, 1, "none", "forward", "")
    constants = outline(problem, {}).constants
    return Question(alone, constants, asked=False, crashed=crashed(MISALIGNED, None), hung=False, timeout_s=60)


def emulated(question: Question) -> Verdict:
    def replay(sets: Mapping[str, str], timeout_s: float) -> Verdict:
        options = CheckOptions(
            sets=dict(sets), device="emulated", trials=1, timeout_s=timeout_s, confirm=False, timing=False
        )
        return check(Path(question.alone.problem), Path(question.alone.candidate), options=options, progress=print)

    made = sanitize(question, replay, print)
    evidence = Evidence(
        problem_file=question.alone.problem,
        candidate_file=question.alone.candidate,
        candidate_text=CANDIDATE,
        stages=(StageResult(Stage.RUN, StageStatus.FAILED),),
        exception=MISALIGNED,
        findings=made.findings,
        device=DeviceFact("cuda", "NVIDIA H200", "9.0"),
    )
    causes = made.all_causes(explain(evidence))
    return Verdict(VerdictWord.FAILED, "p", "c", (), causes=causes, findings=made.findings, notes=made.notes)


def test_a_ragged_size_shows_the_same_misaligned_access_at_a_thousandth_of_it(question: Question) -> None:
    made = emulated(question)
    (cause,) = made.causes
    assert (cause.id, cause.line, cause.confidence) == ("memory.misaligned", LINE, Confidence.LIKELY)
    assert cause.evidence[-1] == "seen on the emulated device at ROWS=1024, COLUMNS=1603"
    assert made.notes == ("memcheck (compute-sanitizer was not found)",)


def test_with_memchecks_word_on_the_same_line_it_is_certain(
    question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report(
        "invalid", (Place("total(const float *, float *, int)", "candidate.py", LINE),), access="read", space="global",
        bytes=16, block=(1, 0, 0), address=0x1004, misaligned=True, near=0x1000, near_bytes=1 << 36,
    )  # fmt: skip
    tensors = [{"name": "input 0", "address": 0x1000, "bytes": 1 << 36, "dtype": "float32", "shape": [65536, 1000003]}]
    run = tools.Run("memcheck", Log((report,), True), known={"tensors": tensors})
    monkeypatch.setattr(tools, "find", lambda: Path("compute-sanitizer"))
    monkeypatch.setattr(tools, "run_all", lambda *args, **more: [run])
    made = emulated(replace(question, asked=False))
    (cause,) = made.causes
    assert (cause.id, cause.line, cause.confidence) == ("memory.misaligned", LINE, Confidence.CERTAIN)
    assert cause.evidence[-1] == (
        "seen on the emulated device at ROWS=1024, COLUMNS=1603 and by compute-sanitizer memcheck on the GPU"
    )
    assert made.findings[0].allocation is not None
    assert made.findings[0].allocation.shape == (1024, 1603)
