"""A session on a real GPU: built for it, inputs drawn on it, judged on it, timed; and a wrong edit is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernelwright.check import CheckOptions
from kernelwright.records import VerdictWord
from kernelwright.watch import Session

EXAMPLE = Path(__file__).parents[2] / "examples" / "matrix_vector"
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


def test_a_right_and_a_wrong_edit_from_one_session(tmp_path: Path) -> None:
    for name in ("problem.py", "candidate.py"):
        shutil.copy(EXAMPLE / name, tmp_path)
    candidate = tmp_path / "candidate.py"
    options = CheckOptions(device="cuda", sets={"M": "256", "K": "65536"}, trials=2)
    with Session(tmp_path / "problem.py", candidate, options=options) as session:
        first = session.check()
        assert first.verdict is VerdictWord.CORRECT, first.causes
        assert first.numerics is not None
        assert first.numerics.inputs.startswith("drawn on the device")
        assert first.numerics.oracle.startswith("float64")
        assert [(record.tier, record.confirmed, record.fell_through) for record in first.build] == [("full", True, "")]
        assert first.build[0].kernels[0].registers > 0
        assert first.timing is not None
        assert first.timing.rounds >= 20
        candidate.write_text(candidate.read_text().replace("float total = ", "float total = 1.01f * "))
        second = session.check()
        assert second.verdict is VerdictWord.WRONG
        assert second.timing is None
        shutil.copy(EXAMPLE / "candidate.py", candidate)
        assert session.check().verdict is VerdictWord.CORRECT


def test_inputs_that_are_handed_over_give_the_same_word(tmp_path: Path) -> None:
    options = CheckOptions(device="cuda", sets={"M": "256", "K": "65536"}, trials=1, inputs="handed", timing=False)
    with Session(EXAMPLE / "problem.py", EXAMPLE / "candidate.py", options=options) as session:
        verdict = session.check()
    assert verdict.verdict is VerdictWord.CORRECT
    assert verdict.numerics is not None
    assert "on the CPU" in verdict.numerics.inputs
