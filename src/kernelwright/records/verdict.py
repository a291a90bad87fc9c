"""What the stages hand to explain, and what a check says in the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.counters.records import KernelCounters
from kernelwright.measure.records import Timing
from kernelwright.records.built import BuildRecord
from kernelwright.records.compared import Experiment, Numerics, OutputFact
from kernelwright.records.conduct import Conduct, ExceptionFact, ProcessExit
from kernelwright.records.seen import DeviceFact, Finding, LaunchFact, SanitizerFact, Suspicion
from kernelwright.records.words import Cause, StageResult, VerdictWord

SCHEMA = "kernelwright.verdict/1"


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
