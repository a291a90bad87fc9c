"""A shuffle taken for a block-wide broadcast is named only beside a wrong result."""

from kernelwright.explain import explain
from kernelwright.records import (
    Evidence,
    Finding,
    Numerics,
    OutputNumerics,
    SourceLine,
    Stage,
    StageResult,
    StageStatus,
    Suspicion,
    Trial,
)  # fmt: skip

TEXT = "\n".join(["# candidate", "v = part[lane];", "v = __shfl_sync(~0u, v, 0);"])


def evidence(*, passed: bool, findings: tuple[Finding, ...] = ()) -> Evidence:
    output = OutputNumerics("output", (4,), "float32", 1.0, 1.0, 0.0, 0.0, None, passed, None)
    numerics = Numerics(1e-4, 1e-4, "float64", "none", (Trial(0, passed, (output,)),), None, True)
    here = (SourceLine("sm_30_intrinsics.hpp", 422), SourceLine("candidate.py", 3))
    suspicion = Suspicion(
        "warp.block-broadcast",
        "k(float*)",
        here,
        (256, 1, 1),
        holders=(0,),
        others=(1, 2, 3, 4, 5, 6, 7),
        source=(SourceLine("candidate.py", 2),),
    )
    status = StageStatus.PASSED if passed else StageStatus.FAILED
    return Evidence(
        "problem.py",
        "candidate.py",
        TEXT,
        (StageResult(Stage.JUDGE, status),),
        numerics=numerics,
        suspicions=(suspicion,),
        findings=findings,
    )


def test_a_wrong_result_and_the_pattern_name_the_shuffle_and_the_warps() -> None:
    (cause,) = explain(evidence(passed=False))
    assert (cause.id, cause.line, cause.text) == ("warp.block-broadcast", 3, "v = __shfl_sync(~0u, v, 0);")
    assert "warp 0 of 8 broadcasts the block's result, warps 1-7 their own leftover value" in cause.sentence
    assert any("line 2: v = part[lane];" in fact for fact in cause.evidence)


def test_the_pattern_is_silent_beside_a_right_result() -> None:
    assert explain(evidence(passed=True)) == ()


def test_a_fault_of_the_run_explains_better_than_the_pattern() -> None:
    fault = Finding("memory.out-of-bounds", "k(float*)", (SourceLine("candidate.py", 2),), (0, 0, 0), (0, 0, 0))
    assert [cause.id for cause in explain(evidence(passed=False, findings=(fault,)))] == ["memory.out-of-bounds"]
