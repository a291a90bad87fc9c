"""Two stored verdicts side by side: which is faster, as far as runs on different days can tell.

Why: candidates are edited and timed again, and two medians of two days differ by the card's mood. The rule: both were
timed beside eager, so each is taken as a multiple of its own eager; the same words and margins as within one run. What
was not timed on the same device and driver against the same problem is not compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.measure import statistics, verdicts
from kernelwright.measure.records import Comparison, ComparisonWord, Interval, Timing
from kernelwright.measure.verdicts import CANDIDATE
from kernelwright.store.history import Stored


@dataclass(frozen=True)
class Between:
    """The second stored verdict against the first."""

    first: int
    second: int
    words: tuple[str, str]
    """The verdicts' words."""
    comparison: Comparison | None
    """The second's speed over the first's; None where they cannot be compared."""
    note: str = ""
    """Why not."""


def compare(one: Stored, other: Stored) -> Between:
    """``other`` against ``one``, through eager."""
    words = (one.verdict.verdict.value, other.verdict.verdict.value)
    note = _why_not(one, other)
    if note or one.verdict.timing is None or other.verdict.timing is None:
        return Between(one.entry.id, other.entry.id, words, None, note)
    before = verdicts.pairs(one.verdict.timing.samples, "eager", CANDIDATE)
    after = verdicts.pairs(other.verdict.timing.samples, "eager", CANDIDATE)
    # (eager / other now) x (one / eager then).
    speedup = statistics.carried(after[0], after[1], before[0], before[1])
    return Between(one.entry.id, other.entry.id, words, _worded(speedup, one, other))


def _worded(speedup: Interval, one: Stored, other: Stored) -> Comparison:
    doubts = [
        comparison
        for stored in (one, other)
        if stored.verdict.timing
        for comparison in stored.verdict.timing.comparisons
        if comparison.baseline == "eager"
        and comparison.word is ComparisonWord.UNSURE
        and comparison.reason is not statistics.decide(comparison.speedup).reason
    ]
    objection = (doubts[0].reason, doubts[0].sentence) if doubts else None
    return verdicts.worded(f"verdict {one.entry.id}", speedup, objection)


def _why_not(one: Stored, other: Stored) -> str:
    first, second = one.verdict.timing, other.verdict.timing
    if first is None or second is None:
        return "not both were timed"
    if one.problem_text != other.problem_text:
        return "their problems differ"
    if one.verdict.sets != other.verdict.sets:
        return f"their problems' sizes differ: {_sizes(one)} and {_sizes(other)}"
    if _machine(first) != _machine(second):
        return f"timed on {' '.join(_machine(first))} and on {' '.join(_machine(second))}"
    return ""


def _sizes(stored: Stored) -> str:
    return ", ".join(f"{name}={value}" for name, value in stored.verdict.sets.items()) or "as the problem has them"


def _machine(timing: Timing) -> tuple[str, ...]:
    return (timing.card.name, timing.card.driver, *timing.versions.values())
