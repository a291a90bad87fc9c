"""The typed records of a measurement: raw samples, their marks, the state of the card, the figures and the words.

Why: a figure without its samples cannot be checked, and one without the card's state cannot be compared. The rule: as
in ``kernelwright.records``, frozen, units in the names, JSON and back without loss; this module imports nothing of
Kernelwright, since the verdict's record holds these.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class ComparisonWord(enum.StrEnum):
    """The one word a comparison ends in. ``UNSURE`` is never a win."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNSURE = "UNSURE"


class Reason(enum.StrEnum):
    """Why a comparison ended in its word."""

    INTERVAL_ABOVE = "interval-above"
    """The whole interval of the speed-up lies above the margin."""
    INTERVAL_BELOW = "interval-below"
    INTERVAL_WITHIN = "interval-within"
    """The whole interval lies within what counts as the same."""
    INTERVAL_STRADDLES = "interval-straddles"
    """The interval reaches over a margin: more samples would tell."""
    TOO_FEW_SAMPLES = "too-few-samples"
    CONTAMINATED = "contaminated"
    """More than half of the samples carry a mark that makes them unusable."""
    CLOCKS_DISAGREE = "clocks-disagree"
    """Device events saw less time than the wall clock, by more than a launch can explain."""
    OUTPUT_WRONG = "output-wrong"
    """A timed run's output was not the reference's."""
    TAMPERED = "tampered"
    """Functions that the clock or the baseline rests on were replaced while the candidate was loaded."""
    BASELINE_DISTURBED = "baseline-disturbed"
    """The baseline ran slower beside the candidate than it had alone."""
    UNSTABLE = "unstable"
    """The first and the second half of the samples disagree."""


class Mark(enum.StrEnum):
    """What is to be said of one sample."""

    OUTLIER = "outlier"
    """Far from the median; kept, since a slow run is a run."""
    STARVED = "starved"
    """The device waited for the host inside the timed span; unusable."""
    SLOW_CLOCK = "slow-clock"
    """The card's clock was well under the run's own median; unusable."""
    THROTTLED = "throttled"
    """The driver reported a thermal or hardware slow-down; unusable."""
    SHARED = "shared"
    """Another process ran on the card; unusable."""
    OUTPUT_WRONG = "output-wrong"


@dataclass(frozen=True)
class Interval:
    """A median and the interval that holds it with a stated chance, by bootstrap."""

    median: float
    low: float
    high: float
    n: int
    """Samples it rests on."""
    level: float = 0.95


@dataclass(frozen=True)
class Sample:
    """One timed run."""

    contestant: str
    round: int
    device_ms: float
    """Between two device events around the run, started together with it."""
    begin_ns: int
    """CLOCK_MONOTONIC when its submission began, to be matched with the card's states."""
    end_ns: int
    enqueue_ms: float
    """What the host took to submit it."""
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class WallSample:
    """One run timed by the host's clock, the whole device idle at both ends."""

    contestant: str
    wall_ms: float
    device_ms: float
    """Between events around the same run, the launches' gaps included."""
    enqueue_ms: float


@dataclass(frozen=True)
class CardState:
    """One reading of the card through NVML."""

    at_ns: int
    """CLOCK_MONOTONIC."""
    sm_mhz: int
    memory_mhz: int
    temperature_c: int
    power_w: float
    throttle: int
    """NVML's bits of clock event reasons."""
    others: int
    """Compute processes besides ours."""


@dataclass(frozen=True)
class CardSummary:
    """The card over the whole run."""

    name: str
    driver: str
    readings: int
    sm_mhz: tuple[int, int, int]
    """Least, median, most."""
    memory_mhz: int
    temperature_c: tuple[int, int]
    """Least, most."""
    power_w: tuple[float, float]
    """Median, most."""
    throttle: dict[str, float] = field(default_factory=dict)
    """Reason to the share of readings that showed it."""
    others: int = 0
    """Most compute processes besides ours at once."""
    note: str = ""
    """Why there are no readings; empty where there are."""


@dataclass(frozen=True)
class Contestant:
    """One implementation and its figures."""

    name: str
    """``candidate`` | ``eager`` | ``tf32`` | ``compile`` | ``max-autotune``."""
    device: Interval
    """Device time of one run, in ms: cold L2, no launch overhead."""
    with_launch: Interval | None
    """From idle to idle by the host's clock, in ms: as a model that waits for the result feels it."""
    graph: Interval | None
    """Device time of a CUDA graph's replay, in ms."""
    graph_note: str = ""
    """Why there is no graph figure; empty where there is."""
    fp32_accurate: bool = True
    """False for the baseline that may use TF32."""
    checked: int = 0
    """Timed outputs that were compared with the reference."""
    wrong: int = 0
    """How many of them were outside the tolerance."""
    worst_error: float = 0.0
    """Largest difference from the reference, over the largest magnitude of the reference's output."""
    cached: bool = False
    """Timed in an earlier run, and carried over by its ratio to eager, which was timed both times."""


@dataclass(frozen=True)
class Comparison:
    """The candidate against one baseline."""

    baseline: str
    word: ComparisonWord
    reason: Reason
    sentence: str
    speedup: Interval
    """Baseline time over candidate time, paired by round."""


@dataclass(frozen=True)
class Work:
    """What the problem itself demands, whoever computes it."""

    read_bytes: int
    """Inputs and parameters, each byte that the reference touches once."""
    written_bytes: int
    """Outputs."""
    flops: dict[str, int] = field(default_factory=dict)
    """Of matrix products, convolutions and attention, by dtype; an FMA is two."""
    note: str = ""


@dataclass(frozen=True)
class Ceiling:
    """One measured ceiling of this device."""

    name: str
    """``read`` | ``write`` | ``copy`` | ``l2`` | ``launch``, or a product's dtype: ``fp64`` … ``fp8``, ``int8``."""
    unit: str
    """``GB/s`` | ``TFLOP/s`` | ``TOP/s`` | ``ms``."""
    best: float
    """In a short burst, at the best clock."""
    sustained: float | None
    """Over half a second and more; None where it was not measured."""
    how: str
    """The kernel or call that reached it."""
    sm_mhz: int = 0
    """Median clock while it was sustained; 0 where unknown."""


@dataclass(frozen=True)
class Ceilings:
    """What this device was seen to do at best."""

    device: str
    driver: str
    l2_bytes: int
    ceilings: dict[str, Ceiling]
    source: str = "measured"
    """``measured`` | ``data sheet``."""
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Limit:
    """The least time that the device's ceilings allow for the problem's work."""

    limit_ms: float
    kind: str
    """``memory`` | ``arithmetic:<unit>`` | ``launch``."""
    memory_ms: float
    arithmetic_ms: dict[str, float]
    """By way of computing: ``fp32``, ``fp16x3`` and ``int8x6`` (three products of fp16 numbers and six of bytes, as
    accurate as fp32), ``bf16``, …"""
    launch_ms: float
    fraction: dict[str, float]
    """Contestant to limit over its device time: 1.0 stands at the limit."""
    ceilings: str
    """``measured`` | ``data sheet``."""
    work: Work


@dataclass(frozen=True)
class Timing:
    """Everything one measurement found."""

    contestants: tuple[Contestant, ...]
    comparisons: tuple[Comparison, ...]
    limit: Limit | None
    samples: tuple[Sample, ...]
    wall: tuple[WallSample, ...]
    card: CardSummary
    states: tuple[CardState, ...]
    rounds: int
    stopped: str
    """The rule that ended the rounds: ``precise`` | ``samples`` | ``budget``."""
    inputs: str
    """How inputs were kept fresh: ``fresh contents for each run in 3 rotating sets``, …"""
    empty_ms: float = 0.0
    """What the clock shows with nothing between its two events; part of every device figure."""
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)
    """What each step of the timing process took, in seconds."""
    required_speedup: float | None = None
    """What ``--require-speedup`` asked for."""
    unmet: str = ""
    """Why that was not shown; empty where it was, or nothing was asked."""
