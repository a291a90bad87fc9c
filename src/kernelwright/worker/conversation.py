"""What the supervisor and a check's two processes say to each other: questions, answers, and facts that come between.

Why: whatever a process does, die, hang or send garbage, is an answer of some kind, and which kind does not depend on
the question. The rule: the candidate's faults are facts in :class:`~kernelwright.worker.seen.Seen` and end the
questions; the problem's, the machine's and our own are exceptions, which end the check.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernelwright.errors import InternalError, KernelwrightError, MachineError, ProblemError, UsageError
from kernelwright.records import (
    BuildRecord,
    DeviceFact,
    ExceptionFact,
    Finding,
    LaunchFact,
    ProcessExit,
    SourceLine,
    Stage,
    from_json,
)
from kernelwright.worker.plan import Plan
from kernelwright.worker.seen import Seen
from kernelwright.worker.supervisor import Supervisor
from kernelwright.worker.wire import close_all
from kernelwright.worker.worker import Message, Worker, WorkerEnded


class CandidateStopped(Exception):
    """The candidate raised or ended: nothing more can be asked of it."""


class Conversation:
    """One check's two processes, and what they told so far."""

    def __init__(self, supervisor: Supervisor, plan: Plan, *, oracle: Worker, candidate: Worker) -> None:
        self.supervisor, self.plan = supervisor, plan
        self.seen = Seen()
        self.on_confirm: Callable[[dict[str, Any]], None] = lambda request: None
        """Called with each build that real headers should confirm, as soon as it is known."""
        self.on_step: Callable[[str, float], None] = lambda step, began: None
        """Called with each answer that was waited for, and since when (``time.monotonic``)."""
        self._built_until = 0.0
        """When the last build ended that was told of."""
        self._held: list[int] = []
        """Memory files on their way from one process to the other."""
        self.oracle, self.candidate = oracle, candidate
        self.candidate.file = str(plan.candidate)
        self.candidate.on_event = self._on_event

    def close(self) -> None:
        """Close what was on its way when the check ended."""
        close_all(self._held)
        self._held = []

    # ---- questions --------------------------------------------------------------------------------------------------
    def _ask_oracle(self, operation: str) -> Message:
        try:
            reply, fds = self._reply(self.oracle, operation)
        except WorkerEnded as ended:
            raise self._oracle_ended(ended.exit) from None
        if "usage" in reply:
            raise UsageError(reply["usage"], hint=reply["hint"])
        if "machine" in reply:
            raise MachineError(reply["machine"], hint=reply["hint"])
        if "fault" in reply:
            raise InternalError(f"the judge failed in {reply['during']}:\n{reply['fault']['traceback']}")
        if "error" in reply:
            fact = from_json(ExceptionFact, reply["error"])
            place = f", line {fact.frames[-1].line}" if fact.frames else ""
            raise ProblemError(f"{self.plan.problem}{place}: {reply['during']} raises {fact.type}: {fact.message}")
        return reply, fds

    def _oracle_ended(self, exit: ProcessExit) -> KernelwrightError:
        doing = exit.during or "its start"
        if exit.timed_out:
            return ProblemError(f"{self.plan.problem}: {doing} did not end within {self.plan.timeout_s:g} s")
        if exit.out_of_memory or exit.signal == "SIGKILL":
            hint = "--set makes the problem's constants smaller"
            return MachineError(f"{self.plan.problem}: {doing} needs more memory than this machine has", hint=hint)
        how = exit.signal or f"exit status {exit.returncode}"
        return ProblemError(f"{self.plan.problem}: its process ended ({how}) in {doing}\n{exit.stderr}".rstrip())

    def _ask_candidate(self, operation: str, stage: Stage, *, timeout_s: float | None = None) -> Message:
        try:
            reply, fds = self._reply(self.candidate, operation, timeout_s=timeout_s)
        except WorkerEnded as ended:
            self._stop(stage, ended.exit)
        if "fault" in reply:
            if reply["refused"]:
                # What it does not know is among the findings; it says nothing of the candidate.
                self.seen.stopped_in = stage
                raise CandidateStopped
            raise InternalError(f"the emulated device failed:\n{reply['traceback']}")
        if "machine" in reply:
            raise MachineError(reply["machine"], hint=reply["hint"])
        if "error" in reply:
            self.seen.exception = from_json(ExceptionFact, reply["error"])
            self.seen.stopped_in = Stage.BUILD if reply["build"] else stage
            if _memory_ran_out(self.seen.exception):
                self.seen.exit = replace(self.candidate.exit_fact(), out_of_memory=True, during=str(reply["during"]))
            raise CandidateStopped
        return reply, fds

    def _reply(self, worker: Worker, operation: str, *, timeout_s: float | None = None) -> Message:
        """The next reply, on the worker's own clock: what it may still take of the time-out."""
        began = time.monotonic()
        reply, fds = self.supervisor.reply(worker, timeout_s=timeout_s or self.plan.timeout_s)
        self._held += fds
        self.on_step(f"{worker.role}: {operation}", began)
        if reply["reply"] != operation:
            worker.protocol_error = f"it answered {reply['reply']!r:.40} to {operation!r}"
            self.supervisor.stop(worker)
            raise WorkerEnded(worker.role, worker.exit_fact())
        return reply, fds

    def _hand_on(self, worker: Worker, request: dict[str, Any], fds: list[int]) -> None:
        """Post a request with memory files that are then no longer ours."""
        self.supervisor.post(worker, request, fds)
        close_all(fds)
        self._held = [fd for fd in self._held if fd not in fds]

    def _stop(self, stage: Stage, exit: ProcessExit) -> None:
        if not exit.frames:
            exit = replace(exit, frames=self.seen.leaving_frames)
        exit = replace(exit, frames=(*self.seen.kernel_frames, *exit.frames))
        self.seen.exit, self.seen.stopped_in = exit, stage
        raise CandidateStopped

    def _ended_badly(self, why: str) -> ProcessExit:
        self.candidate.protocol_error = why
        self.supervisor.stop(self.candidate)
        return self.candidate.exit_fact()

    # ---- facts between answers -------------------------------------------------------------------------------------
    def _on_event(self, event: dict[str, Any]) -> None:
        """A fact that came between replies. What does not fit its form is a fact about the sender."""
        try:
            if "build" in event:
                self._built(from_json(BuildRecord, event["build"]))
            elif "confirm" in event:
                self.seen.confirm_requests += 1
                self.on_confirm(event["confirm"])
            elif "findings" in event:
                self.seen.findings += [from_json(Finding, item) for item in event["findings"]]
            elif "observations" in event:
                self.seen.observations += [from_json(Finding, item) for item in event["observations"]]
            elif "launches" in event:
                self.seen.launches = [from_json(LaunchFact, item) for item in event["launches"]]
                self.seen.device = from_json(DeviceFact, event["device"])
            elif "replaced" in event:
                self.seen.conduct = replace(self.seen.conduct, replaced=from_json(tuple[str, ...], event["replaced"]))
            elif "stopped_at" in event:
                self.seen.kernel_frames = from_json(tuple[SourceLine, ...], event["stopped_at"])
            elif "leaving" in event:
                self.seen.leaving_frames = tuple(self._line(int(n), str(f)) for n, f in event["frames"])
        except (TypeError, KeyError, ValueError) as error:
            self.candidate.protocol_error = f"it sent an event that is none: {error}"

    def _built(self, record: BuildRecord) -> None:
        """Keep ``record``. A candidate may build side by side: the stage took the time in which anything was built."""
        now = time.monotonic()
        self._took(Stage.BUILD, now - max(now - record.seconds, self._built_until))
        self._built_until = now
        self.seen.builds.append(record)

    def _line(self, number: int, function: str) -> SourceLine:
        lines = self.plan.text.splitlines()
        text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        return SourceLine(str(self.plan.candidate), number, text, function)

    def _took(self, stage: Stage, seconds: float) -> None:
        self.seen.seconds[stage] = self.seen.seconds.get(stage, 0.0) + max(0.0, seconds)


def _memory_ran_out(fact: ExceptionFact) -> bool:
    """Whether an exception says that memory could not be had: Python's, the CPU allocator's, CUDA's."""
    return (
        fact.type in ("MemoryError", "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError")
        or "can't allocate memory" in fact.message
        or "CUDA out of memory" in fact.message
    )
