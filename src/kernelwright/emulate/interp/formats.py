"""Binary floating-point formats: exact decoding, and encoding with every PTX rounding mode.

Why: conversions and directed roundings must be right to the bit, and no host offers them all. The rule: a finite value
is ``(-1)**sign * mantissa * 2**exponent`` with an unsigned 64-bit mantissa, and rounding happens once, in ``encode``.
Source: IEEE 754-2019, sections 3 and 4; PTX ISA 9.0, section 9.7.9.21 (cvt),
https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[Any]
"""An array of unsigned bit patterns."""
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format: sign, exponent and fraction fields, from the top."""

    name: str
    bits: int
    fraction: int
    """Stored fraction bits."""
    nan: int
    """The NaN that PTX instructions produce in this format."""

    @property
    def exponent_bits(self) -> int:
        return self.bits - 1 - self.fraction

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.fraction

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"u{self.bits // 8}")


FORMATS: dict[str, Format] = {
    "f16": Format("f16", 16, 10, 0x7FFF),
    "bf16": Format("bf16", 16, 7, 0x7FFF),
    "tf32": Format("tf32", 32, 23, 0x7FFFFFFF),
    "f32": Format("f32", 32, 23, 0x7FFFFFFF),
    "f64": Format("f64", 64, 52, 0xFFF8000000000000),
}
"""PTX type to format. NaNs: PTX ISA 9.0, section 9.7.3 (f32: 0x7fffffff); the others as an H200 returns them."""


@dataclass(frozen=True, slots=True)
class Number:
    """Arrays that hold decoded values; ``mantissa`` and ``exponent`` mean something only for finite ones."""

    sign: Flags
    mantissa: npt.NDArray[np.uint64]
    exponent: npt.NDArray[np.int64]
    infinite: Flags
    nan: Flags


def decode(format_: Format, bits: Bits) -> Number:
    """Exact values of bit patterns."""
    wide = bits.astype(np.uint64)
    fraction = wide & np.uint64((1 << format_.fraction) - 1)
    field = ((wide >> np.uint64(format_.fraction)) & np.uint64((1 << format_.exponent_bits) - 1)).astype(np.int64)
    top = (1 << format_.exponent_bits) - 1
    normal = field > 0
    mantissa = np.where(normal, fraction | np.uint64(1 << format_.fraction), fraction)
    exponent = np.where(normal, field, 1) - format_.bias - format_.fraction
    sign = (wide >> np.uint64(format_.bits - 1)).astype(bool)
    return Number(sign, mantissa, exponent, (field == top) & (fraction == 0), (field == top) & (fraction != 0))


def bit_length(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The number of significant bits of each value; 0 for 0."""
    length = np.zeros(values.shape, np.int64)
    rest = values.copy()
    for step in (32, 16, 8, 4, 2, 1):
        large = rest >> np.uint64(step) != 0
        length = np.where(large, length + step, length)
        rest = np.where(large, rest >> np.uint64(step), rest)
    total: npt.NDArray[np.int64] = length + (rest != 0)
    return total


def shift_right(values: npt.NDArray[np.uint64], amount: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """``values >> amount`` for amounts of 0 and more; 64 and more give 0."""
    small = np.clip(amount, 0, 63).astype(np.uint64)
    return np.where(amount >= 64, np.uint64(0), values >> small)


def shift_left(values: npt.NDArray[np.uint64], amount: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """``values << amount`` for amounts of 0 to 63."""
    return values << np.clip(amount, 0, 63).astype(np.uint64)


def rounds_up(mode: str, sign: Flags, odd: Flags, half: Flags, rest: Flags) -> Flags:
    """Whether magnitude goes up, given the bit below the last kept one (``half``) and anything below that (``rest``).

    Modes: ``rn``/``rni`` to nearest even, ``rna`` to nearest, ties away, ``rz``/``rzi`` to zero, ``rm``/``rmi`` down,
    ``rp``/``rpi`` up.
    """
    inexact = half | rest
    match mode:
        case "rn" | "rni":
            return half & (rest | odd)
        case "rna":
            return half
        case "rz" | "rzi":
            return np.zeros_like(half)
        case "rm" | "rmi":
            return inexact & sign
        case "rp" | "rpi":
            return inexact & ~sign
    raise ValueError(f"unknown rounding mode '{mode}'")


def round_integer(
    mantissa: npt.NDArray[np.uint64], exponent: npt.NDArray[np.int64], sign: Flags, mode: str
) -> npt.NDArray[np.uint64]:
    """``mantissa * 2**exponent`` rounded to an integer magnitude; exponents above 0 must leave it below 2**64."""
    drop = np.clip(-exponent, 0, 66)
    kept = shift_right(mantissa, drop)
    half = (shift_right(mantissa, drop - 1) & np.uint64(1)).astype(bool) & (drop > 0)
    below = np.clip(drop - 1, 0, 64)
    mask = np.where(
        below >= 64, np.uint64(2**64 - 1), (np.uint64(1) << np.clip(below, 0, 63).astype(np.uint64)) - np.uint64(1)
    )
    rest = (mantissa & mask) != 0
    kept = kept + rounds_up(mode, sign, (kept & np.uint64(1)).astype(bool), half, rest & (drop > 0))
    return np.where(exponent > 0, shift_left(mantissa, exponent), kept)


def encode(format_: Format, number: Number, mode: str, *, fraction: int | None = None) -> Bits:
    """Bit patterns of ``number`` in ``format_``, rounded once; subnormals are kept. NaNs become the format's NaN.

    ``fraction`` keeps fewer fraction bits than the format stores (10 for tf32).
    """
    kept_fraction = format_.fraction if fraction is None else fraction
    length = bit_length(number.mantissa)
    low = 1 - format_.bias - kept_fraction
    last = np.maximum(number.exponent + length - 1 - kept_fraction, low)
    kept = round_integer(number.mantissa, number.exponent - last, number.sign, mode)
    # The hidden bit adds one to the exponent field; a carry out of the fraction does so again, which is right.
    kept = shift_left(kept, np.full(kept.shape, format_.fraction - kept_fraction, np.int64))
    field = (last - low).astype(np.uint64)
    magnitude = kept + (field << np.uint64(format_.fraction))
    infinity = np.uint64(format_.infinity)
    overflow = (magnitude >= infinity) & (number.mantissa != 0)
    towards_zero = overflow & ~rounds_up(mode, number.sign, overflow, overflow, overflow)
    largest = infinity - np.uint64(1 << (format_.fraction - kept_fraction))
    magnitude = np.where(overflow, np.where(towards_zero, largest, infinity), magnitude)
    magnitude = np.where(number.mantissa == 0, np.uint64(0), magnitude)
    magnitude = np.where(number.infinite, infinity, magnitude)
    bits = magnitude | (number.sign.astype(np.uint64) << np.uint64(format_.bits - 1))
    return np.where(number.nan, np.uint64(format_.nan), bits).astype(format_.dtype)


def tiny(format_: Format, number: Number, mode: str) -> Flags:
    """Which finite non-zero values stay below the smallest normal when rounded with an unbounded exponent.

    These are what ``.ftz`` flushes: observed on an H200, driver 13.0, 2026-11-29; rounding to the subnormal grid
    instead would bring some of them up to the smallest normal.
    """
    length = bit_length(number.mantissa)
    exponent = number.exponent + length - 1
    kept = round_integer(number.mantissa, format_.fraction + 1 - length, number.sign, mode)
    carried = bit_length(kept) > format_.fraction + 1
    finite = (number.mantissa != 0) & ~number.infinite & ~number.nan
    found: Flags = finite & (exponent + carried < 1 - format_.bias)
    return found


def to_double(format_: Format, bits: Bits) -> npt.NDArray[np.float64]:
    """Exact values as doubles (every narrower format fits); NaNs become some NaN."""
    if format_.name == "bf16":
        bits = bits.astype(np.uint32) << np.uint32(16)
    held = np.ascontiguousarray(bits)
    return held.view(f"f{held.dtype.itemsize}").astype(np.float64)


def from_double(format_: Format, values: npt.NDArray[np.float64], mode: str, *, ftz: bool = False) -> Bits:
    """Doubles rounded into ``format_``; with ``ftz`` those that are :func:`tiny` become zeros of their sign."""
    if format_.name == "f32" and mode == "rn" and not ftz:
        # The host's conversion is IEEE's, and much faster.
        single = values.astype(np.float32).view(np.uint32)
        return np.where(np.isnan(values), np.uint32(format_.nan), single)
    number = decode(FORMATS["f64"], np.ascontiguousarray(values).view(np.uint64))
    result = encode(format_, number, mode)
    if not ftz:
        return result
    zero = result & format_.dtype.type(1 << (format_.bits - 1))
    return np.where(tiny(format_, number, mode), zero, result)


def flush(format_: Format, bits: Bits) -> Bits:
    """Subnormals to zero of the same sign (``.ftz``)."""
    sign = bits & format_.dtype.type(1 << (format_.bits - 1))
    subnormal = (bits & format_.dtype.type(format_.infinity)) == 0
    return np.where(subnormal, sign, bits).astype(format_.dtype)


def is_nan(format_: Format, bits: Bits) -> Flags:
    """Which patterns are NaNs."""
    magnitude = bits & format_.dtype.type((1 << (format_.bits - 1)) - 1)
    found: Flags = magnitude > format_.dtype.type(format_.infinity)
    return found
