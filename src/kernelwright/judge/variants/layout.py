"""Variants of how memory is read: along another axis, in another order, as another matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from kernelwright.judge.variants.variant import Call, Change, axis, broadcast, words

_FACTORS = {"mm": ("self", "mat2"), "bmm": ("self", "mat2"), "addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2"),
            "mv": ("self",), "addmv": ("mat",)}  # fmt: skip
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
_REDUCTIONS = ("sum", "mean", "amax", "amin", "cumsum", "cumprod", "_softmax", "_log_softmax", "logsumexp", "argmax",
               "argmin", "prod")  # fmt: skip
_VIEWS = ("t", "transpose", "permute")


def transposed_factor(call: Call) -> Iterator[Change]:
    """A factor of a product whose memory is read in rows of the other length."""
    for place, name in enumerate(_FACTORS.get(call.name, ())):
        factor = call.argument(name)
        other = _other_reading(factor)
        if other is not None:
            side = ("left", "right")[place]
            said = f"the {side} factor of the product read along the other axis of its memory"
            yield Change("transposed-factor", said, lambda name=name, other=other: call.again(**{name: other}))  # type: ignore[misc]


def _other_reading(factor: torch.Tensor) -> torch.Tensor | None:
    rows, columns = factor.shape[-2:]
    if min(rows, columns) < 2:
        return None
    if factor.is_contiguous():
        return factor.reshape(*factor.shape[:-2], columns, rows).mT
    stored = factor.mT
    return stored.reshape(*factor.shape[:-2], rows, columns) if stored.is_contiguous() else None


def other_axis(call: Call) -> Iterator[Change]:
    """A vector that is applied along another axis than the one it belongs to."""
    if call.name not in _BINARY or len(call.args) < 2:
        return
    sides = call.args[:2]
    if not all(isinstance(side, torch.Tensor) for side in sides):
        return
    shape = broadcast(sides[0].shape, sides[1].shape)
    for place, vector in enumerate(sides):
        along = [n for n, size in enumerate(vector.shape) if size > 1]
        if len(along) != 1 or vector.shape == shape or not len(shape) > 1:
            continue
        size = vector.numel()
        own = len(shape) - vector.dim() + along[0]
        flat = vector.reshape(-1)
        places: list[tuple[str, torch.Tensor]] = []
        for other in range(len(shape)):
            if other != own and shape[other] == size:
                places.append((f"along axis {other}, not along axis {own}", _along(flat, other, len(shape))))
        if own != len(shape) - 1 and shape[-1] != size:
            index = torch.arange(math.prod(shape), device=flat.device) % size
            places.append((f"by the flat index modulo {size}, not along axis {own}", flat[index].reshape(shape)))
        for said, moved in places:
            changed = (moved, sides[1]) if place == 0 else (sides[0], moved)
            yield Change("other-axis", f"the vector of {size} applied {said}", lambda c=changed: _call(call, c))  # type: ignore[misc]


def _along(flat: torch.Tensor, axis: int, dims: int) -> torch.Tensor:
    return flat.reshape([-1 if n == axis else 1 for n in range(dims)])


def _call(call: Call, sides: tuple[Any, Any]) -> Any:
    return call.func(*sides, *call.args[2:], **call.kwargs)


def reduced_along_other(call: Call) -> Iterator[Change]:
    """A reduction along another axis, where its result has the same shape."""
    x = call.first
    if x is None or call.name not in _REDUCTIONS:
        return
    dim = call.argument("dim")
    own = axis(dim, x)
    if own is None:
        return
    keeps = call.name in ("cumsum", "cumprod", "_softmax", "_log_softmax")
    for other in range(x.dim()):
        if other != own and x.size(other) > 1 and (keeps or x.size(other) == x.size(own)):
            changed: Any = [other] if isinstance(dim, (list, tuple)) else other
            said = f"{words(call.name)} along axis {other}, not along axis {own}"
            yield Change("reduced-along-other", said, lambda changed=changed: call.again(dim=changed))  # type: ignore[misc]


def read_linearly(call: Call) -> Iterator[Change]:
    """A transposed view whose memory is read as if it had been copied into the new order."""
    if call.name not in _VIEWS or call.first is None or not call.first.is_contiguous():
        return
    x = call.first
    view = call.func(*call.args, **call.kwargs)
    if not view.is_contiguous():
        said = "the memory of a transposed tensor read in its old order"
        yield Change("read-linearly", said, lambda: x.reshape(view.shape))
