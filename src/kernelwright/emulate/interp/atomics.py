"""atom and red, one lane after the other, lowest lane first.

Source: PTX ISA 9.0, sections 9.7.13.6 and 9.7.13.8,
https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-atom
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelwright.emulate.ptx.ir import Instruction, Operand, Vec
from kernelwright.emulate.ptx.types import TYPE_BYTES

from .errors import UnknownInstruction
from .floating import Add, Extreme
from .formats import FORMATS, Bits, flush
from .lanes import Handler, Lanes
from .transfer import check, space_of
from .values import PACKED, halves, is_float, join, signed

_OPERATIONS = frozenset({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"})


def atomic(lanes: Lanes, instruction: Instruction) -> None:
    """atom: the old value goes to the destination; red: it does not."""
    operation = next((mod for mod in instruction.mods if mod in _OPERATIONS), "")
    type_ = instruction.mods[-1]
    if not operation or type_ not in TYPE_BYTES or type_ == "b128":
        # ``atom.global.v4.f32.add`` is the one form in which the operation comes last.
        type_ = next((mod for mod in instruction.mods if mod in TYPE_BYTES), "")
        if not operation or not type_ or type_ == "b128":
            raise UnknownInstruction(instruction)
    first = 1 if instruction.op == "atom" else 0
    size = TYPE_BYTES[type_]
    sources = [_items(operand) for operand in instruction.operands[first + 1 :]]
    destinations = _items(instruction.operands[0]) if first else ()
    addresses = lanes.addresses(lanes.operand(first), space_of(instruction))
    check(lanes, addresses, size * len(sources[0]))
    for part in range(len(sources[0])):
        values = [lanes.value(items[part], type_) for items in sources[: 2 if operation == "cas" else 1]]
        old = _one_by_one(lanes, instruction, addresses + np.uint64(size * part), values, operation, type_)
        if first:
            lanes.store(destinations[part], old, type_)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


def _one_by_one(
    lanes: Lanes, instruction: Instruction, addresses: Bits, values: list[Bits], operation: str, type_: str
) -> Bits:
    memory = lanes.machine.memory
    shared = lanes.machine.is_shared(lanes.indices, addresses)
    old = np.zeros_like(values[0])
    for lane in range(lanes.count):
        here = slice(lane, lane + 1)
        old[here] = memory.load(addresses[here], TYPE_BYTES[type_])
        # Global f32 addition flushes subnormals; shared does not (section 9.7.13.6).
        ftz = type_ == "f32" and not shared[lane]
        new = _updated(instruction, operation, type_, old[here], [value[here] for value in values], ftz)
        memory.store(addresses[here], new)
    return old


def _updated(instruction: Instruction, operation: str, type_: str, old: Bits, values: list[Bits], ftz: bool) -> Bits:
    if type_ in PACKED:
        pairs = zip(halves(old), *(halves(value) for value in values), strict=True)
        low, high = (_float(instruction, operation, PACKED[type_], pair[0], pair[1], False) for pair in pairs)
        return join(low, high)
    if is_float(type_) and operation not in ("exch", "cas"):
        return _float(instruction, operation, type_, old, values[0], ftz)
    b = values[0]
    if operation == "cas":
        return np.where(old == b, values[1], old)
    return _INTEGER[operation](old, b) if operation in _INTEGER else _extreme(operation, type_, old, b)


def _float(instruction: Instruction, operation: str, type_: str, old: Bits, b: Bits, ftz: bool) -> Bits:
    format_ = FORMATS[type_]
    if operation in ("min", "max"):
        fake = Instruction(operation, (type_,), (), None, instruction.ptx_line, None)
        return Extreme(fake)(format_, [old, b], "rn")
    if operation != "add":
        raise UnknownInstruction(instruction)
    if not ftz:
        return Add()(format_, [old, b], "rn")
    return flush(format_, Add()(format_, [flush(format_, old), flush(format_, b)], "rn"))


def _extreme(operation: str, type_: str, old: Bits, b: Bits) -> Bits:
    x, y = (signed(old), signed(b)) if type_[0] == "s" else (old, b)
    return np.where((x < y) == (operation == "min"), old, b)


_INTEGER: dict[str, Callable[[Bits, Bits], Bits]] = {
    "add": lambda old, b: old + b,
    "and": lambda old, b: old & b,
    "or": lambda old, b: old | b,
    "xor": lambda old, b: old ^ b,
    "exch": lambda old, b: b,
    "inc": lambda old, b: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - old.dtype.type(1)),
}

HANDLERS: dict[str, Handler] = {"atom": atomic, "red": atomic}
