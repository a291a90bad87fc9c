"""Reports as findings: causes, lines, tensors' names, and how two witnesses of one mistake become one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelwright.explain import explain
from kernelwright.records import Evidence, Finding, SourceLine, Stage, StageResult, StageStatus
from kernelwright.sanitize.findings import merged, name
from kernelwright.sanitize.report import Log, Place, Report, read
from kernelwright.sanitize.tools import Run

pytestmark = pytest.mark.tiny

RECORDED = Path(__file__).parent / "recorded"
FILE = "faulty.cu"
TEXT = "\n".join(f"line {n}" for n in range(1, 20))
TENSORS = [
    {"name": "input 0", "address": 0x1000, "bytes": 1024, "dtype": "float32", "shape": [16, 16]},
    {"name": "output", "address": 0x2000, "bytes": 64, "dtype": "float32", "shape": [16]},
]


def of(tool: str, *reports: Report, **known: Any) -> Run:
    return Run(tool, Log(reports, True), known={"tensors": TENSORS, "maps": [], **known})


def named(run: Run) -> tuple[Finding, ...]:
    return name(run, candidate_file=FILE, candidate_text=TEXT).findings


def access(**changes: Any) -> Report:
    base = Report(
        "invalid",
        frames=(Place("k(float *)", FILE, 5),),
        access="write",
        space="global",
        bytes=4,
        thread=(7, 0, 0),
        block=(3, 0, 0),
        address=0x1400,
        near=0x1000,
        near_bytes=1024,
    )
    return replace(base, **changes)


def test_an_access_past_a_tensor_is_named_by_that_tensor() -> None:
    (finding,) = named(of("memcheck", access()))
    assert finding.cause == "memory.out-of-bounds"
    assert finding.witness == "by compute-sanitizer memcheck on the GPU"
    assert finding.frames == (SourceLine(FILE, 5, "line 5", "k(float *)"),)
    assert finding.allocation is not None
    assert (finding.allocation.name, finding.allocation.shape, finding.offset) == ("input 0", (16, 16), 1024)
    assert (finding.access, finding.thread, finding.block) == ("store", (7, 0, 0), (3, 0, 0))


def test_many_threads_at_one_line_are_one_finding_with_a_count() -> None:
    findings = named(of("memcheck", access(), access(thread=(8, 0, 0)), access(frames=(Place("k", FILE, 6),))))
    assert [(f.frames[0].line, f.count, f.thread) for f in findings] == [(5, 2, (7, 0, 0)), (6, 1, (7, 0, 0))]


def test_recorded_reports_get_the_causes_that_they_show() -> None:
    def causes(file: str, tool: str) -> list[tuple[str, int]]:
        run = Run(tool, read((RECORDED / f"{file}.txt").read_text(encoding="utf-8")))
        return [(f.cause, (f.other or f.frames)[0].line) for f in named(run)]

    assert causes("memcheck-misaligned", "memcheck") == [("memory.misaligned", 5)]
    assert causes("memcheck-shared", "memcheck") == [("memory.out-of-bounds", 13)]
    assert causes("initcheck-uninitialised", "initcheck") == [("memory.uninitialised", 11)]
    assert causes("racecheck-race", "racecheck") == [("sync.shared-race", 8)]
    assert causes("memcheck-clean", "memcheck") == []


def test_an_address_in_the_hosts_memory_far_from_any_allocation_is_host_memory() -> None:
    maps = [[0x7FFD0000, 0x7FFE0000, "[stack]"]]
    (finding,) = named(of("memcheck", access(address=0x7FFD1234), maps=maps))
    assert finding.cause == "interface.host-memory"
    assert finding.allocation is not None
    assert (finding.allocation.kind, finding.allocation.name) == ("host", "the host's stack")


def test_an_address_beside_an_allocation_is_its_overrun_whatever_the_host_maps_there() -> None:
    (finding,) = named(of("memcheck", access(), maps=[[0, 1 << 40, ""]]))
    assert finding.cause == "memory.out-of-bounds"


def test_reports_in_a_librarys_kernel_are_counted_and_name_no_cause() -> None:
    made = name(
        of("initcheck", access(kind="uninitialised", frames=(Place("gemm_kernel"),))),
        candidate_file=FILE,
        candidate_text=TEXT,
    )
    assert (made.findings, made.elsewhere) == ((), 1)


def test_a_racecheck_warning_is_an_observation() -> None:
    race = Report("race", frames=(Place("k", FILE, 8),), access="write", others=(("read", Place("k", FILE, 9)),),
                  hazards=4, warning=True)  # fmt: skip
    made = name(of("racecheck", race), candidate_file=FILE, candidate_text=TEXT)
    assert made.findings == ()
    assert [(o.cause, o.frames[0].line, o.other[0].line) for o in made.observations] == [("sync.shared-race", 9, 8)]


def test_a_barrier_text_that_no_cause_stands_for_names_none() -> None:
    odd = Report("barrier", frames=(Place("k", FILE, 8),), text="Barrier error detected. Missing wait.")
    assert named(of("synccheck", odd)) == ()
    divergent = replace(odd, text="Barrier error detected. Divergent thread(s) in block.")
    assert [f.cause for f in named(of("synccheck", divergent))] == ["sync.divergent-barrier"]


def test_one_mistake_seen_by_two_is_one_finding_with_both_witnesses() -> None:
    (gpu,) = named(of("memcheck", access()))
    emulated = replace(gpu, cause="interface.raw-pointer", witness="on the emulated device at N=64")
    (both,) = merged([emulated], [gpu], FILE)
    assert both.cause == "interface.raw-pointer"
    assert both.witness == "on the emulated device at N=64 and by compute-sanitizer memcheck on the GPU"
    (three,) = merged([emulated], merged([gpu], [replace(gpu, witness="by X")], FILE), FILE)
    assert three.witness == "on the emulated device at N=64, by compute-sanitizer memcheck on the GPU and by X"
    elsewhere = replace(gpu, frames=(SourceLine(FILE, 9),))
    assert len(merged([emulated], [elsewhere], FILE)) == 2


def test_explain_names_the_cause_at_the_line_and_who_saw_it() -> None:
    evidence = Evidence(
        problem_file="problem.py",
        candidate_file=FILE,
        candidate_text=TEXT,
        stages=(StageResult(Stage.RUN, StageStatus.FAILED),),
        findings=named(of("memcheck", access())),
    )
    (cause,) = explain(evidence)
    assert (cause.id, cause.line, cause.text) == ("memory.out-of-bounds", 5, "line 5")
    assert "thread (7,0,0) of block (3,0,0) in k writes 4 bytes at byte offset 1024 of input 0" in cause.sentence
    assert "seen by compute-sanitizer memcheck on the GPU" in cause.evidence


RAW_POINTER = """import torch
from torch.utils.cpp_extension import load_inline

CUDA = r\"\"\"
__global__ void gemv_kernel(const float* A, const float* v, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.f;
    const float* row = A + (size_t)r * cols;



    for (int c = 0; c < cols; ++c) acc += row[c] * v[c];
    y[r] = acc;
}
void gemv(const float* A, const float* v, float* y, int rows, int cols) {
    gemv_kernel<<<(rows + 127) / 128, 128>>>(A, v, y, rows, cols);
}
\"\"\"
ext = load_inline("gemv_ext", "void gemv(const float*, const float*, float*, int, int);", CUDA, functions=["gemv"])


class ModelNew(torch.nn.Module):
    def forward(self, A, v):
        y = torch.empty(A.shape[0], device=A.device)
        {call}
        return y
"""
INTEGERS = "ext.gemv(A.data_ptr(), v.data_ptr(), y.data_ptr(), A.shape[0], A.shape[1])"


def recorded(name_: str, tool: str, text: str, **known: Any) -> Evidence:
    """Evidence of a recorded log of a candidate's run on an H200."""
    run = Run(tool, read((RECORDED / f"{name_}.txt").read_text(encoding="utf-8")), known=known)
    found = name(run, candidate_file="dir/candidate.py", candidate_text=text)
    return Evidence(
        problem_file="problem.py",
        candidate_file="dir/candidate.py",
        candidate_text=text,
        stages=(StageResult(Stage.RUN, StageStatus.FAILED),),
        findings=found.findings,
    )


def test_the_stack_beside_a_call_that_passes_integers_is_a_raw_pointer() -> None:
    stack = [[0x7FFC30410000, 0x7FFC30432000, "[stack]"]]
    text = RAW_POINTER.replace("{call}", INTEGERS)
    (cause,) = explain(recorded("memcheck-host-stack", "memcheck", text, maps=stack, tensors=[]))
    assert (cause.id, cause.line, cause.confidence.value) == ("interface.raw-pointer", 16, "certain")
    assert cause.evidence[-1] == "seen by compute-sanitizer memcheck on the GPU"
    elsewhere = RAW_POINTER.replace("{call}", "ext.gemv(A, v, y)")
    (cause,) = explain(recorded("memcheck-host-stack", "memcheck", elsewhere, maps=stack, tensors=[]))
    assert cause.id == "interface.host-memory"


def test_a_read_inside_an_inlined_function_is_named_at_the_candidates_line() -> None:
    tensor = {"name": "output", "address": 0x7F5EA5E00000, "bytes": 4000, "dtype": "float32", "shape": [1000]}
    evidence = recorded("initcheck-inlined", "initcheck", "\n" * 13 + "atomicAdd(&y[c], v);\n", tensors=[tensor])
    (finding,) = evidence.findings
    assert [(frame.file, frame.line) for frame in finding.frames] == [
        ("sm_20_atomic_functions.hpp", 84),
        ("candidate.py", 14),
    ]
    (cause,) = explain(evidence)
    assert (cause.id, cause.line) == ("memory.uninitialised", 14)
    assert "in col_sum_kernel reads 4 bytes at byte offset 0 of output, float32 [1000], 4000 bytes" in cause.sentence


def test_what_lies_past_a_tensor_is_told_once_though_nobody_wrote_it_either() -> None:
    (past,) = named(of("memcheck", access(access="read")))
    (unwritten,) = named(of("initcheck", access(kind="uninitialised", access="read", near=None)))
    (one,) = merged([past], [unwritten], FILE)
    assert one.cause == "memory.out-of-bounds"
    assert one.witness == "by compute-sanitizer memcheck on the GPU and by compute-sanitizer initcheck on the GPU"
    other_thread = replace(unwritten, thread=(1, 0, 0))
    assert len(merged([past], [other_thread], FILE)) == 2


def test_a_race_of_many_threads_names_none_of_them() -> None:
    run = Run("racecheck", read((RECORDED / "racecheck-race.txt").read_text(encoding="utf-8")))
    (race,) = named(run)
    evidence = Evidence("p.py", FILE, TEXT, (StageResult(Stage.RUN, StageStatus.FAILED),), findings=(race,))
    (cause,) = explain(evidence)
    assert cause.sentence.startswith("a thread of race: another thread of the block touches the same word")
    assert (cause.id, cause.line) == ("sync.shared-race", 8)
