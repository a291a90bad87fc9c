"""Verdicts kept and found again."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from kernelwright.errors import MachineError, UsageError
from kernelwright.measure.records import Comparison, ComparisonWord, Reason, Timing
from kernelwright.records import Stage, StageResult, StageStatus, Verdict, VerdictWord, from_json
from kernelwright.store import history as store
from kernelwright.store.compare import compare
from kernelwright.store.history import History, Stored

pytestmark = pytest.mark.tiny

RECORDED = Path(__file__).parents[1] / "measure" / "samples" / "matrix_vector-h200.json"


def verdict(*, timed: bool = False, word: VerdictWord = VerdictWord.CORRECT) -> Verdict:
    timing = from_json(Timing, json.loads(RECORDED.read_text(encoding="utf-8"))) if timed else None
    stages = (StageResult(Stage.LOAD, StageStatus.PASSED, 0.1),)
    return Verdict(word, "problem.py", "candidate.py", stages, timing=timing, versions={"torch": "2.11"})


def add(history: History, made: Verdict, *, problem: str = "P", candidate: str = "C") -> int:
    return history.add(made, problem_text=problem, candidate_text=candidate)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "deep" / "history.sqlite")


def test_a_verdict_comes_back_whole_with_both_sources(history: History) -> None:
    made = verdict(timed=True)
    number = add(history, made, problem="# a problem\n", candidate="# a candidate: µ\n")
    stored = history.get(number)
    assert stored.verdict == made
    assert (stored.problem_text, stored.candidate_text) == ("# a problem\n", "# a candidate: µ\n")
    assert stored.entry.device_ms == pytest.approx(1.9016, abs=1e-4)
    assert stored.entry.speedup == pytest.approx(1.21, abs=1e-2)


def test_the_newest_come_first_and_can_be_counted_back_to(history: History) -> None:
    for word in (VerdictWord.WRONG, VerdictWord.FAILED, VerdictWord.CORRECT):
        add(history, verdict(word=word))
    assert [entry.word for entry in history.entries()] == ["correct", "failed", "wrong"]
    assert [entry.id for entry in history.entries(limit=2)] == [3, 2]
    assert history.get(-1).entry.word == "correct"
    assert history.get(-3).entry.word == "wrong"


def test_an_unknown_number_is_a_users_mistake(history: History) -> None:
    add(history, verdict())
    for number in (7, -2, 0):
        with pytest.raises(UsageError, match=f"no verdict {number}"):
            history.get(number)


def test_equal_sources_are_kept_once(history: History) -> None:
    for _ in range(5):
        add(history, verdict())
    with sqlite3.connect(history.path) as base:
        assert base.execute("SELECT count(*) FROM sources").fetchone() == (2,)
    base.close()


def test_a_crash_in_mid_write_loses_nothing_that_was_finished(history: History) -> None:
    add(history, verdict())
    base = sqlite3.connect(history.path)
    base.execute("BEGIN IMMEDIATE")
    base.execute("INSERT INTO sources VALUES ('half', 'written')")
    # As a killed process leaves it: never committed.
    base.close()
    assert len(history.entries()) == 1
    assert add(history, verdict()) == 2


def _die_while_writing(path: Path) -> None:
    base = sqlite3.connect(path)
    base.execute("BEGIN IMMEDIATE")
    base.execute("INSERT INTO sources VALUES ('half', 'written')")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_writer_that_is_killed_leaves_every_finished_verdict_readable_and_writable(history: History) -> None:
    add(history, verdict(timed=True))
    process = multiprocessing.get_context("fork").Process(target=_die_while_writing, args=(history.path,))
    process.start()
    process.join(10)
    assert process.exitcode == -signal.SIGKILL
    (entry,) = history.entries()
    assert history.get(entry.id).verdict == verdict(timed=True)
    assert add(history, verdict()) == 2
    with closing(sqlite3.connect(history.path)) as base:
        assert base.execute("SELECT count(*) FROM sources WHERE digest = 'half'").fetchone() == (0,)
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _add_many(path: Path) -> None:
    for _ in range(10):
        add(History(path), verdict())


def test_processes_may_write_at_once(history: History) -> None:
    processes = [multiprocessing.get_context("fork").Process(target=_add_many, args=(history.path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(history.entries()) == 30


def test_a_new_file_that_another_process_is_writing_is_waited_for(history: History) -> None:
    history.path.parent.mkdir(parents=True, exist_ok=True)
    other = sqlite3.connect(history.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")  # SQLite's own timeout does not help a change of the journal's mode here
    release = threading.Timer(0.2, other.commit)
    release.start()
    add(history, verdict())
    release.join()
    other.close()
    assert len(history.entries()) == 1


def test_what_waiting_cannot_help_is_told_at_once(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.time, "sleep", lambda seconds: pytest.fail("waited"))
    journal = history.path.with_name(history.path.name + "-journal")
    journal.mkdir(parents=True)  # in the way of any change
    with pytest.raises(MachineError, match="cannot be used"):
        history.entries()


def test_a_file_that_is_no_history_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    path.write_text("not a database, and long enough to be looked at " * 10)
    with pytest.raises(MachineError, match="cannot be used"):
        History(path).entries()


def test_a_later_version_is_refused_and_not_changed(history: History) -> None:
    add(history, verdict())
    with sqlite3.connect(history.path) as base:
        base.execute("PRAGMA user_version = 99")
    base.close()
    with pytest.raises(MachineError, match="later Kernelwright"):
        history.entries()


def test_export_gives_everything_oldest_first(history: History) -> None:
    add(history, verdict(timed=True), candidate="one")
    add(history, verdict(), candidate="two")
    rows = list(history.export())
    assert [row["candidate_text"] for row in rows] == ["one", "two"]
    assert len(rows[0]["verdict"]["timing"]["samples"]) == 40
    json.dumps(rows, allow_nan=False)


def stored(history: History, made: Verdict, *, problem: str = "P") -> Stored:
    return history.get(add(history, made, problem=problem))


def scaled(made: Verdict, *, card: float, candidate: float) -> Verdict:
    """``made`` on a day when everything takes ``card`` times as long, and the candidate ``candidate`` times more."""
    assert made.timing is not None
    samples = tuple(
        dataclasses.replace(s, device_ms=s.device_ms * card * (candidate if s.contestant == "candidate" else 1))
        for s in made.timing.samples
    )
    return dataclasses.replace(made, timing=dataclasses.replace(made.timing, samples=samples))


def compared(history: History, one: Verdict, other: Verdict) -> Comparison:
    found = compare(stored(history, one), stored(history, other)).comparison
    assert found is not None
    return found


def test_two_days_are_compared_through_eager(history: History) -> None:
    base = verdict(timed=True)
    faster = compared(history, base, scaled(base, card=1.3, candidate=0.5))
    assert (faster.word, faster.reason) == (ComparisonWord.FASTER, Reason.INTERVAL_ABOVE)
    assert faster.speedup.median == pytest.approx(2.0, rel=1e-6)
    assert compared(history, base, scaled(base, card=0.7, candidate=1.0)).word is ComparisonWord.SAME
    assert compared(history, base, scaled(base, card=1.0, candidate=1.1)).word is ComparisonWord.SLOWER


def test_what_cannot_be_compared_says_why(history: History) -> None:
    timed = verdict(timed=True)
    assert compare(stored(history, timed), stored(history, verdict())).note == "not both were timed"
    other = compare(stored(history, timed), stored(history, timed, problem="Q"))
    assert (other.comparison, other.note) == (None, "their problems differ")
    smaller = dataclasses.replace(timed, sets={"N": "64"})
    resized = compare(stored(history, timed), stored(history, smaller))
    assert resized.comparison is None
    assert resized.note == "their problems' sizes differ: as the problem has them and N=64"
    assert compare(stored(history, smaller), stored(history, smaller)).comparison is not None
