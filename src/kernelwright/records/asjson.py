"""Records to JSON-ready values and back, without loss."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def to_json(record: Any) -> Any:
    """``record`` as JSON-ready values: dataclasses become objects, tuples lists, enums their word.

    Non-finite floats become the strings ``"NaN"``, ``"Infinity"``, ``"-Infinity"``: strict JSON has no other way.
    """
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, enum.Enum):
        return record.value
    if isinstance(record, float):
        if record != record:
            return "NaN"
        if record in (float("inf"), float("-inf")):
            return "Infinity" if record > 0 else "-Infinity"
        return record
    if isinstance(record, (tuple, list)):
        return [to_json(item) for item in record]
    if isinstance(record, dict):
        return {str(key): to_json(value) for key, value in record.items()}
    return record


def from_json(kind: type[T], value: Any) -> T:
    """The inverse of :func:`to_json` for a record of type ``kind``. Unknown keys raise ``TypeError``."""
    return typing.cast(T, _read(kind, value))


def _read(kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _read(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_read(arguments[0], item) for item in value)
        return tuple(_read(a, item) for a, item in zip(arguments, value, strict=True))
    if origin is dict:
        return {key: _read(arguments[1], item) for key, item in value.items()}
    if kind is float:
        return float(value)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{key: _read(hints[key], item) for key, item in value.items()})
    return value
