"""Drive one check through its two processes and gather what they saw.

Why: the order of questions is the same for every candidate: open, load, construct, then trial by trial inputs, forward,
reference, comparison. The rule: this module decides nothing about right or wrong and names no cause; it raises only
what ends the check without a verdict (the problem's, the machine's or our own faults), and stops asking once the
candidate has ended or raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernelwright.counters.records import KernelCounters
from kernelwright.errors import InternalError, KernelwrightError, MachineError, ProblemError, UsageError
from kernelwright.records import (
    BuildRecord,
    DeviceFact,
    ExceptionFact,
    Experiment,
    Finding,
    LaunchFact,
    OperatorFact,
    OutputFact,
    OutputNumerics,
    ProcessExit,
    SourceLine,
    Stage,
    Suspicion,
    Trial,
    from_json,
)
from kernelwright.worker.plan import Plan, trial_seed
from kernelwright.worker.seen import Seen
from kernelwright.worker.start import start_candidate, start_oracle
from kernelwright.worker.supervisor import Supervisor
from kernelwright.worker.weights import agree, why_not_loadable
from kernelwright.worker.wire import close_all
from kernelwright.worker.worker import Message, Worker, WorkerEnded

_OPERATORS: Any = tuple[OperatorFact, ...] | None
SLOW_SECONDS = 60.0
"""Once a trial has failed, further ones are run only while the check is younger than this."""
OPEN_SECONDS = 900.0
"""Opening the emulated device compiles its native parts on first use (20 s alone, minutes on a busy machine); that is
our time, not the candidate's."""


class CandidateStopped(Exception):
    """The candidate raised or ended: nothing more can be asked of it."""


class Road:
    """One check's way through the stages, in order; each method is one stretch of it."""

    def __init__(
        self,
        supervisor: Supervisor,
        plan: Plan,
        progress: Callable[[str], None],
        *,
        oracle: Worker | None = None,
        candidate: Worker | None = None,
    ) -> None:
        self.supervisor, self.plan, self.progress = supervisor, plan, progress
        self.seen = Seen()
        self.on_confirm: Callable[[dict[str, Any]], None] = lambda request: None
        """Called with each build that real headers should confirm, as soon as it is known."""
        self.on_step: Callable[[str, float], None] = lambda step, began: None
        """Called with each answer that was waited for, and since when (``time.monotonic``)."""
        self._started = time.monotonic()
        self._built_until = 0.0
        """When the last build ended that was told of."""
        self._draw = _where_drawn(plan)
        self._held: list[int] = []
        """Memory files on their way from one process to the other."""
        self.oracle = oracle or start_oracle(supervisor, plan)
        self.candidate = candidate or start_candidate(supervisor, plan)
        self.candidate.file = str(plan.candidate)
        self.candidate.on_event = self._on_event

    # ---- stretches -------------------------------------------------------------------------------------------------
    def load(self) -> None:
        """Both files run; extensions are built on the way."""
        self.supervisor.post(self.oracle, {"op": "open"})
        self.supervisor.post(self.oracle, {"op": "load"})
        while self.candidate.outstanding:
            self._ask_candidate("ready", Stage.LOAD, timeout_s=OPEN_SECONDS)
        self.supervisor.post(
            self.candidate, {"op": "open", "candidate": str(self.plan.candidate), "text": self.plan.text}
        )
        self.supervisor.post(self.candidate, {"op": "load"})
        self.progress("loading the problem")
        self._ask_oracle("open")
        self._reference, self._init_fds = self._ask_oracle("load")
        self.seen.tensor_bytes = int(self._reference["bytes"])
        opened, _ = self._ask_candidate("open", Stage.LOAD, timeout_s=OPEN_SECONDS)
        self.candidate.waited_s = 0.0
        self.seen.device = from_json(DeviceFact, opened["device"])
        self.progress("building the candidate")
        loaded, _ = self._ask_candidate("load", Stage.LOAD)
        self._took(Stage.LOAD, float(loaded["seconds"]) - self.seen.seconds.get(Stage.BUILD, 0.0))

    def construct(self) -> None:
        """``ModelNew(*init)`` under the reference's seed."""
        request = {
            "op": "construct",
            "init": self._reference["init"],
            "tensors": self._reference["tensors"],
            "seed": self.plan.seed,
        }
        self._hand_on(self.candidate, request, self._init_fds)
        constructed, _ = self._ask_candidate("construct", Stage.RUN)
        mine, right = constructed["parameters"], self._reference["parameters"]
        self.seen.weights = "rng" if mine or right else "none"
        self.seen.weights_note = why_not_loadable(mine, right)
        self._weights_agree = agree(mine, right)
        if self.plan.weights == "state_dict":
            self._load_state()
            self.seen.weights = "state_dict"

    def run_trials(self) -> None:
        """Fresh inputs, forward, reference, comparison, as often as asked for."""
        for index in range(self.plan.trials):
            if self.seen.trials and not all(trial.passed for trial in self.seen.trials) and self._age() > SLOW_SECONDS:
                self.seen.notes.append(f"trials {index + 1} to {self.plan.trials} were not run: an earlier one failed")
                break
            self.progress(f"trial {index + 1} of {self.plan.trials}")
            trial, facts = self._trial(index)
            self.seen.trials.append(trial)
            self.seen.facts += [fact for fact in facts if fact not in self.seen.facts]
        if all(trial.passed for trial in self.seen.trials):
            return
        self.supervisor.post(self.candidate, {"op": "suspicions"})
        told, _ = self._ask_candidate("suspicions", Stage.JUDGE)
        self.seen.suspicions = [from_json(Suspicion, item) for item in told["suspicions"]]
        if not self._weights_agree:
            self._try_state()

    def finish(self) -> None:
        """Take in what came late, and let the candidate's process end."""
        self.supervisor.finish(self.candidate)
        if self.candidate.left_behind:
            left = self.candidate.left_behind
            self.seen.notes.append(f"the candidate left {left} process{'es' * (left > 1)} behind; ended")

    def rest(self) -> None:
        """Have the oracle give back what it holds of the device: others need it now."""
        self.supervisor.post(self.oracle, {"op": "rest"})
        self._ask_oracle("rest")

    def close(self) -> None:
        """Close what was on its way when the check ended."""
        close_all(self._held)
        self._held = []

    # ---- one trial -------------------------------------------------------------------------------------------------
    def _trial(self, index: int) -> tuple[Trial, list[OutputFact]]:
        seed = trial_seed(self.plan.seed, index)
        self.supervisor.post(self.oracle, {"op": "trial", "seed": seed, "draw": self._draw})
        given, fds = self._ask_oracle("trial")
        self.seen.tensor_bytes = int(self._reference["bytes"]) + int(given["bytes"])
        request = {"op": "forward", "trial": index, "seed": seed}
        request |= {key: given[key] for key in ("recipe", "sums", "inputs", "tensors") if key in given}
        self._hand_on(self.candidate, request, fds)
        # The reference is computed while the candidate runs.
        self.supervisor.post(self.oracle, {"op": "reference", "operators": index == 0})
        self.supervisor.post(self.oracle, {"op": "oracle"})
        try:
            done, out = self._ask_candidate("forward", Stage.RUN)
        except CandidateStopped:
            if self.seen.exception is not None:
                # Nobody can compute what the reference itself cannot: then the problem is what failed.
                self._ask_oracle("reference")
            raise
        made, _ = self._ask_oracle("reference")
        how, _ = self._ask_oracle("oracle")
        if done.get("differs"):
            self.seen.notes.append("inputs are handed over: the candidate's process draws others from the same seed")
            self._draw = ""
            return self._trial(index)
        self.seen.inputs = str(given["how"])
        if self.plan.counted and "counters" in done:
            self.seen.counters = [from_json(KernelCounters, item) for item in done["counters"]]
        self._took(Stage.RUN, float(done["seconds"]))
        self.seen.notes += [str(note) for note in how["notes"] if note not in self.seen.notes]
        allowed = {f"input {number}" for number in made["mutated"]}
        self.seen.mutated += [name for name in map(str, done["mutated"]) if name not in allowed]
        self.seen.random = self.seen.random or bool(made["random"])
        # What the outputs are instead is asked once.
        first = all(trial.passed for trial in self.seen.trials) and not self.seen.findings
        compare = {"op": "compare", "outputs": done["outputs"], "tensors": done["tensors"], "device": done["device"]}
        compare["experiment"] = first and not self.seen.random
        self._hand_on(self.oracle, compare, out)
        judged, _ = self._ask_oracle("compare")
        if "garbage" in judged:
            self._stop(Stage.RUN, self._ended_badly(f"its outputs cannot be read: {judged['garbage']}"))
        self.seen.oracle, self.seen.atol, self.seen.rtol = judged["oracle"], judged["atol"], judged["rtol"]
        self._took(Stage.JUDGE, float(judged["seconds"]))
        self.seen.experiments += [from_json(Experiment, item) for item in judged["experiments"]]
        if judged["impostors"] is not None and self.seen.impostors is None:
            self.seen.impostors = tuple(judged["impostors"])
        notes = list(judged["notes"])
        if done["repeat"]:
            notes.append(f"a second run on the same inputs differs by up to {float(done['repeat']):.3g}")
        self._note_conduct(done, made, [int(n) for n in judged["sums"]], passed=bool(judged["passed"]))
        trial = Trial(
            seed=seed,
            passed=bool(judged["passed"]),
            outputs=tuple(from_json(OutputNumerics, item) for item in judged["outputs"]),
            note="; ".join(notes),
            seconds=float(done["seconds"]),
        )
        return trial, [from_json(OutputFact, item) for item in judged["facts"]]

    def _note_conduct(self, done: dict[str, Any], made: dict[str, Any], sums: list[int], *, passed: bool) -> None:
        conduct = self.seen.conduct
        if done.get("reads") is not None and "operators" in made:
            ours, theirs = (from_json(_OPERATORS, one["operators"]) for one in (done, made))
            conduct = replace(
                conduct,
                operators=ours,
                reads_input=bool(done["reads"]),
                reference_operators=theirs,
                reference_reads_input=bool(made["reads"]),
            )
        for number, trial in enumerate(self.seen.trials):
            again = trial.passed and not passed and sums and sums == self.seen.sums[number]
            if again and conduct.returned_again is None:
                conduct = replace(conduct, returned_again=(len(self.seen.trials) + 1, number + 1))
        self.seen.sums.append(sums)
        same = len(self.seen.sums) > 1 and all(one == sums for one in self.seen.sums)
        self.seen.conduct = replace(conduct, same_in_all_trials=same and bool(sums))

    # ---- weights ---------------------------------------------------------------------------------------------------
    def _load_state(self) -> None:
        self.supervisor.post(self.oracle, {"op": "weights"})
        given, fds = self._ask_oracle("weights")
        request = {"op": "state", "state": given["state"], "tensors": given["tensors"]}
        self._hand_on(self.candidate, request, fds)
        self._ask_candidate("state", Stage.RUN)

    def _try_state(self) -> None:
        """Would it be right with the reference's weights? The trials stand as they are."""
        self.seen.weights = "differ"
        if self.seen.weights_note or self.plan.weights == "state_dict":
            return
        self.progress("once more with the reference's weights")
        before = (self.seen.exception, self.seen.exit, self.seen.stopped_in, list(self.seen.mutated))
        try:
            self._load_state()
            trial, _ = self._trial(0)
        except CandidateStopped:
            self.seen.exception, self.seen.exit, self.seen.stopped_in, self.seen.mutated = before
            return
        if trial.passed:
            self.seen.weights = "state_dict"

    # ---- talking ---------------------------------------------------------------------------------------------------
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

    def _age(self) -> float:
        return time.monotonic() - self._started


def _memory_ran_out(fact: ExceptionFact) -> bool:
    """Whether an exception says that memory could not be had: Python's, the CPU allocator's, CUDA's."""
    return (
        fact.type in ("MemoryError", "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError")
        or "can't allocate memory" in fact.message
        or "CUDA out of memory" in fact.message
    )


def _where_drawn(plan: Plan) -> str:
    """The device that inputs are drawn on; empty where they are made once and handed over."""
    if plan.inputs == "handed" or (plan.inputs == "auto" and plan.device != "cuda"):
        return ""
    return "cuda:0" if plan.device == "cuda" else "cpu"
