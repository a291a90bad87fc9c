"""The records of counted kernels, the same whoever counted: the emulated device or Nsight Compute.

Why: a figure of one is read beside a figure of the other, so both use Nsight Compute's metric names. The rule: a metric
that was not counted is absent, never 0; sums are over all launches of one kernel with equal grid, block and memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.sourceline import SourceLine

EMULATED, NCU = "emulated device", "ncu"


@dataclass(frozen=True)
class LineCounters:
    """What one source line of a kernel did."""

    frames: tuple[SourceLine, ...]
    """Inline stack, innermost first; the last frame is in the kernel itself."""
    metrics: dict[str, float]
    """By name; see kernelwright.counters.metrics. What the line did none of is absent."""


@dataclass(frozen=True)
class KernelCode:
    """What the compiler made of one kernel, for the device's own architecture."""

    arch: str
    """``sm_90``."""
    registers: int | None = None
    """A thread's."""
    static_shared_bytes: int | None = None
    stack_bytes: int | None = None
    """A thread's local memory."""
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    instructions: dict[str, int] = field(default_factory=dict)
    """SASS mnemonic to how often it stands in the code; empty where nobody disassembled it."""


@dataclass(frozen=True)
class KernelCounters:
    """What one kernel did in all its launches of one shape."""

    kernel: str
    """Demangled name."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int = 0
    launches: int = 1
    """Launches that the sums are over."""
    source: str = EMULATED
    """Who counted: ``emulated device`` (PTX instructions) or ``ncu`` (SASS instructions)."""
    metrics: dict[str, float] = field(default_factory=dict)
    """By name; see kernelwright.counters.metrics."""
    lines: tuple[LineCounters, ...] = ()
    """In order of the source."""
    instructions: dict[str, float] = field(default_factory=dict)
    """Warp instructions executed, by opcode: PTX's on the emulated device, SASS's by ncu."""
    code: KernelCode | None = None
    not_checked: tuple[str, ...] = ()
    """What is not known, and why, a sentence each."""
