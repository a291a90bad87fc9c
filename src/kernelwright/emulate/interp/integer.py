"""Integer and logic instructions, on arrays of bit patterns.

Source: PTX ISA 9.0, sections 9.7.1, 9.7.2 and 9.7.8,
https://docs.nvidia.com/cuda/parallel-thread-execution/#integer-arithmetic-instructions
Division by zero gives all ones, as GPUs do (the manual calls it machine-specific).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernelwright.emulate.ptx.ir import Instruction

from .formats import Bits, bit_length
from .lanes import Handler, Lanes
from .values import DTYPES, halves, join, resize, signed, typed


def _last_type(instruction: Instruction) -> str:
    return instruction.mods[-1]


def _wide(bits: Bits, type_: str) -> Bits:
    """To 64 bits, by the sign of ``type_``."""
    return resize(bits, type_, 8)


def high_half(a: Bits, b: Bits, type_: str) -> Bits:
    """The upper half of the full product."""
    size = a.dtype.itemsize
    if size < 8:
        product = _wide(a, type_) * _wide(b, type_)
        return (product >> np.uint64(8 * size)).astype(a.dtype)
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> shift, b & low, b >> shift
    middle = a1 * b0 + (a0 * b0 >> shift)
    other = a0 * b1 + (middle & low)
    high = a1 * b1 + (middle >> shift) + (other >> shift)
    if type_ == "s64":
        high = high - np.where(signed(a) < 0, b, np.uint64(0)) - np.where(signed(b) < 0, a, np.uint64(0))
    result: Bits = high
    return result


def product(a: Bits, b: Bits, type_: str, part: str) -> Bits:
    """``mul.lo``, ``mul.hi`` or ``mul.wide``."""
    if part == "lo":
        return a * b
    if part == "hi":
        return high_half(a, b, type_)
    size = 2 * a.dtype.itemsize
    return resize(a, type_, size) * resize(b, type_, size)


def _saturate_s32(values: Bits) -> Bits:
    saturated: Bits = np.clip(values, -(2**31), 2**31 - 1).astype(np.int32).view(np.uint32)
    return saturated


def add_sub(lanes: Lanes, instruction: Instruction) -> None:
    """add, sub, addc, subc: with ``.cc`` the carry or borrow goes to CC.CF."""
    type_ = _last_type(instruction)
    a, b = lanes.read(1, type_), lanes.read(2, type_)
    subtract = instruction.op.startswith("sub")
    if type_ in ("u16x2", "s16x2"):
        pairs = zip(halves(a), halves(b), strict=True)
        low, high = (x - y if subtract else x + y for x, y in pairs)
        lanes.write(0, join(low, high), type_)
        return
    if "sat" in instruction.mods:
        wide_a, wide_b = signed(a).astype(np.int64), signed(b).astype(np.int64)
        lanes.write(0, _saturate_s32(wide_a - wide_b if subtract else wide_a + wide_b), type_)
        return
    carry_in = lanes.carry().astype(a.dtype) if instruction.op.endswith("c") else np.zeros_like(a)
    partial = a - b if subtract else a + b
    result = partial - carry_in if subtract else partial + carry_in
    if "cc" in instruction.mods:
        lanes.set_carry((a < b) | (partial < carry_in) if subtract else (partial < a) | (result < partial))
    lanes.write(0, result, type_)


def multiply(lanes: Lanes, instruction: Instruction) -> None:
    """mul.lo/.hi/.wide and mul24."""
    type_ = _last_type(instruction)
    part = instruction.mods[0]
    a, b = lanes.read(1, type_), lanes.read(2, type_)
    if instruction.op == "mul24":
        lanes.write(0, _product24(a, b, type_, part), type_)
        return
    lanes.write(0, product(a, b, type_, part), _widened(type_) if part == "wide" else type_)


def _low_24(bits: Bits, type_: str) -> Bits:
    """The lowest 24 bits, extended to 64 by the sign of ``type_``."""
    moved = typed(bits << np.uint32(8), type_)
    return _wide(np.ascontiguousarray(moved >> moved.dtype.type(8)).view(np.uint32), type_)


def _product24(a: Bits, b: Bits, type_: str, part: str) -> Bits:
    wide = _low_24(a, type_) * _low_24(b, type_)
    return (wide >> np.uint64(16) if part == "hi" else wide).astype(np.uint32)


def _widened(type_: str) -> str:
    return type_[0] + str(2 * int(type_[1:]))


def multiply_add(lanes: Lanes, instruction: Instruction) -> None:
    """mad, madc, mad24: product (part) + c, with carry in and out."""
    type_ = _last_type(instruction)
    part = instruction.mods[0]
    a, b = lanes.read(1, type_), lanes.read(2, type_)
    result_type = _widened(type_) if part == "wide" else type_
    c = lanes.read(3, result_type)
    partial = _product24(a, b, type_, part) if instruction.op == "mad24" else product(a, b, type_, part)
    if "sat" in instruction.mods:
        lanes.write(0, _saturate_s32(signed(partial).astype(np.int64) + signed(c).astype(np.int64)), type_)
        return
    total = partial + c
    carry_in = lanes.carry().astype(total.dtype) if instruction.op == "madc" else np.zeros_like(total)
    result = total + carry_in
    if "cc" in instruction.mods:
        lanes.set_carry((total < partial) | (result < total))
    lanes.write(0, result, result_type)


def sum_of_differences(lanes: Lanes, instruction: Instruction) -> None:
    """sad: |a - b| + c."""
    type_ = _last_type(instruction)
    a, b, c = (lanes.read(index, type_) for index in (1, 2, 3))
    larger = typed(a, type_) > typed(b, type_)
    lanes.write(0, np.where(larger, a - b, b - a) + c, type_)


def divide(lanes: Lanes, instruction: Instruction) -> None:
    """div and rem, truncating; by zero all ones."""
    type_ = _last_type(instruction)
    a, b = lanes.read(1, type_), lanes.read(2, type_)
    ones = a.dtype.type(~a.dtype.type(0))
    zero = a.dtype.type(0)
    negative_a = typed(a, type_) < 0
    negative_b = typed(b, type_) < 0
    magnitude_a = np.where(negative_a, zero - a, a)
    magnitude_b = np.where(negative_b, zero - b, b)
    safe = np.where(magnitude_b == 0, a.dtype.type(1), magnitude_b)
    if instruction.op == "div":
        result = magnitude_a // safe
        result = np.where(negative_a != negative_b, zero - result, result)
    else:
        result = magnitude_a % safe
        result = np.where(negative_a, zero - result, result)
    lanes.write(0, np.where(b == 0, ones, result), type_)


def minimum_maximum(lanes: Lanes, instruction: Instruction) -> None:
    """min and max, packed halves and ``.relu`` included."""
    type_ = _last_type(instruction)
    a, b = lanes.read(1, type_), lanes.read(2, type_)

    def choose(x: Bits, y: Bits, scalar: str) -> Bits:
        smaller = typed(x, scalar) < typed(y, scalar)
        result = np.where(smaller == (instruction.op == "min"), x, y)
        return np.where(typed(result, scalar) < 0, x.dtype.type(0), result) if "relu" in instruction.mods else result

    if type_ in ("u16x2", "s16x2"):
        low, high = (choose(x, y, type_[:3]) for x, y in zip(halves(a), halves(b), strict=True))
        lanes.write(0, join(low, high), type_)
    else:
        lanes.write(0, choose(a, b, type_), type_)


def negate(lanes: Lanes, instruction: Instruction) -> None:
    """neg."""
    type_ = _last_type(instruction)
    a = lanes.read(1, type_)
    lanes.write(0, a.dtype.type(0) - a, type_)


def absolute(lanes: Lanes, instruction: Instruction) -> None:
    """abs: the most negative value stays."""
    type_ = _last_type(instruction)
    a = lanes.read(1, type_)
    lanes.write(0, np.where(signed(a) < 0, a.dtype.type(0) - a, a), type_)


def logic(lanes: Lanes, instruction: Instruction) -> None:
    """and, or, xor, not, cnot, on bits and predicates."""
    type_ = _last_type(instruction)
    a = lanes.read(1, type_)
    match instruction.op:
        case "not":
            result = ~a
        case "cnot":
            result = (a == 0).astype(a.dtype)
        case "and":
            result = a & lanes.read(2, type_)
        case "or":
            result = a | lanes.read(2, type_)
        case _:
            result = a ^ lanes.read(2, type_)
    lanes.write(0, result, type_)


def shift(lanes: Lanes, instruction: Instruction) -> None:
    """shl and shr: amounts at or above the width shift everything out."""
    type_ = _last_type(instruction)
    a = lanes.read(1, type_)
    width = 8 * a.dtype.itemsize
    amount = lanes.read(2, "u32")
    inside = np.minimum(amount, np.uint32(width - 1)).astype(a.dtype)
    if instruction.op == "shl":
        result = np.where(amount >= width, a.dtype.type(0), a << inside)
    elif type_.startswith("s"):
        result = (signed(a) >> signed(inside)).view(a.dtype)
    else:
        result = np.where(amount >= width, a.dtype.type(0), a >> inside)
    lanes.write(0, result, type_)


def funnel_shift(lanes: Lanes, instruction: Instruction) -> None:
    """shf.l and shf.r over the pair (b:a)."""
    direction, mode = instruction.mods[0], instruction.mods[1]
    a, b, c = (lanes.read(index, "b32") for index in (1, 2, 3))
    amount = (np.minimum(c, np.uint32(32)) if mode == "clamp" else c & np.uint32(31)).astype(np.uint64)
    pair = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    if direction == "l":
        result = np.where(amount == 32, a, ((pair << amount) >> np.uint64(32)).astype(np.uint32))
    else:
        result = (pair >> amount).astype(np.uint32)
    lanes.write(0, result, "b32")


def look_up(lanes: Lanes, instruction: Instruction) -> None:
    """lop3: any function of three bits, from an 8-entry table; ``.and``/``.or`` also combine with a predicate."""
    a, b, c = (lanes.read(index, "b32") for index in (1, 2, 3))
    table = lanes.read(4, "b32")
    result = np.zeros_like(a)
    for index in range(8):
        term = (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        result |= np.where((table >> np.uint32(index)) & np.uint32(1) != 0, term, np.uint32(0))
    if instruction.mods[0] in ("and", "or"):
        other = lanes.read(5, "pred")
        predicate = (result != 0) & other if instruction.mods[0] == "and" else (result != 0) | other
        lanes.write_pair(0, result, "b32", predicate, "pred")
    else:
        lanes.write(0, result, "b32")


def find_bits(lanes: Lanes, instruction: Instruction) -> None:
    """popc, clz, bfind, brev."""
    type_ = _last_type(instruction)
    a = lanes.read(1, type_)
    width = 8 * a.dtype.itemsize
    if instruction.op == "brev":
        result = np.zeros_like(a)
        for index in range(width):
            result |= ((a >> a.dtype.type(index)) & a.dtype.type(1)) << a.dtype.type(width - 1 - index)
        lanes.write(0, result, type_)
        return
    wide = a.astype(np.uint64)
    if instruction.op == "popc":
        count = np.zeros(a.shape, np.uint32)
        for index in range(width):
            count += ((wide >> np.uint64(index)) & np.uint64(1)).astype(np.uint32)
    elif instruction.op == "clz":
        count = (width - bit_length(wide)).astype(np.uint32)
    else:
        positive = np.where(signed(a) < 0, ~a, a) if type_.startswith("s") else a
        top = bit_length(positive.astype(np.uint64)) - 1
        if "shiftamt" in instruction.mods:
            top = np.where(top < 0, top, width - 1 - top)
        count = top.astype(np.int32).view(np.uint32)
    lanes.write(0, count, "u32")


def _field_operand(lanes: Lanes, index: int, width: int) -> npt.NDArray[np.int64]:
    """A field's position or length: the low 8 bits for 32-bit fields, all 32 for 64-bit ones (H200, driver 13.0)."""
    value = lanes.read(index, "u32").astype(np.int64)
    return value & 255 if width == 32 else value


def extract_field(lanes: Lanes, instruction: Instruction) -> None:
    """bfe, by the manual's loop."""
    type_ = _last_type(instruction)
    a = lanes.read(1, type_)
    top = 8 * a.dtype.itemsize - 1
    position, length = _field_operand(lanes, 2, top + 1), _field_operand(lanes, 3, top + 1)

    def bit(index: Bits) -> Bits:
        found: Bits = (a >> np.clip(index, 0, top).astype(a.dtype)) & a.dtype.type(1)
        return found

    fill = np.zeros_like(a)
    if type_.startswith("s"):
        fill = np.where(length == 0, fill, bit(np.minimum(position + length - 1, top)))
    result = np.zeros_like(a)
    for index in range(top + 1):
        inside = (index < length) & (position + index <= top)
        result |= np.where(inside, bit(position + index), fill) << a.dtype.type(index)
    lanes.write(0, result, type_)


def insert_field(lanes: Lanes, instruction: Instruction) -> None:
    """bfi, by the manual's loop."""
    type_ = _last_type(instruction)
    a, result = lanes.read(1, type_), lanes.read(2, type_).copy()
    top = 8 * a.dtype.itemsize - 1
    position, length = _field_operand(lanes, 3, top + 1), _field_operand(lanes, 4, top + 1)
    one = a.dtype.type(1)
    for index in range(top + 1):
        inside = (index < length) & (position + index <= top)
        place = np.clip(position + index, 0, top).astype(a.dtype)
        bit = ((a >> a.dtype.type(index)) & one) << place
        result = np.where(inside, (result & ~(one << place)) | bit, result)
    lanes.write(0, result, type_)


def extend(lanes: Lanes, instruction: Instruction) -> None:
    """szext: the lowest b bits, extended by sign or zero."""
    mode, type_ = instruction.mods
    a, b = lanes.read(1, type_), lanes.read(2, "u32")
    count = (np.minimum(b, np.uint32(32)) if mode == "clamp" else b & np.uint32(31)).astype(np.uint64)
    away = np.uint64(64) - np.maximum(count, np.uint64(1))
    moved = a.astype(np.uint64) << away
    result = typed(moved, "s64" if type_ == "s32" else "u64") >> away.astype(
        moved.dtype if type_ != "s32" else np.int64
    )
    lanes.write(0, np.where(count == 0, np.uint32(0), result.astype(np.uint32)), type_)


def bit_mask(lanes: Lanes, instruction: Instruction) -> None:
    """bmsk: b ones from bit a on."""
    mode = instruction.mods[0]
    a, b = lanes.read(1, "u32"), lanes.read(2, "u32")
    if mode == "clamp":
        start, count = np.minimum(a, np.uint32(32)), np.minimum(b, np.uint32(32))
    else:
        start, count = a & np.uint32(31), b & np.uint32(31)
    ones = (np.uint64(1) << count.astype(np.uint64)) - np.uint64(1)
    lanes.write(0, (ones << start.astype(np.uint64)).astype(np.uint32), "b32")


_PERMUTE_MODES = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}
"""prmt's named modes: for each value of c & 3, the source byte of d's bytes 0 to 3."""


def permute(lanes: Lanes, instruction: Instruction) -> None:
    """prmt: four bytes out of the eight of (b:a), each optionally replaced by its sign."""
    a, b, c = (lanes.read(index, "b32") for index in (1, 2, 3))
    pair = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    mode = instruction.mods[-1]
    result = np.zeros_like(a)
    for byte in range(4):
        if mode in _PERMUTE_MODES:
            table = np.array([row[byte] for row in _PERMUTE_MODES[mode]], np.uint64)
            selector, replicate = table[(c & np.uint32(3)).astype(np.int64)], np.zeros(c.shape, bool)
        else:
            nibble = (c >> np.uint32(4 * byte)) & np.uint32(15)
            selector, replicate = (nibble & np.uint32(7)).astype(np.uint64), nibble >= 8
        value = ((pair >> (selector * np.uint64(8))) & np.uint64(255)).astype(np.uint32)
        value = np.where(replicate, np.where(value >= 128, np.uint32(255), np.uint32(0)), value)
        result |= value << np.uint32(8 * byte)
    lanes.write(0, result, "b32")


def dot_product(lanes: Lanes, instruction: Instruction) -> None:
    """dp4a, dp2a.lo, dp2a.hi: c plus a sum of small products, modulo 2**32."""
    type_a, type_b = instruction.mods[-2], instruction.mods[-1]
    a, b, c = (lanes.read(index, "b32") for index in (1, 2, 3))
    total = c.astype(np.int64)
    count, width = (4, 8) if instruction.op == "dp4a" else (2, 16)
    first = 2 if instruction.mods[0] == "hi" else 0
    for index in range(count):
        x = typed((a >> np.uint32(width * index)).astype(DTYPES[width // 8]), type_a)
        y = typed((b >> np.uint32(8 * (index + first))).astype(np.uint8), type_b)
        total = total + x.astype(np.int64) * y.astype(np.int64)
    lanes.write(0, total.astype(np.uint32), "b32")


def find_nth_set(lanes: Lanes, instruction: Instruction) -> None:
    """fns, by the manual's code."""
    rows = zip(*(lanes.read(position, "b32").tolist() for position in (1, 2, 3)), strict=True)
    lanes.write(0, np.array([_nth_set(*row) for row in rows], np.uint32), "b32")


def _nth_set(mask: int, base: int, offset: int) -> int:
    by = offset - (1 << 32) if offset >> 31 else offset
    if by == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    left = abs(by) - 1
    at = base
    while 0 <= at < 32:
        if mask >> at & 1:
            if left == 0:
                return at
            left -= 1
        at += 1 if by > 0 else -1
    return 0xFFFFFFFF


HANDLERS: dict[str, Handler] = {
    "addc": add_sub, "subc": add_sub, "mul24": multiply, "madc": multiply_add, "mad24": multiply_add,
    "sad": sum_of_differences, "rem": divide, "and": logic, "or": logic, "xor": logic, "not": logic, "cnot": logic,
    "shl": shift, "shr": shift, "shf": funnel_shift, "lop3": look_up, "popc": find_bits, "clz": find_bits,
    "bfind": find_bits, "brev": find_bits, "bfe": extract_field, "bfi": insert_field, "szext": extend,
    "bmsk": bit_mask, "prmt": permute, "dp4a": dot_product, "dp2a": dot_product,
    "fns": find_nth_set,
}  # fmt: skip
"""Mnemonics that exist for integers only."""

SHARED_HANDLERS: dict[str, Handler] = {
    "add": add_sub, "sub": add_sub, "mul": multiply, "mad": multiply_add, "div": divide, "min": minimum_maximum,
    "max": minimum_maximum, "neg": negate, "abs": absolute,
}  # fmt: skip
"""Mnemonics that also exist for floating-point types."""
