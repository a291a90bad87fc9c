"""Verdicts made by hand: one with everything in it, and a plain correct one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.counters import metrics as m
from kernelwright.counters.records import KernelCode, KernelCounters, LineCounters
from kernelwright.records import (
    Allocation,
    BuildRecord,
    Cause,
    Confidence,
    DeviceFact,
    Diagnostic,
    Finding,
    KernelFacts,
    LaunchFact,
    Mismatch,
    Numerics,
    OutputNumerics,
    Precision,
    SanitizerFact,
    SourceLine,
    Stage,
    StageResult,
    StageStatus,
    Trial,
    Verdict,
    VerdictWord,
)

SOURCE = '''SOURCE = r"""
__global__ void double_rows(const float* x, float* y, int rows, int columns) {
    int row = blockIdx.x;
    for (int column = threadIdx.x; column <= columns; column += blockDim.x) y[row * columns + column] = 2 * x[column];
}
"""
'''

_COPIED = {
    m.requests("global", "ld"): 1024.0,
    m.sectors("global", "ld"): 32768.0,
    m.ideal_sectors("ld"): 4096.0,
    m.shared_requests("st"): 64.0,
    m.wavefronts("st"): 64.0,
    m.ideal_wavefronts("st"): 64.0,
}
COUNTED = KernelCounters(
    "double_rows(float const*, float*, int, int)",
    (64, 1, 1),
    (128, 1, 1),
    launches=3,
    metrics=m.derived(
        {
            m.INST: 5120.0,
            m.THREAD_INST: 81920.0,
            m.BRANCHES_UNIFORM: 75.0,
            m.BRANCHES_DIVERGENT: 25.0,
            **_COPIED,
            m.COMPULSORY_READ: 131072.0,
            m.COMPULSORY_WRITE: 131072.0,
            m.ATOMICS: 96.0,
            m.ATOMIC_HOTTEST: 32.0,
            m.ATOMIC_ADDRESSES: 3.0,
            m.flops("fmul"): 40960.0,
            m.flop("fp32"): 40960.0,
            m.OCCUPANCY: 50.0,
            m.LIMIT_BLOCKS: 32.0,
            m.LIMIT_REGISTERS: 16.0,
            m.LIMIT_SHARED: 32.0,
            m.LIMIT_WARPS: 16.0,
            m.WAVES: 0.03,
        }
    ),
    lines=(LineCounters((SourceLine("candidate.py", 4, "y[row] = 2 * x[column];", "double_rows"),), _COPIED),),
    instructions={"ld.global.f32": 1024.0},
    code=KernelCode("sm_90", 32, 0, 0, 0, 0, {"LDG": 1, "STG": 1}),
    not_checked=("the caches: the emulated device has none",),
)
"""Every part of a counted kernel's screen."""  # fmt: skip

EMULATED = DeviceFact(
    "emulated", "NVIDIA H200", "9.0", "h200", ("exact: memory, integer, fp32", "approximate: ex2.approx")
)


def stages(stopped: Stage | None) -> tuple[StageResult, ...]:
    """All passed but for measuring, or stopped at one."""
    found = []
    for number, stage in enumerate(Stage):
        if stage is Stage.MEASURE or (stopped is not None and number > list(Stage).index(stopped)):
            found.append(StageResult(stage, StageStatus.NOT_RUN, note="nothing was timed"))
        elif stage is stopped:
            found.append(StageResult(stage, StageStatus.FAILED, 0.42, "an output is not the reference's"))
        else:
            found.append(StageResult(stage, StageStatus.PASSED, 1.5))
    return tuple(found)


@pytest.fixture
def everything(tmp_path: Path) -> Verdict:
    """A failed check with every record in it, NaN and infinity included; its candidate lies in a real file."""
    candidate = tmp_path / "candidate.py"
    candidate.write_text(SOURCE, encoding="utf-8")
    line = SourceLine("candidate.py", 4, "for (int column …", "double_rows")
    mismatch = Mismatch(
        3,
        4096,
        1,
        1,
        1,
        1,
        "column 0 of axis 1; rows 1 to 3 of axis 0",
        (1, 0),
        float("nan"),
        2.5,
        (2, 0),
        float("inf"),
        1.0,
    )
    output = OutputNumerics(
        "output",
        (64, 64),
        "float32",
        float("nan"),
        float("inf"),
        2.4e-7,
        3.1e-8,
        None,
        False,
        Precision.WORSE,
        mismatch,
    )
    fine = OutputNumerics("output", (64, 64), "float32", 2.4e-7, 3.3e-8, 2.4e-7, 3.1e-8, 1.06, True, Precision.FP32)
    return Verdict(
        verdict=VerdictWord.FAILED,
        problem="problem.py",
        candidate=str(candidate),
        stages=stages(Stage.JUDGE),
        causes=(
            Cause(
                "memory.out-of-bounds",
                Stage.RUN,
                "thread (64,0,0) of block (63,0,0) in double_rows writes 4 bytes at byte offset 16384 of y "
                "(torch.empty), float32 [64, 64], 16384 bytes: 0 bytes past its end.",
                file=str(candidate),
                line=4,
                text="for (int column = threadIdx.x; …",
                evidence=("that is element 4096 of a tensor whose last element is 4095", "at least 64 threads did so"),
                fix="column <= columns lets one index too many through: write column < columns.",
            ),
            Cause(
                "semantic.mutates-input",
                Stage.JUDGE,
                "The candidate changes input 0.",
                confidence=Confidence.LIKELY,
            ),
        ),
        build=(
            BuildRecord(
                "double_rows_ext",
                "fast",
                False,
                2.41,
                True,
                True,
                diagnostics=(Diagnostic("nvcc", "warning", "variable n was set but never used", "candidate.py", 3),),
                kernels=(
                    KernelFacts("double_rows", 32, 0, 0, 0, 0),
                    KernelFacts("spilling", 255, 49152, 128, 256, 512, 16),
                ),
                call_line=8,
            ),
        ),
        numerics=Numerics(
            1e-4, 1e-4, "float64", "none", (Trial(0, True, (fine,)), Trial(1, False, (output,))), Precision.WORSE,
            False, ("zeros", "mean"), ("input 0",),
        ),
        counters=(COUNTED,),
        launches=(
            LaunchFact(
                "double_rows(float const*, float*, int, int)", (64, 1, 1), (128, 1, 1), 0, thread_instructions=81920,
                count=3,
            ),
            LaunchFact(
                "spilling", (1, 1, 1), (2048, 1, 1), 65536, error=9, error_name="cudaErrorInvalidConfiguration",
                limit="launch.block-limit", message="2048 threads; the device allows 1024", site=line,
            ),
        ),
        sanitizers=(
            SanitizerFact("memcheck", 3, 8.0),
            SanitizerFact("racecheck", 0, 9.5),
            SanitizerFact("synccheck", 0, 60.0, "it did not end within 60 s, in forward"),
        ),
        findings=(
            Finding(
                "memory.out-of-bounds", "double_rows", (line,), (63, 0, 0), (64, 0, 0), "store", "global", 4, 4096,
                16384, Allocation("global", 16384, "y (torch.empty)", "float32", (64, 64), line), 64,
            ),
            Finding("sync.shared-race", "double_rows", (line,), (1, 0, 0), (2, 0, 0), "store", "shared", 4),
        ),
        device=EMULATED,
        versions={"kernelwright": "0.1.0"},
        notes=("the oracle of trial 2: out of time",),
        candidate_stdout="hello\n",
        candidate_stderr="a warning\n",
        seconds=12.34,
    )  # fmt: skip


@pytest.fixture
def correct() -> Verdict:
    """A correct candidate on the emulated device."""
    output = OutputNumerics("output", (64, 64), "float32", 2.4e-7, 3.3e-8, 2.4e-7, 3.1e-8, 1.06, True, Precision.FP32)
    return Verdict(
        verdict=VerdictWord.CORRECT,
        problem="problem.py",
        candidate="candidate.py",
        stages=stages(None),
        build=(BuildRecord("ext", "fast", True, 0.01, True, None, kernels=(KernelFacts("k", 32, 1024, 0, 0, 0),)),),
        numerics=Numerics(1e-4, 1e-4, "float64", "rng", (Trial(0, True, (output,)),), Precision.FP32, True),
        launches=(LaunchFact("k", (64, 1, 1), (128, 1, 1), 0),),
        device=EMULATED,
        seconds=3.2,
    )
