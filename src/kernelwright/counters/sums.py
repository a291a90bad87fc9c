"""Launches of one kernel added up.

The rule: only launches of one shape are, so that what belongs to a launch stays true of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernelwright.counters import metrics as m
from kernelwright.counters.records import KernelCounters, LineCounters


def together(one: KernelCounters, other: KernelCounters) -> KernelCounters:
    """Both launches as one record. Raises ``ValueError`` where kernel or shape differ."""
    shapes = [(k.kernel, k.grid, k.block, k.dynamic_shared_bytes, k.source) for k in (one, other)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{one.kernel} and {other.kernel} are not launches of one kernel with one shape")
    lines = {line.frames: line for line in one.lines}
    for line in other.lines:
        known = lines.get(line.frames)
        sums = line.metrics if known is None else m.added(known.metrics, line.metrics)
        lines[line.frames] = LineCounters(line.frames, sums)
    return replace(
        one,
        launches=one.launches + other.launches,
        metrics=m.added(one.metrics, other.metrics),
        lines=tuple(sorted(lines.values(), key=in_order)),
        instructions=_sum(one.instructions, other.instructions),
        code=one.code or other.code,
        not_checked=tuple(dict.fromkeys((*one.not_checked, *other.not_checked))),
    )


def in_order(line: LineCounters) -> list[tuple[str, int]]:
    """Lines by their place in the kernel, then by that in what is inlined there."""
    return [(frame.file, frame.line) for frame in reversed(line.frames)]


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in sorted({*one, *other})}
