"""The order of a contest, with a clock that only pretends."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kernelwright.measure import statistics, verdicts
from kernelwright.measure.clock import Span
from kernelwright.measure.contest import Contest, Entrant
from kernelwright.measure.records import ComparisonWord, Mark
from kernelwright.measure.statistics import StoppingRule
from kernelwright.measure.verdicts import Facts

pytestmark = pytest.mark.tiny


class Pretended:
    """A clock whose times are told by what a run returns; ``drift`` grows with every run."""

    def __init__(self, *, drift: float = 0.0, starved: bool = False) -> None:
        self.now, self.runs, self.drift, self.starved = 0, 0, drift, starved
        self.random = random.Random(7)
        self.foretold: list[float] = []
        self.enqueue = 0.02

    def _span(self, run: Callable[[], Any]) -> tuple[Span, Any]:
        value = run()
        self.runs += 1
        self.now += 1_000_000
        time = value * (1 + self.drift * self.runs) * (1 + self.random.gauss(0, 0.002))
        return Span(time, self.enqueue, self.now, self.now + 500_000, self.starved), value

    def device(self, run: Callable[[], Any], *, enqueue_ms: float) -> tuple[Span, Any]:
        self.foretold.append(enqueue_ms)
        return self._span(run)

    def wall(self, run: Callable[[], Any]) -> tuple[float, Span, Any]:
        span, value = self._span(run)
        return span.device_ms + 0.05, span, value


def contest(clock: Pretended, *, kept: list[tuple[str, int, int, Any]] | None = None) -> Contest:
    entrants = [Entrant("eager", lambda inputs: 2.0), Entrant("candidate", lambda inputs: 1.0)]
    sink = kept if kept is not None else []
    return Contest(clock, lambda number: [number], entrants, keep=lambda *row: sink.append(row), seed=3)


def test_every_round_times_each_once_in_an_order_that_changes() -> None:
    made = contest(Pretended())
    made.run(StoppingRule(least=20, most=30, half_width=0.0))
    assert made.stopped == "samples"
    orders = set()
    for index in range(30):
        order = tuple(s.contestant for s in made.samples if s.round == index)
        assert sorted(order) == ["candidate", "eager"]
        orders.add(order)
    assert len(orders) == 2


def test_no_two_runs_have_the_same_number_and_every_output_is_handed_over() -> None:
    kept: list[tuple[str, int, int, Any]] = []
    made = contest(Pretended(), kept=kept)
    made.warm_up(made.entrants[0])
    made.run(StoppingRule(least=20, most=20))
    numbers = [number for _, _, number, _ in kept]
    assert len(numbers) == len(set(numbers)) == 40
    assert {(name, value) for name, _, _, value in kept} == {("eager", 2.0), ("candidate", 1.0)}


def test_a_card_that_slows_down_all_the_while_does_not_move_the_ratio() -> None:
    made = contest(Pretended(drift=0.002))
    made.run(StoppingRule(least=20, most=60, half_width=0.0))
    (speedup,) = made.speedups()
    assert speedup.low <= 2.0 <= speedup.high
    assert speedup.high - speedup.low < 0.01


def test_it_stops_as_soon_as_the_ratio_is_known() -> None:
    made = contest(Pretended())
    made.run(StoppingRule(least=20, most=100))
    assert made.stopped == "precise"
    assert made.rounds == 20
    comparison = verdicts.compare("eager", made.samples, made.walls, Facts())
    assert comparison.word is ComparisonWord.FASTER
    assert comparison.speedup.median == pytest.approx(2.0, rel=0.005)


def test_a_starved_run_is_marked_and_counts_for_nothing() -> None:
    made = contest(Pretended(starved=True))
    made.run(StoppingRule(least=20, most=20))
    assert all(sample.marks == (Mark.STARVED,) for sample in made.samples)
    assert verdicts.compare("eager", made.samples, [], Facts()).word is ComparisonWord.UNSURE


def test_a_warm_up_goes_on_until_the_times_settle() -> None:
    times = iter([4.0, 3.0, 2.0, *[1.0] * 40])
    made = Contest(
        Pretended(), lambda number: [], [Entrant("eager", lambda inputs: next(times))], keep=lambda *row: None, seed=0
    )
    taken = made.warm_up(made.entrants[0])
    assert statistics.settled(taken)
    assert 10 < len(taken) < 20


def test_the_wall_clock_sees_every_entrant() -> None:
    made = contest(Pretended())
    made.wall(4)
    assert sorted(row.contestant for row in made.walls) == ["candidate"] * 4 + ["eager"] * 4
    assert all(row.wall_ms == pytest.approx(row.device_ms + 0.05) for row in made.walls)


def test_a_first_run_that_compiles_blocks_the_stream_for_a_few_runs_only() -> None:
    clock = Pretended()
    made = contest(clock)
    clock.enqueue = 5000.0
    made._timed(made.entrants[0])
    clock.enqueue = 0.02
    made.warm_up(made.entrants[0])
    assert clock.foretold[:2] == [1.0, 5000.0]
    assert clock.foretold[7:] == [0.02] * len(clock.foretold[7:])
