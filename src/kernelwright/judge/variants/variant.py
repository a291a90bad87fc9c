"""What a variant is: one operator of the reference, computed in another way than PyTorch does.

Why: a candidate that computes something else than the reference is explained at once by saying what else, and that can
be tried: the reference is run with one operator replaced, and its outputs are held against the candidate's. The rule: a
variant is offered only where it can make a difference, says in its words what is done instead, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Call:
    """One call of an ATen operator."""

    name: str
    """Without overload and in-place mark: ``add``, ``native_layer_norm``."""
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def first(self) -> torch.Tensor | None:
        """The first argument where it is a tensor of real numbers."""
        first = self.args[0] if self.args else None
        return first if isinstance(first, torch.Tensor) and first.is_floating_point() else None

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument by its name in the operator's schema."""
        if name in self.kwargs:
            return self.kwargs[name]
        for given, declared in zip(self.args, self.func._schema.arguments, strict=False):
            if declared.name == name:
                return given
        return default

    def again(self, /, **changed: Any) -> Any:
        """The same call with some arguments, by their names, replaced."""
        names = [argument.name for argument in self.func._schema.arguments]
        args = tuple(changed.pop(name, given) for name, given in zip(names, self.args, strict=False))
        return self.func(*args, **{**self.kwargs, **changed})


@dataclass(frozen=True)
class Change:
    """One way to compute a call's result differently."""

    variant: str
    """Name of the variant, which :mod:`kernelwright.explain.experiment` knows."""
    said: str
    """What is done instead, to be put behind "with": ``the tanh approximation of GELU``."""
    run: Callable[[], Any]


Offer = Callable[[Call], Iterator[Change]]
"""The changes that one variant has for a call; none for most."""


def axis(dim: Any, tensor: torch.Tensor) -> int | None:
    """The one axis that ``dim`` names, counted from the front; None where it is none or several."""
    if isinstance(dim, (list, tuple)):
        dim = dim[0] if len(dim) == 1 else None
    return int(dim) % tensor.dim() if isinstance(dim, int) and tensor.dim() else None


def broadcast(*shapes: torch.Size) -> torch.Size:
    """The shape of a result whose operands have these."""
    found: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return found


def words(name: str) -> str:
    """An operator's name as one says it: ``layer_norm`` of ``native_layer_norm``."""
    return name.removeprefix("native_").lstrip("_")
