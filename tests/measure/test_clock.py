"""The clock's order of steps, on a card that only pretends: what is blocked, cleaned and waited for, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.measure import clock as module
from kernelwright.measure.clock import FLUSH_TIMES_L2, LONGEST_SLEEP_MS, SLEEP_EXTRA_MS, SLEEP_FACTOR, Clock

pytestmark = pytest.mark.tiny

CYCLES_PER_MS = 1_000_000
L2_BYTES = 50 << 20


class Card:
    """A stream's timeline in ms, and what was asked of it in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.at_ms = 0.0
        self.slept_ms: list[float] = []
        self.begun = False
        """Whether the stream had come to the first event when it was asked."""
        self.flushed_bytes = 0

    def torch(self) -> Any:
        card = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                card.log.append("record")
                self.at_ms = card.at_ms

            def elapsed_time(self, end: Event) -> float:
                return end.at_ms - self.at_ms

            def query(self) -> bool:
                card.log.append("begun?")
                return card.begun

            def synchronize(self) -> None:
                card.log.append("wait")

        def ones(count: int, *, device: str) -> str:
            card.flushed_bytes = 4 * count
            return f"buffer on {device}"

        def sleep(cycles: int) -> None:
            card.log.append("block")
            card.slept_ms.append(cycles / CYCLES_PER_MS)
            card.at_ms += cycles / CYCLES_PER_MS

        return SimpleNamespace(
            cuda=SimpleNamespace(
                Event=Event,
                synchronize=lambda: card.log.append("synchronize"),
                _sleep=sleep,
                get_device_properties=lambda index: SimpleNamespace(L2_cache_size=L2_BYTES),
            ),
            sum=lambda buffer, *, dim, out: card.log.append("read the flush buffer"),
            ones=ones,
            empty=lambda shape, *, device: None,
        )

    def run(self) -> str:
        self.log.append("run")
        self.at_ms += 2.0
        return "output"


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    made = Card()
    driver = SimpleNamespace(cuCtxResetPersistingL2Cache=lambda: made.log.append("give persisting lines back"))
    monkeypatch.setattr(module, "torch", made.torch())
    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: driver)
    return made


def test_a_run_starts_cold_behind_a_blocked_stream_with_both_events_queued(card: Card) -> None:
    clock = Clock()
    card.log.clear()
    span, value = clock.device(card.run, enqueue_ms=0.5)
    assert card.log == [
        "give persisting lines back", "read the flush buffer", "block", "record", "run", "record", "begun?", "wait",
        "synchronize",
    ]  # fmt: skip
    assert (span.device_ms, span.starved, value) == (pytest.approx(2.0), False, "output")
    assert span.begin_ns <= span.end_ns
    assert span.enqueue_ms >= 0


def test_the_l2_is_cleaned_by_reading_three_times_its_size(card: Card) -> None:
    Clock()
    assert card.flushed_bytes == FLUSH_TIMES_L2 * L2_BYTES == 150 << 20


@pytest.mark.parametrize(
    ("enqueue_ms", "blocked_ms"), [(0.5, SLEEP_FACTOR * 0.5 + SLEEP_EXTRA_MS), (1e6, LONGEST_SLEEP_MS)]
)
def test_the_stream_is_blocked_for_longer_than_the_submission_took(
    card: Card, enqueue_ms: float, blocked_ms: float
) -> None:
    clock = Clock()
    clock.device(card.run, enqueue_ms=enqueue_ms)
    assert card.slept_ms[-1] == pytest.approx(blocked_ms)


def test_a_stream_that_came_to_the_run_too_early_is_told(card: Card) -> None:
    clock = Clock()
    card.begun = True
    span, _ = clock.device(card.run, enqueue_ms=0.5)
    assert span.starved


def test_the_wall_clock_runs_from_idle_to_idle_of_the_whole_device(card: Card) -> None:
    clock = Clock()
    card.log.clear()
    wall_ms, span, value = clock.wall(card.run)
    assert card.log == [
        "give persisting lines back", "read the flush buffer", "synchronize", "record", "run", "record", "synchronize",
    ]  # fmt: skip
    assert (span.device_ms, value) == (pytest.approx(2.0), "output")
    assert wall_ms >= span.enqueue_ms >= 0


def test_a_functions_replacement_after_construction_reaches_no_run(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    cuda: Any = module.torch.cuda
    monkeypatch.setattr(cuda.Event, "elapsed_time", lambda start, stop: 1e-6)
    monkeypatch.setattr(cuda, "synchronize", lambda: None)
    span, _ = clock.device(card.run, enqueue_ms=0.5)
    assert span.device_ms == pytest.approx(2.0)
    assert card.log[-1] == "synchronize"
