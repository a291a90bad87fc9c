"""What recorded samples say: medians, bootstrap intervals, the ratio of two contestants, and the word for it.

Why: two means of a few runs say nothing; kernels' times are skewed, drift with the clock, and are compared in pairs.
The rule: pure functions of recorded samples, deterministic (the bootstrap's seed is fixed), so that every word in a
verdict can be computed again from its JSON. A word other than UNSURE needs the *whole* interval on its side.

Sources: percentile bootstrap of the median, Efron & Tibshirani, "An Introduction to the Bootstrap", ch. 13; equivalence
by interval inclusion, Schuirmann 1987 (two one-sided tests).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelwright.measure.records import ComparisonWord, Interval, Reason

LEVEL = 0.95
RESAMPLES = 2000
MARGIN = 0.005
"""Least relative difference that is called one: in 50 comparisons of equal sums of 2 ms none of the medians was more
than 0.0012 off 1 (H200, 2026-11-29)."""
SAME_WITHIN = 0.01
"""An interval of the speed-up inside 1 / (1 + this) to 1 + this means SAME."""
MIN_SAMPLES = 10
"""Fewer than this are never compared."""
HALVES_APART = 0.03
"""The two halves of a run may differ this much in their median ratio; more is drift, not noise."""

Array = NDArray[np.float64]


def median(values: Sequence[float]) -> float:
    """The median; NaN for no values, and where any value is NaN."""
    return float(np.median(np.asarray(values, dtype=np.float64))) if len(values) else math.nan


def interval(values: Sequence[float], *, level: float = LEVEL, resamples: int = RESAMPLES) -> Interval:
    """Median of ``values`` with its percentile bootstrap interval. Fewer than two values give an infinite one."""
    data = np.asarray(values, dtype=np.float64)
    if data.size < 2:
        return Interval(median(values), -math.inf, math.inf, int(data.size), level)
    return _percentiles(median(values), _medians(data, _draws(data.size, resamples)), data.size, level)


def ratio(
    baseline: Sequence[float],
    candidate: Sequence[float],
    *,
    paired: bool = True,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Interval:
    """The speed-up, baseline time over candidate time, with its bootstrap interval.

    ``paired``: element i of both was timed in one round; the speed-up is the median of the rounds' ratios, so that a
    drift of the card moves both alike and cancels. Else it is the ratio of the medians, both drawn alone.
    """
    over, under = np.asarray(baseline, dtype=np.float64), np.asarray(candidate, dtype=np.float64)
    if paired and over.size != under.size:
        raise ValueError(f"{over.size} and {under.size} samples are no pairs")
    n = int(min(over.size, under.size))
    if n < 2:
        middle = median(baseline) / median(candidate) if n else math.nan
        return Interval(middle, -math.inf, math.inf, n, level)
    if paired:
        return interval(list(over / under), level=level, resamples=resamples)
    drawn = _medians(over, _draws(over.size, resamples)) / _medians(under, _draws(under.size, resamples, stream=1))
    return _percentiles(float(np.median(over) / np.median(under)), drawn, n, level)


def carried(
    eager: Sequence[float],
    candidate: Sequence[float],
    eager_then: Sequence[float],
    baseline_then: Sequence[float],
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Interval:
    """The speed-up over a baseline that was timed earlier beside eager: (eager / candidate) x (baseline / eager then).

    Each factor is the median of its own run's ratios by round; the interval holds the noise of both.
    """
    now = np.asarray(eager, dtype=np.float64) / np.asarray(candidate, dtype=np.float64)
    then = np.asarray(baseline_then, dtype=np.float64) / np.asarray(eager_then, dtype=np.float64)
    n = int(min(now.size, then.size))
    middle = float(np.median(now) * np.median(then)) if n else math.nan
    if n < 2:
        return Interval(middle, -math.inf, math.inf, n, level)
    drawn = _medians(now, _draws(now.size, resamples)) * _medians(then, _draws(then.size, resamples, stream=1))
    return _percentiles(middle, drawn, n, level)


@dataclass(frozen=True)
class Decision:
    """A word, its reason code, and a sentence with the figures."""

    word: ComparisonWord
    reason: Reason
    sentence: str


def decide(speedup: Interval, *, margin: float = MARGIN, same_within: float = SAME_WITHIN) -> Decision:
    """The word for an interval of the speed-up. NaN anywhere is UNSURE."""
    spread = f"{speedup.median:.4g}x [{speedup.low:.4g}, {speedup.high:.4g}] from {speedup.n} rounds"
    if speedup.n < MIN_SAMPLES:
        return Decision(ComparisonWord.UNSURE, Reason.TOO_FEW_SAMPLES, f"{spread}: at least {MIN_SAMPLES} are needed")
    if speedup.low > 1 + margin:
        return Decision(ComparisonWord.FASTER, Reason.INTERVAL_ABOVE, spread)
    if speedup.high < 1 / (1 + margin):
        return Decision(ComparisonWord.SLOWER, Reason.INTERVAL_BELOW, spread)
    if 1 / (1 + same_within) <= speedup.low and speedup.high <= 1 + same_within:
        return Decision(ComparisonWord.SAME, Reason.INTERVAL_WITHIN, spread)
    return Decision(
        ComparisonWord.UNSURE,
        Reason.INTERVAL_STRADDLES,
        f"{spread}: the interval reaches over a margin; take more samples",
    )


def drifts(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """How far the median ratio of the second half of the rounds is from the first half's, relative; 0.0 for few."""
    n = len(baseline)
    if n < 2 * MIN_SAMPLES or n != len(candidate):
        return 0.0
    half = n // 2
    ratios = [over / under for over, under in zip(baseline, candidate, strict=True)]
    return abs(median(ratios[half:]) / median(ratios[:half]) - 1)


@dataclass(frozen=True)
class StoppingRule:
    """When to stop taking rounds: precise enough, as many as were asked for, or out of time."""

    least: int = 20
    most: int = 100
    half_width: float = 0.0025
    """Stop once every speed-up's interval is within plus or minus this, relative to its median."""
    budget_s: float = 20.0

    def due(self, rounds: int) -> bool:
        """Whether to look at the samples after this many rounds: each look comes at 1.25 times the one before.

        Few looks, since every look is a chance to stop on luck.
        """
        look = self.least
        while look < rounds:
            look = max(look + 1, look * 5 // 4)
        return look == rounds or rounds >= self.most

    def verdict(self, rounds: int, elapsed_s: float, speedups: Sequence[Interval]) -> str:
        """``precise``, ``samples`` or ``budget``; empty where more rounds are to be taken."""
        if rounds >= self.most:
            return "samples"
        if rounds >= min(self.least, MIN_SAMPLES) and elapsed_s >= self.budget_s:
            return "budget"
        if rounds >= self.least and speedups and all(precise(one, self.half_width) for one in speedups):
            return "precise"
        return ""


def precise(one: Interval, half_width: float) -> bool:
    """Whether an interval is within plus or minus ``half_width``, relative to its median. NaN is not."""
    return (one.high - one.low) / 2 <= half_width * one.median


def settled(times: Sequence[float], *, window: int = 5, within: float = 0.01) -> bool:
    """Whether a warm-up is over: the medians of the last two windows agree within ``within``, relative."""
    if len(times) < 2 * window:
        return False
    last, before = median(times[-window:]), median(times[-2 * window : -window])
    return abs(last - before) <= within * before


def outliers(values: Sequence[float], *, deviations: float = 5.0) -> list[bool]:
    """Which values lie more than ``deviations`` scaled median absolute deviations from the median.

    The scale has a floor of 0.1 % of the median: a clock with coarse ticks would else make outliers of neighbours.
    """
    data = np.asarray(values, dtype=np.float64)
    if not data.size:
        return []
    middle = float(np.median(data))
    # 1.4826 makes the deviation of a normal distribution of the median absolute deviation.
    scale = max(1.4826 * float(np.median(np.abs(data - middle))), 1e-3 * abs(middle))
    return [bool(far) for far in ~(np.abs(data - middle) <= deviations * scale)]


def _draws(n: int, resamples: int, *, stream: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng((0, n, stream)).integers(0, n, size=(resamples, n), dtype=np.int64)


def _medians(data: Array, draws: NDArray[np.int64]) -> Array:
    return np.asarray(np.median(data[draws], axis=1), dtype=np.float64)


def _percentiles(middle: float, drawn: Array, n: int, level: float) -> Interval:
    tail = 50 * (1 - level)
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return Interval(middle, float(low), float(high), n, level)
