"""Which samples are to be trusted: each one against the others and against the card's state at its time.

Why: one throttled or shared stretch moves a median, and silently dropped samples move it, too. The rule: every sample
is kept in the record; a mark says what is wrong with it, and only marks of :data:`UNUSABLE` keep it out of the figures.
A slow sample is never dropped for being slow.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace

from kernelwright.measure import nvml, statistics
from kernelwright.measure.records import CardState, Mark, Sample

UNUSABLE = frozenset({Mark.STARVED, Mark.SLOW_CLOCK, Mark.THROTTLED, Mark.SHARED})
SLOW_CLOCK_SHARE = 0.9
"""A reading's clock under this share of the run's median clock marks the samples around it."""


def marked(samples: Sequence[Sample], states: Sequence[CardState]) -> tuple[Sample, ...]:
    """``samples`` with marks added: outliers by contestant, and what the card's readings say of their time.

    ``states`` are in the order of time. A sample is told by the readings within its span and the nearest one.
    """
    far: dict[tuple[str, int], bool] = {}
    for name in {sample.contestant for sample in samples}:
        ours = [sample for sample in samples if sample.contestant == name]
        flags = statistics.outliers([sample.device_ms for sample in ours])
        far.update({(name, sample.round): flag for sample, flag in zip(ours, flags, strict=True)})
    times = [state.at_ns for state in states]
    usual = statistics.median([float(state.sm_mhz) for state in states]) if states else 0.0
    found: list[Sample] = []
    for sample in samples:
        marks = list(sample.marks)
        if far[sample.contestant, sample.round]:
            marks.append(Mark.OUTLIER)
        marks += _by_card(_around(sample, states, times), usual)
        found.append(replace(sample, marks=tuple(dict.fromkeys(marks))))
    return tuple(found)


def usable(sample: Sample) -> bool:
    """Whether a sample counts."""
    return not UNUSABLE.intersection(sample.marks)


def _around(sample: Sample, states: Sequence[CardState], times: Sequence[int]) -> Sequence[CardState]:
    low, high = bisect.bisect_left(times, sample.begin_ns), bisect.bisect_right(times, sample.end_ns)
    if low < high:
        return states[low:high]
    near = [index for index in (low - 1, low) if 0 <= index < len(states)]
    return [states[index] for index in sorted(near, key=lambda index: abs(times[index] - sample.begin_ns))[:1]]


def _by_card(states: Sequence[CardState], usual_mhz: float) -> list[Mark]:
    marks: list[Mark] = []
    if any(state.throttle & nvml.HARMFUL for state in states):
        marks.append(Mark.THROTTLED)
    if any(0 < state.sm_mhz < SLOW_CLOCK_SHARE * usual_mhz for state in states):
        marks.append(Mark.SLOW_CLOCK)
    if any(state.others for state in states):
        marks.append(Mark.SHARED)
    return marks
