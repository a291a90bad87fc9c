"""The demo: four checks of the examples, and what it exits with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelwright import check as core
from kernelwright.cli import main
from kernelwright.cli.demo import STORIES, examples_folder
from kernelwright.records import Verdict, VerdictWord

pytestmark = pytest.mark.tiny


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str]]]:
    calls: list[tuple[str, dict[str, str]]] = []

    def check(problem: Path, candidate: Path, *, options: Any, progress: Any) -> Verdict:
        calls.append((f"{candidate.parent.name}/{candidate.name}", options.sets))
        word = VerdictWord.CORRECT if candidate.name == "candidate.py" else VerdictWord.FAILED
        return Verdict(word, str(problem), str(candidate), ())

    monkeypatch.setattr(core, "check", check)
    return calls


def test_each_story_shows_the_faulty_candidate_and_then_the_right_one(
    asked: list[tuple[str, dict[str, str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo"]) == 0
    assert [name for name, _ in asked] == [f"{s.folder}/{f}" for s in STORIES for f in ("faulty.py", "candidate.py")]
    assert all(sets for _, sets in asked)
    out = capsys.readouterr().out
    assert out.count("$ kernelwright check ") == 4 and "--set M=64 --set K=4096" in out


def test_full_size_sets_nothing_and_json_is_one_document(
    asked: list[tuple[str, dict[str, str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--full", "--json"]) == 0
    assert all(sets == {} for _, sets in asked)
    assert len(json.loads(capsys.readouterr().out)["verdicts"]) == 4


def test_a_demo_that_does_not_show_what_it_says_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_correct(problem: Path, candidate: Path, *, options: Any, progress: Any) -> Verdict:
        return Verdict(VerdictWord.CORRECT, str(problem), str(candidate), ())

    monkeypatch.setattr(core, "check", all_correct)
    assert main(["demo"]) == 1


def test_the_small_sizes_name_constants_of_the_problems() -> None:
    for story in STORIES:
        text = (examples_folder() / story.folder / "problem.py").read_text(encoding="utf-8")
        assert all(f"\n{name} = " in text for name in story.small), story.folder
