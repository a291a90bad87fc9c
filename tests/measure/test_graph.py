"""When a CUDA graph gives a figure, and what is said where it gives none; captures that only pretend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.measure import graph
from kernelwright.measure.clock import Span
from kernelwright.measure.pool import Pool

pytestmark = pytest.mark.tiny

FIRST = 1000


class Clock:
    """Runs what it is given and says 0.5 ms."""

    def device(self, run: Callable[[], Any], *, enqueue_ms: float) -> tuple[Span, Any]:
        return Span(0.5, enqueue_ms, 0, 0, False), run()


class Graph:
    """What a capture of ``run`` leaves: a replay that writes the same output tensor anew, or does not."""

    def __init__(self, run: Callable[[list[Any]], Any], inputs: list[Any], *, empty: bool) -> None:
        self.value = run(inputs)
        self._run, self._inputs, self._empty = run, inputs, empty

    def replay(self) -> None:
        if not self._empty:
            self.value.copy_(self._run(self._inputs))


def double(inputs: list[Any]) -> torch.Tensor:
    doubled: torch.Tensor = inputs[0] * 2
    return doubled


@pytest.fixture
def pool() -> Pool:
    return Pool(lambda: [torch.rand(8)], seed=3, device="cpu")


def replays(pool: Pool, monkeypatch: pytest.MonkeyPatch, *, empty: bool = False) -> tuple[list[float], str]:
    def captured(run: Callable[[list[Any]], Any], inputs: list[Any]) -> tuple[Any, Any]:
        made = Graph(run, inputs, empty=empty)
        return made, made.value

    monkeypatch.setattr(graph, "_captured", captured)
    clock: Any = Clock()

    def right(number: int, value: Any) -> bool:
        return torch.equal(value, double(pool.contents(number)))

    return graph.replays(clock, pool, double, right, first=FIRST)


def test_each_replay_is_of_fresh_contents_in_the_captured_tensors(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert replays(pool, monkeypatch) == ([0.5] * graph.REPLAYS, "")


def test_a_graph_without_the_kernels_gives_no_figure(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    times, note = replays(pool, monkeypatch, empty=True)
    assert times == []
    assert note.startswith("a replay does not compute the output")


def test_a_capture_that_fails_says_why(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(run: Any, inputs: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(graph, "_captured", refuses)
    clock: Any = Clock()
    found = graph.replays(clock, pool, double, lambda number, value: True, first=FIRST)
    assert found == ([], "cannot be captured: RuntimeError: operation not permitted when stream is capturing")


def test_inputs_that_move_cannot_be_replayed(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "take", lambda number: [torch.rand(8)])
    held: list[Any] = []

    def captured(run: Callable[[list[Any]], Any], inputs: list[Any]) -> tuple[Any, Any]:
        held.append(inputs)
        return Graph(run, inputs, empty=False), run(inputs)

    monkeypatch.setattr(graph, "_captured", captured)
    clock: Any = Clock()
    found = graph.replays(clock, pool, double, lambda number, value: True, first=FIRST)
    assert found == ([], "its inputs cannot be refilled in place")
