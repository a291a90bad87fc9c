"""Arithmetic on f16, bf16 and their packed pairs: computed in a wider format and rounded once.

Source: PTX ISA 9.0, 9.7.4. Sum and product of two 11-bit or 8-bit numbers, rounded first to 24 bits and then again,
equal the correctly rounded ones (24 >= 2 * 11 + 2); a fused multiply-add needs the round-to-odd step of
native/runtime_math.c.
"""

from __future__ import annotations

from collections.abc import Callable

from .integer import halves, joined
from .lane import Lanes, RefusedInstruction
from .real import extreme, flushed_where, is_nan, real, saturated
from .text import Value, constant

HALVES = ("f16", "bf16", "f16x2", "bf16x2")


def widened(g: Lanes, value: Value, type_: str) -> Value:
    """An f16 or bf16 (as i16 bits or half) as float."""
    t = g.text
    if type_ == "f16":
        return t.cast("fpext", t.as_type(value, "half"), "float")
    return t.as_type(t.op("shl", t.resize(value, "i32"), constant("i32", 16)), "float")


def narrowed(g: Lanes, value: Value, type_: str) -> Value:
    """A float rounded to nearest f16 or bf16, as i16 bits."""
    t = g.text
    if type_ == "f16":
        return t.as_type(t.cast("fptrunc", value, "half"), "i16")
    bits = t.as_type(value, "i32")
    upper = t.op("lshr", bits, constant("i32", 16))
    odd = t.op("and", upper, constant("i32", 1))
    rounded = t.op("lshr", t.op("add", t.op("add", bits, constant("i32", 0x7FFF)), odd), constant("i32", 16))
    quiet = t.op("or", upper, constant("i32", 0x40))
    return t.resize(t.select(is_nan(g, value), quiet, rounded), "i16")


def flushed_half(g: Lanes, bits: Value, type_: str) -> Value:
    """Subnormals become zeros of their sign."""
    t = g.text
    exponent = constant("i16", 0x7C00 if type_ == "f16" else 0x7F80)
    tiny = t.compare("icmp eq", t.op("and", bits, exponent), constant("i16", 0))
    return t.select(tiny, t.op("and", bits, constant("i16", 0x8000)), bits)


_SMALLEST = 2.0**-14 * (1 - 2.0**-12)
"""The least magnitude that rounds to the smallest normal f16 when the exponent knows no bounds: a tie goes up."""


def each_half(g: Lanes, compute: Callable[..., Value], *positions: int) -> None:
    """Apply ``compute`` to i16 bits of the operands, once or for both halves of a pair, and write the result."""
    t, type_ = g.text, g.type
    scalar = type_.removesuffix("x2")
    values = g.sources("b32" if type_.endswith("x2") else "b16", *positions)

    def one(*bits: Value) -> Value:
        if g.has("ftz"):
            bits = tuple(flushed_half(g, b, scalar) for b in bits)
        result = t.as_type(compute(scalar, *bits), "i16")
        return flushed_half(g, result, scalar) if g.has("ftz") else result

    if type_.endswith("x2"):
        low, high = zip(*(halves(g, value) for value in values), strict=True)
        g.result(joined(g, one(*low), one(*high)))
    else:
        g.result(one(*values))


def _clamped(g: Lanes, value: Value) -> Value:
    if g.has("sat"):
        return saturated(g, value)
    if g.has("relu"):
        zero = real("float", 0.0)
        return g.text.select(g.text.compare("fcmp ole", value, zero), zero, value)
    return value


def two_operands(g: Lanes) -> None:
    """add, sub, mul."""
    t, name = g.text, "f" + g.instruction.op

    def compute(type_: str, a: Value, b: Value) -> Value:
        value = t.op(name, widened(g, a, type_), widened(g, b, type_))
        if type_ == "f16" and g.has("ftz") and name == "fmul":
            # The product is exact here. Subnormal sums are exact in the end, and are flushed there.
            tiny = t.compare("fcmp olt", t.intrinsic("fabs", value), real("float", _SMALLEST))
            value = flushed_where(g, value, tiny)
        return narrowed(g, _clamped(g, value), type_)

    each_half(g, compute, 1, 2)


def fused(g: Lanes) -> None:
    """fma: one rounding."""

    def compute(type_: str, a: Value, b: Value, c: Value) -> Value:
        for row, value in enumerate((a, b, c)):
            g.pass_lanes(row, value)
        if type_ == "f16":
            g.run("kw_fma_f16", int(g.has("ftz")))
        else:
            g.run("kw_fma_bf16")
        result = g.take_lanes(0, "i16")
        if g.has("sat") or g.has("relu"):
            result = narrowed(g, _clamped(g, widened(g, result, type_)), type_)
        return result

    each_half(g, compute, 1, 2, 3)


def minimum_maximum(g: Lanes) -> None:
    """min, max."""
    t = g.text

    def compute(type_: str, a: Value, b: Value) -> Value:
        x, y = widened(g, a, type_), widened(g, b, type_)
        sign = t.op("and", t.op("xor", a, b), constant("i16", 0x8000))
        if g.has("abs"):
            x, y = t.intrinsic("fabs", x), t.intrinsic("fabs", y)
        result = narrowed(g, extreme(g, x, y, least=g.instruction.op == "min"), type_)
        if g.has("NaN"):
            either = t.op("or", is_nan(g, x), is_nan(g, y))
            result = t.select(either, constant("i16", 0x7FFF), result)
        else:
            both = t.op("and", is_nan(g, x), is_nan(g, y))
            result = t.select(both, constant("i16", 0x7FFF), result)
        if g.has("xorsign"):
            result = t.op("or", t.op("and", result, constant("i16", 0x7FFF)), sign)
        return result

    each_half(g, compute, 1, 2)


def negate(g: Lanes) -> None:
    """neg."""
    each_half(g, lambda _, a: g.text.op("xor", a, constant("i16", 0x8000)), 1)


def absolute(g: Lanes) -> None:
    """abs."""
    each_half(g, lambda _, a: g.text.op("and", a, constant("i16", 0x7FFF)), 1)


def function(g: Lanes) -> None:
    """ex2, tanh: the f32 function of the runtime, rounded."""
    name = "kw_ex2" if g.instruction.op == "ex2" else "kw_tanh"

    def compute(type_: str, a: Value) -> Value:
        g.pass_lanes(0, widened(g, a, type_))
        g.run(name)
        return narrowed(g, g.take_lanes(0, "float"), type_)

    each_half(g, compute, 1)


HALF = {
    "add": two_operands, "sub": two_operands, "mul": two_operands, "fma": fused, "min": minimum_maximum,
    "max": minimum_maximum, "neg": negate, "abs": absolute, "ex2": function, "tanh": function,
}  # fmt: skip


def refuse(g: Lanes) -> None:
    """A mnemonic that this type does not have here."""
    raise RefusedInstruction(g.instruction, f"on .{g.type}")
