"""Which samples are marked, by the others and by the card."""

from __future__ import annotations

import dataclasses

import pytest

from kernelwright.measure.marks import marked, usable
from kernelwright.measure.nvml import others, summarise
from kernelwright.measure.records import CardState, Mark, Sample

pytestmark = pytest.mark.tiny

MS = 1_000_000


def samples(times: list[float]) -> list[Sample]:
    return [Sample("candidate", i, t, i * 10 * MS, i * 10 * MS + 3 * MS, 0.1) for i, t in enumerate(times)]


def states(count: int = 20) -> list[CardState]:
    return [CardState(i * 10 * MS + MS, 1980, 3201, 45, 400.0, 0, 0) for i in range(count)]


def test_a_quiet_run_has_no_marks() -> None:
    assert all(sample.marks == () and usable(sample) for sample in marked(samples([2.0] * 20), states()))


def test_an_outlier_is_marked_and_still_counts() -> None:
    found = marked(samples([2.0] * 19 + [3.0]), states())
    assert [sample.marks for sample in found][-1] == (Mark.OUTLIER,)
    assert all(usable(sample) for sample in found)


@pytest.mark.parametrize(
    ("change", "mark"),
    [
        ({"sm_mhz": 1200}, Mark.SLOW_CLOCK),
        ({"throttle": 0x40}, Mark.THROTTLED),
        ({"throttle": 0x8}, Mark.THROTTLED),
        ({"others": 1}, Mark.SHARED),
    ],
)
def test_what_the_card_says_marks_the_samples_of_its_time_only(change: dict[str, int], mark: Mark) -> None:
    card = states()
    card[7] = dataclasses.replace(card[7], **change)
    found = marked(samples([2.0] * 20), card)
    assert [i for i, sample in enumerate(found) if sample.marks] == [7]
    assert found[7].marks == (mark,)
    assert not usable(found[7])


def test_a_power_cap_is_no_fault_of_the_run() -> None:
    card = [dataclasses.replace(state, throttle=0x4) for state in states()]
    assert all(sample.marks == () for sample in marked(samples([2.0] * 20), card))


def test_a_sample_between_two_readings_is_told_by_the_nearest() -> None:
    card = [
        CardState(0, 1980, 3201, 45, 400.0, 0, 0),
        CardState(100 * MS, 1980, 3201, 45, 400.0, 0x40, 0),
    ]
    found = marked(samples([2.0] * 10), card)
    assert [bool(sample.marks) for sample in found] == [False] * 6 + [True] * 4


def test_without_readings_nothing_is_made_up() -> None:
    assert all(sample.marks == () for sample in marked(samples([2.0] * 20), []))
    summary = summarise([], name="", driver="", note="NVML cannot be loaded")
    assert (summary.readings, summary.note) == (0, "NVML cannot be loaded")


def test_a_summary_tells_shares_of_time_by_reason() -> None:
    card = states(10)
    card[0] = dataclasses.replace(card[0], throttle=0x4 | 0x1, sm_mhz=1500, power_w=700.0)
    summary = summarise(card, name="a card", driver="1")
    assert summary.throttle == {"idle": 0.1, "power cap": 0.1}
    assert summary.sm_mhz == (1500, 1980, 1980)
    assert summary.power_w == (400.0, 700.0)


@pytest.mark.parametrize(
    ("running", "ours", "count"),
    [
        ([10, 20], [10], 1),
        ([10], [10], 0),
        ([], [10], 0),
        # A container: the driver tells the host's numbers, and 4711 is ours.
        ([4711], [10], 0),
        ([4711, 4712], [10], 1),
        ([4711], [], 1),
        # Two of ours in a container.
        ([4711, 4712], [10, 11], 0),
        ([4711], [10, 11], 0),
    ],
)
def test_other_processes_are_counted_in_a_container_too(running: list[int], ours: list[int], count: int) -> None:
    assert others(running, ours) == count
