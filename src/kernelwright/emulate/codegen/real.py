"""Arithmetic on f32 and f64: IEEE, each operation rounded once, nothing contracted.

Source: PTX ISA 9.0, 9.7.3. ``.ftz`` flushes subnormal f32 inputs and results to a zero of the same sign, and results
count as subnormal when they are so after rounding with an unbounded exponent (H200, driver 13.0, 2026-11-29). What PTX
calls approximate is computed as native/runtime_math.c says, and noted so that a launch can report it.
"""

from __future__ import annotations

from collections.abc import Callable

from .lane import ELEMENT, Lanes, RefusedInstruction
from .text import Value, constant

MODES = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}
"""Rounding modifiers, numbered as kw_rounded takes them."""
FLUSH = 4
"""Added to the mode: kw_rounded flushes its f32 results."""
OPERATIONS = {"add": 0, "sub": 1, "mul": 2, "fma": 3, "div": 4, "sqrt": 5, "rcp": 6}
"""Operations that exist with directed rounding, numbered as kw_rounded takes them."""


def flushed(g: Lanes, value: Value) -> Value:
    """Subnormals become zeros of their sign (f32 only)."""
    if value.element != "float":
        return value
    if value.text in g.flushed:
        return g.flushed[value.text]
    t = g.text
    bits = t.as_type(value, "i32")
    return flushed_where(
        g, value, t.compare("icmp eq", t.op("and", bits, constant("i32", 0x7F800000)), constant("i32", 0))
    )


def flushed_where(g: Lanes, value: Value, tiny: Value) -> Value:
    """A zero of the value's sign in the lanes where ``tiny`` holds (f32)."""
    t = g.text
    bits = t.as_type(value, "i32")
    result = t.as_type(t.select(tiny, t.op("and", bits, constant("i32", 0x80000000)), bits), "float")
    g.flushed[value.text] = g.flushed[result.text] = result
    return result


_SCALE = 4.0
"""A power of two that lifts every result worth asking about from below the smallest normal to above it."""


def flushed_result(g: Lanes, value: Value, again: Callable[[Callable[[Value], Value]], Value]) -> Value:
    """A product, fused product or quotient, flushed. ``again`` computes it once more with the operands that it passes
    through the function it is given, by which the result grows and is rounded among normal numbers.

    Where scaling overflows, the result is far from subnormal: 2**126 times a normal number is 1 or more, by one 1/4.
    """
    t = g.text
    scaled = t.intrinsic("fabs", again(lambda x: t.op("fmul", x, real("float", _SCALE))))
    return flushed_where(g, value, t.compare("fcmp olt", scaled, real("float", _SCALE * 2.0**-126)))


def real(element: str, value: float) -> Value:
    """A float or double constant."""
    import struct

    code, width = ("<f", "<I") if element == "float" else ("<d", "<Q")
    return constant(element, struct.unpack(width, struct.pack(code, value))[0])


def inputs(g: Lanes, *positions: int) -> tuple[Value, ...]:
    """Real operands, flushed where the instruction says so."""
    values = g.sources(g.type, *positions)
    return tuple(flushed(g, value) for value in values) if g.has("ftz") else values


def finish(g: Lanes, value: Value) -> None:
    """Flush, saturate, write."""
    t = g.text
    if g.has("ftz") and g.instruction.op not in ("mul", "fma", "mad", "div"):
        value = flushed(g, value)
    if g.has("sat"):
        value = saturated(g, value)
    g.result(t.as_type(value, value.element))


def saturated(g: Lanes, value: Value) -> Value:
    """Clamped to [0, 1]; NaN becomes 0."""
    t = g.text
    zero, one = real(value.element, 0.0), real(value.element, 1.0)
    value = t.select(t.compare("fcmp ogt", value, zero), value, zero)
    return t.select(t.compare("fcmp olt", value, one), value, one)


def rounding(g: Lanes) -> int:
    """The number of the rounding modifier; nearest where there is none."""
    return next((MODES[m] for m in g.instruction.mods if m in MODES), 0)


def directed(g: Lanes, operation: str, *values: Value) -> Value:
    """An operation rounded toward zero, down or up: done by the runtime, lane by lane."""
    for row, value in enumerate(values):
        g.pass_lanes(row, value)
    flush = FLUSH if g.has("ftz") else 0
    g.run("kw_rounded", OPERATIONS[operation], int(values[0].element == "double"), rounding(g) | flush)
    return g.take_lanes(0, values[0].element)


def by_runtime(g: Lanes, name: str, value: Value) -> Value:
    """A function of the runtime over 32 lanes."""
    g.pass_lanes(0, value)
    g.run(name)
    return g.take_lanes(0, value.element)


def two_operands(g: Lanes) -> None:
    """add, sub, mul."""
    a, b = inputs(g, 1, 2)
    name = g.instruction.op
    if rounding(g):
        finish(g, directed(g, name, a, b))
        return
    value = g.text.op("f" + name, a, b)
    # Sums of normal numbers are exact wherever they are subnormal.
    if name == "mul" and g.has("ftz"):
        value = flushed_result(g, value, lambda scale: g.text.op("fmul", scale(a), b))
    finish(g, value)


def fused(g: Lanes) -> None:
    """fma, mad: one rounding."""
    a, b, c = inputs(g, 1, 2, 3)
    if rounding(g):
        finish(g, directed(g, "fma", a, b, c))
        return
    value = g.text.intrinsic("fma", a, b, c)
    if g.has("ftz"):
        value = flushed_result(g, value, lambda scale: g.text.intrinsic("fma", scale(a), b, scale(c)))
    if g.has("relu"):
        zero = real(value.element, 0.0)
        value = g.text.select(g.text.compare("fcmp ole", value, zero), zero, value)
    finish(g, value)


def divide(g: Lanes) -> None:
    """div: .approx and .full are done exactly too."""
    a, b = inputs(g, 1, 2)
    if rounding(g):
        finish(g, directed(g, "div", a, b))
        return
    value = g.text.op("fdiv", a, b)
    if g.has("ftz"):
        value = flushed_result(g, value, lambda scale: g.text.op("fdiv", scale(a), b))
    finish(g, value)


def square_root(g: Lanes) -> None:
    """sqrt."""
    (a,) = inputs(g, 1)
    finish(g, directed(g, "sqrt", a) if rounding(g) else g.text.intrinsic("sqrt", a))


def reciprocal(g: Lanes) -> None:
    """rcp."""
    (a,) = inputs(g, 1)
    finish(g, directed(g, "rcp", a) if rounding(g) else g.text.op("fdiv", real(a.element, 1.0), a))


def reciprocal_root(g: Lanes) -> None:
    """rsqrt."""
    (a,) = inputs(g, 1)
    finish(g, by_runtime(g, "kw_rsqrt64" if a.element == "double" else "kw_rsqrt", a))


_FUNCTIONS = {"ex2": "kw_ex2", "lg2": "kw_lg2", "sin": "kw_sin", "cos": "kw_cos", "tanh": "kw_tanh"}


def function(g: Lanes) -> None:
    """ex2, lg2, sin, cos, tanh."""
    (a,) = inputs(g, 1)
    finish(g, by_runtime(g, _FUNCTIONS[g.instruction.op], a))


def is_nan(g: Lanes, a: Value) -> Value:
    """a is not a number."""
    return g.text.compare("fcmp uno", a, a)


def extreme(g: Lanes, a: Value, b: Value, *, least: bool) -> Value:
    """The smaller or larger; a number beats a NaN, -0 is below +0."""
    t = g.text
    integer = f"i{a.bits}"
    zeros = t.as_type(t.op("or" if least else "and", t.as_type(a, integer), t.as_type(b, integer)), a.element)
    value = t.select(t.compare("fcmp olt" if least else "fcmp ogt", a, b), a, b)
    value = t.select(t.compare("fcmp oeq", a, b), zeros, value)
    return t.select(is_nan(g, b), a, value)


NAN = {"float": 0x7FFFFFFF, "double": 0x7FFFFFFFFFFFFFFF}
"""The NaN that ``.NaN`` variants return."""


def minimum_maximum(g: Lanes) -> None:
    """min, max, with .NaN and .xorsign.abs, of two or three operands."""
    t = g.text
    values = inputs(g, *range(1, len(g.instruction.operands)))
    sign: Value | None = None
    if g.has("xorsign"):
        integer = f"i{values[0].bits}"
        sign = t.op("xor", t.as_type(values[0], integer), t.as_type(values[1], integer))
    if g.has("abs"):
        values = tuple(t.intrinsic("fabs", value) for value in values)
    result = values[0]
    for value in values[1:]:
        either = t.op("or", is_nan(g, result), is_nan(g, value))
        result = extreme(g, result, value, least=g.instruction.op == "min")
        if g.has("NaN"):
            result = t.select(either, constant(result.element, NAN[result.element]), result)
    if sign is not None:
        result = t.intrinsic("copysign", result, t.as_type(sign, result.element))
    finish(g, result)


def negate(g: Lanes) -> None:
    """neg."""
    (a,) = inputs(g, 1)
    finish(g, g.text.negate_float(a))


def absolute(g: Lanes) -> None:
    """abs."""
    (a,) = inputs(g, 1)
    finish(g, g.text.intrinsic("fabs", a))


def copy_sign(g: Lanes) -> None:
    """copysign: the sign of a on the value of b."""
    a, b = g.sources(g.type, 1, 2)
    g.result(g.text.intrinsic("copysign", b, a))


def test_property(g: Lanes) -> None:
    """testp."""
    t = g.text
    type_, what = g.type, g.instruction.mods[0]
    a = t.as_type(g.source(1, type_), f"i{32 if type_ == 'f32' else 64}")
    fraction = 23 if type_ == "f32" else 52
    width = a.bits
    infinity = constant(a.element, (1 << width - 1) - (1 << fraction))
    size = t.op("and", a, constant(a.element, (1 << width - 1) - 1))
    smallest = constant(a.element, 1 << fraction)
    zero = constant(a.element, 0)
    tests = {
        "finite": lambda: t.compare("icmp ult", size, infinity),
        "infinite": lambda: t.compare("icmp eq", size, infinity),
        "number": lambda: t.compare("icmp ule", size, infinity),
        "notanumber": lambda: t.compare("icmp ugt", size, infinity),
        # Zeros count as normal.
        "normal": lambda: t.op(
            "or",
            t.compare("icmp eq", size, zero),
            t.op("and", t.compare("icmp ult", size, infinity), t.compare("icmp uge", size, smallest)),
        ),
        "subnormal": lambda: t.op("and", t.compare("icmp ne", size, zero), t.compare("icmp ult", size, smallest)),
    }
    if what not in tests:
        raise RefusedInstruction(g.instruction)
    g.result(tests[what]())


REAL = {
    "add": two_operands, "sub": two_operands, "mul": two_operands, "fma": fused, "mad": fused, "div": divide,
    "min": minimum_maximum, "max": minimum_maximum, "neg": negate, "abs": absolute,
}  # fmt: skip
"""Emitters of the mnemonics that integers or halves have too; arithmetic.py chooses by type."""

ONLY_REAL = {
    "sqrt": square_root, "rcp": reciprocal, "rsqrt": reciprocal_root, "sin": function, "cos": function,
    "lg2": function, "copysign": copy_sign, "testp": test_property,
}  # fmt: skip

APPROXIMATE = frozenset({"sin", "cos", "lg2", "ex2", "tanh", "rsqrt"})
"""Mnemonics whose results need not equal a GPU's last bit. With ``.approx`` or ``.full`` also div, rcp and sqrt."""


def is_real(type_: str) -> bool:
    """f32 or f64."""
    return ELEMENT.get(type_) in ("float", "double")
