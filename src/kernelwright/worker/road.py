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
from kernelwright.judge.launched import own
from kernelwright.records import (
    DeviceFact,
    Experiment,
    OperatorFact,
    OutputFact,
    OutputNumerics,
    Stage,
    Suspicion,
    Trial,
    from_json,
)
from kernelwright.worker.conversation import CandidateStopped, Conversation
from kernelwright.worker.plan import Plan, trial_seed
from kernelwright.worker.start import start_candidate, start_oracle
from kernelwright.worker.supervisor import Supervisor
from kernelwright.worker.weights import agree, why_not_loadable
from kernelwright.worker.worker import Worker

_OPERATORS: Any = tuple[OperatorFact, ...] | None
SLOW_SECONDS = 60.0
"""Once a trial has failed, further ones are run only while the check is younger than this."""
OPEN_SECONDS = 900.0
"""Opening the emulated device compiles its native parts on first use (20 s alone, minutes on a busy machine); that is
our time, not the candidate's."""


class Road(Conversation):
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
        super().__init__(
            supervisor,
            plan,
            oracle=oracle or start_oracle(supervisor, plan),
            candidate=candidate or start_candidate(supervisor, plan),
        )
        self.progress = progress
        self._started = time.monotonic()
        self._draw = _where_drawn(plan)

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
            self._note_launches()
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

    # ---- one trial -------------------------------------------------------------------------------------------------
    def _trial(self, index: int) -> tuple[Trial, list[OutputFact]]:
        seed = trial_seed(self.plan.seed, index)
        self.supervisor.post(self.oracle, {"op": "trial", "seed": seed, "draw": self._draw})
        given, fds = self._ask_oracle("trial")
        self.seen.tensor_bytes = int(self._reference["bytes"]) + int(given["bytes"])
        request = {"op": "forward", "trial": index, "seed": seed}
        request |= {key: given[key] for key in _GIVEN if key in given}
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

    def _note_launches(self) -> None:
        """On a GPU, what a forward pass launches, where its operators alone may have made the output."""
        conduct = self.seen.conduct
        suspect = conduct.gives_a_constant or (self.seen.builds and conduct.does_the_references_work)
        if self.plan.device != "cuda" or not suspect:
            return
        self.progress("noting what is launched")
        seed = trial_seed(self.plan.seed, 0)
        before = (self.seen.exception, self.seen.exit, self.seen.stopped_in)
        try:
            self.supervisor.post(self.oracle, {"op": "trial", "seed": seed, "draw": self._draw})
            given, fds = self._ask_oracle("trial")
            request = {"op": "launches", "seed": seed}
            request |= {key: given[key] for key in _GIVEN if key in given}
            self._hand_on(self.candidate, request, fds)
            told, _ = self._ask_candidate("launches", Stage.JUDGE)
        except CandidateStopped:
            # The trials stand; the profiler may be what it did not bear.
            self.seen.exception, self.seen.exit, self.seen.stopped_in = before
            self.seen.notes.append("what is launched (a forward pass under the profiler did not end)")
            return
        names = None if told["names"] is None else from_json(tuple[str, ...], told["names"])
        if names is None:
            self.seen.notes.append("what is launched (the driver tells of nothing)")
        elif any(record.tier == "torch" for record in self.seen.builds):
            self.seen.notes.append("what is launched (PyTorch's own build does not tell which kernels it compiled)")
        else:
            built = [kernel.name for record in self.seen.builds for kernel in record.kernels]
            self.seen.conduct = replace(conduct, own_kernels=own(names, built))

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

    def _age(self) -> float:
        return time.monotonic() - self._started


_GIVEN = ("recipe", "sums", "inputs", "tensors")
"""What the oracle's reply to ``trial`` says of the inputs."""


def _where_drawn(plan: Plan) -> str:
    """The device that inputs are drawn on; empty where they are made once and handed over."""
    if plan.inputs == "handed" or (plan.inputs == "auto" and plan.device != "cuda"):
        return ""
    return "cuda:0" if plan.device == "cuda" else "cpu"
