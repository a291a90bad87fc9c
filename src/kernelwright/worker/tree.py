"""Nested values with tensors in them, as JSON beside a list of tensors.

Why: inputs, constructor arguments and outputs are tensors, numbers, and lists, tuples and dicts of them. The rule:
what can cross comes back equal and of the same kind; anything else raises :class:`CannotCross` with its type, so that
nothing is pickled and nothing foreign is ever run by reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


class CannotCross(Exception):
    """A value of a kind that no message carries."""


def pack(value: Any, tensors: list[torch.Tensor]) -> Any:
    """JSON for ``value``; its tensors are appended to ``tensors`` in order. Named tuples cross as tuples."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [pack(item, tensors) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[pack(key, tensors), pack(item, tensors)] for key, item in value.items()]}
    raise CannotCross(f"a {type(value).__module__}.{type(value).__qualname__}")


def unpack(packed: Any, tensors: list[torch.Tensor]) -> Any:
    """The inverse of :func:`pack`. Raises ``CannotCross`` for what ``pack`` never makes."""
    if not isinstance(packed, dict) or len(packed) != 1:
        raise CannotCross(f"{packed!r:.80}")
    ((kind, body),) = packed.items()
    try:
        if kind == "tensor":
            return tensors[body]
        if kind == "value":
            return body
        if kind == "complex":
            return complex(*body)
        if kind == "dtype":
            return getattr(torch, body)
        if kind == "size":
            return torch.Size(body)
        if kind in ("list", "tuple"):
            items = [unpack(item, tensors) for item in body]
            return items if kind == "list" else tuple(items)
        if kind == "dict":
            return {unpack(key, tensors): unpack(item, tensors) for key, item in body}
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise CannotCross(f"{packed!r:.80}: {error}") from None
    raise CannotCross(f"{packed!r:.80}")


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every leaf of a nested value with its place: ``output[1]``, ``output['key']``."""
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}[{key!r}]")
    else:
        yield path, value


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """``value`` with each tensor replaced by ``change`` of it."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(item, change) for item in value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    return value
