"""The typed records that rooms hand to one another, and that the verdict is made of.

Why: every room is a separate process or could become one, so what crosses a border is a frozen dataclass that goes to
JSON and back without loss. The rule: a record holds facts with their unit in the name; it has no behaviour beyond that.
Values nobody could obtain are ``None`` and are shown as "not checked", never as passed.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kernelwright.counters.records import KernelCounters
from kernelwright.measure.records import Timing
from kernelwright.sourceline import SourceLine as SourceLine

T = TypeVar("T")

SCHEMA = "kernelwright.verdict/1"


class VerdictWord(enum.StrEnum):
    """The one word a check ends in."""

    CORRECT = "correct"
    WRONG = "wrong"
    FAILED = "failed"
    CHEATING = "cheating"
    UNSURE = "unsure"


class StageStatus(enum.StrEnum):
    """What became of one stage of the road."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"


class Stage(enum.StrEnum):
    """The stages of the road, in order."""

    LOAD = "load"
    BUILD = "build"
    RUN = "run"
    JUDGE = "judge"
    MEASURE = "measure"


class Confidence(enum.StrEnum):
    """How a cause is known: seen directly, derived from facts that allow no other reading, or the likeliest reading."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Precision(enum.StrEnum):
    """The narrowest format whose rounding explains the candidate's error against the oracle."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    WORSE = "worse"


@dataclass(frozen=True)
class StageResult:
    """One stage's outcome."""

    stage: Stage
    status: StageStatus
    seconds: float = 0.0
    note: str = ""
    """Why it failed or did not run, one sentence; empty when passed."""


@dataclass(frozen=True)
class Cause:
    """A named reason for a failure. Only made on evidence: a wrong cause is worse than none."""

    id: str
    """An id of the public list (docs/causes.md), or ``unexplained``."""
    stage: Stage
    sentence: str
    """What is wrong, with the numbers that show it."""
    file: str = ""
    line: int = 0
    text: str = ""
    evidence: tuple[str, ...] = ()
    """The facts the sentence rests on, one each."""
    fix: str = ""
    """What to do, one or two sentences; empty where nobody can know."""
    confidence: Confidence = Confidence.CERTAIN


@dataclass(frozen=True)
class Allocation:
    """A piece of memory that the device or the host handed out."""

    kind: str
    """``global`` | ``shared`` | ``local`` | ``const`` | ``param`` | ``host`` | ``binding-temporary`` | ``freed``."""
    bytes: int
    name: str = ""
    """Variable or role, e.g. ``y (torch.empty)``, ``input 0``, ``part``; empty where unknown."""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    site: SourceLine | None = None
    """Where it was allocated, where known."""


NO_THREAD = (-1, -1, -1)
"""In the place of a thread or block that the witness does not name."""
HOST_STACK = "the host's stack"
"""Name of an allocation: where a function's own variables and temporaries lie."""


@dataclass(frozen=True)
class Finding:
    """Something a kernel was seen to do wrong; many lanes at one site are one finding with a count."""

    cause: str
    """Cause id, e.g. ``memory.out-of-bounds``."""
    kernel: str
    """Demangled kernel name."""
    frames: tuple[SourceLine, ...]
    """Inline stack, innermost first; the last frame is in the kernel itself."""
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    """The first thread it happened to, in launch order; ``NO_THREAD`` where none is named."""
    access: str = ""
    """``load`` | ``store`` | ``atomic`` | ``barrier`` | ``assert`` | ``trap`` | …"""
    space: str = ""
    """``global`` | ``shared`` | ``local`` | ``const`` | ``generic`` | ``param``."""
    bytes: int = 0
    """Width of one lane's access."""
    address: int = 0
    offset: int | None = None
    """Byte offset from the start of ``allocation``; negative before it; None where no allocation is near."""
    allocation: Allocation | None = None
    """The allocation meant or nearest."""
    count: int = 1
    """Thread-level occurrences at this site in this launch (a lower bound once the launch was stopped)."""
    message: str = ""
    """Extra text: the assertion's, the refused instruction's, …"""
    ptx_line: int = 0
    grid: tuple[int, int, int] = (0, 0, 0)
    block_size: tuple[int, int, int] = (0, 0, 0)
    other: tuple[SourceLine, ...] = ()
    """A race's earlier access in the order of the code, as an inline stack; ``frames`` is the later one."""
    witness: str = ""
    """Who saw it: ``by compute-sanitizer memcheck on the GPU``; empty for the emulated device of the check itself."""


@dataclass(frozen=True)
class SanitizerFact:
    """What became of one of compute-sanitizer's tools."""

    tool: str
    """``memcheck`` | ``racecheck`` | ``initcheck`` | ``synccheck``."""
    errors: int = 0
    """As the tool counts them, in whatever code."""
    seconds: float = 0.0
    not_checked: str = ""
    """Why it checked nothing, or not all; empty where it ran to its end."""


@dataclass(frozen=True)
class Suspicion:
    """A pattern in a launched kernel's code: legal, hence no finding, yet it explains a wrong result beside it."""

    cause: str
    """Cause id, e.g. ``warp.block-broadcast``."""
    kernel: str
    frames: tuple[SourceLine, ...]
    """Where it stands: inline stack, innermost first."""
    block_size: tuple[int, int, int]
    holders: tuple[int, ...] = ()
    """Warps of the block that have what the pattern is about."""
    others: tuple[int, ...] = ()
    """Warps that use it without having it."""
    source: tuple[SourceLine, ...] = ()
    """Where the holders get it."""


@dataclass(frozen=True)
class LaunchFact:
    """One kernel launch as the device saw it."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    static_shared_bytes: int = 0
    registers: int | None = None
    error: int = 0
    """cudaError_t that the launch returned; 0 is success."""
    error_name: str = ""
    limit: str = ""
    """Cause id of the refused limit, e.g. ``launch.block-limit``; empty when not refused."""
    message: str = ""
    """Which facts disagree, e.g. ``block of 32 x 64 x 1 = 2048 threads; the device allows 1024``."""
    site: SourceLine | None = None
    """The host line that launched."""
    seconds: float = 0.0
    thread_instructions: int | None = None
    count: int = 1
    """Equal launches from the same site are one fact with a count."""


@dataclass(frozen=True)
class KernelFacts:
    """What ptxas says of one kernel (``nvcc -Xptxas -v``)."""

    name: str
    registers: int
    static_shared_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    constant_bytes: int = 0


@dataclass(frozen=True)
class Diagnostic:
    """One message of a compiler, linker or loader, at its place in the candidate."""

    tool: str
    """``nvcc`` | ``g++`` | ``ptxas`` | ``ld`` | ``loader`` | ``python``."""
    severity: str
    """``error`` | ``warning`` | ``note``."""
    message: str
    file: str = ""
    line: int = 0
    text: str = ""


@dataclass(frozen=True)
class BuildRecord:
    """One extension's build."""

    name: str
    """The extension's name."""
    tier: str
    """``fast`` (facade headers) | ``full`` (real torch headers) | ``torch`` (PyTorch's own cpp_extension, on a GPU)."""
    cached: bool
    seconds: float
    ok: bool
    confirmed: bool | None
    """True when real torch headers accepted these sources too; None when not checked."""
    confirm_note: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    kernels: tuple[KernelFacts, ...] = ()
    fell_through: str = ""
    """Why the fast tier was left, first error; empty when it was not."""
    arch: str = "sm_80"
    call_line: int = 0
    """Line in the candidate of the load_inline/load call; 0 where unknown."""


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
class ExceptionFact:
    """A Python exception that ended a stage."""

    type: str
    message: str
    frames: tuple[SourceLine, ...] = ()
    """Outermost first, only frames in the problem's or candidate's file."""
    traceback: str = ""


@dataclass(frozen=True)
class ProcessExit:
    """How a worker process ended."""

    returncode: int | None = None
    signal: str = ""
    """``SIGSEGV`` and the like; empty when not killed by a signal."""
    timed_out: bool = False
    out_of_memory: bool = False
    during: str = ""
    """What it was doing, e.g. ``forward, trial 1``, ``kernel spin<<<(1,1,1), (32,1,1)>>>``."""
    frames: tuple[SourceLine, ...] = ()
    """The stack at death, innermost first, where it could be caught."""
    stdout: str = ""
    """Tail of what the candidate printed."""
    stderr: str = ""


@dataclass(frozen=True)
class OutputFact:
    """A structural difference between the candidate's output and the reference's."""

    cause: str
    """``semantic.shape`` | ``semantic.dtype``."""
    output: str
    message: str


@dataclass(frozen=True)
class DeviceFact:
    """What the candidate ran on."""

    kind: str
    """``emulated`` | ``cuda``."""
    name: str
    """``NVIDIA H200``."""
    compute_capability: str
    presents_as: str = ""
    """Emulated: the data sheet it presents, e.g. ``h200``."""
    fidelity: tuple[str, ...] = ()
    """Emulated: which instruction classes ran exactly and which approximately."""


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


@dataclass(frozen=True)
class OperatorFact:
    """One of PyTorch's operators that a forward pass ran."""

    name: str
    shape: tuple[int, ...]
    """Of its first result."""
    line: int = 0
    """Line of the candidate that asked for it; 0 where that is not known."""


@dataclass(frozen=True)
class Conduct:
    """What was seen of how a candidate comes to its outputs."""

    replaced: tuple[str, ...] = ()
    """Functions that clocks and comparisons rest on, which its file or its calls replaced."""
    operators: tuple[OperatorFact, ...] | None = None
    """PyTorch's operators in one forward pass, allocations, views and copies left out; None where nobody watched."""
    reads_input: bool | None = None
    """Whether an operator was given an input, or an input was returned; None where nobody watched."""
    reference_operators: tuple[OperatorFact, ...] | None = None
    """The same of the reference."""
    reference_reads_input: bool | None = None
    same_in_all_trials: bool = False
    """Whether several trials had the same outputs, bit for bit, for different inputs."""
    returned_again: tuple[int, int] | None = None
    """A wrong trial, and the right one before it whose outputs were returned bit for bit; counted from 1."""


@dataclass(frozen=True)
class Evidence:
    """Everything the stages saw: the only input of explain."""

    problem_file: str
    candidate_file: str
    candidate_text: str
    stages: tuple[StageResult, ...]
    builds: tuple[BuildRecord, ...] = ()
    exception: ExceptionFact | None = None
    problem_exception: ExceptionFact | None = None
    exit: ProcessExit | None = None
    findings: tuple[Finding, ...] = ()
    observations: tuple[Finding, ...] = ()
    """What a GPU tolerates and no check objects to, yet may explain a wrong result."""
    suspicions: tuple[Suspicion, ...] = ()
    launches: tuple[LaunchFact, ...] = ()
    counters: tuple[KernelCounters, ...] | None = None
    """What each kernel did in one forward pass, where it was asked for."""
    outputs: tuple[OutputFact, ...] = ()
    numerics: Numerics | None = None
    experiments: tuple[Experiment, ...] = ()
    """Changed references that the outputs of the first wrong trial are right for; the likeliest first."""
    conduct: Conduct = field(default_factory=Conduct)
    device: DeviceFact | None = None


@dataclass(frozen=True)
class Verdict:
    """What a check says. ``to_json`` of it is the public contract (schema ``kernelwright.verdict/1``)."""

    verdict: VerdictWord
    problem: str
    candidate: str
    stages: tuple[StageResult, ...]
    sets: dict[str, str] = field(default_factory=dict)
    """Constants of the problem that ``--set`` changed."""
    causes: tuple[Cause, ...] = ()
    advice: tuple[Cause, ...] = ()
    """What makes a correct candidate slow, or goes wrong elsewhere; never a reason for the verdict."""
    build: tuple[BuildRecord, ...] = ()
    numerics: Numerics | None = None
    timing: Timing | None = None
    """None until something was timed; never timed on the emulated device."""
    counters: tuple[KernelCounters, ...] | None = None
    """What each kernel did in one forward pass, where it was asked for; None where it was not."""
    launches: tuple[LaunchFact, ...] = ()
    findings: tuple[Finding, ...] = ()
    sanitizers: tuple[SanitizerFact, ...] = ()
    """Those that were run: asked for, or after a crash on a GPU."""
    device: DeviceFact | None = None
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What was not checked, and why, one sentence each."""
    candidate_stdout: str = ""
    candidate_stderr: str = ""
    seconds: float = 0.0
    schema: str = SCHEMA


def to_json(record: Any) -> Any:
    """``record`` as JSON-ready values: dataclasses become objects, tuples lists, enums their word.

    Non-finite floats become the strings ``"NaN"``, ``"Infinity"``, ``"-Infinity"``: strict JSON has no other way.
    """
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, enum.Enum):
        return record.value
    if isinstance(record, float):
        if record != record:
            return "NaN"
        if record in (float("inf"), float("-inf")):
            return "Infinity" if record > 0 else "-Infinity"
        return record
    if isinstance(record, (tuple, list)):
        return [to_json(item) for item in record]
    if isinstance(record, dict):
        return {str(key): to_json(value) for key, value in record.items()}
    return record


def from_json(kind: type[T], value: Any) -> T:
    """The inverse of :func:`to_json` for a record of type ``kind``. Unknown keys raise ``TypeError``."""
    return typing.cast(T, _read(kind, value))


def _read(kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _read(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_read(arguments[0], item) for item in value)
        return tuple(_read(a, item) for a, item in zip(arguments, value, strict=True))
    if origin is dict:
        return {key: _read(arguments[1], item) for key, item in value.items()}
    if kind is float:
        return float(value)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{key: _read(hints[key], item) for key, item in value.items()})
    return value
