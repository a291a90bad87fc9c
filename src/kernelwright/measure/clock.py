"""Times one run on a CUDA device: two events around fresh work, started together, with a cold L2.

Why: what a stopwatch around a call shows is mostly the host. Here the stream is first blocked by a spinning kernel, so
that both events and all the run's kernels are queued before the first of them may start: launch overhead is outside.
The rule: everything the clock calls was looked up at construction, before any candidate code ran; the cache is cleaned
by *reading* (a memset would leave dirty lines, whose write-back the timed run would pay for), and lines that a
candidate declared persisting are given back; nothing is averaged here.

Sources: CUDA driver API ``cuCtxResetPersistingL2Cache``; stream-blocking start as in pytorch-labs/tritonbench PR 779
and nvbench; ``torch.cuda._sleep`` spins on ``clock64``.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.measure.statistics import median

FLUSH_TIMES_L2 = 3
"""Bytes read to clean the L2, as a multiple of its size: its replacement is not least-recently-used."""
SLEEP_FACTOR = 2.0
SLEEP_EXTRA_MS = 0.1
"""The stream is blocked this much longer than the submission took before: it varies threefold on a virtual machine."""
LONGEST_SLEEP_MS = 200.0
"""A run whose submission takes longer waits for the device itself: blocking more would not help."""


@dataclass(frozen=True)
class Span:
    """One timed run."""

    device_ms: float
    enqueue_ms: float
    begin_ns: int
    end_ns: int
    starved: bool
    """The stream was unblocked before everything was queued."""


class Clock:
    """Times callables on the current stream of device 0."""

    def __init__(self) -> None:
        cuda: Any = torch.cuda
        self._event = cuda.Event
        self._record = cuda.Event.record
        self._elapsed = cuda.Event.elapsed_time
        self._query = cuda.Event.query
        self._wait = cuda.Event.synchronize
        self._synchronize = cuda.synchronize
        self._sleep = cuda._sleep
        self._sum = torch.sum
        self._now = time.perf_counter_ns
        self._monotonic = time.monotonic_ns
        properties = cuda.get_device_properties(0)
        self.l2_bytes = int(properties.L2_cache_size)
        self._flush = torch.ones(FLUSH_TIMES_L2 * max(self.l2_bytes, 1 << 20) // 4, device="cuda:0")
        self._flushed = torch.empty((), device="cuda:0")
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._cycles_per_ms = self._calibrate()

    def device(self, run: Callable[[], Any], *, enqueue_ms: float) -> tuple[Span, Any]:
        """Time one call of ``run``; ``enqueue_ms`` is what its submission took before. Returns its value, too."""
        block_ms = min(LONGEST_SLEEP_MS, SLEEP_FACTOR * enqueue_ms + SLEEP_EXTRA_MS)
        start, stop = self._event(enable_timing=True), self._event(enable_timing=True)
        self.cool()
        begin = self._monotonic()
        self._sleep(int(block_ms * self._cycles_per_ms))
        self._record(start)
        before = self._now()
        value = run()
        after = self._now()
        self._record(stop)
        starved = bool(self._query(start))
        self._wait(stop)
        span = Span(self._elapsed(start, stop), (after - before) / 1e6, begin, self._monotonic(), starved)
        self._synchronize()
        return span, value

    def wall(self, run: Callable[[], Any]) -> tuple[float, Span, Any]:
        """Time one call by the host's clock in ms, the whole device idle at both ends, and by events around it."""
        start, stop = self._event(enable_timing=True), self._event(enable_timing=True)
        self.cool()
        self._synchronize()
        begin, before = self._monotonic(), self._now()
        self._record(start)
        value = run()
        queued = self._now()
        self._record(stop)
        self._synchronize()
        after = self._now()
        span = Span(self._elapsed(start, stop), (queued - before) / 1e6, begin, self._monotonic(), False)
        return (after - before) / 1e6, span, value

    def cool(self) -> None:
        """Give persisting lines back and fill the L2 with clean lines of nobody's data."""
        self._driver.cuCtxResetPersistingL2Cache()
        self._sum(self._flush, dim=0, out=self._flushed)

    def empty(self, times: int = 30) -> float:
        """Median of a span with nothing in it, in ms: what two events alone cost."""
        return median([self.device(lambda: None, enqueue_ms=0.0)[0].device_ms for _ in range(times)])

    def _calibrate(self) -> float:
        """Cycles of the spinning kernel in one ms, by events."""
        cycles = 2_000_000
        spans = []
        for _ in range(4):
            start, stop = self._event(enable_timing=True), self._event(enable_timing=True)
            self._record(start)
            self._sleep(cycles)
            self._record(stop)
            self._synchronize()
            spans.append(self._elapsed(start, stop))
        return cycles / median(spans[1:])
