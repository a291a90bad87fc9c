"""cvt: between all integer and floating-point types, with every rounding, saturation and flush.

Source: PTX ISA 9.0, section 9.7.9.21,
https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt
"""

from __future__ import annotations

import numpy as np

from kernelwright.emulate.ptx.ir import Instruction
from kernelwright.emulate.ptx.types import TYPE_BYTES

from .eight_bits import EIGHT_BITS, from_code, to_code
from .errors import UnknownInstruction
from .floating import clamp
from .formats import FORMATS, Bits, Format, Number, bit_length, decode, encode, flush, is_nan, round_integer
from .lanes import Handler, Lanes
from .values import PACKED, halves, join, signed, typed

_INTEGER_ROUNDINGS = ("rni", "rzi", "rmi", "rpi")
_FLOAT_ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")
_F32 = FORMATS["f32"]


def convert(lanes: Lanes, instruction: Instruction) -> None:
    """cvt."""
    types = [mod for mod in instruction.mods if mod in TYPE_BYTES]
    if len(types) != 2:
        raise UnknownInstruction(instruction)
    to, of = types
    if to in EIGHT_BITS or of in EIGHT_BITS:
        _eight_bits(lanes, instruction, to, of)
        return
    if to in PACKED:
        # a goes to the upper half, b to the lower.
        high = _converted(lanes, instruction, lanes.read(1, of), PACKED[to], of)
        low = _converted(lanes, instruction, lanes.read(2, of), PACKED[to], of)
        lanes.write(0, join(low, high), to)
        return
    lanes.write(0, _converted(lanes, instruction, lanes.read(1, of), to, of), to)


def _eight_bits(lanes: Lanes, instruction: Instruction, to: str, of: str) -> None:
    """Between a pair of eight-bit reals and two f32 or a pair of halves; a goes to the upper byte."""
    relu = "relu" in instruction.mods
    if of in EIGHT_BITS:
        pairs = lanes.read(1, "b16").tolist()
        words = [from_code(pair & 255, of, relu) | from_code(pair >> 8, of, relu) << 16 for pair in pairs]
        lanes.write(0, np.array(words, np.uint32), "b32")
        return
    if of == "f32":
        high, low = (lanes.read(position, "f32").view(np.float32).tolist() for position in (1, 2))
    elif of == "f16x2":
        low, high = (half.view(np.float16).astype(np.float32).tolist() for half in halves(lanes.read(1, "b32")))
    else:
        raise UnknownInstruction(instruction)
    codes = [to_code(y, to, relu) | to_code(x, to, relu) << 8 for x, y in zip(high, low, strict=True)]
    lanes.write(0, np.array(codes, np.uint16), "b16")


def _converted(lanes: Lanes, instruction: Instruction, bits: Bits, to: str, of: str) -> Bits:
    if to in FORMATS:
        if of in FORMATS:
            return _float_to_float(instruction, bits, FORMATS[to], FORMATS[of])
        return _integer_to_float(instruction, bits, FORMATS[to], of)
    if of in FORMATS:
        return _float_to_integer(instruction, bits, to, FORMATS[of])
    if to[0] in "us" and of[0] in "us":
        return _integer_to_integer(instruction, bits, to, of)
    raise UnknownInstruction(instruction)


def _mode(instruction: Instruction, choices: tuple[str, ...], default: str) -> str:
    return next((mod for mod in instruction.mods if mod in choices), default)


def _limits(type_: str) -> tuple[int, int]:
    width = int(type_[1:])
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if type_[0] == "s" else (0, (1 << width) - 1)


def _integer_to_integer(instruction: Instruction, bits: Bits, to: str, of: str) -> Bits:
    size = TYPE_BYTES[to]
    if "sat" not in instruction.mods:
        return typed(bits, of).astype(np.dtype(f"u{size}"))
    low, high = _limits(to)
    clipped = [min(max(value, low), high) & ((1 << 8 * size) - 1) for value in typed(bits, of).tolist()]
    return np.array(clipped, np.dtype(f"u{size}"))


def _integer_to_float(instruction: Instruction, bits: Bits, to: Format, of: str) -> Bits:
    wide = typed(bits, of).astype(np.int64 if of[0] == "s" else np.uint64).view(np.uint64)
    negative = (signed(wide) < 0) if of[0] == "s" else np.zeros(wide.shape, bool)
    magnitude = np.where(negative, np.uint64(0) - wide, wide)
    no = np.zeros(wide.shape, bool)
    number = Number(negative, magnitude, np.zeros(wide.shape, np.int64), no, no)
    return clamp(to, encode(to, number, _mode(instruction, _FLOAT_ROUNDINGS, "rn")), instruction)


def _float_to_integer(instruction: Instruction, bits: Bits, to: str, of: Format) -> Bits:
    """Rounded, then clamped to the range. NaN is 0, but 1 in the top bit when either side has 64 bits."""
    if "ftz" in instruction.mods and of is _F32:
        bits = flush(of, bits)
    number = decode(of, bits)
    mode = _mode(instruction, (*_INTEGER_ROUNDINGS, *_FLOAT_ROUNDINGS), "rzi")
    # Above 2**64 only the clamping matters.
    huge = number.infinite | ((number.exponent + bit_length(number.mantissa) > 64) & (number.mantissa != 0))
    exponent = np.where(huge, 0, number.exponent)
    magnitude = round_integer(number.mantissa, exponent, number.sign, mode)
    low, high = _limits(to)
    width = 8 * TYPE_BYTES[to]
    nan = 1 << (width - 1) if of.bits == 64 or width == 64 else 0
    results = []
    rows = zip(number.sign.tolist(), magnitude.tolist(), huge.tolist(), number.nan.tolist(), strict=True)
    for negative, value, beyond, not_a_number in rows:
        if not_a_number:
            results.append(nan)
            continue
        exact = (-1 if negative else 1) * (1 << 70 if beyond else value)
        results.append(min(max(exact, low), high) & ((1 << width) - 1))
    return np.array(results, np.dtype(f"u{width // 8}"))


def _float_to_float(instruction: Instruction, bits: Bits, to: Format, of: Format) -> Bits:
    ftz = "ftz" in instruction.mods
    if ftz and of is _F32:
        bits = flush(of, bits)
    integral = next((mod for mod in instruction.mods if mod in _INTEGER_ROUNDINGS), None)
    if integral is not None:
        bits = _to_integral(of, bits, integral)
    if to is of:
        result = np.where(is_nan(to, bits), to.dtype.type(to.nan), bits) if to.bits < 64 else _quiet(bits)
    else:
        mode = _mode(instruction, _FLOAT_ROUNDINGS, "rn")
        result = encode(to, decode(of, bits), mode, fraction=10 if to.name == "tf32" else None)
        result = np.where(is_nan(of, bits), _converted_nan(bits, to, of, ftz=ftz), result)
        if "satfinite" in instruction.mods:
            largest = to.infinity - (1 << (13 if to.name == "tf32" else 0))
            sign = result & to.dtype.type(1 << (to.bits - 1))
            infinite = (result & ~to.dtype.type(1 << (to.bits - 1))) == to.dtype.type(to.infinity)
            result = np.where(infinite, sign | to.dtype.type(largest), result)
    if ftz and to is _F32:
        result = flush(to, result)
    return clamp(to, result, instruction)


def _converted_nan(bits: Bits, to: Format, of: Format, *, ftz: bool) -> Bits:
    """What NaNs become, as observed on an H200, driver 13.0, 2026-11-29.

    f64 to a narrower format: the sign and a quiet NaN. To f64: sign and payload stay, but ``.ftz`` reads the source as
    the canonical f32. To tf32: the low bits are dropped, even if an infinity is left. Else the canonical NaN.
    """
    if to.name == "tf32":
        return bits & np.uint32(0xFFFFE000)
    sign: Bits = (bits >> bits.dtype.type(of.bits - 1)).astype(to.dtype) << to.dtype.type(to.bits - 1)
    quiet = to.dtype.type(to.infinity | 1 << (to.fraction - 1))
    made: Bits = sign | quiet
    if of.name == "f64":
        return made
    if to.name != "f64":
        return np.full(bits.shape, to.nan, to.dtype)
    if ftz:
        return np.full(bits.shape, 0x7FFFFFFFE0000000, np.uint64)
    payload = (bits & bits.dtype.type((1 << of.fraction) - 1)).astype(np.uint64)
    made |= payload << np.uint64(to.fraction - of.fraction)
    return made


def _quiet(bits: Bits) -> Bits:
    return np.where(is_nan(FORMATS["f64"], bits), bits | np.uint64(1 << 51), bits)


def _to_integral(format_: Format, bits: Bits, mode: str) -> Bits:
    """Rounded to an integral value of the same format; zeros keep the sign."""
    number = decode(format_, bits)
    whole = number.exponent >= 0
    magnitude = round_integer(number.mantissa, np.minimum(number.exponent, 0), number.sign, mode)
    zero = np.zeros(bits.shape, np.int64)
    rounded = encode(format_, Number(number.sign, magnitude, zero, number.infinite, number.nan), "rn")
    return np.where(whole | number.infinite | number.nan, bits, rounded)


HANDLERS: dict[str, Handler] = {"cvt": convert}
