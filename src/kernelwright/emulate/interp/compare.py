"""Comparison and selection: setp, set, selp, slct.

Source: PTX ISA 9.0, section 9.7.6,
https://docs.nvidia.com/cuda/parallel-thread-execution/#comparison-and-selection-instructions
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from kernelwright.emulate.ptx.ir import Instruction, Pair
from kernelwright.emulate.ptx.types import TYPE_BYTES

from .errors import UnknownInstruction
from .formats import FORMATS, Bits, Flags, flush, is_nan, to_double
from .lanes import Handler, Lanes
from .values import PACKED, dtype_of, halves, is_float, join, typed

_ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
_COMPARISONS = frozenset({*_ORDERED, *_UNSIGNED, *_UNORDERED, "num", "nan"})
_COMBINATIONS: dict[str, Callable[[Flags, Flags], Flags]] = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip


def compare(relation: str, a: Bits, b: Bits, type_: str, *, ftz: bool) -> Flags:
    """One comparison. Ordered relations (``ne`` too) are false where a NaN is involved, ``…u`` relations true."""
    if type_ not in FORMATS:
        if relation in _UNSIGNED:
            found: Flags = _ORDERED[_UNSIGNED[relation]](a, b)
            return found
        found = _ORDERED[relation](typed(a, type_), typed(b, type_))
        return found
    format_ = FORMATS[type_]
    unordered = is_nan(format_, a) | is_nan(format_, b)
    if relation in ("num", "nan"):
        return unordered if relation == "nan" else ~unordered
    if ftz:
        a, b = flush(format_, a), flush(format_, b)
    x, y = to_double(format_, a), to_double(format_, b)
    if relation in _UNORDERED:
        found = unordered | _ORDERED[_UNORDERED[relation]](x, y)
        return found
    found = ~unordered & _ORDERED[relation](x, y)
    return found


def _relation(instruction: Instruction) -> str:
    relation = instruction.mods[0]
    if relation not in _COMPARISONS:
        raise UnknownInstruction(instruction)
    return relation


def _results(lanes: Lanes, instruction: Instruction, type_: str) -> list[tuple[Flags, Flags]]:
    """For each half (or the one value): the result, and the result of the complement, combined with operand c."""
    relation = _relation(instruction)
    ftz = "ftz" in instruction.mods
    a, b = lanes.read(1, type_), lanes.read(2, type_)
    scalar = PACKED.get(type_, type_)
    pairs = list(zip(halves(a), halves(b), strict=True)) if type_ in PACKED else [(a, b)]
    combination = next((_COMBINATIONS[mod] for mod in instruction.mods[1:] if mod in _COMBINATIONS), None)
    results = []
    for x, y in pairs:
        true = compare(relation, x, y, scalar, ftz=ftz)
        false = ~true
        if combination is not None:
            other = lanes.read(3, "pred")
            true, false = combination(true, other), combination(false, other)
        results.append((true, false))
    return results


def set_predicate(lanes: Lanes, instruction: Instruction) -> None:
    """setp: p gets the result, q that of the complement; for packed types p and q get the two halves."""
    type_ = instruction.mods[-1]
    results = _results(lanes, instruction, type_)
    destination = lanes.operand(0)
    if len(results) == 2:
        lanes.write_pair(0, results[0][0], "pred", results[1][0], "pred")
    elif isinstance(destination, Pair):
        lanes.write_pair(0, results[0][0], "pred", results[0][1], "pred")
    else:
        lanes.write(0, results[0][0], "pred")


def set_value(lanes: Lanes, instruction: Instruction) -> None:
    """set: all ones or 1.0 where true, else 0."""
    types = [mod for mod in instruction.mods if mod in TYPE_BYTES]
    if len(types) != 2:
        raise UnknownInstruction(instruction)
    result_type, type_ = types
    results = [true for true, _ in _results(lanes, instruction, type_)]
    if len(results) == 2:
        half = PACKED.get(result_type, "u16")
        low, high = (_as_value(true, half) for true in results)
        lanes.write(0, join(low, high), result_type)
    else:
        lanes.write(0, _as_value(results[0], result_type), result_type)


_ONES = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}


def _as_value(true: Flags, type_: str) -> Bits:
    dtype = dtype_of(type_)
    one = _ONES.get(type_, (1 << 8 * dtype.itemsize) - 1)
    value: Bits = np.where(true, dtype.type(one), dtype.type(0))
    return value


def select(lanes: Lanes, instruction: Instruction) -> None:
    """selp: p ? a : b."""
    type_ = instruction.mods[-1]
    a, b = lanes.read(1, type_), lanes.read(2, type_)
    lanes.write(0, np.where(lanes.read(3, "pred"), a, b), type_)


def select_by_sign(lanes: Lanes, instruction: Instruction) -> None:
    """slct: c >= 0 ? a : b; -0 counts as 0, NaN selects b."""
    type_, control = instruction.mods[-2], instruction.mods[-1]
    a, b, c = lanes.read(1, type_), lanes.read(2, type_), lanes.read(3, control)
    if is_float(control):
        positive = to_double(FORMATS[control], c) >= 0
        if "ftz" in instruction.mods:
            positive |= flush(FORMATS[control], c) == c.dtype.type(1 << 31)
    else:
        positive = typed(c, control) >= 0
    lanes.write(0, np.where(positive, a, b), type_)


HANDLERS: dict[str, Handler] = {"setp": set_predicate, "set": set_value, "selp": select, "slct": select_by_sign}
