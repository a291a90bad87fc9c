"""Runs candidate and baselines against each other: rounds in random order until the ratio is known well enough.

Why: a card's clock moves with heat and load, so two contestants can only be compared side by side. The rule: one round
times each contestant once, in an order drawn anew; a round is the unit of the statistics. The clock, the inputs and the
check of outputs are given: this module knows only their order, and is tested with none of them real.
"""

from __future__ import annotations

import gc
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernelwright.measure import statistics
from kernelwright.measure.clock import Span
from kernelwright.measure.records import Interval, Mark, Sample, WallSample
from kernelwright.measure.statistics import StoppingRule, median, settled
from kernelwright.measure.verdicts import CANDIDATE, figure, pairs

WARM_UP_MOST = 40
WARM_UP_SECONDS = 2.0
WALL_ROUNDS = 15
LATE = 6
"""The largest of so many submissions foretells the next: one slow submission must not starve the run after it, and the
first one, which may compile for seconds, must not block the stream for long."""


@dataclass(frozen=True)
class Entrant:
    """One implementation in the contest."""

    name: str
    run: Callable[[list[Any]], Any]
    prepare: Callable[[], None] = lambda: None
    """Called before each run, outside the timed span: sets global switches."""


class Times(Protocol):
    """What a contest asks of a clock."""

    def device(self, run: Callable[[], Any], *, enqueue_ms: float) -> tuple[Span, Any]: ...

    def wall(self, run: Callable[[], Any]) -> tuple[float, Span, Any]: ...


Take = Callable[[int], list[Any]]
"""The inputs of run ``number``."""
Keep = Callable[[str, int, int, Any], None]
"""Hands over contestant, round, number of the run and its output."""


class Contest:
    """One contest. Numbers of runs count up over its whole life, so that no contents come twice."""

    def __init__(self, clock: Times, take: Take, entrants: Sequence[Entrant], *, keep: Keep, seed: int) -> None:
        self._clock, self._take, self._keep = clock, take, keep
        self.entrants = list(entrants)
        self.samples: list[Sample] = []
        self.walls: list[WallSample] = []
        self.stopped = ""
        self.rounds = 0
        self._order = random.Random(seed)
        self._number = 0
        self._enqueue: dict[str, deque[float]] = {}

    def next_number(self, *, step: int = 1) -> int:
        """A number no run has had yet."""
        self._number += step
        return self._number

    def warm_up(self, entrant: Entrant) -> list[float]:
        """Run until the times settle; returns them (ms), the first ones slow."""
        times: list[float] = []
        began = time.perf_counter()
        while len(times) < WARM_UP_MOST and not settled(times):
            if len(times) >= 3 and time.perf_counter() - began > WARM_UP_SECONDS:
                break
            span, _, _ = self._timed(entrant)
            times.append(span.device_ms)
        return times

    def alone(self, entrant: Entrant, times: int = 12) -> float:
        """Median device time in ms of an entrant with nobody beside it, after its warm-up."""
        self.warm_up(entrant)
        return median([self._timed(entrant)[0].device_ms for _ in range(times)])

    def run(self, rule: StoppingRule) -> None:
        """Take rounds until ``rule`` is content. Collected garbage would fall into somebody's span, so it waits."""
        began = time.perf_counter()
        gc.collect()
        gc.disable()
        try:
            while not self.stopped:
                self._round()
                self.rounds += 1
                if rule.due(self.rounds) or time.perf_counter() - began >= rule.budget_s:
                    self.stopped = rule.verdict(self.rounds, time.perf_counter() - began, self.speedups())
        finally:
            gc.enable()

    def wall(self, rounds: int = WALL_ROUNDS, *, budget_s: float = 5.0) -> None:
        """Time rounds by the host's clock, too."""
        began = time.perf_counter()
        for index in range(rounds):
            if index >= 3 and time.perf_counter() - began > budget_s:
                break
            for entrant in self._order.sample(self.entrants, len(self.entrants)):
                inputs = self._take(self.next_number())
                entrant.prepare()
                wall_ms, span, _ = self._clock.wall(lambda entrant=entrant, inputs=inputs: entrant.run(inputs))  # type: ignore[misc]
                self.walls.append(WallSample(entrant.name, wall_ms, span.device_ms, span.enqueue_ms))

    def speedups(self) -> list[Interval]:
        """The candidate's speed-up over each other entrant, so far; empty without a candidate."""
        names = [entrant.name for entrant in self.entrants]
        if CANDIDATE not in names:
            return []
        both = [pairs(self.samples, name, CANDIDATE) for name in names if name != CANDIDATE]
        if not both:
            return [figure(self.samples, CANDIDATE)]
        return [statistics.ratio(over, under) for over, under in both]

    def _round(self) -> None:
        for entrant in self._order.sample(self.entrants, len(self.entrants)):
            span, number, value = self._timed(entrant)
            marks = (Mark.STARVED,) if span.starved else ()
            self.samples.append(
                Sample(entrant.name, self.rounds, span.device_ms, span.begin_ns, span.end_ns, span.enqueue_ms, marks)
            )
            self._keep(entrant.name, self.rounds, number, value)

    def _timed(self, entrant: Entrant) -> tuple[Span, int, Any]:
        number = self.next_number()
        inputs = self._take(number)
        entrant.prepare()
        late = self._enqueue.setdefault(entrant.name, deque(maxlen=LATE))
        span, value = self._clock.device(lambda: entrant.run(inputs), enqueue_ms=max(late, default=1.0))
        late.append(span.enqueue_ms)
        return span, number, value
