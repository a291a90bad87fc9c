"""What a check's facts amount to: each stage's outcome, the verdict's word, and what was not checked.

Why: the word must follow from the evidence alone, by rules that stand in one place. The rule: nothing is run or asked
here.
"""

from __future__ import annotations

import importlib.metadata
import platform

import kernelwright
from kernelwright.device.checks import LEFT_OUT
from kernelwright.explain.refused import REFUSED
from kernelwright.records import Cause, Evidence, Finding, Stage, StageResult, StageStatus, VerdictWord
from kernelwright.worker.plan import Plan
from kernelwright.worker.seen import Seen


def stages(seen: Seen, *, refused: bool) -> tuple[StageResult, ...]:
    """Each stage's outcome: passed before the one that stopped, not run after it."""
    results: list[StageResult] = []
    stopped = Stage.BUILD if refused and seen.stopped_in is None else seen.stopped_in
    order = [Stage.LOAD, Stage.BUILD, Stage.RUN, Stage.JUDGE]
    for stage in order:
        seconds = seen.seconds.get(stage, 0.0)
        if stage is stopped and _refusals(seen):
            note = f"not checked: the emulated device does not know {_refusals(seen)[0].access or 'its PTX'}"
            results.append(StageResult(stage, StageStatus.NOT_RUN, seconds, note))
        elif stage is stopped:
            note = "the real torch headers refuse what the fast ones accepted" if refused else _why(seen)
            results.append(StageResult(stage, StageStatus.FAILED, seconds, note))
        elif stage is Stage.BUILD and not seen.builds:
            results.append(StageResult(stage, StageStatus.NOT_RUN, 0.0, "the candidate builds no extension"))
        elif stopped is not None and order.index(stage) > order.index(stopped) and not seen.trials:
            word = "was not finished" if _refusals(seen) else "failed"
            results.append(StageResult(stage, StageStatus.NOT_RUN, 0.0, f"{stopped.value} {word}"))
        elif stage is Stage.JUDGE and seen.trials and not all_passed(seen):
            results.append(StageResult(stage, StageStatus.FAILED, seconds, "an output is not the reference's"))
        else:
            results.append(StageResult(stage, StageStatus.PASSED, seconds))
    return tuple(results)


def _refusals(seen: Seen) -> list[Finding]:
    """What the emulated device did not know; empty where it stopped at anything else."""
    return seen.findings if all(finding.cause == REFUSED for finding in seen.findings) else []


def _why(seen: Seen) -> str:
    if seen.exit is not None:
        exit = seen.exit
        how = (
            "it ran out of time"
            if exit.timed_out
            else "it ran out of memory"
            if exit.out_of_memory
            else "it broke off its messages"
            if exit.returncode is None and not exit.signal
            else f"its process ended with {exit.signal or f'exit status {exit.returncode}'}"
        )
        return f"{how} during {exit.during}" if exit.during else how
    if seen.exception is not None:
        first = seen.exception.message.strip().splitlines()
        return f"{seen.exception.type}: {first[0][:200] if first else ''}"
    return ""


def all_passed(seen: Seen) -> bool:
    """Whether every trial that was judged passed; True where none was."""
    return all(trial.passed for trial in seen.trials)


def word(evidence: Evidence, causes: tuple[Cause, ...], *, random: bool) -> VerdictWord:
    """The verdict's word: the gravest that the evidence allows, from cheating down to correct."""
    numerics = evidence.numerics
    if any(cause.id.startswith("cheat.") for cause in causes):
        return VerdictWord.CHEATING
    if evidence.findings and all(finding.cause == REFUSED for finding in evidence.findings):
        return VerdictWord.UNSURE
    failed = any(stage.status is StageStatus.FAILED and stage.stage is not Stage.JUDGE for stage in evidence.stages)
    if failed or evidence.exception or evidence.exit or evidence.findings:
        return VerdictWord.FAILED
    if numerics is None or not numerics.trials:
        return VerdictWord.UNSURE
    passed = all(trial.passed for trial in numerics.trials)
    if random and not passed:
        return VerdictWord.UNSURE
    if not passed or evidence.outputs or numerics.mutated:
        return VerdictWord.WRONG
    return VerdictWord.CORRECT


def notes(plan: Plan, evidence: Evidence, *, random: bool) -> list[str]:
    """What the verdict does not rest on, and what was not checked."""
    told: list[str] = []
    numerics = evidence.numerics
    if random:
        told.append("the reference's forward pass draws random numbers, so no second implementation can equal it")
    if numerics is not None and numerics.oracle not in ("", "float64") and not numerics.oracle.startswith("float64 in"):
        told.append(f"compared with the {numerics.oracle}: precision was not checked")
    if numerics is not None and numerics.passing_impostors:
        names = ", ".join(numerics.passing_impostors)
        told.append(f"the tolerance cannot tell right from wrong here: {names} would pass, too")
    return [*told, *filter(None, [_uncounted(plan, evidence), _unwatched(plan)])]


def _uncounted(plan: Plan, evidence: Evidence) -> str:
    """Why there are no counters although they were asked for; empty where there are, or nobody asked."""
    if not plan.counted or evidence.counters is not None:
        return ""
    return "counters (only the emulated device has them)" if plan.device != "emulated" else "counters (no trial ended)"


def _unwatched(plan: Plan) -> str:
    """What the emulated device was told not to look for."""
    return LEFT_OUT[plan.checks] if plan.device == "emulated" else ""


def versions() -> dict[str, str]:
    """Of what a result depends on."""
    return {
        "kernelwright": kernelwright.__version__,
        "torch": version("torch"),
        "python": platform.python_version(),
    }


def version(package: str) -> str:
    """Asked without importing the package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
