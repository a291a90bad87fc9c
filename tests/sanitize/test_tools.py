"""Running a tool: a stand-in for compute-sanitizer starts the real program, on the host's own device."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kernelwright.sanitize import tools
from kernelwright.worker.alone import Alone

PROBLEM = """
import torch
N = 4
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.rand(N, 2)]
def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3))
    def forward(self, x):
        {body}
        return x + 1
"""
STANDS_IN = """#!{python}
import subprocess, sys
arguments = sys.argv[1:]
if "--padding" in arguments and {old}:
    print("compute-sanitizer: unrecognised option '--padding'")
    sys.exit(1)
log = arguments[arguments.index("--log-file") + 1]
command = arguments[arguments.index("--log-file") + 2:]
status = subprocess.run(command).returncode
with open(log, "w") as out:
    out.write("========= COMPUTE-SANITIZER\\n" + {report!r} + "========= ERROR SUMMARY: 0 errors\\n")
sys.exit(status)
"""


def config(folder: Path, body: str = "pass") -> Alone:
    problem, candidate = folder / "problem.py", folder / "candidate.py"
    problem.write_text(PROBLEM)
    candidate.write_text(CANDIDATE.format(body=body))
    return Alone(
        str(problem), str(candidate), candidate.read_text(), {"N": "3"}, 0, 1, "rng", "forward", "", device="host"
    )


def stand_in(folder: Path, *, report: str = "", old: bool = False) -> Path:
    import sys

    program = folder / "compute-sanitizer"
    program.write_text(STANDS_IN.format(python=sys.executable, report=report, old=old))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_a_run_has_the_tools_reports_and_the_names_of_tensors(tmp_path: Path) -> None:
    report = (
        "========= Invalid __global__ read of size 4 bytes\n"
        "=========     at k(int *)+0x10 in candidate.py:3\n"
        "========= \n"
    )
    run = tools.run(stand_in(tmp_path, report=report), config(tmp_path), tool="memcheck", timeout_s=60)
    assert run.why_not == ""
    assert [r.frames[0].line for r in run.log.reports] == [3]
    named = [(t["name"], t["bytes"], t["dtype"], t["shape"]) for t in run.known["tensors"]]
    assert named == [
        ("input 0", 24, "float32", [3, 2]),
        ("parameter w", 12, "float32", [3]),
        ("output", 24, "float32", [3, 2]),
    ]
    assert run.tensor_bytes == 60
    assert run.known["during"] == "after forward"
    assert any(name == "[stack]" for _, _, name in run.known["maps"])


def test_a_candidate_that_raises_leaves_the_tool_without_a_result(tmp_path: Path) -> None:
    run = tools.run(stand_in(tmp_path), config(tmp_path, "raise ValueError('odd')"), tool="initcheck", timeout_s=60)
    assert run.why_not == "ValueError in forward: odd"
    assert run.known["error"]["frames"][0]["line"] == 8


def test_an_older_version_is_asked_again_without_our_options(tmp_path: Path) -> None:
    run = tools.run(stand_in(tmp_path, old=True), config(tmp_path), tool="memcheck", timeout_s=60)
    assert (run.why_not, run.log.complete) == ("", True)


def test_a_run_that_does_not_end_says_where_it_was(tmp_path: Path) -> None:
    body = "import os; os.read(os.pipe()[0], 1)"
    run = tools.run(stand_in(tmp_path), config(tmp_path, body), tool="racecheck", timeout_s=8)
    assert run.why_not == "it did not end within 8 s, in forward"


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("text", "printed", "status", "why"),
    [
        ("", "compute-sanitizer: no GPU\n", 1, "compute-sanitizer: no GPU"),
        ("========= COMPUTE-SANITIZER\n========= Error: Device not supported. Please refer to the manual\n", "", 1,
         "Error: Device not supported. Please refer to the manual"),
        ("========= COMPUTE-SANITIZER\n========= Device not supported\n========= ERROR SUMMARY: 0 errors\n", "", 1,
         "Device not supported"),
        ("", "", 134, "exit status 134"),
    ],
)  # fmt: skip
def test_a_tool_that_checked_nothing_says_why(text: str, printed: str, status: int, why: str) -> None:
    assert tools.judged("memcheck", text, printed, status, {}, timeout_s=1).why_not == why
