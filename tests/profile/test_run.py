"""A whole profile with stand-ins for ncu, and what is said where something is missing."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelwright.check import CheckOptions
from kernelwright.counters.records import EMULATED, NCU, KernelCounters, LineCounters
from kernelwright.measure.records import Ceiling, Ceilings, Work
from kernelwright.profile import NotProfiled, Profile, ProfileOptions, ncu
from kernelwright.profile import metrics as p
from kernelwright.profile import run as profiling
from kernelwright.profile.run import _trace
from kernelwright.records import Verdict, VerdictWord, to_json
from kernelwright.sourceline import SourceLine
from kernelwright.worker.alone import Alone
from kernelwright.worker.tool import Ended

RECORDED = Path(__file__).parent / "recorded"
CANDIDATE = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + 1
"""
PROBLEM = (
    CANDIDATE.replace("ModelNew", "Model")
    + """
def get_inputs():
    return [torch.rand(4)]
def get_init_inputs():
    return []
"""
)
STANDS_IN = """#!{python}
import pathlib, sys
arguments = sys.argv[1:]
if "--version" in arguments:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 1)")
elif "--import" in arguments:
    page = arguments[arguments.index("--page") + 1]
    page = "sass" if arguments[-1] == "sass" else page
    if page == "source" and {stops} and "--kernel-name" not in arguments:
        print("==ERROR== no source")
        sys.exit(1)
    print(pathlib.Path({recorded!r}, page + ".csv").read_text())
elif "--metrics" in arguments and {picky}:
    print("==ERROR== Failed to find metric sm__ops_path_tensor_src_fp64.sum")
    sys.exit(1)
elif {refuses}:
    print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters")
    sys.exit(1)
else:
    pathlib.Path(arguments[arguments.index("--export") + 1]).write_text("report")
    print(" ".join(arguments))
"""


def config(folder: Path) -> Alone:
    problem, candidate = folder / "problem.py", folder / "kernels.cu"
    problem.write_text(PROBLEM)
    candidate.write_text((RECORDED / "kernels.cu").read_text())
    return Alone(str(problem), str(candidate), candidate.read_text(), {}, 0, 1, "rng", "x", "", device="host")


def stand_in(folder: Path, *, picky: bool = False, refuses: bool = False, stops: bool = False) -> Path:
    program = folder / "ncu"
    kind = {"picky": picky, "refuses": refuses, "stops": stops}
    program.write_text(STANDS_IN.format(python=sys.executable, recorded=str(RECORDED), **kind))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def counted(folder: Path, steps: list[str] | None = None, launches: int = 40, **kind: Any) -> ncu.Counted:
    said = steps if steps is not None else []
    return ncu.count(stand_in(folder, **kind), config(folder), launches=launches, timeout_s=60, progress=said.append)


def test_the_pages_of_a_report_become_counted_kernels(tmp_path: Path) -> None:
    made = counted(tmp_path)
    assert made.why_not == ""
    assert made.version == "2025.3.1.0"
    assert [one.kernel.split("(")[0] for one in made.kernels][:2] == ["copy_unit", "copy_strided"]
    assert made.kernels[1].lines[3].frames[0].file == "kernels.cu"


def test_kernels_of_the_candidate_are_asked_for_by_name_where_the_page_of_all_stops(tmp_path: Path) -> None:
    whole, asked = counted(tmp_path), counted(tmp_path, stops=True)
    assert asked.kernels == whole.kernels
    assert asked.kernels[1].lines


@pytest.mark.tiny
def test_only_the_candidates_own_kernels_without_lines_are_asked_for() -> None:
    def kernel(name: str, *lines: LineCounters) -> KernelCounters:
        return KernelCounters(name, (1, 1, 1), (1, 1, 1), lines=lines)

    kernels = (
        kernel("sm80_xmma_gemm_f32f32"),
        kernel("void mine::softmax_kernel<8>(const float *, int)"),
        kernel("void softmax_kernel<16>(const float *, int)"),
        kernel("known(float *)", LineCounters((SourceLine("c.py", 3),), {})),
    )
    text = "template <int N> __global__ void softmax_kernel(const float*, int); __global__ void known(float*);"
    assert ncu.own_without_lines(kernels, text) == ("softmax_kernel",)


def test_a_chip_that_lacks_a_metric_is_asked_for_less(tmp_path: Path) -> None:
    steps: list[str] = []
    made = counted(tmp_path, steps, picky=True)
    assert made.why_not == ""
    assert len(made.kernels) == 5
    assert steps == ["ncu", "ncu with fewer metrics", "ncu with fewer metrics", "reading ncu's report"]


def test_a_refusal_is_told_in_ncus_words_and_not_tried_again(tmp_path: Path) -> None:
    steps: list[str] = []
    made = counted(tmp_path, steps, refuses=True)
    assert made.kernels == ()
    assert made.why_not.startswith("ncu: ERR_NVGPUCTRPERM - The user does not have permission")
    assert steps == ["ncu"]


def test_launches_that_were_left_out_are_told(tmp_path: Path) -> None:
    assert counted(tmp_path, launches=5).notes == ("launches after the first 5 (--launches)",)


@pytest.mark.tiny
def test_the_command_leaves_clocks_alone_and_profiles_the_second_pass_only(tmp_path: Path) -> None:
    line = ncu.command(
        Path("ncu"), tmp_path / "r", ["python"], metrics=(p.TIME, p.DRAM_READ), launches=7, folder=tmp_path
    )
    words = " ".join(line)
    for piece in (
        "--clock-control none",
        "--profile-from-start off",
        "--target-processes application-only",
        "--launch-count 7",
        "--section SourceCounters",
        f"--metrics {p.TIME},{p.DRAM_READ}",
    ):
        assert piece in words
    assert line[-1] == "python"


@pytest.mark.tiny
def test_why_a_run_gave_nothing() -> None:
    assert ncu.refused(Ended("", None), {"during": "forward"}, timeout_s=5) == "ncu did not end within 5 s, in forward"
    error = {"type": "ValueError", "message": "odd\nmore"}
    assert ncu.refused(Ended("", 1), {"error": error, "during": "forward"}, timeout_s=5) == "ValueError in forward: odd"
    assert ncu.refused(Ended("", 9), {}, timeout_s=5) == "ncu ended with exit status 9"
    assert ncu.refused(Ended("==PROF== fine", 0), {}, timeout_s=5) == ""


def traced(folder: Path, candidate: str) -> Alone:
    problem, file = folder / "problem.py", folder / "candidate.py"
    problem.write_text(PROBLEM)
    file.write_text(candidate)
    way = "kernelwright.profile.traced"
    return Alone(str(problem), str(file), candidate, {}, 0, 1, "rng", way, "", device="host")


def test_a_candidate_that_raises_is_not_profiled_and_says_where(tmp_path: Path) -> None:
    raising = CANDIDATE.replace("return x + 1", "raise ValueError('odd')")
    with pytest.raises(NotProfiled, match=r"^the warm forward raises ValueError: odd$") as caught:
        _trace(traced(tmp_path, raising), 60)
    assert caught.value.exit_status == 1
    assert "kernelwright check" in caught.value.hint


def test_a_candidate_that_does_not_end_is_not_profiled(tmp_path: Path) -> None:
    endless = CANDIDATE.replace("return x + 1", "import os; os.read(os.pipe()[0], 1)")
    with pytest.raises(NotProfiled, match="did not end within 8 s, in the warm forward"):
        _trace(traced(tmp_path, endless), 8)


# ---- a GPU whose counters cannot be had ----------------------------------------------------------------------------
def on_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch, program: Path | None, counted: Any) -> Profile:
    """A profile on a GPU that only pretends: the trace is given, and the emulated device's check says ``counted``."""
    ceilings = Ceilings(
        "NVIDIA H200",
        "580",
        60 << 20,
        {name: Ceiling(name, "GB/s", 4600.0, None, "test") for name in ("read", "write")},
    )
    told = {
        "passes": [[["copy_strided(const float *, float *, int)", 10.0]]],
        "device": {"name": "NVIDIA H200", "capability": "9.0"},
        "versions": {"torch": "2.11"},
        "ceilings": to_json(ceilings),
        "work": to_json(Work(8_388_608, 0)),
    }
    monkeypatch.setattr(profiling, "device_of", lambda chosen: "cuda")
    monkeypatch.setattr(profiling, "_trace", lambda config, timeout_s: profiling._Traced(told))
    monkeypatch.setattr(ncu, "find", lambda: program)
    monkeypatch.setattr(profiling, "check", counted)
    own = config(folder)
    return profiling.profile(
        Path(own.problem), Path(own.candidate), options=ProfileOptions(), progress=lambda words: None
    )


EMULATED_KERNEL = KernelCounters("copy_strided(const float *, float *, int)", (4096, 1, 1), (256, 1, 1))


@pytest.mark.parametrize(
    ("refuses", "why"), [(False, "ncu was not found"), (True, "ncu: ERR_NVGPUCTRPERM - The user does not")]
)
def test_without_ncus_counters_the_emulated_devices_stand_in_and_the_profile_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool, why: str
) -> None:
    asked: list[CheckOptions] = []

    def counted(problem: Path, candidate: Path, *, options: CheckOptions, progress: Any) -> Verdict:
        asked.append(options)
        return Verdict(VerdictWord.CORRECT, "p.py", "c.py", (), counters=(EMULATED_KERNEL,))

    made = on_gpu(tmp_path, monkeypatch, stand_in(tmp_path, refuses=True) if refuses else None, counted)
    assert made.counted_by == EMULATED
    assert made.kernels == (EMULATED_KERNEL,)
    assert made.device.name == "NVIDIA H200"
    assert made.trace[0].total_us == 10.0
    assert any(note.startswith(f"ncu's counters ({why}") for note in made.notes)
    assert profiling.LIBRARIES in made.notes
    (options,) = asked
    assert (options.device, options.counted, options.timing) == ("emulated", True, False)


def test_with_neither_counters_the_trace_stands_and_both_reasons_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(problem: Path, candidate: Path, *, options: CheckOptions, progress: Any) -> Verdict:
        return Verdict(VerdictWord.CORRECT, "p.py", "c.py", ())

    made = on_gpu(tmp_path, monkeypatch, None, counted)
    assert made.kernels == ()
    assert made.forward_us == 10.0
    assert [note.partition(" (")[0] for note in made.notes] == ["ncu's counters", "the emulated device's counters"]


def test_with_ncu_nothing_is_counted_a_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(problem: Path, candidate: Path, *, options: CheckOptions, progress: Any) -> Verdict:
        raise AssertionError("the emulated device was asked")

    made = on_gpu(tmp_path, monkeypatch, stand_in(tmp_path), counted)
    assert made.counted_by == NCU
    assert len(made.kernels) == 5
    assert made.versions["ncu"] == "2025.3.1.0"
    assert made.reasons[0].kernel.startswith("copy_strided")
    # 8.4 MB at 4600 GB/s are 1.82 us; the traced pass took 10.
    assert made.limit is not None
    assert made.limit.limit_ms == pytest.approx(1.8236e-3, rel=1e-4)
    assert made.limit.fraction == {"forward": pytest.approx(0.18236, rel=1e-4)}
