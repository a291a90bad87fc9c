"""What is asked of the sanitize stage, and what it adds to a check.

The rule: plain records, and the two questions that decide whether a failure is one for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.explain.catalogue import UNEXPLAINED
from kernelwright.records import Cause, ExceptionFact, Finding, ProcessExit, SanitizerFact
from kernelwright.worker.alone import Alone

CRASHED = re.compile(
    r"illegal memory access|misaligned address|unspecified launch failure|device-side assert|illegal instruction"
    r"|invalid program counter|illegal address|hardware stack error|address space operation"
)
"""What CUDA says of a kernel that a GPU stopped (cudaGetErrorString, errors 700 and 710 to 719)."""


@dataclass(frozen=True)
class Sanitized:
    """What the stage adds to a check."""

    findings: tuple[Finding, ...] = ()
    observations: tuple[Finding, ...] = ()
    causes: tuple[Cause, ...] = ()
    """Of the replay, where no finding carries them."""
    notes: tuple[str, ...] = ()
    tools: tuple[SanitizerFact, ...] = ()
    """Those that were run."""

    def all_causes(self, explained: tuple[Cause, ...]) -> tuple[Cause, ...]:
        """``explained``, and the replay's causes behind what they do not say; "unexplained" goes where one is known."""
        known = {(cause.id, cause.line) for cause in explained}
        more = tuple(cause for cause in self.causes if (cause.id, cause.line) not in known)
        kept = tuple(cause for cause in explained if not (more and cause.id == UNEXPLAINED))
        return (*kept, *more)


@dataclass(frozen=True)
class Question:
    """One candidate to be looked at."""

    alone: Alone
    constants: Mapping[str, str]
    """Of the problem, after ``--set``."""
    asked: bool
    """``--sanitize``: all tools, whatever the check saw."""
    crashed: bool
    hung: bool
    timeout_s: float
    unexplained: bool = False
    """It failed on the GPU by its output or by an error of CUDA's, and nothing that was seen there says why."""
    replays: bool = True
    """Whether the emulated device may run it."""
    tensor_bytes: int | None = None
    """Of what it was given; None where that is not known."""


def seen_by_the_device_only(exception: ExceptionFact | None, exit: ProcessExit | None, *, wrong: bool) -> bool:
    """Whether a failure may have a cause in its kernels that only a device which watches them sees."""
    if exception is not None:
        return "CUDA" in exception.message
    return wrong if exit is None else bool(exit.signal) and not (exit.out_of_memory or exit.timed_out)


def crashed(exception: ExceptionFact | None, exit: ProcessExit | None) -> bool:
    """Whether a GPU stopped a kernel of the candidate."""
    if exception is not None and "CUDA" in exception.message and CRASHED.search(exception.message):
        return True
    # A destructor may meet the error first, and end the process.
    return exit is not None and bool(exit.signal) and CRASHED.search(exit.stderr) is not None
