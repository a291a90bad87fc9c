"""Words and figures computed again from what an H200 recorded: the same as then, and as they ought to be."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kernelwright.measure import statistics, verdicts
from kernelwright.measure.marks import marked
from kernelwright.measure.records import ComparisonWord, Mark, Reason, Timing
from kernelwright.measure.verdicts import CANDIDATE, Facts
from kernelwright.records import from_json, to_json
from kernelwright.report.timing import timing_lines

pytestmark = pytest.mark.tiny

EXAMPLES = ["matrix_vector-h200", "linear_gelu_softmax-h200"]


@pytest.fixture(params=EXAMPLES)
def timing(request: pytest.FixtureRequest, recorded: Any) -> Timing:
    return from_json(Timing, recorded(request.param))


def test_a_recorded_timing_goes_to_json_and_back(timing: Timing) -> None:
    assert from_json(Timing, to_json(timing)) == timing


def test_the_word_follows_from_the_raw_samples_alone(timing: Timing) -> None:
    (stored,) = timing.comparisons
    again = verdicts.compare("eager", timing.samples, timing.wall, Facts())
    assert (again.word, again.reason) == (stored.word, stored.reason)
    assert again.speedup.median == pytest.approx(stored.speedup.median, rel=2e-3)


def test_marking_again_adds_nothing(timing: Timing) -> None:
    assert marked(timing.samples, timing.states) == timing.samples


def test_the_matrix_vector_example_was_a_fifth_faster_than_eager(recorded: Any) -> None:
    timing = from_json(Timing, recorded("matrix_vector-h200"))
    (comparison,) = timing.comparisons
    assert comparison.word is ComparisonWord.FASTER
    assert 1.20 < comparison.speedup.low < comparison.speedup.high < 1.22
    assert timing.limit is not None
    assert timing.limit.kind == "memory"
    assert 0.95 < timing.limit.fraction[CANDIDATE] < 0.97


def test_a_shared_card_makes_the_recorded_win_unsure(timing: Timing) -> None:
    shared = [dataclasses.replace(state, others=1) for state in timing.states]
    samples = marked(timing.samples, shared)
    assert all(Mark.SHARED in sample.marks for sample in samples)
    found = verdicts.compare("eager", samples, timing.wall, Facts())
    assert (found.word, found.reason) == (ComparisonWord.UNSURE, Reason.TOO_FEW_SAMPLES) or (
        found.reason is Reason.CONTAMINATED
    )


def test_a_clock_that_shows_a_tenth_of_the_recorded_times_is_found_out(timing: Timing) -> None:
    faked = [
        dataclasses.replace(s, device_ms=s.device_ms / 10) if s.contestant == CANDIDATE else s for s in timing.samples
    ]
    found = verdicts.compare("eager", faked, timing.wall, Facts())
    assert (found.word, found.reason) == (ComparisonWord.UNSURE, Reason.CLOCKS_DISAGREE)


def test_swapping_the_two_turns_the_word_round(timing: Timing) -> None:
    other = {"eager": CANDIDATE, CANDIDATE: "eager"}
    swapped = [dataclasses.replace(s, contestant=other[s.contestant]) for s in timing.samples]
    (stored,) = timing.comparisons
    found = verdicts.compare("eager", swapped, [], Facts())
    assert stored.word is ComparisonWord.FASTER
    assert found.word is ComparisonWord.SLOWER
    assert found.speedup.median == pytest.approx(1 / stored.speedup.median, rel=2e-3)


@pytest.mark.parametrize(
    ("case", "word"),
    [("equal", ComparisonWord.SAME), ("faster", ComparisonWord.FASTER), ("slower", ComparisonWord.SLOWER)],
)
def test_recorded_sums_of_equal_and_of_two_per_cent_different_length_get_the_right_word(
    recorded: Any, case: str, word: ComparisonWord
) -> None:
    rows = recorded("words-h200")[case]
    assert len(rows) == (50 if case == "equal" else 25)
    for row in rows:
        assert statistics.decide(statistics.ratio(row["eager"], row[CANDIDATE])).word is word


def test_equal_recorded_sums_differ_by_a_tenth_of_a_per_cent_at_most(recorded: Any) -> None:
    ratios = [statistics.ratio(row["eager"], row[CANDIDATE]).median for row in recorded("words-h200")["equal"]]
    assert 0.998 < min(ratios) < max(ratios) < 1.002


def test_tf32_is_marked_as_not_accurate(recorded: Any) -> None:
    timing = from_json(Timing, recorded("linear_gelu_softmax-baselines-h200"))
    by_name = {contestant.name: contestant for contestant in timing.contestants}
    assert [name for name, one in by_name.items() if not one.fp32_accurate] == ["tf32"]
    assert by_name["tf32"].worst_error > 1000 * by_name[CANDIDATE].worst_error
    words = {comparison.baseline: comparison.word for comparison in timing.comparisons}
    assert words == {
        "eager": ComparisonWord.FASTER,
        "compile": ComparisonWord.FASTER,
        "tf32": ComparisonWord.SLOWER,
    }
    assert any("TF32 (not fp32-accurate)" in line for line in timing_lines(timing))


def test_compiled_baselines_carried_over_through_eager_are_where_they_were_when_they_ran(recorded: Any) -> None:
    """Two checks, the second with kept baselines: 20 rounds each, at 475 and at 371 W."""
    live, kept = (from_json(Timing, recorded(f"baselines-{name}-h200")) for name in ("live", "kept"))
    assert [one.name for one in kept.contestants if one.cached] == ["compile", "max-autotune"]
    assert not any(one.cached for one in live.contestants)
    over, under = verdicts.pairs(kept.samples, "eager", CANDIDATE)
    for name in ("compile", "max-autotune"):
        ran, carried = (next(c for c in timing.comparisons if c.baseline == name) for timing in (live, kept))
        again = statistics.carried(over, under, *verdicts.pairs(live.samples, "eager", name))
        assert again.median == pytest.approx(carried.speedup.median, rel=1e-6)
        assert (again.low, again.high) == pytest.approx((carried.speedup.low, carried.speedup.high), rel=1e-6)
        assert carried.speedup.median == pytest.approx(ran.speedup.median, rel=1e-3)
        assert carried.word is ran.word is ComparisonWord.FASTER
        # What is carried over is known less well than what was timed.
        assert carried.speedup.high - carried.speedup.low > ran.speedup.high - ran.speedup.low


def test_a_record_of_four_baselines_says_of_the_kept_ones_that_they_are(recorded: Any) -> None:
    lines = list(timing_lines(from_json(Timing, recorded("baselines-kept-h200"))))
    assert [line.partition(" against ")[2].partition(" 2.")[0].partition(" 0.")[0] for line in lines[1:5]] == [
        "PyTorch eager",
        "PyTorch eager with TF32 (not fp32-accurate)",
        "torch.compile",
        "torch.compile max-autotune",
    ]
    assert [line.endswith(", timed earlier") for line in lines[1:5]] == [False, False, True, True]
    assert "TF32" not in lines[5]


def test_a_timing_reads_as_a_few_lines(recorded: Any) -> None:
    lines = list(timing_lines(from_json(Timing, recorded("matrix_vector-h200"))))
    assert lines[0].startswith("candidate 1.902 ms [1.899, 1.903], 2.105 ms with its launch, 1.902 ms as a CUDA graph")
    assert lines[0].endswith("all 20 timed outputs right")
    assert lines[1].startswith("FASTER 1.21x [1.209, 1.212] against PyTorch eager 2.3 ms")
    assert lines[2] == (
        "limit 1.827 ms by memory traffic (measured ceilings): the candidate reaches 96.1 %, PyTorch eager 79.4 %"
    )
    assert lines[4].startswith("20 rounds in random order, until each speed-up was known to a quarter of a per cent; ")
    assert "NVIDIA H200, driver 580.159.04: 1980 to 1980 MHz" in lines[5]


def test_the_clocks_own_share_is_told_where_it_matters(recorded: Any) -> None:
    timing = from_json(Timing, recorded("matrix_vector-h200"))
    assert not any("clock's own" in line for line in timing_lines(dataclasses.replace(timing, empty_ms=0.0015)))
    coarse = list(timing_lines(dataclasses.replace(timing, empty_ms=0.19)))
    assert "the clock's own 0.19 ms is in each of these figures, 10 %" in coarse
