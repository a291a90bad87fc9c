"""Turns evidence into ranked causes: what is wrong, at which line, how it is known and what to do.

Why: a checker's message is where hours are lost; the cause with its evidence is the product. The rule: a cause is named
only on evidence, by exactly one family's file; without any, the pattern is described and called unexplained. No rule
reads anything but its :class:`Evidence` and the texts that it names, and none knows a particular candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernelwright.explain import (
    build,
    cheat,
    elsewhere,
    experiment,
    interface,
    launch,
    logic,
    memory,
    performance,
    refused,
    semantic,
    sync,
    unexplained,
    warp,
)
from kernelwright.explain.case import Case
from kernelwright.explain.catalogue import CAUSES, UNEXPLAINED
from kernelwright.records import Cause, Confidence, Evidence, Stage, StageStatus

__all__ = ["CAUSES", "UNEXPLAINED", "advice", "explain", "remarks"]

# In the order of the road: of two causes of one stage and certainty, the earlier family's is the more basic one.
_FAMILIES: tuple[Callable[[Case], Iterator[Cause]], ...] = (
    build.causes,
    cheat.causes,
    interface.causes,
    experiment.causes,
    launch.causes,
    memory.causes,
    sync.causes,
    warp.causes,
    logic.causes,
    refused.causes,
    semantic.causes,
)

_STAGES = tuple(Stage)
_CERTAINTY = tuple(Confidence)

# Shown by the output of a kernel that never ran, or was stopped: consequences, not causes of their own.
_FOLLOWS_FROM_A_STOPPED_KERNEL = frozenset({"memory.unwritten-output", "memory.uninitialised"})


def explain(evidence: Evidence) -> tuple[Cause, ...]:
    """Ranked causes of what went wrong; none where nothing did.

    Ranked by stage, then by certainty, then by family; what is merely possible comes last. Equal causes at equal lines
    are one. A failure that no rule names yields one cause ``unexplained`` that describes it.
    """
    case = Case(evidence)
    found = [cause for family in _FAMILIES for cause in family(case)]
    found = _without_consequences(_once(found))
    if not found and _failed(evidence):
        found = list(unexplained.causes(case))
    return tuple(sorted(found, key=_rank))


def advice(evidence: Evidence) -> tuple[Cause, ...]:
    """What makes a correct candidate slow, of the family ``performance``; none where nothing was counted."""
    if evidence.counters is None or _failed(evidence):
        return ()
    return tuple(_once(list(performance.causes(Case(evidence)))))


def remarks(evidence: Evidence) -> tuple[Cause, ...]:
    """What a correct candidate does that goes wrong, or is slow, in other hands than the check's."""
    return () if _failed(evidence) else tuple(_once(list(elsewhere.causes(Case(evidence)))))


def _rank(cause: Cause) -> tuple[bool, int, int]:
    return (
        cause.confidence is Confidence.POSSIBLE,
        _STAGES.index(cause.stage),
        _CERTAINTY.index(cause.confidence),
    )


def _once(causes: list[Cause]) -> list[Cause]:
    seen: dict[tuple[str, int], Cause] = {}
    for cause in causes:
        seen.setdefault((cause.id, cause.line), cause)
    return list(seen.values())


def _without_consequences(causes: list[Cause]) -> list[Cause]:
    ran = [cause for cause in causes if cause.stage is not Stage.JUDGE and cause.confidence is Confidence.CERTAIN]
    if not ran:
        return causes
    return [c for c in causes if c.stage is not Stage.JUDGE or c.id not in _FOLLOWS_FROM_A_STOPPED_KERNEL]


def _failed(evidence: Evidence) -> bool:
    """Whether anything at all speaks against the candidate, or against the problem."""
    numerics = evidence.numerics
    wrong = numerics is not None and any(not trial.passed for trial in numerics.trials)
    broken = any(result.status is StageStatus.FAILED for result in evidence.stages)
    ended = evidence.exception or evidence.problem_exception or evidence.exit
    return bool(wrong or broken or ended or evidence.findings or evidence.outputs)
