"""What counters say: how far each source line is from its ideal, and which lines cost most.

Why: the screen, the causes and the profile must rank lines alike. The rule: figures follow from the metrics alone; a
metric that is absent makes its reading absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernelwright.counters import metrics as m
from kernelwright.counters.records import KernelCounters, LineCounters
from kernelwright.sourceline import SourceLine

SECTOR_BYTES = 32
WAVEFRONT_BYTES = 128
"""What one pass through the banks carries: 32 banks of 4 bytes."""

_WORDS = {
    ("global", "ld"): "global loads",
    ("global", "st"): "global stores",
    ("global", "atom"): "global atomics",
    ("global", "red"): "global reductions",
    ("global", "ldgsts"): "cp.async from global",
    ("shared", "ld"): "shared loads",
    ("shared", "ldsm"): "ldmatrix",
    ("shared", "st"): "shared stores",
    ("shared", "atom"): "shared atomics",
    ("shared", "ldgsts"): "cp.async to shared",
}


@dataclass(frozen=True)
class Traffic:
    """One kind of access, of a line or of a whole kernel."""

    space: str
    """``global`` | ``shared``."""
    op: str
    """``ld`` | ``st`` | ``atom`` | ``red`` | ``ldgsts``."""
    requests: float
    units: float
    """Sectors or wavefronts."""
    ideal: float
    """Those that the same bytes need."""

    @property
    def words(self) -> str:
        """``global loads``."""
        return _WORDS[self.space, self.op]

    @property
    def unit(self) -> str:
        """``sectors`` | ``wavefronts``."""
        return "sectors" if self.space == "global" else "wavefronts"

    @property
    def per_request(self) -> float:
        """Sectors or wavefronts of one request."""
        return self.units / self.requests

    @property
    def ideal_per_request(self) -> float:
        """Those that would do."""
        return self.ideal / self.requests

    @property
    def excess_bytes(self) -> float:
        """Bytes that move for nothing: what makes the two kinds comparable."""
        return (self.units - self.ideal) * (SECTOR_BYTES if self.space == "global" else WAVEFRONT_BYTES)


def traffic(metrics: Mapping[str, float]) -> Iterator[Traffic]:
    """Every kind of access that happened and whose ideal is known, global first, each by itself."""
    figures = dict(metrics)
    # Among its loads ncu has the copies of cp.async and, by wavefronts, ldmatrix.
    for whole, part in _WITHIN:
        if whole in figures and part in figures:
            figures[whole] -= figures[part]
    for op in m.GLOBAL_OPS:
        yield from _one("global", op, figures, m.requests("global", op), m.sectors("global", op), m.ideal_sectors(op))
    for op in m.SHARED_OPS:
        yield from _one("shared", op, figures, m.shared_requests(op), m.wavefronts(op), m.ideal_wavefronts(op))


_WITHIN = (
    (m.requests("global", "ld"), m.requests("global", "ldgsts")),
    (m.sectors("global", "ld"), m.sectors("global", "ldgsts")),
    (m.ideal_sectors("ld"), m.ideal_sectors("ldgsts")),
    (m.wavefronts("ld"), m.wavefronts("ldsm")),
    (m.ideal_wavefronts("ld"), m.ideal_wavefronts("ldsm")),
)


def _one(space: str, op: str, figures: Mapping[str, float], *names: str) -> Iterator[Traffic]:
    values = [figures.get(name) for name in names]
    if all(value is not None for value in values) and values[0]:
        requests, units, ideal = (float(value or 0) for value in values)
        yield Traffic(space, op, requests, units, ideal)


@dataclass(frozen=True)
class Costly:
    """A line and the access at which it moves more than it needs."""

    line: SourceLine
    counters: LineCounters
    traffic: Traffic


def costly_lines(kernel: KernelCounters) -> list[Costly]:
    """Lines that move more than their bytes need, most first."""
    found = [
        Costly(own_frame(counters), counters, one)
        for counters in kernel.lines
        if counters.frames
        for one in traffic(counters.metrics)
        if one.excess_bytes > 0
    ]
    return sorted(found, key=lambda item: (-item.traffic.excess_bytes, item.line.line, item.traffic.op))


def own_frame(counters: LineCounters) -> SourceLine:
    """The innermost frame in the file that holds the kernel, so that no header's line is named."""
    frames = counters.frames
    return next(frame for frame in frames if frame.file == frames[-1].file)


LIMITS = {
    m.LIMIT_REGISTERS: "registers",
    m.LIMIT_SHARED: "shared memory",
    m.LIMIT_WARPS: "the block's size",
    m.LIMIT_BLOCKS: "blocks a multiprocessor holds",
}


def limited_by(metrics: Mapping[str, float]) -> tuple[str, ...]:
    """The resources that bound the theoretical occupancy; none where it was not computed."""
    known = {name: metrics[name] for name in LIMITS if name in metrics}
    least = min(known.values(), default=0)
    return tuple(LIMITS[name] for name, value in known.items() if value == least)


def divergence(metrics: Mapping[str, float]) -> float | None:
    """The share of branches at which a warp parted; None without branches."""
    uniform = metrics.get(m.BRANCH_UNIFORMITY)
    return None if uniform is None else 1 - uniform / 100


def operations(metrics: Mapping[str, float]) -> dict[str, float]:
    """Floating-point operations by kind, of those that happened: ``fp32``, ``fp64``, ``fp16``, ``tensor``."""
    made = {kind: metrics.get(m.flop(kind), 0.0) for kind in m.FLOP_KINDS}
    return {kind: count for kind, count in made.items() if count}
