"""Floating-point arithmetic: IEEE operations to the bit in every rounding mode.

Why: f32, f16 and bf16 results come from exact double arithmetic rounded once, so one routine serves all three; f64
uses the host where the host is IEEE, and exact integers where a direction is asked for.
Source: PTX ISA 9.0, sections 9.7.3 to 9.7.5,
https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions
Rounding to odd: Boldo and Melquiond, When double rounding is odd (2005).
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from kernelwright.emulate.ptx.ir import Instruction

from .errors import UnknownInstruction
from .formats import FORMATS, Bits, Format, flush, from_double, is_nan, to_double
from .lanes import Handler, Lanes
from .rounding import exact_f64
from .values import PACKED, halves, join

_ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")
_F64 = FORMATS["f64"]

_libm_fma = ctypes.CDLL("libm.so.6").fma
_libm_fma.restype = ctypes.c_double
_libm_fma.argtypes = (ctypes.c_double, ctypes.c_double, ctypes.c_double)

Doubles = npt.NDArray[np.float64]


def mode_of(instruction: Instruction, default: str = "rn") -> str:
    """The rounding mode among the modifiers."""
    return next((mod for mod in instruction.mods if mod in _ROUNDINGS), default)


def per_format(lanes: Lanes, instruction: Instruction, sources: int, compute: Compute) -> None:
    """Read ``sources`` operands, apply ``compute`` to each half of packed types, and write the result.

    ``.ftz`` flushes sources and result, ``.sat`` clamps to [0, 1] (NaN to 0), ``.relu`` clamps negatives to 0.
    """
    type_ = next(mod for mod in reversed(instruction.mods) if mod in FORMATS or mod in PACKED)
    values = [lanes.read(1 + index, type_) for index in range(sources)]
    if type_ in PACKED:
        format_ = FORMATS[PACKED[type_]]
        split = [halves(value) for value in values]
        low = _finished(format_, instruction, [pair[0] for pair in split], compute)
        high = _finished(format_, instruction, [pair[1] for pair in split], compute)
        lanes.write(0, join(low, high), type_)
    else:
        lanes.write(0, _finished(FORMATS[type_], instruction, values, compute), type_)


def _finished(format_: Format, instruction: Instruction, values: list[Bits], compute: Compute) -> Bits:
    ftz = "ftz" in instruction.mods
    if ftz:
        values = [flush(format_, value) for value in values]
    result = compute(format_, values, mode_of(instruction), ftz=ftz)
    if ftz:
        result = flush(format_, result)
    return clamp(format_, result, instruction)


def clamp(format_: Format, bits: Bits, instruction: Instruction) -> Bits:
    """``.sat`` and ``.relu``."""
    if "sat" in instruction.mods:
        value = to_double(format_, bits)
        # Comparisons with NaN are false, so NaN becomes +0, as the manual demands.
        value = np.where(value > 0, np.minimum(value, 1.0), 0.0)
        return from_double(format_, value, "rn")
    if "relu" in instruction.mods:
        negative = (bits >> bits.dtype.type(format_.bits - 1)) != 0
        zeroed = np.where(negative, bits.dtype.type(0), bits)
        return np.where(is_nan(format_, bits), bits.dtype.type(format_.nan), zeroed)
    return bits


class Compute:
    """An operation on bit patterns of one format: ``(format, sources, rounding mode) -> bits``.

    ``ftz`` matters only where rounding could bring a result from below the smallest normal up to it.
    """

    def __call__(self, format_: Format, values: list[Bits], mode: str, *, ftz: bool = False) -> Bits:
        raise NotImplementedError


def to_odd(total: Doubles, error: Doubles) -> Doubles:
    """``total + error``, where ``error`` is below half a unit of ``total``, rounded to odd.

    Rounding that to a format at least two bits narrower equals rounding the exact sum.
    """
    bits = total.view(np.int64)
    even = bits & 1 == 0
    outwards = (error > 0) == (total > 0)
    moved = np.where(outwards, bits + 1, bits - 1)
    fix = np.isfinite(total) & (error != 0) & even
    return np.where(fix, moved, bits).view(np.float64)


def exact_sum(a: Doubles, b: Doubles, mode: str) -> Doubles:
    """a + b rounded to odd (Knuth's two-sum), with the zero that ``mode`` asks for."""
    total = a + b
    shadow = total - a
    error = (a - (total - shadow)) + (b - shadow)
    result = to_odd(total, np.where(np.isfinite(total), error, 0.0))
    if mode == "rm":
        cancelled = (result == 0) & (np.signbit(a) != np.signbit(b))
        result = np.where(cancelled, -0.0, result)
    return result


class Add(Compute):
    """add, and sub when ``negate`` is set."""

    def __init__(self, *, negate: bool = False) -> None:
        self._negate = negate

    def __call__(self, format_: Format, values: list[Bits], mode: str, *, ftz: bool = False) -> Bits:
        a, b = values
        if self._negate:
            b = b ^ b.dtype.type(1 << (format_.bits - 1))
        if format_ is _F64:
            return _double_nan(exact_f64("add", [a, b], mode), values)
        return from_double(format_, exact_sum(to_double(format_, a), to_double(format_, b), mode), mode, ftz=ftz)


class Multiply(Compute):
    """mul."""

    def __call__(self, format_: Format, values: list[Bits], mode: str, *, ftz: bool = False) -> Bits:
        a, b = values
        if format_ is _F64:
            return _double_nan(exact_f64("mul", values, mode), values)
        # Two 24-bit mantissas: the double product is exact.
        return from_double(format_, to_double(format_, a) * to_double(format_, b), mode, ftz=ftz)


class MultiplyAdd(Compute):
    """fma, and mad on floats."""

    def __call__(self, format_: Format, values: list[Bits], mode: str, *, ftz: bool = False) -> Bits:
        a, b, c = values
        if format_ is _F64:
            if mode == "rn":
                x, y, z = (value.view(np.float64).tolist() for value in values)
                fused = [_libm_fma(p, q, r) for p, q, r in zip(x, y, z, strict=True)]
                return _double_nan(np.array(fused, np.float64).view(np.uint64), [a, c, b])
            return _double_nan(exact_f64("fma", values, mode), [a, c, b])
        product = to_double(format_, a) * to_double(format_, b)
        return from_double(format_, exact_sum(product, to_double(format_, c), mode), mode, ftz=ftz)


class Divide(Compute):
    """div.rn and rcp.rn: a quotient of 24-bit numbers never comes so near a rounding boundary that 53 bits mislead."""

    def __call__(self, format_: Format, values: list[Bits], mode: str, *, ftz: bool = False) -> Bits:
        if format_ is _F64:
            return _double_nan(exact_f64("div", values, mode), values[::-1])
        a, b = (to_double(format_, value) for value in values)
        return from_double(format_, a / b, mode, ftz=ftz)


class SquareRoot(Compute):
    """sqrt.rn and its directed relatives."""

    def __call__(self, format_: Format, values: list[Bits], mode: str, *, ftz: bool = False) -> Bits:
        if format_ is _F64:
            return _double_nan(exact_f64("sqrt", values, mode), values)
        return from_double(format_, np.sqrt(to_double(format_, values[0])), mode, ftz=ftz)


def _double_nan(result: Bits, values: list[Bits]) -> Bits:
    """f64 keeps payloads: the last NaN among ``values``, made quiet; a NaN made here is the default one.

    The order of ``values`` for each operation is what an H200 does, driver 13.0, 2026-11-29.
    """
    made = is_nan(_F64, result)
    chosen = np.where(made, np.uint64(_F64.nan), result)
    for value in values:
        chosen = np.where(made & is_nan(_F64, value), value | np.uint64(1 << 51), chosen)
    return chosen


class Extreme(Compute):
    """min and max: -0 is below +0; one NaN loses unless ``.NaN`` is given; ``.xorsign.abs`` compares magnitudes."""

    def __init__(self, instruction: Instruction) -> None:
        self._smallest = instruction.op == "min"
        self._nan_wins = "NaN" in instruction.mods
        self._magnitudes = "abs" in instruction.mods

    def __call__(self, format_: Format, values: list[Bits], mode: str, *, ftz: bool = False) -> Bits:
        a, b = values
        top = a.dtype.type(1 << (format_.bits - 1))
        sign = (a ^ b) & top
        nan_a, nan_b = is_nan(format_, a), is_nan(format_, b)
        if self._magnitudes:
            a, b = a & ~top, b & ~top
        key_a, key_b = _order_key(format_, a), _order_key(format_, b)
        result = np.where((key_a < key_b) == self._smallest, a, b)
        result = np.where(nan_a, b, np.where(nan_b, a, result))
        if self._magnitudes:
            result = result | sign
        canonical = (nan_a | nan_b) if self._nan_wins else (nan_a & nan_b)
        if format_ is _F64:
            return _double_nan(np.where(canonical, np.uint64(_F64.nan), result), values)
        return np.where(canonical, a.dtype.type(format_.nan), result)


def _order_key(format_: Format, bits: Bits) -> npt.NDArray[np.int64]:
    """Integers in the order of the values, -0 just below +0."""
    magnitude = (bits & bits.dtype.type((1 << (format_.bits - 1)) - 1)).astype(np.int64)
    negative = (bits >> bits.dtype.type(format_.bits - 1)) != 0
    key: npt.NDArray[np.int64] = np.where(negative, -magnitude - 1, magnitude)
    return key


class Sign(Compute):
    """neg and abs: the sign bit alone, NaNs included; but neg makes a half's NaN canonical (H200, driver 13.0)."""

    def __init__(self, instruction: Instruction) -> None:
        self._absolute = instruction.op == "abs"

    def __call__(self, format_: Format, values: list[Bits], mode: str, *, ftz: bool = False) -> Bits:
        top = values[0].dtype.type(1 << (format_.bits - 1))
        result: Bits = values[0] & ~top if self._absolute else values[0] ^ top
        if format_.name == "f16" and not self._absolute:
            result = np.where(is_nan(format_, values[0]), format_.dtype.type(format_.nan), result)
        return result


def arithmetic(lanes: Lanes, instruction: Instruction) -> None:
    """add, sub, mul, fma, mad."""
    compute, sources = _ARITHMETIC[instruction.op]
    per_format(lanes, instruction, sources, compute)


def extreme(lanes: Lanes, instruction: Instruction) -> None:
    """min, max."""
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "three-input minimum and maximum are not supported")
    per_format(lanes, instruction, 2, Extreme(instruction))


def sign(lanes: Lanes, instruction: Instruction) -> None:
    """neg, abs."""
    per_format(lanes, instruction, 1, Sign(instruction))


def copy_sign(lanes: Lanes, instruction: Instruction) -> None:
    """copysign: the sign of a on the magnitude of b."""
    type_ = instruction.mods[-1]
    top = 1 << (FORMATS[type_].bits - 1)
    a, b = lanes.read(1, type_), lanes.read(2, type_)
    mask = a.dtype.type(top)
    lanes.write(0, (a & mask) | (b & ~mask), type_)


def test_property(lanes: Lanes, instruction: Instruction) -> None:
    """testp."""
    what, type_ = instruction.mods
    format_ = FORMATS[type_]
    bits = lanes.read(1, type_)
    magnitude = (bits & bits.dtype.type((1 << (format_.bits - 1)) - 1)).astype(np.uint64)
    infinity = np.uint64(format_.infinity)
    smallest_normal = np.uint64(1 << format_.fraction)
    tests = {
        "finite": magnitude < infinity,
        "infinite": magnitude == infinity,
        "number": magnitude <= infinity,
        "notanumber": magnitude > infinity,
        "normal": (magnitude == 0) | ((magnitude >= smallest_normal) & (magnitude < infinity)),
        "subnormal": (magnitude > 0) & (magnitude < smallest_normal),
    }
    if what not in tests:
        raise UnknownInstruction(instruction)
    lanes.write(0, tests[what], "pred")


_ARITHMETIC: dict[str, tuple[Compute, int]] = {
    "add": (Add(), 2),
    "sub": (Add(negate=True), 2),
    "mul": (Multiply(), 2),
    "fma": (MultiplyAdd(), 3),
    "mad": (MultiplyAdd(), 3),
}

SHARED_HANDLERS: dict[str, Handler] = {
    "add": arithmetic, "sub": arithmetic, "mul": arithmetic, "fma": arithmetic, "mad": arithmetic,
    "min": extreme, "max": extreme, "neg": sign, "abs": sign,
}  # fmt: skip
"""Mnemonics that also exist for integers."""

HANDLERS: dict[str, Handler] = {"fma": arithmetic, "copysign": copy_sign, "testp": test_property}
