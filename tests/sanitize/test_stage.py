"""When tools and the replay run, at which sizes, and how sure their causes are. No tool and no device is needed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kernelwright.errors import MachineError
from kernelwright.explain.catalogue import UNEXPLAINED
from kernelwright.records import (
    Cause,
    Confidence,
    ExceptionFact,
    Finding,
    ProcessExit,
    SanitizerFact,
    SourceLine,
    Stage,
    Verdict,
    VerdictWord,
)
from kernelwright.sanitize import Question, Sanitized, crashed, sanitize, seen_by_the_device_only, tools
from kernelwright.sanitize.report import Log, Place, Report
from kernelwright.sanitize.tools import Run
from kernelwright.worker.alone import Alone
from kernelwright.worker.tool import Patience

pytestmark = pytest.mark.tiny

ALONE = Alone("p.py", "c.py", "one\ntwo\nthree\n", {}, 0, 1, "rng", "forward", "")
FINDING = Finding("memory.out-of-bounds", "k", (SourceLine("c.py", 2),), (0, 0, 0), (0, 0, 0), "store", "global", 4)
CAUSE = Cause("memory.out-of-bounds", Stage.RUN, "It writes past y.", "c.py", 2)
REPORT = Report("invalid", (Place("k", "c.py", 2),), "Invalid", "write", "global", 4)


def question(**changes: Any) -> Question:
    base = Question(ALONE, {"M": "4096", "K": "1000003"}, asked=False, crashed=True, hung=False, timeout_s=60)
    return replace(base, **changes)


def verdict(*findings: Finding, causes: tuple[Cause, ...] = (), word: VerdictWord = VerdictWord.FAILED) -> Verdict:
    return Verdict(word, "p.py", "c.py", (), causes=causes, findings=findings)


class Replays:
    """Answers replays in order, and keeps what was asked."""

    def __init__(self, *answers: Verdict | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, str]] = []

    def __call__(self, sets: Mapping[str, str], timeout_s: float) -> Verdict:
        self.asked.append(dict(sets))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """No compute-sanitizer on this machine; the tools that were asked for are kept."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(tools, "find", lambda: None)
    return asked


def with_runs(monkeypatch: pytest.MonkeyPatch, *runs: Run) -> list[tuple[str, ...]]:
    asked: list[tuple[str, ...]] = []

    def run_all(program: Any, config: Any, *, tools: tuple[str, ...], **more: Any) -> list[Run]:
        asked.append(tools)
        return list(runs)

    monkeypatch.setattr(tools, "find", lambda: "compute-sanitizer")
    monkeypatch.setattr(tools, "run_all", run_all)
    return asked


def test_nothing_runs_for_a_candidate_that_neither_crashed_nor_was_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = with_runs(monkeypatch)
    made = sanitize(question(crashed=False), Replays(), lambda step: None)
    assert (made.findings, made.notes, asked) == ((), (), [])


def test_a_crash_runs_memcheck_alone_and_asking_runs_all_four(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = with_runs(monkeypatch)
    sanitize(question(), Replays(verdict(FINDING, causes=(CAUSE,))), lambda step: None)
    sanitize(question(crashed=False, asked=True), Replays(), lambda step: None)
    assert asked == [("memcheck",), ("memcheck", "racecheck", "initcheck", "synccheck")]


def test_what_became_of_each_tool_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Run("memcheck", Log((), True, errors=0), seconds=4.0)
    broke_off = Run("racecheck", Log((), False), "Device not supported", seconds=1.0)
    with_runs(monkeypatch, ran, broke_off)
    made = sanitize(question(crashed=False, asked=True), Replays(), lambda step: None)
    assert made.tools == (
        SanitizerFact("memcheck", 0, 4.0, ""),
        SanitizerFact("racecheck", 0, 1.0, "Device not supported"),
    )
    assert made.notes == ("racecheck (Device not supported)",)


def test_tools_that_meet_the_same_crash_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "torch.AcceleratorError in forward: CUDA error: misaligned address"
    with_runs(monkeypatch, *(Run(name, Log((), False), why) for name in ("racecheck", "initcheck", "synccheck")))
    made = sanitize(question(crashed=False, asked=True), Replays(), lambda step: None)
    assert made.notes == (f"racecheck, initcheck, synccheck ({why})",)


def test_a_missing_tool_is_not_checked_and_the_replay_names_the_cause(ran: list[tuple[str, ...]]) -> None:
    replays = Replays(verdict(FINDING, causes=(CAUSE,)))
    made = sanitize(question(), replays, lambda step: None)
    assert made.notes == ("memcheck (compute-sanitizer was not found)",)
    assert replays.asked == [{"M": "1024", "K": "1603"}]
    (cause,) = made.causes
    assert (cause.id, cause.line, cause.confidence) == ("memory.out-of-bounds", 2, Confidence.LIKELY)
    assert cause.evidence == ("seen on the emulated device at M=1024, K=1603",)
    assert made.findings == ()


def test_what_memcheck_saw_at_the_same_line_makes_a_smaller_replay_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"tensors": [{"name": "x", "address": 1, "bytes": 1 << 40, "dtype": "float32", "shape": [1]}]}
    with_runs(monkeypatch, Run("memcheck", Log((REPORT,), True), known=known))
    made = sanitize(question(), Replays(verdict(FINDING, causes=(CAUSE,))), lambda step: None)
    (finding,) = made.findings
    assert finding.witness == ("on the emulated device at M=1024, K=1603 and by compute-sanitizer memcheck on the GPU")


def test_a_crash_is_looked_at_both_ways_at_once_and_memcheck_hurries_once_the_cause_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, answered = threading.Event(), threading.Event()
    until: list[float] = []

    def run_all(program: Any, config: Any, *, patience: Patience, **more: Any) -> list[Run]:
        begun.set()
        assert answered.wait(10)
        while patience.until == math.inf and time.monotonic() < given_up:
            time.sleep(0.01)
        until.append(patience.until)
        return [Run("memcheck", Log((REPORT,), False), "it was ended")]

    def replay(sets: Mapping[str, str], timeout_s: float) -> Verdict:
        assert begun.wait(10)
        answered.set()
        return verdict(FINDING, causes=(CAUSE,))

    given_up = time.monotonic() + 10
    monkeypatch.setattr(tools, "find", lambda: "compute-sanitizer")
    monkeypatch.setattr(tools, "run_all", run_all)
    made = sanitize(question(tensor_bytes=4096), replay, lambda step: None)
    assert until[0] < math.inf
    assert [f.witness for f in made.findings] == [
        "on the emulated device at the same size and by compute-sanitizer memcheck on the GPU"
    ]
    assert made.notes == ("memcheck (it was ended)",)


def test_a_small_failure_is_replayed_at_its_own_size_first(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"tensors": [{"name": "x", "address": 1, "bytes": 4096, "dtype": "float32", "shape": [1024]}]}
    with_runs(monkeypatch, Run("memcheck", Log((), True), known=known))
    replays = Replays(verdict(FINDING, causes=(CAUSE,)))
    made = sanitize(question(), replays, lambda step: None)
    assert replays.asked == [{}]
    assert [f.witness for f in made.findings] == ["on the emulated device at the same size"]
    assert made.causes[0].confidence is Confidence.CERTAIN


def test_a_size_that_shows_nothing_or_does_not_run_leads_to_the_next(ran: list[tuple[str, ...]]) -> None:
    replays = Replays(
        verdict(word=VerdictWord.CORRECT), MachineError("no memory is left"), verdict(FINDING, causes=(CAUSE,))
    )
    made = sanitize(question(), replays, lambda step: None)
    assert [asked["M"] for asked in replays.asked] == ["1024", "256", "64"]
    assert made.notes[1:] == (
        "the replay on the emulated device at M=1024, K=1603 shows nothing (it is correct there)",
        "the replay on the emulated device at M=256, K=323 did not run: no memory is left",
    )
    assert made.causes[0].evidence == ("seen on the emulated device at M=64, K=67",)


def test_a_replay_that_fails_in_another_way_names_no_cause(ran: list[tuple[str, ...]]) -> None:
    wrong_shape = Cause("semantic.shape", Stage.RUN, "The shape differs.", "c.py", 1)
    replays = Replays(*[verdict(causes=(wrong_shape,), word=VerdictWord.WRONG)] * 3)
    made = sanitize(question(), replays, lambda step: None)
    assert (made.findings, made.causes) == ((), ())
    assert len(made.notes) == 4


def test_a_hang_is_replayed_and_no_tool_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = with_runs(monkeypatch)
    deadlock = replace(CAUSE, id="sync.deadlock")
    replays = Replays(verdict(replace(FINDING, cause="sync.deadlock"), causes=(deadlock,)))
    made = sanitize(question(crashed=False, hung=True), replays, lambda step: None)
    assert asked == []
    assert [cause.id for cause in made.causes] == ["sync.deadlock"]


def unexplained(**changes: Any) -> Question:
    """A failure that the GPU did not stop, of small tensors."""
    return question(crashed=False, unexplained=True, tensor_bytes=4096, **changes)


def test_what_nothing_on_the_gpu_explains_is_replayed_and_no_tool_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = with_runs(monkeypatch)
    tolerated = replace(CAUSE, id="sync.shared-race")
    replays = Replays(verdict(replace(FINDING, cause="sync.shared-race"), causes=(tolerated,)))
    made = sanitize(unexplained(), replays, lambda step: None)
    assert (asked, replays.asked) == ([], [{}])
    assert [(cause.id, cause.confidence, cause.evidence) for cause in made.causes] == [
        ("sync.shared-race", Confidence.CERTAIN, ("seen on the emulated device at the same size",))
    ]
    # The GPU ran it to its end: the verdict stays "wrong", which findings would make "failed".
    assert made.findings == ()


def test_with_tools_it_is_replayed_where_they_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"tensors": [{"name": "x", "address": 1, "bytes": 4096, "dtype": "float32", "shape": [1024]}]}
    with_runs(monkeypatch, Run("memcheck", Log((), True), known=known))
    barrier = replace(CAUSE, id="sync.divergent-barrier", stage=Stage.JUDGE)
    made = sanitize(
        unexplained(asked=True), Replays(verdict(causes=(barrier,), word=VerdictWord.WRONG)), lambda step: None
    )
    assert [cause.id for cause in made.causes] == ["sync.divergent-barrier"]
    with_runs(monkeypatch, Run("memcheck", Log((REPORT,), True), known=known))
    explained = sanitize(unexplained(asked=True), Replays(), lambda step: None)
    assert [finding.cause for finding in explained.findings] == ["memory.out-of-bounds"]


@pytest.mark.parametrize(
    ("id", "at_its_size", "smaller"),
    [
        ("memory.out-of-bounds", True, True),
        ("launch.shared-memory", True, True),
        ("logic.power-of-two", True, True),
        ("numeric.overflow", True, True),
        ("semantic.broadcast", True, False),  # a smaller size may be what it does not fit
        ("cheat.calls-reference", False, False),  # what is called cheating must be seen on this device
        ("device.refused", False, False),
        (UNEXPLAINED, False, False),
    ],
)
def test_which_causes_of_a_replay_explain_a_wrong_result(id: str, at_its_size: bool, smaller: bool) -> None:
    answer = verdict(causes=(replace(CAUSE, id=id),), word=VerdictWord.WRONG)
    same = sanitize(unexplained(), Replays(answer), lambda step: None)
    assert [cause.id for cause in same.causes] == [id] * at_its_size
    large = replace(unexplained(), tensor_bytes=1 << 40)
    other = sanitize(large, Replays(answer, answer, answer), lambda step: None)
    assert [(cause.id, cause.confidence) for cause in other.causes] == [(id, Confidence.LIKELY)] * smaller


def test_a_smaller_size_that_is_right_or_fails_by_itself_explains_no_wrong_result() -> None:
    numeric = replace(CAUSE, id="numeric.overflow")
    large = replace(unexplained(), tensor_bytes=1 << 40)
    replays = Replays(*[verdict(causes=(numeric,), word=VerdictWord.FAILED)] * 2, verdict(word=VerdictWord.CORRECT))
    made = sanitize(large, replays, lambda step: None)
    assert (made.causes, len(replays.asked), len(made.notes)) == ((), 3, 3)


@pytest.mark.parametrize("word", [VerdictWord.CORRECT, VerdictWord.WRONG])
def test_a_replay_that_ended_at_the_failures_own_size_is_the_last(word: VerdictWord) -> None:
    replays = Replays(verdict(word=word))
    made = sanitize(unexplained(), replays, lambda step: None)
    assert replays.asked == [{}]
    assert made.notes == (
        f"the replay on the emulated device at the same size shows nothing (it is {word.value} there)",
    )


def test_one_that_did_not_end_there_goes_on_to_a_smaller_size() -> None:
    replays = Replays(verdict(word=VerdictWord.FAILED), verdict(FINDING, causes=(CAUSE,)))
    made = sanitize(unexplained(), replays, lambda step: None)
    assert replays.asked == [{}, {"M": "1024", "K": "1603"}]
    assert [cause.confidence for cause in made.causes] == [Confidence.LIKELY]


def test_nothing_is_replayed_where_that_was_not_wanted(ran: list[tuple[str, ...]]) -> None:
    assert sanitize(unexplained(replays=False), Replays(), lambda step: None) == Sanitized()
    crash = sanitize(question(replays=False), Replays(), lambda step: None)
    assert (crash.causes, crash.notes) == ((), ("memcheck (compute-sanitizer was not found)",))


@pytest.mark.parametrize(
    ("exception", "exit", "wrong", "expected"),
    [
        (None, None, True, True),
        (None, None, False, False),
        (ExceptionFact("RuntimeError", "CUDA error: invalid argument"), None, False, True),
        (ExceptionFact("KeyError", "'weight'"), None, False, False),
        (ExceptionFact("KeyError", "'weight'"), None, True, False),
        (None, ProcessExit(signal="SIGSEGV"), False, True),
        (None, ProcessExit(signal="SIGKILL", out_of_memory=True), False, False),
        (None, ProcessExit(signal="SIGKILL", timed_out=True), False, False),
        (None, ProcessExit(returncode=3), False, False),
    ],
)
def test_which_failures_only_a_device_can_explain(
    exception: ExceptionFact | None, exit: ProcessExit | None, wrong: bool, expected: bool
) -> None:
    assert seen_by_the_device_only(exception, exit, wrong=wrong) is expected


def test_a_problem_without_constants_is_replayed_as_it_is(ran: list[tuple[str, ...]]) -> None:
    replays = Replays(verdict(FINDING, causes=(CAUSE,)))
    made = sanitize(question(constants={}), replays, lambda step: None)
    assert replays.asked == [{}]
    assert made.findings[0].witness == "on the emulated device at the same size"


def test_the_replays_cause_takes_the_place_of_unexplained_and_is_not_told_twice() -> None:
    made = Sanitized(causes=(CAUSE,))
    unexplained = Cause(UNEXPLAINED, Stage.RUN, "It crashed.")
    assert made.all_causes((unexplained,)) == (CAUSE,)
    sure = replace(CAUSE, sentence="More words.")
    assert made.all_causes((sure,)) == (sure,)
    assert Sanitized().all_causes((unexplained,)) == (unexplained,)


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA",
        "CUDA error: misaligned address",
        "CUDA error: unspecified launch failure",
        "CUDA error: device-side assert triggered",
    ],
)
def test_an_exception_that_tells_of_a_stopped_kernel_is_a_crash(message: str) -> None:
    assert crashed(ExceptionFact("torch.AcceleratorError", message), None)


def test_other_exceptions_are_no_crash_and_an_abort_after_a_device_error_is() -> None:
    assert not crashed(ExceptionFact("RuntimeError", "expected scalar type Float but found Half"), None)
    assert not crashed(ExceptionFact("RuntimeError", "CUDA error: invalid configuration argument"), None)
    assert not crashed(None, ProcessExit(signal="SIGSEGV"))
    assert crashed(None, ProcessExit(signal="SIGABRT", stderr="CUDA error: misaligned address"))
