"""A trial that was judged before: its inputs, the reference's outputs and the oracle, kept for the next candidate.

Why: of a check that is repeated after each edit they are the same each time, and on the CPU most of its time. The
rule: they are kept in the memory of the oracle's process only. On disk they would outlive it, and the answers to a
trial would lie where a candidate can read them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.judge.oracle import Oracle, Reference
from kernelwright.worker.inputs import Inputs
from kernelwright.worker.tree import pack
from kernelwright.worker.wire import close_all


@dataclass
class Known:
    """One trial: what the candidate's process is told of it, and what it is judged by."""

    key: tuple[int, str, str]
    """Its seed, where inputs are drawn, where the reference runs."""
    body: dict[str, Any]
    """The reply to ``trial``."""
    fds: list[int]
    mutated: list[int] = field(default_factory=list)
    given: Inputs | None = None
    reference: Reference | None = None
    oracle: Oracle | None = None

    @property
    def bytes(self) -> int:
        """What keeping it takes: inputs, outputs and their float64 twins, memory files."""
        tensors: list[torch.Tensor] = []
        if self.given is not None:
            pack(self.given.values, tensors)
        if self.reference is not None:
            tensors += self.reference.leaves
        if self.oracle is not None:
            tensors += self.oracle.held
        return sum(t.numel() * t.element_size() for t in tensors) + sum(os.fstat(fd).st_size for fd in self.fds)

    def close(self) -> None:
        """Give everything back."""
        close_all(self.fds)
        if self.given is not None:
            self.given.close()
        self.fds, self.given, self.reference, self.oracle = [], None, None, None
