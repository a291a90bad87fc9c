"""IEEE arithmetic in exact fractions, one value at a time: where expected bits come from.

Why: expectations must not come from the code under test. This shares nothing with ``kernelwright`` and takes no
shortcut: every operation is a ``Fraction``, rounded once by comparing with its two neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

FIELDS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
NAN = {"f16": "0x7fff", "bf16": "0x7fff", "f32": "0x7fffffff", "f64": "0xfff8000000000000"}
"""What an instruction answers where the result is NaN. PTX fixes it for f32; the others observed on an H200, driver
13.0, 2026-11-29. In f64 it is the answer only where no operand was NaN; see :func:`inherited`."""
NAN_ORDER = {"fma": (1, 2, 0), "div": (0, 1)}
"""f64: which operand's NaN is the answer where several are NaN; for all other operations the last one's. Observed on an
H200, driver 13.0, 2026-11-29 (77 rows with two NaNs or three)."""


def width(t: str) -> int:
    return 1 + sum(FIELDS[t])


def sign(t: str, bits: int) -> int:
    return bits >> (width(t) - 1)


def is_nan(t: str, bits: int) -> bool:
    e, f = FIELDS[t]
    return (bits >> f) & ((1 << e) - 1) == (1 << e) - 1 and bits & ((1 << f) - 1) != 0


def is_inf(t: str, bits: int) -> bool:
    e, f = FIELDS[t]
    return (bits >> f) & ((1 << e) - 1) == (1 << e) - 1 and bits & ((1 << f) - 1) == 0


def inf(t: str, negative: bool) -> int:
    e, f = FIELDS[t]
    return (int(negative) << (e + f)) | (((1 << e) - 1) << f)


def value(t: str, bits: int) -> Fraction:
    """The exact value of a finite pattern."""
    e, f = FIELDS[t]
    field, fraction = (bits >> f) & ((1 << e) - 1), bits & ((1 << f) - 1)
    bias = (1 << (e - 1)) - 1
    mantissa, exponent = (fraction | 1 << f, field) if field else (fraction, 1)
    magnitude = Fraction(mantissa) * Fraction(2) ** (exponent - bias - f)
    return -magnitude if sign(t, bits) else magnitude


def quiet(t: str, bits: int) -> int:
    """A NaN with its first fraction bit set: sign and payload stay."""
    return bits | 1 << (FIELDS[t][1] - 1)


def inherited(op: str, values: tuple[int, ...]) -> int:
    """The NaN that an f64 operation answers: an operand's, made quiet, else the one the operation makes."""
    order = NAN_ORDER.get(op, tuple(reversed(range(len(values)))))
    return next((quiet("f64", values[i]) for i in order if is_nan("f64", values[i])), int(NAN["f64"], 16))


def tiny(t: str, exact: Fraction, mode: str) -> bool:
    """Whether ``exact`` is subnormal to the hardware: below the smallest normal once rounded to the format's fraction
    with an exponent that knows no bounds.

    Observed on an H200, driver 13.0, 2026-11-29: ``.ftz`` gives zero for (1 - 2**-24) * 2**-126, which rounding to the
    subnormal grid would bring up to the smallest normal. That the bound is taken after this rounding and not before it
    is told by no row of that day; the ``.tiny`` cases would tell.
    """
    e, _ = FIELDS[t]
    smallest = Fraction(2) ** (2 - (1 << (e - 1)))
    # Scaled up, the same fraction is rounded among normal numbers.
    scale = Fraction(2) ** 4
    return exact != 0 and abs(exact) < smallest and abs(value(t, rounded(t, exact * scale, mode))) < smallest * scale


def rounded(
    t: str,
    exact: Fraction,
    mode: str = "rn",
    *,
    zero_negative: bool = False,
    keep: int | None = None,
    ftz: bool = False,
) -> int:
    """The pattern nearest to ``exact`` in the direction of ``mode``; ``keep`` fraction bits if fewer than stored.

    ``ftz`` makes a zero of what is :func:`tiny`.
    """
    if ftz and tiny(t, exact, mode):
        return int(exact < 0) << (width(t) - 1)
    e, f = FIELDS[t]
    bias = (1 << (e - 1)) - 1
    negative = exact < 0 or (exact == 0 and zero_negative)
    top = int(negative) << (e + f)
    magnitude = abs(exact)
    if magnitude == 0:
        return top
    kept = f if keep is None else keep
    power = math.floor(_log2(magnitude))
    power = max(power, 1 - bias)
    unit = Fraction(2) ** (power - kept)
    below = magnitude // unit
    rest = magnitude - below * unit
    up = {
        "rn": rest > unit / 2 or (rest == unit / 2 and below % 2 == 1),
        "rna": rest >= unit / 2,
        "rz": False,
        "rm": negative and rest != 0,
        "rp": not negative and rest != 0,
    }[mode]
    result = (below + up) * unit
    largest = (2 - Fraction(2) ** -kept) * Fraction(2) ** bias
    if result > largest:
        to_infinity = {"rn": True, "rna": True, "rz": False, "rm": negative, "rp": not negative}[mode]
        if to_infinity:
            return inf(t, negative)
        result = largest
    if result == 0:
        return top
    power = max(math.floor(_log2(result)), 1 - bias)
    mantissa = int(result / Fraction(2) ** (power - f))
    field = power + bias if mantissa >> f else 0
    return top | (field << f) | (mantissa & ((1 << f) - 1))


def _log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


def flushed(t: str, bits: int) -> int:
    e, f = FIELDS[t]
    return bits if (bits >> f) & ((1 << e) - 1) else bits >> (e + f) << (e + f)


def text(t: str, result: int | None) -> str:
    """A result as the case file writes it; None is NaN."""
    return NAN[t] if result is None else f"{result:#x}"


def add(t: str, a: int, b: int, mode: str = "rn", *, ftz: bool = False) -> int | None:
    if is_nan(t, a) or is_nan(t, b):
        return None
    if is_inf(t, a) or is_inf(t, b):
        if is_inf(t, a) and is_inf(t, b) and sign(t, a) != sign(t, b):
            return None
        return a if is_inf(t, a) else b
    both = bool(sign(t, a)) if sign(t, a) == sign(t, b) else mode == "rm"
    return rounded(t, value(t, a) + value(t, b), mode, zero_negative=both, ftz=ftz)


def mul(t: str, a: int, b: int, mode: str = "rn", *, ftz: bool = False) -> int | None:
    return fma_like(t, a, b, None, mode, ftz=ftz)


def fma(t: str, a: int, b: int, c: int, mode: str = "rn", *, ftz: bool = False) -> int | None:
    return fma_like(t, a, b, c, mode, ftz=ftz)


def fma_like(t: str, a: int, b: int, c: int | None, mode: str, *, ftz: bool = False) -> int | None:
    if any(is_nan(t, x) for x in (a, b) + (() if c is None else (c,))):
        return None
    negative = sign(t, a) != sign(t, b)
    if is_inf(t, a) or is_inf(t, b):
        other = b if is_inf(t, a) else a
        if not is_inf(t, other) and value(t, other) == 0:
            return None
        if c is not None and is_inf(t, c) and bool(sign(t, c)) != negative:
            return None
        return inf(t, negative)
    if c is None:
        return rounded(t, value(t, a) * value(t, b), mode, zero_negative=negative, ftz=ftz)
    if is_inf(t, c):
        return c
    zero = negative if negative == bool(sign(t, c)) else mode == "rm"
    return rounded(t, value(t, a) * value(t, b) + value(t, c), mode, zero_negative=zero, ftz=ftz)


def div(t: str, a: int, b: int, mode: str = "rn", *, ftz: bool = False) -> int | None:
    if is_nan(t, a) or is_nan(t, b):
        return None
    negative = sign(t, a) != sign(t, b)
    if is_inf(t, a):
        return None if is_inf(t, b) else inf(t, negative)
    if is_inf(t, b):
        return rounded(t, Fraction(0), zero_negative=negative)
    if value(t, b) == 0:
        return None if value(t, a) == 0 else inf(t, negative)
    return rounded(t, value(t, a) / value(t, b), mode, zero_negative=negative, ftz=ftz)


def sqrt(t: str, a: int, mode: str = "rn", *, ftz: bool = False) -> int | None:
    if is_nan(t, a) or (sign(t, a) and (is_inf(t, a) or value(t, a) != 0)):
        return None
    if is_inf(t, a) or value(t, a) == 0:
        return a
    x = value(t, a)
    # An integer root far below the smallest root; a sticky bit stands for everything below.
    scale = 2600
    whole = x.numerator * 2**scale // x.denominator
    root = math.isqrt(whole)
    exact = Fraction(root, 2 ** (scale // 2))
    if exact * exact != x:
        exact += Fraction(1, 2 ** (scale // 2 + 1))
    return rounded(t, exact, mode, ftz=ftz)


def compare(t: str, relation: str, a: int, b: int) -> bool:
    unordered = is_nan(t, a) or is_nan(t, b)
    if relation in ("num", "nan"):
        return unordered == (relation == "nan")
    if unordered:
        return relation.endswith("u")

    def key(x: int) -> Fraction:
        if is_inf(t, x):
            return Fraction(-1 if sign(t, x) else 1) * 2**2000
        return value(t, x)

    relations: dict[str, Callable[[Fraction, Fraction], bool]] = {
        "eq": lambda p, q: p == q,
        "ne": lambda p, q: p != q,
        "lt": lambda p, q: p < q,
        "le": lambda p, q: p <= q,
        "gt": lambda p, q: p > q,
        "ge": lambda p, q: p >= q,
    }
    return relations[relation[:2]](key(a), key(b))
