"""Double-precision operations in the directed rounding modes, lane by lane in exact integers.

Why: numpy rounds to nearest only. The rule: specials follow the host's IEEE answer, which does not depend on the
rounding mode; finite results are computed as exact fractions and rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from .formats import FORMATS, Bits, Number, encode

_F64 = FORMATS["f64"]


def exact_f64(operation: str, values: list[Bits], mode: str) -> Bits:
    """``add``, ``mul``, ``fma``, ``div`` or ``sqrt`` on patterns of doubles."""
    doubles = [np.ascontiguousarray(value).view(np.float64) for value in values]
    match operation:
        case "add":
            nearest = doubles[0] + doubles[1]
        case "mul":
            nearest = doubles[0] * doubles[1]
        case "fma":
            # Only its specials are used: a product that overflows on its own must not meet an infinite addend.
            finite = np.isfinite(doubles[0]) & np.isfinite(doubles[1])
            nearest = np.where(finite, doubles[2], doubles[0] * doubles[1] + doubles[2])
        case "div":
            nearest = doubles[0] / doubles[1]
        case _:
            nearest = np.sqrt(doubles[0])
    result = nearest.view(np.uint64).copy()
    if mode == "rn" and operation != "fma":
        return result
    for lane in range(len(result)):
        sources = [float(value[lane]) for value in doubles]
        if not all(math.isfinite(source) for source in sources):
            continue
        if (operation == "div" and sources[1] == 0) or (operation == "sqrt" and sources[0] < 0):
            continue
        result[lane] = _rounded(operation, sources, mode)
    return result


def _rounded(operation: str, sources: list[float], mode: str) -> int:
    if operation == "sqrt":
        return _root(sources[0], mode)
    exact = [Fraction(source) for source in sources]
    minus = [math.copysign(1.0, source) < 0 for source in sources]
    match operation:
        case "add":
            value, signs = exact[0] + exact[1], (minus[0], minus[1])
        case "mul":
            value, signs = exact[0] * exact[1], (minus[0] != minus[1],) * 2
        case "fma":
            value, signs = exact[0] * exact[1] + exact[2], (minus[0] != minus[1], minus[2])
        case _:
            value, signs = exact[0] / exact[1], (minus[0] != minus[1],) * 2
    if value == 0:
        negative = signs[0] if signs[0] == signs[1] else mode == "rm"
        return int(negative) << 63
    return _encode(value < 0, abs(value), mode)


def _encode(negative: bool, value: Fraction, mode: str) -> int:
    """A positive fraction to 62 bits with a sticky last bit, then rounded by the format's own routine."""
    shift = 62 - (value.numerator.bit_length() - value.denominator.bit_length())
    scaled = value * Fraction(2) ** shift
    mantissa = scaled.numerator // scaled.denominator
    sticky = mantissa * scaled.denominator != scaled.numerator
    return _one(negative, mantissa | sticky, -shift, mode)


def _root(source: float, mode: str) -> int:
    if source == 0:
        return int(np.float64(source).view(np.uint64))
    value = Fraction(source)
    # Scale by an even power of two so that the integer square root has about 62 bits.
    shift = 124 - (value.numerator.bit_length() - value.denominator.bit_length())
    shift -= shift % 2
    scaled = value * Fraction(2) ** shift
    whole = scaled.numerator // scaled.denominator
    mantissa = math.isqrt(whole)
    sticky = mantissa * mantissa != whole or whole * scaled.denominator != scaled.numerator
    return _one(False, mantissa | sticky, -shift // 2, mode)


def _one(negative: bool, mantissa: int, exponent: int, mode: str) -> int:
    number = Number(
        np.array([negative]),
        np.array([mantissa], np.uint64),
        np.array([exponent], np.int64),
        np.array([False]),
        np.array([False]),
    )
    return int(encode(_F64, number, mode)[0])
