"""Which functions that others time and compare with a candidate has replaced.

Why: a candidate that replaces the events' clock is timed by a clock of its own, wherever it goes next. Here it gains
nothing, since verdicts are made in other processes; it is told all the same. The rule: only what was there before the
candidate's file ran, and is another object now.
"""

from __future__ import annotations

import importlib
from typing import Any

GUARDED = (
    "torch.cuda.Event.elapsed_time", "torch.cuda.Event.record", "torch.cuda.Event.synchronize",
    "torch.cuda.synchronize", "torch.cuda.Stream.synchronize",
    "torch.allclose", "torch.isclose", "torch.equal", "torch.testing.assert_close",
    "time.time", "time.perf_counter", "time.perf_counter_ns", "time.monotonic", "time.process_time",
)  # fmt: skip
"""Clocks, waits and comparisons, by the names that benchmarks call."""


class Guard:
    """The functions as they are when it is made."""

    def __init__(self) -> None:
        self._before = {name: _function(name) for name in GUARDED}

    def replaced(self) -> list[str]:
        """Names of those that are others now."""
        return [name for name, function in self._before.items() if _function(name) is not function]


def _function(name: str) -> Any:
    head, *rest = name.split(".")
    held: Any = importlib.import_module(head)
    for part in rest:
        held = getattr(held, part, None)
    return held
