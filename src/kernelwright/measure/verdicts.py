"""From marked samples to figures and words: each contestant's medians, each comparison's word, and what overrules it.

Why: the word rests on more than an interval; a tampered clock or a wrong timed output makes any interval worthless.
The rule: pure functions; the first objection in the order below overrules the interval's word and makes it UNSURE,
except that SLOWER stands where only the objection itself could have made the candidate look faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.measure import statistics
from kernelwright.measure.marks import UNUSABLE, usable
from kernelwright.measure.records import (
    Comparison,
    ComparisonWord,
    Interval,
    Mark,
    Reason,
    Sample,
    WallSample,
)

CANDIDATE = "candidate"
WALL_SLACK_MS = 0.15
"""What a device-wide synchronisation and two event records may add to a wall clock's figure (H200: 0.02 to 0.06)."""
WALL_SLACK_SHARE = 0.05
DISTURBED_SHARE = 0.03
"""The baseline beside the candidate may be this much slower than alone: a matrix product warms the card."""


@dataclass(frozen=True)
class Facts:
    """What was seen besides times."""

    wrong_outputs: int = 0
    tampered: tuple[str, ...] = ()
    """Names of functions that were replaced."""
    baseline_alone_ms: float | None = None
    """Median of the eager baseline before the candidate's code was there."""


def pairs(samples: Sequence[Sample], one: str, other: str) -> tuple[list[float], list[float]]:
    """Device times of two contestants in the rounds where both have a usable sample."""
    mine = {s.round: s.device_ms for s in samples if s.contestant == one and usable(s)}
    theirs = {s.round: s.device_ms for s in samples if s.contestant == other and usable(s)}
    rounds = sorted(mine.keys() & theirs.keys())
    return [mine[r] for r in rounds], [theirs[r] for r in rounds]


def figure(samples: Sequence[Sample], name: str) -> Interval:
    """Device time of a contestant in ms, from its usable samples."""
    return statistics.interval([s.device_ms for s in samples if s.contestant == name and usable(s)])


def compare(baseline: str, samples: Sequence[Sample], wall: Sequence[WallSample], facts: Facts) -> Comparison:
    """The candidate against ``baseline``, both timed in the same rounds."""
    over, under = pairs(samples, baseline, CANDIDATE)
    speedup = statistics.ratio(over, under)
    taken = len({s.round for s in samples if s.contestant == CANDIDATE})
    objection = _objection(samples, wall, facts, over, under, taken=taken)
    return worded(baseline, speedup, objection)


def worded(baseline: str, speedup: Interval, objection: tuple[Reason, str] | None) -> Comparison:
    """The comparison's record: the interval's own word, unless ``objection`` overrules it."""
    decision = statistics.decide(speedup)
    if objection is not None and decision.word is not ComparisonWord.SLOWER:
        return Comparison(baseline, ComparisonWord.UNSURE, objection[0], objection[1], speedup)
    return Comparison(baseline, decision.word, decision.reason, decision.sentence, speedup)


def unmet(comparisons: Sequence[Comparison], required: float) -> str:
    """Why the candidate was not shown to be ``required`` times as fast as every baseline; empty where it was.

    The whole interval must lie at or above it. UNSURE shows nothing.
    """
    for one in comparisons:
        if one.word is ComparisonWord.UNSURE:
            return f"against {one.baseline}: unsure ({one.sentence})"
        if not one.speedup.low >= required:
            return f"{required:g}x of {one.baseline} was asked for; shown is at least {one.speedup.low:.4g}x"
    return "" if comparisons else "there is no baseline to compare with"


def objections(samples: Sequence[Sample], wall: Sequence[WallSample], facts: Facts) -> tuple[Reason, str] | None:
    """The first reason, not a matter of one baseline, why no figure of this run may count as a win."""
    if facts.tampered:
        names = ", ".join(facts.tampered[:5])
        return Reason.TAMPERED, f"loading or running the candidate replaced {names}"
    if facts.wrong_outputs:
        return (
            Reason.OUTPUT_WRONG,
            f"{facts.wrong_outputs} of the timed runs gave an output that is not the reference's for the same inputs",
        )
    hidden = hidden_work(samples, wall, CANDIDATE)
    if hidden is not None:
        return Reason.CLOCKS_DISAGREE, hidden
    return None


def hidden_work(samples: Sequence[Sample], wall: Sequence[WallSample], name: str) -> str | None:
    """What the wall clock saw that events did not, in words; None where the two agree.

    From idle to idle a run takes what events around that run say, and a constant: more means work that nothing on the
    stream waits for. And it takes at most its submission plus the device time of the blocked runs: more means work
    that began before the timed span did, on a stream of its own.
    """
    rows = [row for row in wall if row.contestant == name]
    blocked = [sample for sample in samples if sample.contestant == name and usable(sample)]
    if not rows:
        return None
    seen = statistics.median([row.wall_ms for row in rows])
    slack = WALL_SLACK_MS + WALL_SLACK_SHARE * seen
    around = statistics.median([row.device_ms for row in rows])
    if seen - around > slack:
        return f"the wall clock saw {seen:.4g} ms a run and device events {around:.4g} ms: work ran outside the stream"
    if not blocked:
        return None
    device = statistics.median([sample.device_ms for sample in blocked])
    enqueue = statistics.median([row.enqueue_ms for row in rows])
    if seen - device - enqueue > slack:
        return (
            f"the wall clock saw {seen:.4g} ms a run, of which {enqueue:.4g} ms submission, and the device "
            f"{device:.4g} ms: work began before the timed span"
        )
    return None


_SEEN = {
    Mark.STARVED: "began before all was queued",
    Mark.SLOW_CLOCK: "ran at a slower clock",
    Mark.THROTTLED: "ran on a throttled card",
    Mark.SHARED: "shared the card with another process",
}


def _unusable(samples: Sequence[Sample]) -> str:
    """``80 samples shared the card with another process, 1 sample began before all was queued``."""
    counts = Counter(mark for sample in samples for mark in sample.marks if mark in UNUSABLE)
    return ", ".join(f"{count} sample{'s' * (count != 1)} {_SEEN[mark]}" for mark, count in counts.most_common())


def _objection(
    samples: Sequence[Sample],
    wall: Sequence[WallSample],
    facts: Facts,
    over: Sequence[float],
    under: Sequence[float],
    *,
    taken: int,
) -> tuple[Reason, str] | None:
    common = objections(samples, wall, facts)
    if common is not None:
        return common
    if taken >= statistics.MIN_SAMPLES and 2 * len(under) < taken:
        return Reason.CONTAMINATED, f"only {len(under)} of {taken} rounds are usable: {_unusable(samples)}"
    alone = facts.baseline_alone_ms
    eager = [s.device_ms for s in samples if s.contestant == "eager" and usable(s)]
    if alone is not None and eager and not statistics.median(eager) <= alone * (1 + DISTURBED_SHARE) + 0.005:
        beside = statistics.median(eager)
        return (
            Reason.BASELINE_DISTURBED,
            f"eager took {alone:.4g} ms before the candidate was loaded and {beside:.4g} ms beside it",
        )
    apart = statistics.drifts(over, under)
    if apart > statistics.HALVES_APART:
        return Reason.UNSTABLE, f"the ratio moved by {100 * apart:.2g} % between the two halves of the run"
    return None
