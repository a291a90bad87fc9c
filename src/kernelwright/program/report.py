"""What a run of a program is told in: the record behind ``kernelwright run --json``.

The rule: facts with their unit in the name; the program's own word (its exit status) and the device's (causes) are kept
apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.counters.records import KernelCounters
from kernelwright.records import BuildRecord, Cause, DeviceFact, Finding, LaunchFact

SCHEMA = "kernelwright.run/1"


@dataclass(frozen=True)
class ProgramReport:
    """One run."""

    program: str
    arguments: tuple[str, ...]
    returncode: int | None
    """The program's own exit status; None where it did not end by itself."""
    signal: str = ""
    """``SIGSEGV`` and the like, where one ended it."""
    timed_out: bool = False
    causes: tuple[Cause, ...] = ()
    """What is wrong, best known first; empty where nothing was seen."""
    advice: tuple[Cause, ...] = ()
    """What makes kernels slow, where they were counted and nothing is wrong."""
    build: BuildRecord | None = None
    launches: tuple[LaunchFact, ...] = ()
    findings: tuple[Finding, ...] = ()
    observations: tuple[Finding, ...] = ()
    """What a GPU tolerates, yet may explain a wrong result."""
    unserved: tuple[str, ...] = ()
    """Parts of the CUDA API that the program asked for and the emulated device does not have, a sentence each."""
    not_checked: tuple[str, ...] = ()
    """What the emulated device was told not to look for."""
    device: DeviceFact | None = None
    counters: tuple[KernelCounters, ...] | None = None
    """What each kernel did, where it was asked for."""
    stdout: str = ""
    """The end of what it printed, where it was not passed through."""
    stderr: str = ""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    schema: str = SCHEMA
