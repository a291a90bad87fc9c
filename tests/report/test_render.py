"""What a person sees: golden screens at two widths, and what must hold of every screen."""

from __future__ import annotations

import dataclasses
import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from kernelwright.records import Verdict, VerdictWord
from kernelwright.report import render, render_summary
from kernelwright.report.verdict import not_checked

pytestmark = pytest.mark.tiny

GOLDEN = Path(__file__).with_name("golden")


def screen(verdict: Verdict, *, width: int = 80, color: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=color, highlight=False, markup=False, emoji=False)
    render(verdict, console)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["everything", "correct"])
def test_a_screen_is_the_golden_one(
    name: str, width: int, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict: Verdict = request.getfixturevalue(name)
    # The file's folder differs from run to run; what stands on the screen must not.
    short = Path("candidate.py")
    monkeypatch.chdir(tmp_path)
    causes = tuple(dataclasses.replace(c, file=str(short) if c.file else "") for c in verdict.causes)
    text = screen(dataclasses.replace(verdict, candidate=str(short), causes=causes), width=width)
    path = GOLDEN / f"{name}-{width}.txt"
    if os.environ.get("REWRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_screen_nor_ends_in_blanks(everything: Verdict, width: int) -> None:
    # A path is never cut: a terminal that makes paths clickable needs it whole.
    for line in screen(dataclasses.replace(everything, candidate="candidate.py"), width=width).splitlines():
        assert len(line) <= width or everything.candidate in line
        assert line == line.rstrip()


def test_a_pipe_gets_no_control_characters(everything: Verdict) -> None:
    assert "\x1b" not in screen(everything)
    assert "\x1b" in screen(everything, color=True)


def test_the_line_at_fault_is_shown_with_an_arrow_in_its_surroundings(everything: Verdict) -> None:
    lines = screen(everything, width=120).splitlines()
    marked = [line for line in lines if line.startswith("  > ")]
    assert len(marked) == 1 and marked[0].startswith("  > 4 |     for (int column = threadIdx.x; column <= columns")

    assert "    3 |     int row = blockIdx.x;" in lines


def test_an_unreadable_file_still_shows_the_causes_own_line(everything: Verdict) -> None:
    gone = dataclasses.replace(
        everything, candidate="gone.py", causes=(dataclasses.replace(everything.causes[0], file="gone.py"),)
    )
    assert "  > 4 | for (int column = threadIdx.x; …" in screen(gone)


def test_the_emulated_device_says_that_timing_was_not_checked(correct: Verdict) -> None:
    assert "timing (the emulated device has none)" in not_checked(correct)


def test_sizes_that_were_set_stand_in_the_headline(correct: Verdict) -> None:
    resized = dataclasses.replace(correct, sets={"M": "64", "K": "128"})
    assert "against problem.py, M=64, K=128 on the emulated device" in " ".join(screen(resized).split())


def test_what_could_not_be_compared_is_said(correct: Verdict) -> None:
    assert correct.numerics is not None
    unknown = dataclasses.replace(correct, numerics=dataclasses.replace(correct.numerics, discriminating=None))
    assert "whether the tolerance can tell right from wrong" in not_checked(unknown)
    nothing = dataclasses.replace(correct, numerics=None, device=None)
    assert not_checked(nothing) == ["timing (nothing was timed)", "numerics (there is no output to compare)"]


def test_a_tolerance_that_a_constant_would_pass_is_called_out(everything: Verdict) -> None:
    text = " ".join(screen(everything).split())
    assert "the tolerance does NOT tell right from wrong: it also passes zeros, mean" in text


def test_nan_is_the_worst_error_of_all_trials(everything: Verdict) -> None:
    text = " ".join(screen(everything).split())
    assert "max error NaN (the reference's own 2.4e-07), rms inf" in text


@pytest.mark.parametrize("word", list(VerdictWord))
def test_every_word_stands_in_capitals_at_the_start(correct: Verdict, word: VerdictWord) -> None:
    assert screen(dataclasses.replace(correct, verdict=word)).startswith(word.value.upper() + "  candidate.py")


def test_a_summary_has_one_line_for_each_verdict(everything: Verdict, correct: Verdict) -> None:
    out = io.StringIO()
    render_summary([everything, correct], Console(file=out, width=100))
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert rows[1][0] == "FAILED" and rows[1][2:4] == ["memory.out-of-bounds", "4"]
    assert rows[2] == ["CORRECT", "candidate.py", "-", "-", "3.2", "s"]
