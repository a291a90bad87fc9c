"""Everything that the two processes of a check told, as it came.

The rule: facts only; what they amount to is for others to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.counters.records import KernelCounters
from kernelwright.records import (
    BuildRecord,
    Conduct,
    DeviceFact,
    ExceptionFact,
    Experiment,
    Finding,
    LaunchFact,
    Numerics,
    OutputFact,
    ProcessExit,
    SourceLine,
    Stage,
    Suspicion,
    Trial,
)


@dataclass
class Seen:
    """Everything the two processes told, as it came."""

    builds: list[BuildRecord] = field(default_factory=list)
    confirm_requests: int = 0
    findings: list[Finding] = field(default_factory=list)
    observations: list[Finding] = field(default_factory=list)
    suspicions: list[Suspicion] = field(default_factory=list)
    launches: list[LaunchFact] = field(default_factory=list)
    counters: list[KernelCounters] | None = None
    """Of the first trial's forward pass, where they were asked for and it ended."""
    facts: list[OutputFact] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    conduct: Conduct = field(default_factory=Conduct)
    sums: list[list[int]] = field(default_factory=list)
    """Checksums of each trial's outputs."""
    experiments: list[Experiment] = field(default_factory=list)
    mutated: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    exception: ExceptionFact | None = None
    exit: ProcessExit | None = None
    stopped_in: Stage | None = None
    """The stage in which the candidate raised or ended."""
    device: DeviceFact | None = None
    oracle: str = ""
    inputs: str = ""
    """Where the trials' inputs came from."""
    tensor_bytes: int = 0
    """Of the reference's parameters and one trial's inputs."""
    atol: float = 0.0
    rtol: float = 0.0
    random: bool = False
    """The reference's forward pass draws random numbers."""
    impostors: tuple[str, ...] | None = None
    weights: str = "none"
    weights_note: str = ""
    seconds: dict[Stage, float] = field(default_factory=dict)
    leaving_frames: tuple[SourceLine, ...] = ()
    kernel_frames: tuple[SourceLine, ...] = ()
    """Where an interrupted kernel was, innermost first."""

    @property
    def well(self) -> bool:
        """Nothing that was seen speaks against the candidate."""
        against = (self.exception, self.exit, self.findings, self.facts, self.mutated)
        return bool(self.trials) and all(trial.passed for trial in self.trials) and not any(against)

    def numerics(self) -> Numerics | None:
        """The trials as a record; None where none was judged."""
        if not self.trials:
            return None
        grades = [o.precision for trial in self.trials for o in trial.outputs if o.precision is not None]
        return Numerics(
            atol=self.atol,
            rtol=self.rtol,
            oracle=self.oracle,
            inputs=self.inputs,
            weights=self.weights,
            trials=tuple(self.trials),
            precision=max(grades, key=_COARSENESS.index) if grades else None,
            discriminating=None if self.impostors is None else not self.impostors,
            passing_impostors=self.impostors or (),
            mutated=tuple(dict.fromkeys(self.mutated)),
            weights_note=self.weights_note,
        )


_COARSENESS = ("fp64", "fp32", "tf32", "fp16", "bf16", "worse")
