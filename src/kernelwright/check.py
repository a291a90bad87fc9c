"""One candidate against one problem: load, build, run, judge, explain, verdict.

Why: every face (command line, JSON, later MCP) asks the same question and gets the same record. The rule: this process
imports no torch and runs no foreign code; the stages follow one another below as in docs, and what was not checked is
said so in the verdict.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelwright import outcome, settings
from kernelwright.confirmation import Confirmation
from kernelwright.errors import EXIT_NO, EXIT_YES, UsageError
from kernelwright.explain import UNEXPLAINED, advice, explain, remarks
from kernelwright.measure.plan import MeasurePlan
from kernelwright.measure.stage import measure
from kernelwright.prebuild import Prebuild
from kernelwright.problem.layout import Outline, outline, read_source
from kernelwright.records import BuildRecord, Evidence, Stage, StageStatus, Verdict, VerdictWord
from kernelwright.sanitize import Question, Sanitized, crashed, sanitize, seen_by_the_device_only
from kernelwright.warm import Warm
from kernelwright.worker import limits
from kernelwright.worker.alone import Alone
from kernelwright.worker.conversation import CandidateStopped
from kernelwright.worker.plan import Plan, trial_seed
from kernelwright.worker.road import Road
from kernelwright.worker.seen import Seen

CONFIRM_SECONDS = 15.0
"""How long to wait for the real torch headers where the verdict is not "correct" anyway: a splice takes 9 s."""


@dataclass(frozen=True)
class CheckOptions:
    """How to check; every field has the default of its flag."""

    sets: dict[str, str] = field(default_factory=dict)
    """Constants of the problem to replace: name to Python literal."""
    device: str = "auto"
    """``auto`` | ``emulated`` | ``cuda``; ``host`` presents no GPU at all, for candidates in plain PyTorch."""
    presents_as: str = "h200"
    """The data sheet that the emulated device presents."""
    trials: int = 3
    seed: int = 0
    """Of the weights; each trial's inputs have a seed of their own, derived from it and far from it."""
    atol: float | None = None
    rtol: float | None = None
    """None: KernelBench's, 1e-4, or 1e-2 where the reference's outputs are of a half type."""
    timeout_s: float = 300.0
    """The longest the candidate may take in all, and the reference in all."""
    memory_bytes: int | None = None
    """Most memory that the candidate may take; None: three quarters of what is available."""
    confirm: bool = True
    """Have the real torch headers compile what the fast ones accepted."""
    weights: str = "auto"
    """``auto``: by equal construction, and the reference's state tried where that fails; ``state_dict``: by name."""
    inputs: str = "auto"
    """``drawn``: each process draws the trials' inputs from the seed; ``handed``: made once on the CPU and handed over;
    ``auto``: drawn on a GPU, where ``get_inputs()`` allows it."""
    counted: bool = False
    """Count what each kernel does in one forward pass; only on the emulated device."""
    checks: str = "all"
    """What the emulated device looks for: ``all``, or ``memory``, which leaves out races."""
    timing: bool = True
    """Time a correct candidate; only on a GPU."""
    baselines: tuple[str, ...] = ("eager",)
    """What it is timed against: ``eager`` (always), ``tf32``, ``compile``, ``max-autotune``."""
    samples: int = 100
    """Most rounds that are timed."""
    min_samples: int = 20
    """Fewest rounds that are timed, however precise they are."""
    require_speedup: float | None = None
    """The speed-up over each baseline that must be shown; None: none is asked for."""
    sanitize: bool = False
    """Run compute-sanitizer's tools over the candidate; only on a GPU, where a crash runs memcheck by itself."""
    replay: bool = True
    """Run on the emulated device, too, what fails on a GPU in a way that nothing explains."""


def check(
    problem: Path,
    candidate: Path,
    *,
    options: CheckOptions,
    progress: Callable[[str], None],
    warm: Warm | None = None,
) -> Verdict:
    """Check ``candidate`` against ``problem`` and say what was found.

    ``progress`` is told what happens, a few words each. Raises ``MissingFile`` or ``UsageError`` for what cannot be
    asked, ``ProblemError`` where the problem itself does not run, ``MachineError`` and ``InternalError``.
    ``warm`` lends processes that outlive this check, and starts those that the next one will want.
    """
    started = time.monotonic()
    outlined = outline(problem, options.sets)
    text = read_source(candidate, role="candidate")
    plan = _plan(problem, candidate, text, options)
    if options.require_speedup is not None and (plan.device != "cuda" or not options.timing):
        raise UsageError("a speed-up can only be required where something is timed", hint="that needs --device cuda")
    emulated = plan.device == "emulated"
    awaited = warm is not None and warm.awaits(plan)
    ahead = Prebuild(candidate, text, device=plan.device, presents_as=plan.presents_as, enabled=not awaited)
    with ahead, Confirmation(enabled=options.confirm and emulated) as confirmation:
        with Warm() if warm is None else contextlib.nullcontext(warm) as lent:
            supervisor = lent.supervisor
            oracle, own = lent.oracle(plan, outlined.text), lent.candidate(plan)
            road = Road(supervisor, plan, progress, oracle=oracle, candidate=own)
            road.on_confirm = confirmation.add
            if settings.debug() >= settings.DEBUG_TIMINGS:
                road.on_step = lambda step, began: progress(_step(step, time.monotonic() - began, started))
            timed = plan.device == "cuda" and options.timing
            timing_plan = _timing_plan(plan, outlined.text, options) if timed else None
            timer = lent.timer(timing_plan) if timing_plan is not None else None
            try:
                road.load()
                road.construct()
                road.run_trials()
            except CandidateStopped:
                pass
            finally:
                road.close()
            road.finish()
            printed = road.candidate.stdout.text(), road.candidate.stderr.text()
            sanitized = _sanitized(plan, road.seen, outlined, options, progress)
            to_time = _measure_plan(plan, road.seen, sanitized, outlined.text, options)
            if isinstance(to_time, MeasurePlan):
                road.rest()
            measured = measure(supervisor, to_time, progress, worker=timer)
            if settings.debug() >= settings.DEBUG_TIMINGS and measured.timing is not None:
                steps = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in measured.timing.steps.items())
                progress(_step(f"timer: {steps}; all of it", measured.timing.seconds, started))
            if warm is not None:
                warm.get_ready(plan, timing_plan)
        seen = road.seen
        if seen.confirm_requests:
            progress("confirming the build")
        left = options.timeout_s - (time.monotonic() - started)
        # A verdict of "correct" rests on the real headers; another one gains a truer cause, which is worth a little.
        builds = confirmation.confirmed(seen.builds, timeout_s=left if seen.well else min(left, CONFIRM_SECONDS))
    evidence = _evidence(plan, seen, builds, sanitized)
    causes = sanitized.all_causes(explain(evidence))
    return Verdict(
        verdict=outcome.word(evidence, causes, random=seen.random),
        problem=str(problem),
        candidate=str(candidate),
        # A speed that was not shown is no failure that a cause could explain.
        stages=(*evidence.stages, measured.result),
        sets=dict(options.sets),
        causes=causes,
        build=builds,
        numerics=evidence.numerics,
        timing=measured.timing,
        advice=(*advice(evidence), *remarks(evidence)),
        counters=evidence.counters,
        launches=evidence.launches,
        findings=evidence.findings,
        sanitizers=sanitized.tools,
        device=evidence.device,
        versions=outcome.versions(),
        notes=(
            *seen.notes,
            *outcome.notes(plan, evidence, random=seen.random),
            *confirmation.notes,
            *sanitized.notes,
            *filter(None, [measured.note]),
        ),
        candidate_stdout=printed[0],
        candidate_stderr=printed[1],
        seconds=time.monotonic() - started,
    )


def exit_status(verdict: Verdict) -> int:
    """0 where the candidate is correct and any required speed-up was shown, else 1.

    Usage (2) and our own or the machine's faults (3) are exceptions.
    """
    unmet = any(s.stage is Stage.MEASURE and s.status is StageStatus.FAILED for s in verdict.stages)
    return EXIT_YES if verdict.verdict == VerdictWord.CORRECT and not unmet else EXIT_NO


def _plan(problem: Path, candidate: Path, text: str, options: CheckOptions) -> Plan:
    return Plan(
        problem=problem,
        candidate=candidate,
        text=text,
        sets=options.sets,
        device=device_of(options.device),
        presents_as=options.presents_as,
        trials=options.trials,
        seed=options.seed,
        atol=options.atol,
        rtol=options.rtol,
        timeout_s=options.timeout_s,
        memory_bytes=options.memory_bytes or limits.default_memory_bytes(),
        weights=options.weights,
        inputs=options.inputs,
        counted=options.counted,
        checks=options.checks,
    )


def _evidence(plan: Plan, seen: Seen, builds: tuple[BuildRecord, ...], sanitized: Sanitized) -> Evidence:
    """What ``explain`` goes by."""
    return Evidence(
        problem_file=str(plan.problem),
        candidate_file=str(plan.candidate),
        candidate_text=plan.text,
        stages=outcome.stages(seen, refused=any(record.confirmed is False for record in builds)),
        builds=builds,
        exception=seen.exception,
        exit=seen.exit,
        findings=(*seen.findings, *sanitized.findings),
        observations=(*seen.observations, *sanitized.observations),
        suspicions=tuple(seen.suspicions),
        launches=tuple(seen.launches),
        counters=None if seen.counters is None else tuple(seen.counters),
        outputs=tuple(seen.facts),
        numerics=seen.numerics(),
        experiments=tuple(seen.experiments),
        conduct=seen.conduct,
        device=seen.device,
    )


def _sanitized(
    plan: Plan, seen: Seen, outlined: Outline, options: CheckOptions, progress: Callable[[str], None]
) -> Sanitized:
    """What sanitizers add, and a replay on the emulated device: a check of its own, without the rest."""
    if plan.device != "cuda":
        itself = "; the emulated device checks every access itself" if plan.device == "emulated" else ""
        note = f"sanitizers (they need a GPU{itself})"
        return Sanitized(notes=(note,) if options.sanitize else ())
    built = seen.stopped_in not in (Stage.LOAD, Stage.BUILD)
    alone = Alone(
        problem=str(plan.problem.resolve()),
        candidate=str(plan.candidate),
        text=plan.text,
        sets=plan.sets,
        seed=plan.seed,
        trial_seed=trial_seed(plan.seed, 0),
        weights=seen.weights,
        do="forward",
        result="",
    )

    def replay(sets: Mapping[str, str], timeout_s: float) -> Verdict:
        again = replace(
            options, sets=dict(sets), device="emulated", trials=1, timeout_s=timeout_s, confirm=False, timing=False,
            require_speedup=None, sanitize=False, counted=False,
        )  # fmt: skip
        return check(plan.problem, plan.candidate, options=again, progress=progress)

    wrong = not seen.random and not outcome.all_passed(seen)
    explicable = built and seen_by_the_device_only(seen.exception, seen.exit, wrong=wrong)
    question = Question(
        alone,
        outlined.constants,
        asked=options.sanitize and built,
        crashed=crashed(seen.exception, seen.exit),
        hung=seen.stopped_in is Stage.RUN and seen.exit is not None and seen.exit.timed_out,
        timeout_s=options.timeout_s,
        unexplained=explicable and _unexplained(_evidence(plan, seen, tuple(seen.builds), Sanitized())),
        replays=options.replay,
        tensor_bytes=seen.tensor_bytes or None,
    )
    return sanitize(question, replay, progress)


def _unexplained(evidence: Evidence) -> bool:
    return any(cause.id == UNEXPLAINED for cause in explain(evidence))


def _measure_plan(
    plan: Plan, seen: Seen, sanitized: Sanitized, problem_text: str, options: CheckOptions
) -> MeasurePlan | str:
    """What to time, or why nothing is."""
    if plan.device != "cuda":
        return f"not checked ({plan.device} device)"
    if not options.timing:
        return "not asked for"
    whole = len(seen.trials) == plan.trials and outcome.all_passed(seen)
    against = seen.facts or seen.mutated or seen.random or sanitized.findings
    if seen.stopped_in is not None or not whole or against:
        return "only a correct candidate is timed"
    found = _timing_plan(plan, problem_text, options)
    return replace(found, weights=seen.weights, atol=seen.atol, rtol=seen.rtol)


def _timing_plan(plan: Plan, problem_text: str, options: CheckOptions) -> MeasurePlan:
    """What to time, as far as it is known before the candidate is judged."""
    return MeasurePlan(
        problem=plan.problem,
        candidate=plan.candidate,
        text=plan.text,
        problem_text=problem_text,
        sets=plan.sets,
        seed=plan.seed,
        baselines=options.baselines,
        samples=options.samples,
        min_samples=options.min_samples,
        require_speedup=options.require_speedup,
        timeout_s=plan.timeout_s,
    )


def _step(step: str, seconds: float, started: float) -> str:
    return f"{step} took {seconds:.2f} s, until {time.monotonic() - started:.2f} s"


def device_of(chosen: str) -> str:
    """``auto`` is a GPU where its driver shows one and PyTorch was built for it; asked without importing torch."""
    if chosen != "auto":
        return chosen
    shown = Path("/dev/nvidiactl").exists() and os.environ.get("CUDA_VISIBLE_DEVICES", "0") not in ("", "-1")
    return "cuda" if shown and "+cpu" not in outcome.version("torch") else "emulated"
