"""The oracle with its reference on ``cuda:0``: nothing of a comparison is left on the other device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.worker.conftest import PROBLEM

from kernelwright.worker.judging import first_line

PROGRAM = Path(__file__).parent / "programs" / "oracle_on_a_device.py"
SOURCES = Path(__file__).parents[2] / "src"
pytestmark = pytest.mark.emu


def replies(folder: Path, *, off: float = 0.0, budget: int = 1 << 30, draw: str = "cuda:0") -> dict[str, list[Any]]:
    """What the oracle replied, by request; ``place`` and ``equal`` are the program's own lines."""
    (folder / "problem.py").write_text(PROBLEM)
    command = [sys.executable, str(PROGRAM), str(folder / "problem.py"), str(off), str(budget), draw]
    environment = {**os.environ, "PYTHONPATH": f"{SOURCES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert answer.returncode == 0, answer.stderr[-3000:]
    found: dict[str, list[Any]] = {}
    for line in answer.stdout.splitlines():
        told = json.loads(line)
        found.setdefault(told.get("reply", next(iter(told))), []).append(told)
    return found


@pytest.mark.parametrize("budget", [1 << 30, 100])
def test_it_judges_on_the_device_whole_or_in_chunks(tmp_path: Path, budget: int) -> None:
    told = replies(tmp_path, budget=budget)
    assert {row["place"] for row in told["place"]} == {"cuda:0"}
    assert {row["device"] for row in told["place"]} == {"cuda:0"}
    assert [row["equal"] for row in told["equal"]] == [True, True]
    assert [row["passed"] for row in told["compare"]] == [True, True]
    assert all(row["outputs"][0]["max_abs_error"] < 1e-6 for row in told["compare"])
    assert told["oracle"][0]["oracle"].startswith("float64")


def test_a_wrong_output_is_described_from_the_device(tmp_path: Path) -> None:
    first = replies(tmp_path, off=0.5)["compare"][0]["outputs"][0]
    assert first["within_tolerance"] is False
    assert first["mismatch"]["description"] == "every element; every wrong value is the expected one plus 0.5"
    assert first["mismatch"]["first"] == [0, 0]


def test_inputs_that_are_handed_over_are_copied_to_the_device(tmp_path: Path) -> None:
    told = replies(tmp_path, draw="")
    assert {row["device"] for row in told["place"]} == {"cuda:0"}
    assert "on the CPU" in told["trial"][0]["how"]
    assert [row["passed"] for row in told["compare"]] == [True, True]


@pytest.mark.tiny
def test_a_long_reason_is_told_in_whole_sentences() -> None:
    torchs = (
        "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which "
        "138.59 GiB is free. Including non-PyTorch memory, this process has 1.10 GiB memory in use.\nmore"
    )
    assert first_line(RuntimeError(torchs)) == torchs[: torchs.index(" Including")]
    assert first_line(RuntimeError("x" * 200)) == "x" * 159 + "…"
    assert first_line(RuntimeError()) == "RuntimeError"


def test_a_device_without_the_memory_leaves_the_reference_to_the_cpu(tmp_path: Path) -> None:
    told = replies(tmp_path, budget=0)
    assert {row["place"] for row in told["place"]} == {"cpu"}
    assert {row["device"] for row in told["place"]} == {"cpu"}
    assert [row["passed"] for row in told["compare"]] == [True, True]
    for row in told["oracle"]:
        assert row["notes"] == ["the reference ran on the CPU: on the GPU the oracle raised CUDA out of memory"]
