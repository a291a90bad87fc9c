"""Ratios from sums, launches added up, and lines ranked by what they waste."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelwright.counters import metrics as m
from kernelwright.counters import reading
from kernelwright.counters.records import KernelCounters, LineCounters
from kernelwright.counters.sums import together
from kernelwright.records import from_json, to_json
from kernelwright.sourceline import SourceLine

pytestmark = pytest.mark.tiny


def loads(requests: float, sectors: float, ideal: float) -> dict[str, float]:
    return {m.requests("global", "ld"): requests, m.sectors("global", "ld"): sectors, m.ideal_sectors("ld"): ideal}


def line(number: int, metrics: dict[str, float]) -> LineCounters:
    return LineCounters((SourceLine("header.h", 1), SourceLine("a.cu", number)), metrics)


def test_ratios_follow_from_sums_and_only_from_those_that_are_there() -> None:
    branches = {m.BRANCHES_DIVERGENT: 2.0, m.BRANCHES_UNIFORM: 6.0}
    made = m.derived({**loads(10, 320, 40), m.INST: 4, m.THREAD_INST: 64, **branches})
    assert made[m.sectors_per_request("global", "ld")] == 32
    assert made[m.THREADS_PER_INST] == 16
    assert made[m.BRANCH_UNIFORMITY] == 75
    assert m.sectors_per_request("global", "st") not in made


def test_launches_add_up_and_what_belongs_to_a_launch_stays() -> None:
    one = m.derived({**loads(10, 40, 40), m.OCCUPANCY: 50, m.ATOMIC_HOTTEST: 7})
    other = m.derived({**loads(10, 320, 40), m.OCCUPANCY: 50, m.ATOMIC_HOTTEST: 3})
    total = m.added(one, other)
    assert total[m.sectors("global", "ld")] == 360
    assert total[m.sectors_per_request("global", "ld")] == 18
    assert total[m.OCCUPANCY] == 50 and total[m.ATOMIC_HOTTEST] == 7


def test_costly_lines_come_by_the_bytes_they_waste_and_name_the_kernels_own_file() -> None:
    fine, bad, worse = line(3, loads(10, 40, 40)), line(4, loads(10, 80, 40)), line(5, loads(1, 80, 4))
    kernel = KernelCounters("k", (1, 1, 1), (32, 1, 1), lines=(line(2, {}), fine, bad, worse))
    found = reading.costly_lines(KernelCounters("k", (1, 1, 1), (32, 1, 1), lines=kernel.lines[:3]))
    assert [costly.line.line for costly in found] == [4]
    places = [(costly.line.file, costly.line.line) for costly in reading.costly_lines(kernel)]
    assert places == [("a.cu", 5), ("a.cu", 4)]
    assert found[0].traffic.per_request == 8 and found[0].traffic.ideal_per_request == 4


def test_the_least_limit_bounds_occupancy() -> None:
    limits = {m.LIMIT_REGISTERS: 8.0, m.LIMIT_SHARED: 4.0, m.LIMIT_WARPS: 16.0, m.LIMIT_BLOCKS: 32.0}
    assert reading.limited_by(limits) == ("shared memory",)
    assert reading.limited_by({}) == ()


def test_only_operations_that_happened_are_named() -> None:
    assert reading.operations({m.flop("fp32"): 21, m.flop("fp64"): 0}) == {"fp32": 21}


def test_counters_go_to_json_and_back() -> None:
    kernel = KernelCounters("k", (1, 1, 1), (32, 1, 1), metrics=loads(1, 2, 3), lines=(line(2, loads(1, 2, 3)),))
    assert from_json(KernelCounters, to_json(kernel)) == kernel


def test_every_metric_has_a_unit_and_a_meaning() -> None:
    assert all(metric.unit and metric.meaning and metric.emulated for metric in m.METRICS.values())


def test_copies_and_matrices_are_told_apart_from_the_loads_that_hold_them() -> None:
    metrics = {
        **loads(30, 480, 480),
        m.requests("global", "ldgsts"): 10.0,
        m.sectors("global", "ldgsts"): 160.0,
        m.ideal_sectors("ldgsts"): 160.0,
        m.shared_requests("ld"): 5.0,
        m.wavefronts("ld"): 13.0,
        m.ideal_wavefronts("ld"): 9.0,
        m.shared_requests("ldsm"): 1.0,
        m.wavefronts("ldsm"): 8.0,
        m.ideal_wavefronts("ldsm"): 4.0,
    }
    found = {(one.space, one.op): (one.requests, one.units, one.ideal) for one in reading.traffic(metrics)}
    assert found == {
        ("global", "ld"): (20, 320, 320),
        ("global", "ldgsts"): (10, 160, 160),
        ("shared", "ld"): (5, 5, 5),
        ("shared", "ldsm"): (1, 8, 4),
    }


def test_launches_of_one_shape_are_added_line_by_line_and_others_are_refused() -> None:
    one = KernelCounters("k", (1, 1, 1), (32, 1, 1), metrics=loads(1, 4, 4), lines=(line(5, loads(1, 4, 4)),))
    other = replace(one, metrics=loads(2, 8, 8), lines=(line(3, loads(2, 8, 8)),), instructions={"ld": 2.0})
    found = together(one, other)
    assert (found.launches, found.metrics[m.sectors("global", "ld")]) == (2, 12)
    assert [place.frames[-1].line for place in found.lines] == [3, 5]
    assert together(found, one).lines[1].metrics[m.requests("global", "ld")] == 2
    with pytest.raises(ValueError, match="one kernel with one shape"):
        together(one, replace(one, grid=(2, 1, 1)))
