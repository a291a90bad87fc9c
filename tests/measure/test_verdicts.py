"""What overrules an interval's word."""

from __future__ import annotations

import pytest

from kernelwright.measure import verdicts
from kernelwright.measure.records import Comparison, ComparisonWord, Interval, Mark, Reason, Sample, WallSample
from kernelwright.measure.verdicts import Facts

pytestmark = pytest.mark.tiny


def rounds(eager: float, candidate: float, n: int = 30, marks: tuple[Mark, ...] = ()) -> list[Sample]:
    made = []
    for i in range(n):
        noise = 1 + 0.001 * ((i * 7) % 5 - 2)
        made.append(Sample("eager", i, eager * noise, i, i, 0.1, marks))
        made.append(Sample("candidate", i, candidate * noise, i, i, 0.1, marks))
    return made


def walls(wall: float, device: float, enqueue: float = 0.1, n: int = 10) -> list[WallSample]:
    return [WallSample("candidate", wall, device, enqueue)] * n


def test_a_clean_run_keeps_its_word() -> None:
    found = verdicts.compare("eager", rounds(2.0, 1.0), walls(1.15, 1.1), Facts(baseline_alone_ms=2.0))
    assert (found.word, found.reason) == (ComparisonWord.FASTER, Reason.INTERVAL_ABOVE)
    assert found.speedup.median == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("facts", "wall", "reason"),
    [
        (Facts(tampered=("time.perf_counter",)), walls(1.15, 1.1), Reason.TAMPERED),
        (Facts(wrong_outputs=1), walls(1.15, 1.1), Reason.OUTPUT_WRONG),
        # Work on a stream that nobody waits for: events around the run see nothing.
        (Facts(), walls(3.0, 0.1), Reason.CLOCKS_DISAGREE),
        # Work that began behind the blocked stream: events without the block see all of it, those behind it do not.
        (Facts(), walls(3.0, 2.9), Reason.CLOCKS_DISAGREE),
        (Facts(baseline_alone_ms=1.5), walls(1.15, 1.1), Reason.BASELINE_DISTURBED),
    ],
)
def test_an_objection_turns_a_win_into_unsure(facts: Facts, wall: list[WallSample], reason: Reason) -> None:
    found = verdicts.compare("eager", rounds(2.0, 1.0), wall, facts)
    assert (found.word, found.reason) == (ComparisonWord.UNSURE, reason)


def test_an_objection_does_not_save_a_slow_candidate() -> None:
    found = verdicts.compare("eager", rounds(1.0, 2.0), walls(2.1, 2.05), Facts(wrong_outputs=3))
    assert found.word is ComparisonWord.SLOWER


def test_many_small_launches_are_no_hidden_work() -> None:
    # Bound by the host: 2 ms from idle to idle, of which submission is nearly all, and 0.3 ms on the device.
    found = verdicts.compare("eager", rounds(0.6, 0.3), walls(2.0, 1.95, enqueue=1.9), Facts())
    assert found.word is ComparisonWord.FASTER


def test_a_run_mostly_unusable_is_unsure() -> None:
    samples = rounds(2.0, 1.0, 20, (Mark.SHARED,)) + [
        Sample(name, 20 + i, time, i, i, 0.1)
        for i in range(15)
        for name, time in (("eager", 2.0 + 0.001 * i), ("candidate", 1.0 + 0.001 * i))
    ]
    found = verdicts.compare("eager", samples, walls(1.1, 1.05), Facts())
    assert (found.word, found.reason) == (ComparisonWord.UNSURE, Reason.CONTAMINATED)
    assert found.sentence == ("only 15 of 35 rounds are usable: 40 samples shared the card with another process")


def test_a_ratio_that_moves_during_the_run_is_unsure() -> None:
    samples = [
        Sample(name, i, time, i, i, 0.1)
        for i in range(40)
        for name, time in (("eager", 2.0), ("candidate", 1.0 if i < 20 else 1.2))
    ]
    found = verdicts.compare("eager", samples, walls(1.1, 1.05), Facts())
    assert (found.word, found.reason) == (ComparisonWord.UNSURE, Reason.UNSTABLE)


def comparison(word: ComparisonWord, low: float) -> Comparison:
    return Comparison("eager", word, Reason.INTERVAL_ABOVE, "…", Interval(low + 0.05, low, low + 0.1, 30))


def test_a_required_speed_up_needs_the_whole_interval() -> None:
    assert verdicts.unmet([comparison(ComparisonWord.FASTER, 1.5)], 1.5) == ""
    assert "at least 1.49x" in verdicts.unmet([comparison(ComparisonWord.FASTER, 1.49)], 1.5)
    assert verdicts.unmet([comparison(ComparisonWord.SAME, 0.995)], 0.9) == ""


def test_unsure_shows_nothing_and_no_baseline_shows_nothing() -> None:
    assert verdicts.unmet([comparison(ComparisonWord.UNSURE, 3.0)], 1.5).startswith("against eager: unsure")
    assert verdicts.unmet([], 1.5) == "there is no baseline to compare with"
