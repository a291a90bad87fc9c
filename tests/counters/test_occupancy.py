"""Theoretical occupancy: what an H200's profiler reported for the same launches, and each resource as the limit."""

from __future__ import annotations

import pytest

from kernelwright.counters import metrics as m
from kernelwright.counters.occupancy import occupancy, occupied
from kernelwright.counters.reading import limited_by
from kernelwright.counters.records import KernelCounters
from kernelwright.device.specs import spec

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "by_registers", "by_warps", "percent"),
    [(256, 16, 0, 16, 8, 100), (1024, 16, 4096, 4, 2, 100), (256, 32, 2048, 8, 8, 100), (128, 168, 0, 3, 16, 18.75)],
)
def test_limits_are_those_that_ncu_reported_on_an_h200(
    threads: int, registers: int, shared: int, by_registers: int, by_warps: int, percent: float
) -> None:
    found = occupancy(spec("h200"), threads=threads, registers=registers, shared_bytes=shared)
    assert (found.by_registers, found.by_warps, found.by_blocks) == (by_registers, by_warps, 32)
    assert found.percent == percent


def test_shared_memory_limits_with_a_kibibyte_of_the_systems_own() -> None:
    found = occupancy(spec("h200"), threads=128, registers=32, shared_bytes=100 * 1024)
    assert found.by_shared == found.blocks == 2
    assert found.warps == 8 and found.percent == 12.5


def test_small_blocks_are_limited_by_their_number() -> None:
    found = occupancy(spec("h200"), threads=32, registers=16, shared_bytes=0)
    assert found.blocks == 32 and found.percent == 50


def test_a_block_that_does_not_fit_occupies_nothing() -> None:
    assert occupancy(spec("h200"), threads=1024, registers=255, shared_bytes=0).percent == 0


def test_a_record_gains_occupancy_its_limit_and_its_waves() -> None:
    kernel = KernelCounters("k", (4096, 1, 1), (256, 1, 1), metrics={m.SHARED_STATIC: 0.0})
    found = occupied(kernel, spec("h200"), 16)
    assert found.metrics[m.WAVES] == pytest.approx(4096 / (8 * 132))
    assert limited_by(found.metrics) == ("the block's size",)
    assert occupied(kernel, spec("h200"), 64).metrics[m.OCCUPANCY] == 50
    assert occupied(kernel, spec("h200"), None).not_checked == ("occupancy (the compiler's registers are not known)",)
