"""The history's commands, on a file of their own."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from kernelwright import check as core
from kernelwright.cli import main
from kernelwright.records import Stage, StageResult, StageStatus, Verdict, VerdictWord
from kernelwright.report.history import render_history
from kernelwright.store.history import Entry

pytestmark = pytest.mark.tiny


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two checks of one pair, correct and wrong; the check itself is replaced."""
    monkeypatch.setenv("KERNELWRIGHT_HISTORY", str(tmp_path / "history.sqlite"))
    monkeypatch.chdir(tmp_path)
    Path("problem.py").write_text("# problem\n")
    stages = (StageResult(Stage.LOAD, StageStatus.PASSED, 0.1),)
    for number, word in enumerate((VerdictWord.CORRECT, VerdictWord.WRONG)):
        Path("candidate.py").write_text(f"# candidate {number}\n")
        verdict = Verdict(word, "problem.py", "candidate.py", stages)
        monkeypatch.setattr(core, "check", lambda *arguments, verdict=verdict, **named: verdict)
        main(["check", "problem.py", "candidate.py"])


def test_every_check_is_listed(checked: None, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["history", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(row["id"], row["word"]) for row in listed["verdicts"]] == [(2, "wrong"), (1, "correct")]
    assert main(["history"]) == 0
    assert "wrong" in capsys.readouterr().out


def test_a_long_path_is_told_by_its_file_and_folder() -> None:
    entry = Entry(
        7, "2026-11-29T22:19:42+00:00", "p.py", "/a/long/way/to/matvec/candidate.py", "correct", "H200", 0.12, 1.1
    )
    stream = io.StringIO()
    render_history([entry], Console(file=stream, width=80))
    assert "  7  2026-11-29 22:19:42  correct  matvec/candidate.py  H200" in stream.getvalue()


def test_one_is_shown_as_it_was_with_its_source(checked: None, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["show", "1"]) == 0
    assert capsys.readouterr().out.startswith("CORRECT")
    assert main(["show", "--source", "--", "-1"]) == 0
    assert capsys.readouterr().out == "# candidate 1\n"
    assert main(["show", "9"]) == 2


def test_untimed_ones_are_not_compared_and_say_so(checked: None, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["compare", "1", "2"]) == 0
    assert "not both were timed" in capsys.readouterr().out


def test_export_prints_one_object_a_line(checked: None, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["export", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["candidate_text"] for row in rows] == ["# candidate 0\n", "# candidate 1\n"]


def test_a_history_that_cannot_be_written_does_not_change_the_verdict(
    checked: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_HISTORY", "/dev/null/none")
    capsys.readouterr()
    assert main(["check", "problem.py", "candidate.py"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("WRONG")
    assert "note: the verdict is not kept" in captured.err
