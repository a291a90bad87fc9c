"""From what the timing process says to the record, with a process that only pretends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelwright.errors import MachineError
from kernelwright.measure.nvml import Sampler, Unavailable
from kernelwright.measure.plan import MeasurePlan
from kernelwright.measure.records import ComparisonWord, Mark, Reason
from kernelwright.measure.run import NotMeasured, run, timing
from kernelwright.measure.stage import measure
from kernelwright.records import ProcessExit, StageStatus, to_json
from kernelwright.worker.worker import WorkerEnded

pytestmark = pytest.mark.tiny

PLAN = MeasurePlan(problem=Path("problem.py"), candidate=Path("candidate.py"), text="", problem_text="")


def opened() -> dict[str, Any]:
    ceilings = {
        name: {"name": name, "unit": unit, "best": best, "sustained": None, "how": "", "sm_mhz": 0}
        for name, unit, best in (("read", "GB/s", 4000.0), ("write", "GB/s", 4000.0), ("launch", "ms", 0.003))
    }
    return {
        "reply": "open",
        "uuid": "GPU-0",
        "work": {"read_bytes": 2_000_000_000, "written_bytes": 0, "flops": {}, "note": ""},
        "ceilings": {
            "device": "a card",
            "driver": "1",
            "l2_bytes": 1,
            "ceilings": ceilings,
            "source": "measured",
            "versions": {},
        },
        "alone_ms": 2.0,
        "inputs": "drawn anew",
        "empty_ms": 0.0015,
        "versions": {"torch": "2.11"},
    }


def timed(*, rounds: int = 20, **changes: Any) -> dict[str, Any]:
    samples = [
        {"contestant": name, "round": i, "device_ms": ms * (1 + 0.001 * (i % 3)), "begin_ns": i, "end_ns": i}
        | {"enqueue_ms": 0.1, "marks": []}
        for i in range(rounds)
        for name, ms in (("eager", 2.0), ("candidate", 1.0))
    ]
    wall = [
        {"contestant": name, "wall_ms": ms + 0.12, "device_ms": ms + 0.1, "enqueue_ms": 0.1}
        for name, ms in (("eager", 2.0), ("candidate", 1.0))
    ]
    return {
        "reply": "time",
        "samples": samples,
        "wall": wall,
        "rounds": rounds,
        "stopped": "samples",
        "checked": {"candidate": [rounds, 0, 1e-7]},
        "wrong_rounds": [],
        "tampered": [],
        "graphs": {"candidate": [[0.98, 0.99, 1.0], ""], "eager": [[], "cannot be captured"]},
        "carried": {},
        "notes": [],
        "steps": {"the timed rounds": 0.5},
    } | changes


def unwatched() -> Sampler:
    def refuses() -> Any:
        raise Unavailable("no NVML here")

    sampler = Sampler(refuses)
    with sampler:
        pass
    return sampler


def test_a_record_has_figures_words_and_the_limit() -> None:
    made = timing(opened(), timed(), unwatched())
    (comparison,) = made.comparisons
    assert (comparison.word, comparison.speedup.median) == (ComparisonWord.FASTER, pytest.approx(2.0))
    candidate = next(c for c in made.contestants if c.name == "candidate")
    assert candidate.graph is not None and candidate.graph.median == 0.99
    assert candidate.checked == 20
    assert made.limit is not None
    assert (made.limit.kind, made.limit.limit_ms) == ("memory", pytest.approx(0.5))
    assert made.limit.fraction == {"eager": pytest.approx(0.25, rel=2e-3), "candidate": pytest.approx(0.5, rel=2e-3)}
    assert made.card.note == "no NVML here"


def test_the_candidate_comes_first_and_eager_next_whatever_the_first_rounds_order_was() -> None:
    said = timed()
    other = [{**sample, "contestant": "compile"} for sample in said["samples"] if sample["contestant"] == "eager"]
    made = timing(opened(), {**said, "samples": [*other, *said["samples"]]}, unwatched())
    assert [one.name for one in made.contestants] == ["candidate", "eager", "compile"]
    assert [one.baseline for one in made.comparisons] == ["eager", "compile"]


def test_a_wrong_timed_output_marks_its_sample_and_ends_the_win() -> None:
    made = timing(opened(), timed(wrong_rounds=[["candidate", 4]], checked={"candidate": [20, 1, 0.5]}), unwatched())
    assert [(s.contestant, s.round) for s in made.samples if Mark.OUTPUT_WRONG in s.marks] == [("candidate", 4)]
    assert (made.comparisons[0].word, made.comparisons[0].reason) == (ComparisonWord.UNSURE, Reason.OUTPUT_WRONG)


def test_a_kept_baseline_is_carried_over_and_shares_the_objections() -> None:
    kept = {"compile": [[2.0] * 20, [1.5] * 20]}
    made = timing(opened(), timed(carried=kept), unwatched())
    found = {comparison.baseline: comparison for comparison in made.comparisons}
    assert found["compile"].speedup.median == pytest.approx(1.5, rel=2e-3)
    compiled = next(c for c in made.contestants if c.name == "compile")
    assert compiled.cached
    assert compiled.device.median == pytest.approx(1.5, rel=2e-3)
    doubted = timing(opened(), timed(carried=kept, tampered=["time.time"]), unwatched())
    assert {comparison.reason for comparison in doubted.comparisons} == {Reason.TAMPERED}


def test_without_work_or_ceilings_there_is_no_limit() -> None:
    assert timing(opened() | {"work": None}, timed(), unwatched()).limit is None


class Pretended:
    """A supervisor whose timing process says what it is told to."""

    def __init__(self, replies: list[Any]) -> None:
        self.replies: list[Any] = [{"reply": "ready"}, *replies]
        self.asked: list[str] = []
        self.finished, self.ended = False, False
        self.pid = 1
        self.workers = [self]

    def start(self, role: str, config: dict[str, Any], *, file: str) -> Pretended:
        assert role == "timer"
        assert config["secret"] >= 0
        return self

    def post(self, worker: Any, message: dict[str, Any]) -> None:
        self.asked.append(message["op"])

    def reply(self, worker: Any, *, timeout_s: float) -> tuple[dict[str, Any], list[int]]:
        said = self.replies.pop(0)
        if isinstance(said, Exception):
            raise said
        return said, []

    def finish(self, worker: Any) -> None:
        self.finished = True


def ask(supervisor: Pretended, plan: MeasurePlan = PLAN) -> Any:
    return run(supervisor, plan, lambda words: None)  # type: ignore[arg-type]


def test_the_process_is_asked_in_order_and_ended() -> None:
    supervisor = Pretended([opened(), {"reply": "load"}, timed()])
    assert ask(supervisor).rounds == 20
    assert supervisor.asked == ["ready", "open", "load", "time"]
    assert supervisor.finished


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            WorkerEnded("timer", ProcessExit(timed_out=True, during="the timed rounds")),
            "the timing process ran out of time during the timed rounds",
        ),
        (
            WorkerEnded("timer", ProcessExit(signal="SIGSEGV", during="ModelNew(...)")),
            r"the timing process ended \(SIGSEGV\) during ModelNew",
        ),
        (
            {"reply": "open", "error": {"type": "RuntimeError", "message": "CUDA error\nmore"}, "during": "graphs"},
            "graphs raised RuntimeError: CUDA error",
        ),
        ({"reply": "other"}, "answered 'other' to 'open'"),
    ],
)
def test_a_process_that_fails_says_where_and_is_ended(said: Any, told: str) -> None:
    supervisor = Pretended([said])
    with pytest.raises(NotMeasured, match=told):
        ask(supervisor)
    assert supervisor.finished


def test_a_machine_that_cannot_is_no_fault_of_the_candidate() -> None:
    with pytest.raises(MachineError, match="no GPU"):
        ask(Pretended([{"reply": "open", "machine": "no GPU", "hint": ""}]))


def stage(replies: list[Any], **changes: Any) -> Any:
    import dataclasses

    plan = dataclasses.replace(PLAN, **changes)
    return measure(Pretended(replies), plan, lambda words: None)  # type: ignore[arg-type]


def test_a_stage_that_was_not_run_says_why() -> None:
    found = measure(Pretended([]), "not checked (emulated device)", lambda words: None)  # type: ignore[arg-type]
    assert (found.result.status, found.result.note) == (StageStatus.NOT_RUN, "not checked (emulated device)")
    assert found.timing is None


def test_a_shown_speed_up_passes_and_one_that_was_not_fails() -> None:
    shown = stage([opened(), {"reply": "load"}, timed()], require_speedup=1.9)
    assert shown.result.status is StageStatus.PASSED
    unshown = stage([opened(), {"reply": "load"}, timed()], require_speedup=2.1)
    assert unshown.result.status is StageStatus.FAILED
    assert "2.1x of eager was asked for" in unshown.result.note
    assert unshown.timing is not None and unshown.timing.required_speedup == 2.1


def test_a_failed_timing_fails_the_stage_only_where_speed_was_required() -> None:
    ended = WorkerEnded("timer", ProcessExit(signal="SIGSEGV", during="graphs"))
    assert stage([ended]).result.status is StageStatus.NOT_RUN
    assert stage([ended]).note.startswith("timing: the timing process ended")
    assert stage([ended], require_speedup=1.1).result.status is StageStatus.FAILED


def test_the_record_is_strict_json() -> None:
    import json

    made = timing(opened(), timed(rounds=1), unwatched())
    json.dumps(to_json(made), allow_nan=False)


def test_what_rounds_to_tf32_has_no_fraction_of_the_limit() -> None:
    said = timed()
    said["samples"] += [
        sample | {"contestant": "tf32"} for sample in said["samples"] if sample["contestant"] == "eager"
    ]
    made = timing(opened(), said, unwatched())
    assert made.limit is not None
    assert sorted(made.limit.fraction) == ["candidate", "eager"]
