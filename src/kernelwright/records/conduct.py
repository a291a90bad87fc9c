"""What a candidate's process did: how it ended, which of PyTorch's operators it ran, what it replaced."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kernelwright.sourceline import SourceLine


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
    own_kernels: tuple[str, ...] | None = None
    """On a GPU, what a forward pass launched that is no library's, by name; None where nobody looked."""

    @property
    def does_the_references_work(self) -> bool:
        """Whether PyTorch ran all the operators that it runs in the reference, each as often and of that shape."""
        ours, theirs = self.operators, self.reference_operators
        return bool(ours and theirs) and not kinds(theirs or ()) - kinds(ours or ())

    @property
    def gives_a_constant(self) -> bool:
        """Whether all trials had one output, and no operator of PyTorch's was given an input to make it from."""
        return self.reads_input is False and bool(self.reference_reads_input) and self.same_in_all_trials


def kinds(operators: tuple[OperatorFact, ...]) -> Counter[tuple[str, tuple[int, ...]]]:
    """How often each operator ran, by name and shape."""
    return Counter((one.name, one.shape) for one in operators)
