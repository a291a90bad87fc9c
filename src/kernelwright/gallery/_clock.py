"""A light clock for the tuner: device time of one call from a cold L2 cache, several calls in turn.

Why: kernels of a few microseconds are compared, so the host must not count and the cache must not favour anybody. The
rule: before each call a long *read* fills L2 with clean lines (a flush by writing would leave dirty ones, whose
eviction the timed call would pay for); meanwhile the host queues the call, so that events around it see the device
only. Every call is timed in every round, so that a change of clocks meets all; and every other round backwards, for
every second measurement is a third of a microsecond longer than those between (seen on an H200 with calls that were all
the same). ``measure.clock`` is the thorough one; this one answers in milliseconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

FLUSH_BYTES = 512 << 20
"""Read before each call, eight times an H200's L2."""
READ_US = 100.0
"""That read takes at least so long, on any GPU there is a table for (H200: 120 us)."""


@cache
def _flush(index: int) -> torch.Tensor:
    return torch.ones(FLUSH_BYTES // 4, device=f"cuda:{index}")


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _reads(call: Callable[[], Any]) -> int:
    """How many times to read, so that a slow host has queued ``call`` before the last read ends."""
    took = []
    for _ in range(3):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        took.append((time.perf_counter() - started) * 1e6)
    return 1 + int(statistics.median(took) / (READ_US / 2))


def device_samples(calls: dict[str, Callable[[], Any]], *, rounds: int) -> dict[str, list[float]]:
    """Microseconds of each call on the current device, one a round, from a cold L2; every other round backwards."""
    flush = _flush(torch.cuda.current_device())
    reads = {name: _reads(call) for name, call in calls.items()}
    events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
    for turn in range(rounds):
        for name in reversed(calls) if turn % 2 else calls:
            call = calls[name]
            for _ in range(reads[name]):
                flush.sum()
            begin, end = _event(), _event()
            begin.record()
            call()
            end.record()
            events[name].append((begin, end))
    torch.cuda.synchronize()
    return {name: [1e3 * begin.elapsed_time(end) for begin, end in pairs] for name, pairs in events.items()}


def middle(samples: Sequence[float]) -> float:
    """The mean of the medians of every other sample and of those between."""
    return statistics.mean(statistics.median(some) for some in (samples[::2], samples[1::2]) if some)


def device_us(calls: dict[str, Callable[[], Any]], *, rounds: int) -> dict[str, float]:
    """The ``middle`` of ``device_samples``."""
    return {name: middle(values) for name, values in device_samples(calls, rounds=rounds).items()}


def host_us(calls: dict[str, Callable[[], Any]], *, calls_a_round: int = 50, rounds: int = 8) -> dict[str, float]:
    """Microseconds a call costs end to end, host included, in a row of calls from a warm L2: as a model feels it."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        for name in reversed(calls) if turn % 2 else calls:
            call = calls[name]
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(calls_a_round):
                call()
            torch.cuda.synchronize()
            samples[name].append((time.perf_counter() - started) / calls_a_round * 1e6)
    return {name: statistics.median(values) for name, values in samples.items()}
