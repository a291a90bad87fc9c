"""The video instructions on Python integers, lane by lane, after the manual's pseudocode.

Source: PTX ISA 9.0, sections 9.7.16 and 9.7.17,
https://docs.nvidia.com/cuda/parallel-thread-execution/#scalar-video-instructions
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from kernelwright.emulate.ptx.ir import Instruction, Operand, Part
from kernelwright.emulate.ptx.video import MNEMONICS, Video, places, unlike_the_manual, video, written

from .errors import UnknownInstruction
from .lanes import Handler, Lanes

_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_MASK = 0xFFFFFFFF


def handle(lanes: Lanes, instruction: Instruction) -> None:
    """Any video instruction."""
    try:
        form = video(instruction)
    except ValueError:
        raise UnknownInstruction(instruction) from None
    if unlike_the_manual(form, instruction.operands):
        raise UnknownInstruction(instruction)
    operands = instruction.operands
    columns = [lanes.value(_register(operand), "b32").tolist() for operand in operands[1:]]
    if len(columns) == 2:
        columns.append([0] * lanes.count)
    made = [_one(form, operands, *row) for row in zip(*columns, strict=True)]
    lanes.store(_register(operands[0]), np.array(made, np.uint32), "b32")


def _register(operand: Operand) -> Operand:
    return operand.register if isinstance(operand, Part) else operand


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def _select(operand: Operand, lanes: int, word: int, signed: bool, *, second: bool = False) -> list[int]:
    chosen = places(operand, lanes, second=second)
    pieces = [(word >> start & (1 << width) - 1, width) for start, width in chosen]
    return [_signed(value, width) if signed else value for value, width in pieces]


def _clamp(value: int, signed: bool, bits: int) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def _one(form: Video, operands: tuple[Operand, ...], a: int, b: int, c: int) -> int:
    both = a | b << 32
    left = _select(operands[1], form.lanes, a if form.lanes == 1 else both, form.signed[1])
    right = _select(operands[2], form.lanes, b if form.lanes == 1 else both, form.signed[2], second=True)
    if form.operation == "vmad":
        return _multiply_add(form, left[0], right[0], c)
    results = [_compute(form, x, y) for x, y in zip(left, right, strict=True)]
    part = operands[0] if isinstance(operands[0], Part) else None
    start, bits = places(part, 1)[0] if part is not None and form.lanes == 1 else (0, form.bits)
    if form.saturates:
        results = [_clamp(value, form.signed[0], bits) for value in results]
    if form.lanes == 1 and part is None:
        return _second(form, results[0] & _MASK, c)
    chosen = written(operands[0], form.lanes) if form.lanes > 1 else [0]
    if form.lanes > 1 and form.second:
        return (c + sum(results[lane] for lane in chosen)) & _MASK
    for lane in chosen:
        at = start + lane * bits
        c = c & ~(((1 << bits) - 1) << at) | (results[lane] & (1 << bits) - 1) << at
    return c & _MASK


def _compute(form: Video, x: int, y: int) -> int:
    match form.operation:
        case "vadd":
            return x + y
        case "vsub":
            return x - y
        case "vabsdiff":
            return abs(x - y)
        case "vmin":
            return min(x, y)
        case "vmax":
            return max(x, y)
        case "vavrg":
            return (x + y + (x + y >= 0)) >> 1
        case "vset":
            return int(_RELATIONS[form.relation](x, y))
        case _:
            amount = y & 31 if form.wraps else min(y, 32)
            return x << amount if form.operation == "vshl" else x >> amount


def _second(form: Video, value: int, c: int) -> int:
    if not form.second:
        return value
    if form.second == "add":
        return (value + c) & _MASK
    x, y = (_signed(value, 32), _signed(c, 32)) if form.signed[0] else (value, c)
    return (min(x, y) if form.second == "min" else max(x, y)) & _MASK


def _multiply_add(form: Video, x: int, y: int, c: int) -> int:
    signed = form.signed[1] or form.signed[2]
    total = x * y + (_signed(c, 32) if signed else c) + int(form.one)
    total >>= form.shift
    return (_clamp(total, signed, 32) if form.saturates else total) & _MASK


HANDLERS: dict[str, Handler] = dict.fromkeys(MNEMONICS, handle)
