"""Medians, intervals, ratios and words, on samples whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernelwright.measure import statistics
from kernelwright.measure.records import ComparisonWord, Interval, Reason
from kernelwright.measure.statistics import StoppingRule

pytestmark = pytest.mark.tiny


def noisy(middle: float, n: int, *, noise: float = 0.004, seed: int = 0) -> list[float]:
    """Times as a card gives them: skewed to the slow side."""
    return list(middle * (1 + noise * np.random.default_rng(seed).gamma(2.0, 1.0, n)))


def test_the_median_of_an_even_number_of_times_lies_between_the_middle_two() -> None:
    assert statistics.median([4.0, 1.0, 3.0, 2.0]) == 2.5


def test_no_times_have_no_median_and_nan_stays_nan() -> None:
    assert math.isnan(statistics.median([]))
    assert math.isnan(statistics.median([1.0, math.nan, 2.0]))


def test_an_interval_holds_its_median_and_is_the_same_each_time() -> None:
    times = noisy(2.0, 40)
    one, other = statistics.interval(times), statistics.interval(times)
    assert one == other
    assert one.low <= one.median <= one.high
    assert one.n == 40


def test_one_time_has_an_infinite_interval() -> None:
    one = statistics.interval([2.0])
    assert (one.median, one.low, one.high) == (2.0, -math.inf, math.inf)


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    true = 2.0 * (1 + 0.004 * 1.6783469900166608)
    covered = 0
    for seed in range(300):
        one = statistics.interval(noisy(2.0, 30, seed=seed), resamples=400)
        covered += one.low <= true <= one.high
    # 95 % of 300 is 285; a percentile bootstrap of a median of 30 is a little off, never by much.
    assert 272 <= covered <= 297


def test_a_drift_that_moves_both_of_a_pair_cancels() -> None:
    drift = np.linspace(1.0, 1.3, 40)
    over, under = drift * np.asarray(noisy(2.1, 40, seed=1)), drift * np.asarray(noisy(2.0, 40, seed=2))
    paired = statistics.ratio(list(over), list(under))
    alone = statistics.ratio(list(over), list(under), paired=False)
    assert paired.low <= 1.05 <= paired.high
    assert paired.high - paired.low < 0.3 * (alone.high - alone.low)


def test_unequal_numbers_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="3 and 2 samples are no pairs"):
        statistics.ratio([1.0, 2.0, 3.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("interval", "word", "reason"),
    [
        (Interval(1.02, 1.01, 1.03, 30), ComparisonWord.FASTER, Reason.INTERVAL_ABOVE),
        (Interval(0.98, 0.97, 0.99, 30), ComparisonWord.SLOWER, Reason.INTERVAL_BELOW),
        (Interval(1.001, 0.997, 1.004, 30), ComparisonWord.SAME, Reason.INTERVAL_WITHIN),
        (Interval(1.02, 1.003, 1.04, 30), ComparisonWord.UNSURE, Reason.INTERVAL_STRADDLES),
        (Interval(1.5, 1.4, 1.6, 9), ComparisonWord.UNSURE, Reason.TOO_FEW_SAMPLES),
        (Interval(math.nan, math.nan, math.nan, 30), ComparisonWord.UNSURE, Reason.INTERVAL_STRADDLES),
        (Interval(1.5, -math.inf, math.inf, 30), ComparisonWord.UNSURE, Reason.INTERVAL_STRADDLES),
    ],
)
def test_a_word_needs_the_whole_interval_on_its_side(interval: Interval, word: ComparisonWord, reason: Reason) -> None:
    decision = statistics.decide(interval)
    assert (decision.word, decision.reason) == (word, reason)


def test_equal_times_are_the_same_and_a_true_difference_of_two_per_cent_is_seen() -> None:
    for seed in range(20):
        base = noisy(2.0, 40, seed=seed)
        equal = statistics.decide(statistics.ratio(base, noisy(2.0, 40, seed=seed + 1000)))
        faster = statistics.decide(statistics.ratio(base, noisy(2.0 / 1.02, 40, seed=seed + 2000)))
        assert equal.word is ComparisonWord.SAME
        assert faster.word is ComparisonWord.FASTER


def test_a_baseline_timed_earlier_is_carried_over_by_its_ratio_to_eager() -> None:
    # Then: compiled took half of eager. Now the card is 10 % slower, and the candidate takes a quarter of eager.
    speedup = statistics.carried(
        noisy(2.2, 30, seed=1), noisy(0.55, 30, seed=2), noisy(2.0, 30, seed=3), noisy(1.0, 30, seed=4)
    )
    assert speedup.median == pytest.approx(2.0, rel=0.01)
    assert speedup.low < 2.0 < speedup.high


def test_rounds_are_looked_at_ever_more_seldom() -> None:
    rule = StoppingRule(least=20, most=100)
    assert [n for n in range(1, 101) if rule.due(n)] == [20, 25, 31, 38, 47, 58, 72, 90, 100]


def test_rounds_end_when_precise_or_at_the_most_or_out_of_time() -> None:
    rule = StoppingRule(least=20, most=100, half_width=0.002, budget_s=10)
    sharp, blunt = Interval(1.5, 1.499, 1.501, 25), Interval(1.5, 1.4, 1.6, 25)
    assert rule.verdict(25, 1.0, [sharp]) == "precise"
    assert rule.verdict(25, 1.0, [sharp, blunt]) == ""
    assert rule.verdict(25, 11.0, [blunt]) == "budget"
    assert rule.verdict(100, 1.0, [blunt]) == "samples"
    assert rule.verdict(25, 1.0, [Interval(math.nan, math.nan, math.nan, 25)]) == ""


def test_a_warm_up_settles_once_two_windows_agree() -> None:
    falling = [3.0, 2.8, 2.6, 2.4, 2.2, 2.1, 2.05, 2.02, 2.0, 2.0]
    assert not statistics.settled(falling)
    assert statistics.settled([*falling, 2.0, 2.0, 2.0, 2.0, 2.0])
    assert not statistics.settled([2.0] * 9)


def test_an_outlier_is_far_from_the_median_in_deviations() -> None:
    times = noisy(2.0, 50)
    assert not any(statistics.outliers(times))
    assert statistics.outliers([*times, 2.6])[-1]
    assert statistics.outliers([*times, math.nan]) == [True] * 51
    assert statistics.outliers([]) == []


def test_equal_ticks_of_a_coarse_clock_are_no_outliers() -> None:
    assert not any(statistics.outliers([2.0] * 20 + [2.001] * 3))


def test_drift_between_halves_is_seen_in_the_ratio_only() -> None:
    both = list(np.linspace(1.0, 1.3, 40))
    assert statistics.drifts(both, both) == 0.0
    assert statistics.drifts(both, [1.0] * 40) == pytest.approx(0.1429, abs=0.01)
    assert statistics.drifts([1.0] * 5, [2.0] * 5) == 0.0
