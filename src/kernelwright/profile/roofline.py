"""Where kernels stand under the roofs: bandwidth, arithmetic rate and intensity, from counters and ceilings.

Why: the reasons, the screen and the picture need one arithmetic. The rule: rates are of the very launches that were
counted; the emulated device has no time, so its kernels have an intensity and the least bytes, and no rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.counters import metrics as m
from kernelwright.counters.records import KernelCounters
from kernelwright.measure.records import Ceilings
from kernelwright.profile import metrics as p
from kernelwright.profile.records import Point

ONE_WAY = 0.9
"""From this share of its traffic on a kernel is held against the ceiling of reading, or of writing, alone."""


@dataclass(frozen=True)
class Bandwidth:
    """What a kernel moved, beside what the device can."""

    gb_s: float
    ceiling: str
    """``read`` | ``write`` | ``copy``."""
    ceiling_gb_s: float | None
    source: str
    """``measured`` | ``data sheet``."""

    @property
    def share(self) -> float | None:
        """Of the ceiling; None where it is not known."""
        return self.gb_s / self.ceiling_gb_s if self.ceiling_gb_s else None


@dataclass(frozen=True)
class Rate:
    """What a kernel computed, beside what the device can."""

    tflop_s: float
    unit: str
    ceiling_tflop_s: float | None
    source: str

    @property
    def share(self) -> float | None:
        """Of the ceiling; None where it is not known."""
        return self.tflop_s / self.ceiling_tflop_s if self.ceiling_tflop_s else None


def moved(kernel: KernelCounters) -> tuple[float, float] | None:
    """Bytes read and written in all launches: to and from device memory, or the least of them where nobody measured."""
    metrics = kernel.metrics
    if p.DRAM_READ in metrics:
        return metrics[p.DRAM_READ], metrics.get(p.DRAM_WRITE, 0.0)
    if m.COMPULSORY_READ in metrics:
        return metrics[m.COMPULSORY_READ], metrics.get(m.COMPULSORY_WRITE, 0.0)
    return None


def seconds(kernel: KernelCounters) -> float | None:
    """Of all launches, as ncu timed them with cold caches; None on the emulated device."""
    nanoseconds = kernel.metrics.get(p.TIME)
    return nanoseconds * 1e-9 if nanoseconds else None


def bandwidth(kernel: KernelCounters, ceilings: Ceilings | None) -> Bandwidth | None:
    """None where nothing was timed or moved."""
    traffic, time = moved(kernel), seconds(kernel)
    if traffic is None or time is None or not sum(traffic):
        return None
    read, written = traffic
    whole = read + written
    kind = "read" if read >= ONE_WAY * whole else "write" if written >= ONE_WAY * whole else "copy"
    best = _best(ceilings, kind)
    return Bandwidth(whole / time * 1e-9, kind, best, ceilings.source if ceilings else "")


def rate(kernel: KernelCounters, ceilings: Ceilings | None) -> Rate | None:
    """None where nothing was timed or nothing was computed in floating point."""
    time, flop, kind = seconds(kernel), operations(kernel), unit(kernel)
    if time is None or not flop:
        return None
    return Rate(flop / time * 1e-12, kind, _best(ceilings, kind), ceilings.source if ceilings else "")


def operations(kernel: KernelCounters) -> float:
    """Floating-point operations of all launches, scalar and of the tensor cores."""
    return sum(kernel.metrics.get(m.flop(kind), 0.0) for kind in (*p.KINDS, "tensor"))


def unit(kernel: KernelCounters) -> str:
    """The ceiling that most of the operations run into; empty without any."""
    metrics = kernel.metrics
    done = {kind: metrics.get(m.flop(kind), 0.0) for kind in p.KINDS}
    tensor = {kind: metrics[name] for kind, name in p.TENSOR_OPS.items() if metrics.get(name)}
    if not tensor and metrics.get(m.flop("tensor")):
        # The emulated device counts products without their dtype; fp16 is what mma.sync is used for.
        tensor = {"fp16": metrics[m.flop("tensor")]}
    for kind, count in tensor.items():
        done[kind] = done.get(kind, 0.0) + count
    return max(done, key=lambda kind: done[kind]) if any(done.values()) else ""


def points(kernels: tuple[KernelCounters, ...], shares: Mapping[str, float]) -> tuple[Point, ...]:
    """One point a kernel, of one launch, for those whose traffic is known."""
    made = []
    for kernel in kernels:
        traffic, time = moved(kernel), seconds(kernel)
        if traffic is None:
            continue
        launches = max(1, kernel.launches)
        made.append(
            Point(
                kernel.kernel,
                operations(kernel) / launches,
                unit(kernel),
                sum(traffic) / launches,
                time / launches if time is not None else None,
                shares.get(kernel.kernel, 0.0),
            )
        )
    return tuple(made)


def _best(ceilings: Ceilings | None, name: str) -> float | None:
    found = ceilings.ceilings.get(name) if ceilings is not None else None
    return found.best if found is not None and found.best > 0 else None
