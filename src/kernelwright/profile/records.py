"""The records of a profile: what ran, what each kernel did, why it takes its time, and where it stands under the roofs.

Why: the screen, the JSON and the picture must show the same figures. The rule: as in ``kernelwright.records``, frozen
and with units in the names; counters are those of ``kernelwright.counters``, whoever counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.counters.records import KernelCounters
from kernelwright.measure.records import Ceilings, Limit, Work
from kernelwright.records import DeviceFact
from kernelwright.sourceline import SourceLine

SCHEMA = "kernelwright.profile/1"


@dataclass(frozen=True)
class TracedKernel:
    """One kernel in the trace of a few forward passes; copies and fills of the driver count as kernels."""

    name: str
    """Demangled."""
    launches: int
    """Of one forward pass."""
    total_us: float
    """Of one forward pass, its median."""
    share: float
    """Of the time that all kernels of a forward pass take together."""


@dataclass(frozen=True)
class Reason:
    """One thing that costs time, in words with its figures."""

    kernel: str
    sentence: str
    place: SourceLine | None = None
    cause: str = ""
    """An id of the public list (``performance.…``); empty where none stands for it."""
    weight: float = 0.0
    """Of its kernel's time, 0 to 1, as far as the counters tell: what reasons are ranked by."""


@dataclass(frozen=True)
class Point:
    """One kernel under the roofs."""

    kernel: str
    flop: float
    """Of one launch, of every kind."""
    unit: str
    """The ceiling that its arithmetic runs into: ``fp32``, ``fp16``, …; empty without floating-point work."""
    bytes: float
    """That one launch moved to and from device memory; on the emulated device the least that it must move."""
    seconds: float | None
    """Of one launch; None where nothing was timed."""
    share: float = 0.0
    """Of the forward pass; 0 where it was not traced."""

    @property
    def intensity(self) -> float:
        """Flop for each byte of device memory; 0 without bytes."""
        return self.flop / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Profile:
    """What a profile says. ``to_json`` of it is the public contract (schema ``kernelwright.profile/1``)."""

    problem: str
    candidate: str
    device: DeviceFact
    counted_by: str
    """``ncu`` | ``emulated device``."""
    sets: dict[str, str] = field(default_factory=dict)
    kernels: tuple[KernelCounters, ...] = ()
    """In the order of their first launch."""
    trace: tuple[TracedKernel, ...] = ()
    """Longest first; empty where nothing was timed."""
    forward_us: float | None = None
    """All kernels of one forward pass, its median; caches warm."""
    reasons: tuple[Reason, ...] = ()
    """Those that cost most first."""
    points: tuple[Point, ...] = ()
    ceilings: Ceilings | None = None
    work: Work | None = None
    """What the problem demands of any implementation."""
    limit: Limit | None = None
    """The least time that the ceilings allow for that work; its fraction is of ``forward``, the traced pass."""
    notes: tuple[str, ...] = ()
    """What was not checked, and why."""
    versions: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    schema: str = SCHEMA
