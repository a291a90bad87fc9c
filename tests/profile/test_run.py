"""A whole profile with stand-ins for ncu, and what is said where something is missing."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelwright.profile import NotProfiled, ncu
from kernelwright.profile import metrics as p
from kernelwright.profile.run import _trace
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


def stand_in(folder: Path, *, picky: bool = False, refuses: bool = False) -> Path:
    program = folder / "ncu"
    program.write_text(STANDS_IN.format(python=sys.executable, recorded=str(RECORDED), picky=picky, refuses=refuses))
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
