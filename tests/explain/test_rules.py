"""Each rule on evidence made for it: the id, the line, and the numbers that the sentence must hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelwright.explain import CAUSES, UNEXPLAINED, explain
from kernelwright.records import (
    Allocation,
    BuildRecord,
    Confidence,
    DeviceFact,
    Evidence,
    ExceptionFact,
    Finding,
    LaunchFact,
    Numerics,
    OutputFact,
    ProcessExit,
    SourceLine,
    Stage,
    StageResult,
    StageStatus,
    Trial,
)

pytestmark = pytest.mark.tiny

Make = Callable[..., Any]
At = Callable[[str], int]


def test_an_off_by_one_bound_names_the_thread_the_tensor_and_the_line(evidence: Make, finding: Make, at: At) -> None:
    line = at("if (i <= n)")
    out = Allocation("global", 1000, "y (torch.empty_like)", "Float", (250,))
    seen = finding("memory.out-of-bounds", line, block=(3, 0, 0), thread=(58, 0, 0), offset=1000, allocation=out)
    cause = explain(evidence(findings=(seen,)))[0]
    assert (cause.id, cause.line, cause.confidence) == ("memory.out-of-bounds", line, Confidence.CERTAIN)
    assert cause.sentence == (
        "thread (58,0,0) of block (3,0,0) in scale writes 4 bytes at byte offset 1000 of y (torch.empty_like), "
        "float32 [250], 1000 bytes: 0 bytes past its end."
    )
    assert "that is element 250 of a tensor whose last element is 249" in cause.evidence
    assert cause.fix == "i <= n lets one index too many through: write i < n."


def test_an_access_before_the_start_is_said_to_be_negative(evidence: Make, finding: Make, at: At) -> None:
    seen = finding(
        "memory.out-of-bounds", at("if (i <= n)"), access="load", offset=-8, allocation=Allocation("global", 64, "x")
    )
    cause = explain(evidence(findings=(seen,)))[0]
    assert "reads 4 bytes at byte offset -8 of x, 64 bytes: 8 bytes before its start" in cause.sentence
    assert "negative" in cause.fix


def test_the_line_is_the_innermost_in_the_candidate_and_headers_are_skipped(
    evidence: Make, finding: Make, at: At
) -> None:
    inner, outer = at("T twice(T v)"), at("if (i <= n)")
    frames = (
        SourceLine("/cuda/include/cuda_fp16.hpp", 900),
        SourceLine("candidate.py", inner, function="twice"),
        SourceLine("candidate.py", outer, function="scale"),
    )
    cause = explain(evidence(findings=(finding("memory.out-of-bounds", 0, frames=frames),)))[0]
    assert cause.line == inner
    assert any(f"called from candidate.py:{outer} in scale" in fact for fact in cause.evidence)


def test_a_raw_pointer_parameter_is_named_at_the_wrapper_that_launches(evidence: Make, finding: Make, at: At) -> None:
    seen = finding("interface.raw-pointer", at("if (i <= n)"), allocation=Allocation("binding-temporary", 4), offset=0)
    cause = explain(evidence(findings=(seen,)))[0]
    assert (cause.id, cause.line) == ("interface.raw-pointer", at("void scale_raw("))
    assert "scale_raw takes raw pointers (const float* in, float* out)" in cause.sentence


def test_the_kind_of_memory_decides_even_where_the_device_called_it_out_of_bounds(
    evidence: Make, finding: Make, at: At
) -> None:
    seen = finding("memory.out-of-bounds", at("if (i <= n)"), allocation=Allocation("binding-temporary", 4), offset=400)
    assert explain(evidence(findings=(seen,)))[0].id == "interface.raw-pointer"


def test_a_cpu_tensor_is_named_where_it_is_made(evidence: Make, finding: Make, at: At) -> None:
    seen = finding("interface.host-memory", at("if (i <= n)"), allocation=Allocation("host", 400), offset=0)
    cause = explain(evidence(findings=(seen,)))[0]
    assert (cause.id, cause.line) == ("interface.host-memory", at("auto host = torch::zeros"))


def test_a_recorded_allocation_site_beats_the_text(evidence: Make, finding: Make, at: At) -> None:
    site = SourceLine("candidate.py", at("auto y = torch::empty_like"))
    seen = finding("interface.host-memory", at("if (i <= n)"), allocation=Allocation("host", 400, site=site), offset=0)
    assert explain(evidence(findings=(seen,)))[0].line == site.line


def test_a_misaligned_first_thread_is_explained_by_the_slice_that_was_passed(
    evidence: Make, finding: Make, at: At
) -> None:
    parent = Allocation("global", 400, "input 0", "float32", (100,))
    seen = finding("memory.misaligned", at("if (i <= n)"), bytes=16, address=0x1000C, offset=12, allocation=parent)
    cause = explain(evidence(findings=(seen,)))[0]
    assert (cause.id, cause.line) == ("memory.misaligned", at("view = x[3:]"))
    assert "the address is 12 bytes past a multiple of 16" in cause.evidence


def test_a_misaligned_later_thread_stays_at_its_access(evidence: Make, finding: Make, at: At) -> None:
    parent = Allocation("global", 400, "input 0", "float32", (10, 10))
    line = at("if (i <= n)")
    seen = finding("memory.misaligned", line, bytes=16, block=(1, 0, 0), address=0x10028, offset=40, allocation=parent)
    assert explain(evidence(findings=(seen,)))[0].line == line


def test_an_overrun_array_is_named_where_it_is_declared(evidence: Make, finding: Make, at: At) -> None:
    seen = finding(
        "memory.local-overrun", at("window[i % 5] ="), space="local", offset=12, allocation=Allocation("local", 12)
    )
    assert explain(evidence(findings=(seen,)))[0].line == at("float window[3]")


def refused(at: At, **fields: Any) -> LaunchFact:
    values: dict[str, Any] = {
        "kernel": "scale(float const*, float*, int)",
        "grid": (4, 1, 1),
        "block": (64, 32, 1),
        "dynamic_shared_bytes": 0,
        "error": 9,
        "error_name": "cudaErrorInvalidConfiguration",
        "limit": "launch.block-limit",
        "message": "block of 64 x 32 x 1 = 2048 threads; the device allows 1024",
        "site": SourceLine("candidate.py", at("scale<<<blocks, threads>>>")),
    }
    return LaunchFact(**{**values, **fields})


def test_a_refused_block_is_named_where_its_size_is_declared_and_that_nobody_looked_comes_second(
    evidence: Make, at: At
) -> None:
    first, second = explain(evidence(launches=(refused(at),)))
    assert (first.id, first.line) == ("launch.block-limit", at("dim3 threads(64, 32)"))
    assert "2048 threads; the device allows 1024" in first.sentence
    assert (second.id, second.line) == ("launch.unchecked", at("scale<<<blocks, threads>>>"))


def test_a_refused_launch_that_raised_was_not_unchecked(evidence: Make, at: At) -> None:
    error = ExceptionFact("RuntimeError", "CUDA error: invalid configuration argument")
    causes = explain(evidence(launches=(refused(at, limit="launch.grid-limit"),), exception=error))
    assert [(cause.id, cause.line) for cause in causes] == [("launch.grid-limit", at("dim3 blocks("))]


def test_what_a_refused_launch_left_unwritten_is_no_cause_of_its_own(evidence: Make, wrong: Make, at: At) -> None:
    causes = explain(evidence(launches=(refused(at),), numerics=wrong(unwritten=256, count=256)))
    assert [cause.id for cause in causes] == ["launch.block-limit", "launch.unchecked"]


def test_unwritten_elements_with_too_few_threads_point_at_the_launch(evidence: Make, wrong: Make, at: At) -> None:
    ran = refused(at, error=0, error_name="", limit="", grid=(2, 1, 1), block=(64, 1, 1))
    cause = explain(evidence(launches=(ran,), numerics=wrong((8, 32), unwritten=128, description="rows 4 to 7")))[0]
    assert (cause.id, cause.line) == ("memory.unwritten-output", at("scale<<<blocks, threads>>>"))
    assert cause.sentence.startswith("128 of 256 elements of output are never written (rows 4 to 7)")


def test_unwritten_elements_under_a_grid_that_covers_them_point_at_the_kernels_index(
    evidence: Make, wrong: Make, at: At
) -> None:
    ran = refused(at, error=0, limit="", grid=(2, 1, 1), block=(16, 8, 1))
    cause = explain(evidence(launches=(ran,), numerics=wrong((8, 32), unwritten=128)))[0]
    assert (cause.id, cause.line) == ("memory.unwritten-output", at("int i = blockIdx.x"))


def test_a_nan_made_from_poison_is_only_likely_uninitialised_memory(evidence: Make, wrong: Make) -> None:
    text = evidence().candidate_text.replace("float window[3], other;", "").replace("window[i % 5] = 0.f;", "")
    cause = explain(evidence(text, numerics=wrong(tainted=5, nan=5)))[0]
    assert (cause.id, cause.confidence) == ("memory.uninitialised", Confidence.LIKELY)
    # The kernel has an array of its own, so which memory was read is not known.
    assert cause.text == "auto y = torch::empty_like(x);"


def test_an_attribute_that_a_module_of_this_run_lacks_is_not_exported(evidence: Make, at: At) -> None:
    error = ExceptionFact(
        "AttributeError",
        "module 'scales' has no attribute 'scale_tensors'",
        (SourceLine("candidate.py", at("return extension.scale_tensor")),),
    )
    built = BuildRecord("scales", "fast", False, 2.0, True, True)
    cause = explain(evidence(exception=error, builds=(built,)))[0]
    assert (cause.id, cause.line) == ("build.not-exported", at("return extension.scale_tensor"))
    assert cause.fix.startswith("Call scale_tensor, or add scale_tensors")


def test_an_attribute_of_something_else_stays_unexplained(evidence: Make) -> None:
    error = ExceptionFact(
        "AttributeError", "module 'torch' has no attribute 'sofmax'", (SourceLine("candidate.py", 40),)
    )
    cause = explain(evidence(exception=error))[0]
    assert (cause.id, cause.line) == (UNEXPLAINED, 40)
    assert "AttributeError" in cause.sentence and "sofmax" in cause.sentence


def test_a_wrong_element_type_is_named_where_the_wrapper_asks_for_it(evidence: Make, at: At) -> None:
    error = ExceptionFact(
        "RuntimeError",
        "expected scalar type Float but found Double",
        (SourceLine("candidate.py", at("return extension.scale_tensor")),),
    )
    cause = explain(evidence(exception=error))[0]
    assert (cause.id, cause.line) == ("interface.dtype", at("x.data_ptr<float>(), host"))


def test_a_changed_input_is_named_at_the_only_place_that_changes_it(evidence: Make, at: At) -> None:
    numerics = Numerics(1e-4, 1e-4, "float64", "none", (Trial(0, True),), None, True, mutated=("input 0",))
    cause = explain(evidence(numerics=numerics))[0]
    assert (cause.id, cause.line) == ("semantic.mutates-input", at("x.mul_(2)"))


@pytest.mark.parametrize(
    ("weights", "note", "expected"),
    [
        ("state_dict", "", ("semantic.weights", Confidence.CERTAIN)),
        ("differ", "the candidate has no fc.weight", ("semantic.weights", Confidence.LIKELY)),
        ("differ", "", (UNEXPLAINED, Confidence.CERTAIN)),
        ("rng", "", (UNEXPLAINED, Confidence.CERTAIN)),
    ],
)
def test_weights_are_blamed_where_the_references_helped_or_could_not_be_tried(
    evidence: Make, wrong: Make, at: At, tmp_path: Path, weights: str, note: str, expected: tuple[str, Confidence]
) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(
        "class Model:\n    def __init__(self):\n        self.first = Linear(4, 4)\n        self.second = Linear(4, 4)",
        encoding="utf-8",
    )
    numerics = dataclasses.replace(wrong(), weights=weights, weights_note=note)
    cause = explain(dataclasses.replace(evidence(numerics=numerics), problem_file=str(problem)))[0]
    assert (cause.id, cause.confidence) == expected
    assert cause.line == (at("self.second = torch.nn.Linear") if cause.id == "semantic.weights" else 0)


def test_another_shape_is_named_with_both_shapes(evidence: Make) -> None:
    fact = OutputFact("semantic.shape", "output", "output has shape (8,), the reference (8, 1)")
    cause = explain(evidence(outputs=(fact,)))[0]
    assert (cause.id, cause.sentence) == ("semantic.shape", "output has shape (8,), the reference (8, 1).")


def test_a_mismatch_without_a_rule_is_described_and_not_guessed_at(evidence: Make, wrong: Make) -> None:
    (cause,) = explain(evidence(numerics=wrong(description="columns 32 to 63 of axis 1; all of axis 0")))
    assert cause.id == UNEXPLAINED
    assert cause.sentence == "5 of 256 elements of output differ: columns 32 to 63 of axis 1; all of axis 0."
    assert cause.evidence == ("at [0, 1] it is 1 and should be 2", "at [3, 1] it is -7 and should be 2")


@pytest.mark.parametrize(
    ("exit", "words"),
    [
        (ProcessExit(signal="SIGSEGV", during="forward, trial 1"), "killed by SIGSEGV during forward, trial 1"),
        (ProcessExit(timed_out=True, during="kernel spin<<<(1,1,1), (32,1,1)>>>"), "took too long during kernel spin"),
        (ProcessExit(out_of_memory=True), "took more memory than it was allowed"),
        (ProcessExit(returncode=7), "ended with status 7"),
    ],
)
def test_a_process_that_ended_is_told_as_it_was_seen(evidence: Make, exit: ProcessExit, words: str) -> None:
    (cause,) = explain(evidence(exit=exit))
    assert cause.id == UNEXPLAINED
    assert words in cause.sentence


def test_nothing_wrong_has_no_cause(evidence: Make) -> None:
    passed = Numerics(1e-4, 1e-4, "float64", "none", (Trial(0, True),), None, True)
    stages = tuple(StageResult(stage, StageStatus.PASSED) for stage in Stage)
    built = BuildRecord("scales", "fast", False, 2.0, True, True)
    assert explain(evidence(numerics=passed, stages=stages, builds=(built,))) == ()


def test_findings_at_one_line_are_one_cause_and_stages_rank_before_families(
    evidence: Make, finding: Make, at: At
) -> None:
    line = at("if (i <= n)")
    where = Allocation("global", 4, "y")
    twice = tuple(finding("memory.out-of-bounds", line, offset=offset, allocation=where) for offset in (4, 8))
    shape = OutputFact("semantic.shape", "output", "output has shape (8,), the reference (8, 1)")
    causes = explain(evidence(findings=twice, outputs=(shape,)))
    assert [cause.id for cause in causes] == ["memory.out-of-bounds", "semantic.shape"]


def test_a_finding_that_no_rule_knows_is_described(evidence: Make, finding: Make, at: At) -> None:
    seen = finding("device.assert", at("if (i <= n)"), access="assert", bytes=0, message="assertion i < n failed")
    (cause,) = explain(evidence(findings=(seen,)))
    assert (cause.id, cause.line) == (UNEXPLAINED, at("if (i <= n)"))
    assert "assertion i < n failed" in cause.sentence


def test_every_family_names_ids_of_the_catalogue_only() -> None:
    import inspect
    import re

    from kernelwright.explain import build, interface, launch, memory, semantic, sync

    for family in (build, interface, launch, memory, semantic, sync):
        ids = set(
            re.findall(r'"((?:build|interface|launch|memory|sync|warp|semantic)\.[a-z-]+)"', inspect.getsource(family))
        )
        assert ids <= set(CAUSES), ids - set(CAUSES)


def test_evidence_survives_the_way_between_processes(evidence: Make, finding: Make) -> None:
    from kernelwright.records import from_json, to_json

    whole: Evidence = evidence(findings=(finding("memory.out-of-bounds", 3),))
    assert from_json(Evidence, to_json(whole)) == whole
    assert isinstance(whole.findings[0], Finding)


GPU = DeviceFact("cuda", "NVIDIA H200", "9.0")


def test_an_address_error_on_a_gpu_is_explained_by_an_integer_for_a_raw_pointer(evidence: Make, at: At) -> None:
    text = evidence().candidate_text.replace("scale_tensor(view)", "scale_raw(x.data_ptr(), view.data_ptr(), 4)")
    error = ExceptionFact("torch.AcceleratorError", "CUDA error: an illegal memory access was encountered")
    cause = explain(evidence(text, exception=error, device=GPU))[0]
    assert (cause.id, cause.line) == ("interface.raw-pointer", at("void scale_raw(", text))
    assert "x.data_ptr() for const float* in; view.data_ptr() for float* out" in cause.sentence


def test_an_address_error_on_a_gpu_without_such_a_call_stays_unexplained(evidence: Make) -> None:
    error = ExceptionFact("torch.AcceleratorError", "CUDA error: an illegal memory access was encountered")
    assert [cause.id for cause in explain(evidence(exception=error, device=GPU))] == ["unexplained"]


def test_a_candidate_that_is_no_python_is_a_syntax_error_at_its_line(evidence: Make) -> None:
    error = ExceptionFact("SyntaxError", "expected ':'", (SourceLine("candidate.py", 2),))
    cause = explain(evidence("import torch\nclass ModelNew(torch.nn.Module)\n    pass\n", exception=error))[0]
    assert (cause.id, cause.line, cause.text) == ("build.syntax", 2, "class ModelNew(torch.nn.Module)")


def test_a_missing_model_new_is_one_plain_sentence(evidence: Make) -> None:
    error = ExceptionFact("kernelwright.candidate.load.MissingModelNew", "candidate.py defines no ModelNew")
    assert [cause.sentence for cause in explain(evidence(exception=error))] == ["candidate.py defines no ModelNew."]


def test_a_barrier_that_exited_threads_never_reach_is_named_beside_a_wrong_result_only(
    evidence: Make, finding: Make, wrong: Make, at: At
) -> None:
    seen = finding("sync.divergent-barrier", at("if (i <= n)"), access="barrier", bytes=0)
    numerics = wrong()
    named = explain(evidence(observations=(seen,), numerics=numerics))
    assert [(cause.id, cause.confidence) for cause in named] == [("sync.divergent-barrier", Confidence.LIKELY)]
    right = dataclasses.replace(numerics, trials=())
    assert explain(evidence(observations=(seen,), numerics=right)) == ()


def test_an_output_made_of_unwritten_memory_is_only_described_where_shared_memory_may_be_to_blame(
    evidence: Make, wrong: Make
) -> None:
    text = evidence().candidate_text.replace("float window[3], other;", "__shared__ float tile[64];")
    (cause,) = explain(evidence(text, numerics=wrong(tainted=1, nan=1)))
    assert cause.id == "unexplained"
    assert "1 of them computed from memory that nobody had written yet" in cause.sentence
