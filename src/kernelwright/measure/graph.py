"""Device time of a CUDA graph's replay, where a contestant can be captured.

Why: a model that replays graphs pays no launches between kernels; many small kernels may look far better so. The rule:
it comes last, since a failed capture can leave the context broken; and a replay whose output is not the reference's
gives no figure: kernels launched on the legacy default stream are not captured, and a graph without them is fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelwright.measure.clock import Clock
from kernelwright.measure.pool import Pool, tensors

REPLAYS = 20


def replays(
    clock: Clock, pool: Pool, run: Callable[[list[Any]], Any], right: Callable[[int, Any], bool], *, first: int
) -> tuple[list[float], str]:
    """Replay times in ms, or none and the reason. ``first`` is a run number that nobody had; later ones are used, too.

    ``right`` says whether a value is the output of run ``number``.
    """
    inputs = pool.take(first)
    addresses = [tensor.data_ptr() for tensor in tensors(inputs)]
    try:
        graph, value = _captured(run, inputs)
    except Exception as error:
        return [], f"cannot be captured: {_first_line(error)}"
    times: list[float] = []
    for index in range(REPLAYS):
        # A step of the number of sets comes back to the captured set.
        number = first + index * pool.sets
        if [tensor.data_ptr() for tensor in tensors(pool.take(number))] != addresses:
            return [], "its inputs cannot be refilled in place"
        if index == 0:
            _poison(value, addresses)
        span, _ = clock.device(graph.replay, enqueue_ms=0.1)
        times.append(span.device_ms)
        if index in (0, REPLAYS - 1) and not right(number, value):
            return [], "a replay does not compute the output; are kernels launched on another stream than the current?"
    return times, ""


def _captured(run: Callable[[list[Any]], Any], inputs: list[Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run(inputs)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = run(inputs)
    torch.cuda.synchronize()
    return graph, value


def _poison(value: Any, addresses: list[int]) -> None:
    """Spoil the output that the capture may have left; an output that is an input stays."""
    for tensor in tensors(value):
        if tensor.data_ptr() not in addresses and tensor.is_floating_point():
            tensor.fill_(float("nan"))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160] if lines else ''}"
