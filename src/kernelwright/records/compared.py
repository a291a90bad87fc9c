"""What comparing outputs with the oracle's found, trial by trial."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.records.words import Precision


@dataclass(frozen=True)
class Mismatch:
    """Where an output differs from the oracle beyond tolerance."""

    count: int
    total: int
    nan: int
    """Elements that are NaN in the candidate and not in the oracle."""
    inf: int
    unwritten: int
    """Elements that still hold the poison pattern the device memory started with."""
    tainted: int
    """Elements that hold a NaN computed from poison: something read memory that nobody wrote."""
    description: str
    """The pattern in the output's axes, e.g. ``rows 0, 32, 64, … (every 32nd) of axis 0; all of axis 1``."""
    first: tuple[int, ...] = ()
    """Index of the first mismatch."""
    first_got: float = 0.0
    first_expected: float = 0.0
    worst: tuple[int, ...] = ()
    worst_got: float = 0.0
    worst_expected: float = 0.0


@dataclass(frozen=True)
class OutputNumerics:
    """One output of one trial, compared with the float64 oracle."""

    output: str
    """``output``, or ``output[1]`` / ``output['key']`` for nested outputs."""
    shape: tuple[int, ...]
    dtype: str
    max_abs_error: float
    """Candidate against the oracle."""
    rms_error: float
    reference_max_abs_error: float
    """The reference in its own dtype against the oracle."""
    reference_rms_error: float
    rms_ratio: float | None
    """rms_error / reference_rms_error; None where the reference is exact."""
    within_tolerance: bool
    precision: Precision | None
    """None for integer and boolean outputs."""
    mismatch: Mismatch | None = None
    allowed_error: float | None = None
    """Error that passes beside the tolerance, because the reference itself misses it; None where it does not."""


@dataclass(frozen=True)
class Trial:
    """One run of reference and candidate on fresh inputs."""

    seed: int
    passed: bool
    outputs: tuple[OutputNumerics, ...] = ()
    note: str = ""
    """Shape, dtype, structure or stride differences; empty when none."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Numerics:
    """All trials, and whether the tolerance can tell right from wrong."""

    atol: float
    rtol: float
    oracle: str
    """How the oracle was made: ``float64`` | ``float64 in 32 chunks along axis 0`` | ``float32 reference (…why…)``."""
    weights: str
    """``rng`` (equal construction) | ``state_dict`` (loaded by name) | ``none`` (no parameters) | ``differ``."""
    trials: tuple[Trial, ...]
    precision: Precision | None
    """The worst grade of any float output."""
    discriminating: bool | None
    """False where zeros, a constant or the input itself would pass the same tolerance; None when not checked."""
    passing_impostors: tuple[str, ...] = ()
    """Which of them pass: ``zeros``, ``constant``, ``input 0``, ``mean``."""
    mutated: tuple[str, ...] = ()
    """Inputs or weights that the candidate changed: ``input 0``, ``parameter fc.weight``."""
    weights_note: str = ""
    """Why the reference's state cannot be loaded into the candidate by name; empty where it can."""
    inputs: str = ""
    """Where the trials' inputs came from: drawn on the device from the trial's seed, or made on the CPU."""


@dataclass(frozen=True)
class OutputFact:
    """A structural difference between the candidate's output and the reference's."""

    cause: str
    """``semantic.shape`` | ``semantic.dtype``."""
    output: str
    message: str


@dataclass(frozen=True)
class Experiment:
    """A change to the reference that makes its outputs the candidate's: what the candidate computes instead."""

    variant: str
    """Name in the table of variants (``kernelwright.judge.variants``), or ``output-strides`` or ``input-strides``."""
    said: str
    """What was changed, to be put behind "with": ``the tanh approximation of GELU in place of the exact one``."""
    max_abs_error: float
    """Candidate against the changed reference, where both are finite."""
    max_abs_error_before: float
    """Candidate against the reference as it is."""
    rms_error: float
    exact: bool = True
    """False where only number and size of the errors agree, as is all that rounding errors can."""
    compared: int = 0
    """Elements that were compared: those of some rows where the reference takes long."""
