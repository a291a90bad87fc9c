"""Reals of eight bits: e4m3, which has no infinity, and e5m2; by a table of all their values.

Source: PTX ISA 9.0, section 5.2.3 (alternate floating-point formats), and cvt.
"""

from __future__ import annotations

import functools
import math

import numpy as np

EIGHT_BITS = {"e4m3x2": (3, 7), "e5m2x2": (2, 15)}
"""Fraction bits and bias."""
_NAN = 0x7F


@functools.cache
def _values(type_: str) -> tuple[float, ...]:
    """Of the codes of finite numbers without sign, in order."""
    fraction, bias = EIGHT_BITS[type_]
    most = 0x7E if type_ == "e4m3x2" else 0x7B
    made = []
    for code in range(most + 1):
        exponent, rest = code >> fraction, code & (1 << fraction) - 1
        whole = rest + (1 << fraction if exponent else 0)
        made.append(math.ldexp(whole, max(exponent, 1) - bias - fraction))
    return tuple(made)


def to_code(value: float, type_: str, relu: bool) -> int:
    """The nearest number's code, the even one of two; beyond the largest that one."""
    if math.isnan(value):
        return _NAN
    negative = math.copysign(1, value) < 0
    if relu and negative:
        return 0
    values = _values(type_)
    size = abs(value)
    if size >= values[-1]:
        code = len(values) - 1
    else:
        below = int(np.searchsorted(values, size, side="right")) - 1
        up, down = values[below + 1] - size, size - values[below]
        code = below + (up < down or (up == down and below & 1))
    return code | (0x80 if negative else 0)


def from_code(code: int, type_: str, relu: bool) -> int:
    """The same number as an f16's bits."""
    size = code & 0x7F
    infinite = type_ == "e5m2x2" and size == 0x7C
    if not infinite and size >= len(_values(type_)):
        return 0x7FFF
    if relu and code >> 7:
        return 0
    value = math.inf if infinite else _values(type_)[size]
    bits = int(np.array([value], np.float16).view(np.uint16)[0])
    return bits | (code >> 7) << 15
