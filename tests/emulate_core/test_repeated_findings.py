"""What every launch of a kernel does wrong without stopping is told once."""

from __future__ import annotations

import dataclasses

from kernelwright.device.specs import spec
from kernelwright.emulate.device import EmulatedDevice
from kernelwright.records import Finding, SourceLine


def test_a_race_in_every_launch_is_one_finding() -> None:
    device = EmulatedDevice(spec("h200"))
    line = (SourceLine("candidate.py", 3),)
    race = Finding("sync.shared-race", "sums", line, (0, 0, 0), (0, 0, 0), ptx_line=7, other=line)
    elsewhere = dataclasses.replace(race, ptx_line=8)
    device.findings += device._fresh((race,))
    device.findings += device._fresh((race, elsewhere, elsewhere))
    assert device.findings == [race, elsewhere]


def test_what_was_only_observed_before_may_be_a_finding_later() -> None:
    device = EmulatedDevice(spec("h200"))
    line = (SourceLine("candidate.py", 3),)
    beyond = Finding("memory.out-of-bounds", "sums", line, (0, 0, 0), (0, 0, 0), ptx_line=7)
    assert device._fresh((beyond,), observed=True) == [beyond]
    assert device._fresh((beyond,)) == [beyond]
    assert device._fresh((beyond,)) == []
