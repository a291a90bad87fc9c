"""Which of PyTorch's operators a forward pass runs, and whether it reads its inputs at all.

Why: a candidate whose own kernels never run, while PyTorch does all that the reference does, or one that returns a
constant, is told by what it runs, not by how it is written. The rule: facts only; views, allocations and copies are no
work; a pass with more operators than a reader could follow is not told.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from kernelwright.judge.eager import EagerMode
from kernelwright.records import OperatorFact
from kernelwright.worker.tree import leaves

MOST = 400
"""Operators that are kept; a pass with more is not told."""

_NO_WORK = frozenset({
    "view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "slice", "select",
    "alias", "detach", "as_strided", "split", "split_with_sizes", "chunk", "unbind", "clone", "copy", "_to_copy",
    "contiguous", "fill", "zero", "lift_fresh", "empty", "empty_strided", "zeros", "ones", "full", "arange",
    "scalar_tensor", "view_as_real", "view_as_complex", "resize", "set", "_reshape_alias", "narrow", "diagonal",
    "unfold",
})  # fmt: skip
"""Operators that compute nothing."""


class Watch(EagerMode):
    """Notes the operators that run while it is entered."""

    def __init__(self, inputs: Any, *, file: str = "") -> None:
        super().__init__()
        self.reads_input = False
        """Whether an operator was given values of an input, or of what was made from one."""
        self._file = file
        self._operators: list[OperatorFact] = []
        self._memory = {_memory(x) for _, x in leaves(inputs, "") if isinstance(x, torch.Tensor)}

    @property
    def operators(self) -> tuple[OperatorFact, ...] | None:
        """In order; None where they are too many."""
        return tuple(self._operators) if len(self._operators) <= MOST else None

    def reads(self, value: Any) -> bool:
        """Whether the inputs were read, or are themselves among the outputs ``value``."""
        out = {_memory(x) for _, x in leaves(value, "") if isinstance(x, torch.Tensor)}
        return self.reads_input or bool(out & self._memory)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        name = name if name.startswith("_") else name.rstrip("_")
        # Of its first argument such an operator takes shape and dtype only.
        like = name.endswith("_like") or name.startswith("new_")
        given = [x for _, x in leaves([list(args), list((kwargs or {}).values())], "") if isinstance(x, torch.Tensor)]
        if not like and any(_memory(x) in self._memory for x in given):
            self.reads_input = True
        if not like and name not in _NO_WORK and len(self._operators) <= MOST:
            first = out[0] if isinstance(out, (list, tuple)) and out else out
            shape = tuple(first.shape) if isinstance(first, torch.Tensor) else ()
            self._operators.append(OperatorFact(name, shape, self._line()))
        return out

    def _line(self) -> int:
        frame = sys._getframe(2) if self._file else None
        while frame is not None and frame.f_code.co_filename != self._file:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0


def _memory(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    # Tensors without memory of their own: sparse, fake, meta.
    except (RuntimeError, NotImplementedError):
        return 0
