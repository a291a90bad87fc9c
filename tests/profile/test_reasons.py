"""Why a kernel takes its time: sentences and their figures, from recorded and from made-up counters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelwright.counters import metrics as m
from kernelwright.counters.records import KernelCounters, LineCounters
from kernelwright.explain.catalogue import CAUSES
from kernelwright.measure.records import Ceilings
from kernelwright.profile import metrics as p
from kernelwright.profile.reasons import reasons
from kernelwright.profile.records import Reason
from kernelwright.sourceline import SourceLine

pytestmark = pytest.mark.tiny


def of(kernel: KernelCounters, ceilings: Ceilings | None = None) -> tuple[Reason, ...]:
    return reasons((kernel,), ceilings, {})


def made(grid: int = 1024, block: int = 256, **metrics: float) -> KernelCounters:
    return KernelCounters("k(float *)", (grid, 1, 1), (block, 1, 1), metrics=metrics)


def test_a_stalled_line_tells_what_it_waits_for_and_what_it_moves(
    counted: dict[str, KernelCounters], ceilings: Ceilings
) -> None:
    first = of(counted["copy_strided"], ceilings)[0]
    assert first.sentence == (
        "82 % of the stall samples are warps at kernels.cu:11 that wait for global or local memory; "
        "32 sectors per request there, 4 would do"
    )
    assert first.cause == "performance.uncoalesced"
    assert first.place is not None
    assert first.place.text == "if (i < n) out[i] = in[j];"


def test_a_lines_traffic_is_told_once(counted: dict[str, KernelCounters]) -> None:
    causes = [(r.cause, r.place.line if r.place else 0) for r in of(counted["copy_strided"])]
    assert causes.count(("performance.uncoalesced", 11)) == 1


def test_bank_conflicts_name_their_line_and_passes(counted: dict[str, KernelCounters]) -> None:
    (conflicts,) = [r for r in of(counted["transpose_conflict"]) if r.cause == "performance.bank-conflicts"]
    assert "at kernels.cu:19" in conflicts.sentence
    assert "32 wavefronts" in conflicts.sentence
    assert "1 would do" in conflicts.sentence


def test_a_kernel_of_unit_strides_has_no_wasted_traffic(counted: dict[str, KernelCounters]) -> None:
    assert [r.cause for r in of(counted["copy_unit"]) if r.cause in ("performance.uncoalesced",)] == []


def test_the_data_pipe_of_a_tiled_product_is_what_it_runs_into(counted: dict[str, KernelCounters]) -> None:
    assert of(counted["matmul"])[0].sentence == "the data pipe of L1 and shared memory is busy in 89 % of the cycles"


def test_atomics_on_few_addresses_show_by_idle_schedulers(counted: dict[str, KernelCounters]) -> None:
    (atomics,) = [r for r in of(counted["histogram"]) if r.cause == "performance.atomics"]
    assert atomics.sentence == (
        "32,768 warp requests of global atomics, and the schedulers issue in 0.3 % of the cycles: the atomics wait for "
        "one another"
    )


def test_registers_that_limit_occupancy_are_counted() -> None:
    kernel = made(
        **{
            m.OCCUPANCY: 25.0, m.LIMIT_REGISTERS: 2, m.LIMIT_SHARED: 21, m.LIMIT_WARPS: 8, m.LIMIT_BLOCKS: 32,
            m.REGISTERS: 168, p.ACHIEVED: 22.5, p.ISSUED: 12.0,
        }
    )  # fmt: skip
    (reason,) = of(kernel)
    assert reason.sentence == (
        "registers limit occupancy to 25 %: 168 registers a thread, 2 blocks of 256 threads fit a multiprocessor; "
        "22 % was reached, and the schedulers issue in 12 % of the cycles"
    )
    assert reason.cause == "performance.low-parallelism"


def test_low_occupancy_is_no_reason_where_the_schedulers_are_busy() -> None:
    assert of(made(**{m.OCCUPANCY: 25.0, m.LIMIT_REGISTERS: 2, p.ISSUED: 85.0})) == ()


def test_low_occupancy_is_no_reason_where_the_tensor_cores_or_the_memory_are_busy(ceilings: Ceilings) -> None:
    low = {m.OCCUPANCY: 19.0, m.LIMIT_REGISTERS: 1, m.LIMIT_SHARED: 1, p.ISSUED: 12.0, p.ACHIEVED: 15.0}
    (pipe,) = of(made(**low, **{p.TENSOR_PIPE: 95.0}))
    assert pipe.sentence.startswith("the tensor cores are busy in 95 %")
    (memory,) = of(made(**low, **{p.DRAM_READ: 8.6e9, p.DRAM_WRITE: 8192.0, p.TIME: 1.95e6}), ceilings)
    assert memory.sentence.startswith("device memory is the limit")


def test_a_tail_and_an_empty_device_are_told_in_waves() -> None:
    (tail,) = of(made(grid=160, **{m.WAVES: 1.21}))
    assert tail.sentence == "tail: 160 blocks fill the device 1.21 times, so in the last of 2 waves 79 % of it idle"
    (empty,) = of(made(grid=1, **{m.WAVES: 0.02}))
    assert empty.sentence == "1 block fills 2 % of the device once: the rest of it idles"


def test_memory_at_its_ceiling_is_the_limit(ceilings: Ceilings) -> None:
    kernel = made(**{p.DRAM_READ: 8.6e9, p.DRAM_WRITE: 8192.0, p.TIME: 1.95e6})
    (reason,) = of(kernel, ceilings)
    assert reason.sentence == (
        "device memory is the limit: 4,410 GB/s moved, 96 % of the measured read ceiling of 4,600 GB/s"
    )


def test_tensor_cores_at_work_stand_beside_their_ceiling(ceilings: Ceilings) -> None:
    kernel = made(**{p.TENSOR_PIPE: 91.0, p.TENSOR_OPS["fp16"]: 7e11, m.flop("tensor"): 7e11, p.TIME: 1e6})
    (reason,) = of(kernel, ceilings)
    assert reason.sentence == (
        "the tensor cores are busy in 91 % of the cycles, 700 TFLOP/s, 91 % of the measured fp16 ceiling of 770"
    )


def test_local_memory_is_a_spill_or_an_array() -> None:
    requests = {m.requests("local", "ld"): 300.0, m.requests("local", "st"): 100.0, m.requests("global", "ld"): 100.0}
    (array,) = of(made(**requests))
    assert (array.cause, array.weight) == ("performance.local-array", pytest.approx(0.8))
    (spill,) = of(made(**requests, **{p.LOCAL_SPILLS: 400.0, m.REGISTERS: 32.0}))
    assert spill.cause == "performance.spills"
    assert spill.sentence == (
        "400 warp requests of local memory beside 100 of global memory: registers spill at 32 registers a thread"
    )


def test_the_emulated_devices_atomics_name_addresses() -> None:
    (reason,) = of(made(**{m.ATOMICS: 1e6, m.ATOMIC_HOTTEST: 65536.0, m.ATOMIC_ADDRESSES: 16.0}))
    assert reason.sentence == (
        "1,000,000 global atomics go to 16 addresses, 65,536 of them to one in one launch, where they wait for one "
        "another"
    )


def test_reasons_of_the_longest_kernel_come_first(counted: dict[str, KernelCounters]) -> None:
    both = (counted["copy_strided"], counted["matmul"])
    assert reasons(both, None, {})[0].kernel == counted["matmul"].kernel
    shares = {counted["copy_strided"].kernel: 0.9, counted["matmul"].kernel: 0.1}
    assert reasons(both, None, shares)[0].kernel == counted["copy_strided"].kernel


def test_every_cause_is_in_the_catalogue(counted: dict[str, KernelCounters]) -> None:
    assert {r.cause for one in counted.values() for r in of(one)} - {""} <= set(CAUSES)


def test_atomics_that_take_turns_are_not_called_uncoalesced() -> None:
    op = {m.requests("global", "red"): 100.0, m.sectors("global", "red"): 3200.0, m.ideal_sectors("red"): 100.0}
    line = LineCounters((SourceLine("candidate.py", 9, "atomicAdd(&bins[b], 1);", "k"),), op)
    counts = {m.ATOMICS: 3200.0, m.ATOMIC_HOTTEST: 3200.0, m.ATOMIC_ADDRESSES: 1.0}
    kernel = replace(made(**op, **counts), lines=(line,))
    assert [reason.cause for reason in of(kernel)] == ["performance.atomics"]
