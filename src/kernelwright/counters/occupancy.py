"""Theoretical occupancy: how many warps of a kernel a multiprocessor holds at once, and what bounds that.

Source: cuda_occupancy.h of the CUDA toolkit 13.0 (``cudaOccMaxActiveBlocksPerMultiprocessor``), with the allocation
granularities of its tables. The rule: a block lives whole on one multiprocessor, so the least of four quotients
decides. The shared memory is taken to be configured as large as it can be; ncu's limit by shared memory is that of the
configuration the driver chose for the launch, which may be smaller, never so small that it decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelwright.counters import metrics as m
from kernelwright.counters.records import KernelCounters
from kernelwright.device.specs import DeviceSpec

REGISTER_GRANULE = 256
"""Registers are given to a warp in these steps, on every capability from 7.0 on."""
LEAST_REGISTERS = 16
"""The driver gives a thread at least these (H200, driver 580.159.04, 2026-11)."""
PARTITIONS = 4
"""Schedulers of a multiprocessor, each with its own quarter of the registers."""
SHARED_GRANULE = {7: 256}
"""Bytes that shared memory is given in, by major capability; 128 from 8.0 on."""


@dataclass(frozen=True)
class Occupancy:
    """Blocks of one kernel that one multiprocessor holds."""

    by_blocks: int
    by_registers: int
    by_shared: int
    by_warps: int
    warps: int
    """Resident at once."""
    percent: float
    """Of the warps that the multiprocessor has room for."""

    @property
    def blocks(self) -> int:
        """The least of the four."""
        return min(self.by_blocks, self.by_registers, self.by_shared, self.by_warps)


def occupancy(spec: DeviceSpec, *, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Of a block of ``threads`` threads with ``registers`` registers each and ``shared_bytes`` of its own, on ``spec``.

    Raises ``ValueError`` for a block without threads.
    """
    if threads < 1:
        raise ValueError(f"a block of {threads} threads")
    warps = -(-threads // spec.warp_size)
    most_warps = spec.max_threads_per_sm // spec.warp_size
    a_warp = _up(max(registers, LEAST_REGISTERS) * spec.warp_size, REGISTER_GRANULE)
    room = spec.registers_per_sm // PARTITIONS // a_warp * PARTITIONS
    granule = SHARED_GRANULE.get(spec.compute_capability[0], 128)
    reserved = spec.reserved_shared_per_block if spec.compute_capability >= (8, 0) else 0
    a_block = _up(shared_bytes + reserved, granule)
    limits = {
        "by_blocks": spec.max_blocks_per_sm,
        "by_registers": room // warps,
        "by_shared": spec.shared_per_sm // a_block if a_block else spec.max_blocks_per_sm,
        "by_warps": most_warps // warps,
    }
    resident = min(limits.values()) * warps
    return Occupancy(**limits, warps=resident, percent=100 * resident / most_warps)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def occupied(kernel: KernelCounters, spec: DeviceSpec, registers: int | None) -> KernelCounters:
    """``kernel`` with what it occupies on ``spec``; without the compiler's ``registers`` the record says that."""
    if not registers:
        return replace(kernel, not_checked=(*kernel.not_checked, "occupancy (the compiler's registers are not known)"))
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    static = int(kernel.metrics.get(m.SHARED_STATIC, 0))
    found = occupancy(spec, threads=threads, registers=registers, shared_bytes=static + kernel.dynamic_shared_bytes)
    figures = {
        m.REGISTERS: float(max(registers, LEAST_REGISTERS)),
        m.LIMIT_BLOCKS: float(found.by_blocks),
        m.LIMIT_REGISTERS: float(found.by_registers),
        m.LIMIT_SHARED: float(found.by_shared),
        m.LIMIT_WARPS: float(found.by_warps),
        m.OCCUPANCY: found.percent,
    }
    blocks = kernel.grid[0] * kernel.grid[1] * kernel.grid[2]
    if found.blocks:
        figures[m.WAVES] = blocks / (found.blocks * spec.multiprocessors)
    return replace(kernel, metrics=m.derived({**kernel.metrics, **figures}))
