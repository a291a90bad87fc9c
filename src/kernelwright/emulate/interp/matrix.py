"""mma and ldmatrix: fragments gathered into matrices, multiplied element by element, and scattered again.

The rule: the sum of reals is Hopper's. Products are exact; they and the accumulator are cut toward zero at 2**-25 of
the power of two that is the largest exponent among them (of a product: the sum of its factors' exponents), and their
exact sum is cut to an f32 or rounded to an f16. Doubles are summed one after the other.
Source: PTX ISA 9.0, section 9.7.14 (fragments); Khattak and Mikaitis, arXiv 2512.07004 (sums).
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np

from kernelwright.emulate.ptx.ir import Instruction, Operand, Vec

from .errors import UnknownInstruction
from .formats import FORMATS, Bits, decode
from .lanes import Handler, Lanes
from .transfer import check, space_of
from .warp import WARP

WIDTH = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "s8": 8, "u8": 8}
"""Bits of an element."""
_KEPT_BITS = 25
_SMALLEST = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126}
Matrix = dict[tuple[int, int], int]


def multiply(lanes: Lanes, instruction: Instruction) -> None:
    """mma.sync on dense operands, for each warp whose lanes are all here."""
    if any(mod in ("sp", "xor", "and", "popc") for mod in instruction.mods) or instruction.op != "mma":
        raise UnknownInstruction(instruction)
    shape = next((found for mod in instruction.mods if (found := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", mod))), None)
    types = instruction.mods[-4:]
    if shape is None or any(type_ not in WIDTH for type_ in types) or lanes.count % WARP:
        raise UnknownInstruction(instruction)
    m, n, k = (int(number) for number in shape.groups())
    d_type, a_type, b_type, c_type = types
    operands = instruction.operands
    columns = [
        np.stack([lanes.value(item, f"b{max(32, WIDTH[type_])}") for item in items_of(operand)])
        for operand, type_ in zip(operands[1:4], types[1:], strict=True)
    ]
    made = np.zeros((len(items_of(operands[0])), lanes.count), columns[2].dtype)
    for start in range(0, lanes.count, WARP):
        warp = slice(start, start + WARP)
        a = _gathered(columns[0][:, warp], "a", m, a_type)
        b = _gathered(columns[1][:, warp], "b", k, b_type)
        c = _gathered(columns[2][:, warp], "c", m, c_type)
        d = {
            (i, j): dot([a[i, x] for x in range(k)], [b[x, j] for x in range(k)], c[i, j], types, instruction)
            for i in range(m)
            for j in range(n)
        }
        made[:, warp] = _scattered(d, made.shape[0], m, d_type, made.dtype)
    for item, row in zip(items_of(operands[0]), made, strict=True):
        lanes.store(item, row, f"b{8 * made.dtype.itemsize}")


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """The registers of a fragment."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def _place(role: str, rows: int, width: int, lane: int, register: int, element: int) -> tuple[int, int]:
    """Row and column of an element of a fragment, as the manual draws them; ``rows``: of the whole matrix."""
    per = max(32 // width, 1)
    group, inside = divmod(lane, 4)
    if role == "a":
        # Two halves of rows, where there are sixteen, then the next columns.
        half, block = (register % 2, register // 2) if rows > 8 else (0, register)
        return group + 8 * half, inside * per + element + block * 4 * per
    if role == "b":
        return inside * per + element + register * 4 * per, group
    if per == 2:
        return group + 8 * register, inside * 2 + element
    return group + 8 * (register // 2), inside * 2 + register % 2


def _gathered(registers: Bits, role: str, rows: int, type_: str) -> Matrix:
    width = WIDTH[type_]
    found: Matrix = {}
    for register, row in enumerate(registers.tolist()):
        for lane, word in enumerate(row):
            for element in range(max(32 // width, 1)):
                place = _place(role, rows, width, lane, register, element)
                found[place] = word >> element * width & (1 << width) - 1
    return found


def _scattered(matrix: Matrix, registers: int, rows: int, type_: str, dtype: np.dtype[np.generic]) -> Bits:
    width = WIDTH[type_]
    made = [[0] * WARP for _ in range(registers)]
    for register, row in enumerate(made):
        for lane in range(WARP):
            for element in range(max(32 // width, 1)):
                row[lane] |= matrix[_place("c", rows, width, lane, register, element)] << element * width
    return np.array(made, dtype)


def _value(bits: int, type_: str) -> float:
    """A real's value; a double holds every one."""
    if type_ == "f64":
        return float(np.array([bits], np.uint64).view(np.float64)[0])
    name = "f32" if type_ == "tf32" else type_
    if type_ == "tf32":
        bits &= 0xFFFFE000
    number = decode(FORMATS[name], np.array([bits], FORMATS[name].dtype))
    if number.nan[0]:
        return math.nan
    size = math.inf if number.infinite[0] else math.ldexp(int(number.mantissa[0]), int(number.exponent[0]))
    return -size if number.sign[0] else size


def dot(a: list[int], b: list[int], c: int, types: tuple[str, ...], instruction: Instruction) -> int:
    """c plus the product of a row and a column, as bits; ``types``: of d, a, b and c."""
    d_type, a_type, b_type, c_type = types
    if d_type == "s32":
        total = sum(_integer(x, a_type) * _integer(y, b_type) for x, y in zip(a, b, strict=True)) + _integer(c, "s32")
        if "satfinite" in instruction.mods:
            total = min(max(total, -(1 << 31)), (1 << 31) - 1)
        return total & 0xFFFFFFFF
    xs, ys, z = [_value(x, a_type) for x in a], [_value(y, b_type) for y in b], _value(c, c_type)
    if d_type == "f64":
        for x, y in zip(xs, ys, strict=True):
            z = _fused(x, y, z)
        return int(np.array([z], np.float64).view(np.uint64)[0])
    plain = sum(x * y for x, y in zip(xs, ys, strict=True)) + z
    if not math.isfinite(plain):
        nan, infinity = (0x7FFFFFFF, 0x7F800000) if d_type == "f32" else (0x7FFF, 0x7C00)
        return nan if math.isnan(plain) else infinity | (0 if plain > 0 else _sign(d_type))
    return _rounded(_cut_sum(xs, ys, z, a_type, c_type), d_type)


def _sign(type_: str) -> int:
    return 1 << WIDTH[type_] - 1


def _integer(bits: int, type_: str) -> int:
    width = WIDTH[type_]
    return bits - (1 << width) if type_[0] == "s" and bits >> width - 1 else bits


def _fused(x: float, y: float, z: float) -> float:
    if not all(map(math.isfinite, (x, y, z))):
        return x * y + z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    return float(exact) if exact else x * y + z


def _exponent(value: float, type_: str) -> int:
    return max(math.frexp(value)[1] - 1, _SMALLEST[type_])


def _cut_sum(xs: list[float], ys: list[float], z: float, type_: str, c_type: str) -> Fraction:
    pairs = [(x, y) for x, y in zip(xs, ys, strict=True) if x and y]
    exponents = [_exponent(x, type_) + _exponent(y, type_) for x, y in pairs]
    exponents += [_exponent(z, c_type)] if z else []
    if not exponents:
        return Fraction(0)
    unit = Fraction(2) ** (max(exponents) - _KEPT_BITS)
    terms = [Fraction(x) * Fraction(y) for x, y in pairs] + [Fraction(z)]
    return sum((math.trunc(term / unit) for term in terms), 0) * unit


def _rounded(exact: Fraction, type_: str) -> int:
    """To an f32 toward zero, to an f16 to nearest even."""
    if not exact:
        return 0
    fraction, least = (23, -126) if type_ == "f32" else (10, -14)
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    exponent = max(exponent, least)
    scaled = size / Fraction(2) ** (exponent - fraction)
    whole = math.floor(scaled) if type_ == "f32" else round(scaled)
    bits = whole + (exponent - least << fraction)
    infinity = (0x7F800000, 0x7C00)[type_ == "f16"]
    bits = min(bits, infinity - 1 if type_ == "f32" else infinity)
    return bits | (_sign(type_) if exact < 0 else 0)


def load(lanes: Lanes, instruction: Instruction) -> None:
    """ldmatrix.m8n8: lanes 8 i to 8 i + 7 give the rows of matrix i; each lane gets two elements of each."""
    count = next((int(mod[1:]) for mod in instruction.mods if mod in ("x1", "x2", "x4")), 0)
    if not count or "m8n8" not in instruction.mods or instruction.mods[-1] != "b16" or lanes.count % WARP:
        raise UnknownInstruction(instruction)
    addresses = lanes.addresses(lanes.operand(1), space_of(instruction))
    memory, items = lanes.machine.memory, items_of(instruction.operands[0])
    made = np.zeros((count, lanes.count), np.uint32)
    for start in range(0, lanes.count, WARP):
        used = addresses[start : start + 8 * count]
        check(lanes, used, 16)
        rows = np.stack([np.frombuffer(memory.read(int(address), 16), np.uint16) for address in used])
        for matrix in range(count):
            block = rows[8 * matrix : 8 * matrix + 8]
            block = block.T if "trans" in instruction.mods else block
            made[matrix, start : start + WARP] = np.ascontiguousarray(block).view(np.uint32).ravel()
    for item, row in zip(items, made, strict=True):
        lanes.store(item, row, "b32")


HANDLERS: dict[str, Handler] = {"mma": multiply, "ldmatrix": load}
