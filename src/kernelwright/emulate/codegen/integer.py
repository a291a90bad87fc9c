"""Integer arithmetic: add to dp4a, carry chains included.

Source: PTX ISA 9.0, 9.7.1 and 9.7.2. Division by zero gives all ones, as NVIDIA's hardware does.
"""

from __future__ import annotations

from .lane import ELEMENT, Lanes, RefusedInstruction
from .text import BITS, Value, constant

CARRY_NAME = "%cc"


def is_signed(type_: str) -> bool:
    """Whether a type's values have a sign."""
    return type_.startswith("s")


def halves(g: Lanes, value: Value) -> tuple[Value, Value]:
    """The low and the high 16 bits of a 32-bit value."""
    t = g.text
    return t.resize(value, "i16"), t.resize(t.op("lshr", value, constant("i32", 16)), "i16")


def joined(g: Lanes, low: Value, high: Value) -> Value:
    """Two 16-bit values as one of 32 bits."""
    t = g.text
    low, high = t.resize(t.as_type(low, "i16"), "i32"), t.resize(t.as_type(high, "i16"), "i32")
    return t.op("or", low, t.op("shl", high, constant("i32", 16)))


def carry_in(g: Lanes, element: str) -> Value:
    """CC.CF as 0 or 1."""
    from kernelwright.emulate.ptx.operands import CARRY

    return g.text.resize(g.register(CARRY), element)


def set_carry(g: Lanes, value: Value) -> None:
    """Write CC.CF."""
    from kernelwright.emulate.ptx.operands import CARRY

    g.assign(CARRY, value)


def saturate_s32(g: Lanes, wide: Value) -> Value:
    """An i64 clamped to the range of s32."""
    t = g.text
    low, high = constant("i64", -(2**31)), constant("i64", 2**31 - 1)
    wide = t.select(t.compare("icmp slt", wide, low), low, wide)
    wide = t.select(t.compare("icmp sgt", wide, high), high, wide)
    return t.resize(wide, "i32")


def add_sub(g: Lanes) -> None:
    """add, sub, addc, subc."""
    t, name = g.text, g.instruction.op
    a, b = g.sources(g.type, 1, 2)
    operation = "sub" if name.startswith("sub") else "add"
    if g.type in ("u16x2", "s16x2"):
        pairs = zip(halves(g, a), halves(g, b), strict=True)
        g.result(joined(g, *(t.op(operation, x, y) for x, y in pairs)))
        return
    if g.has("sat"):
        wide = t.op(operation, t.resize(a, "i64", signed=True), t.resize(b, "i64", signed=True))
        g.result(saturate_s32(g, wide))
        return
    partial = t.op(operation, a, b)
    result = partial
    carry = carry_in(g, a.element) if name.endswith("c") else None
    if carry is not None:
        result = t.op(operation, partial, carry)
    if g.has("cc"):
        if operation == "sub":
            out = t.compare("icmp ult", a, b)
            if carry is not None:
                out = t.op("or", out, t.compare("icmp ult", partial, carry))
        else:
            out = t.compare("icmp ult", partial, a)
            if carry is not None:
                out = t.op("or", out, t.compare("icmp ult", result, partial))
        set_carry(g, out)
    g.result(result)


def _high64(g: Lanes, a: Value, b: Value, signed: bool) -> Value:
    """The upper 64 bits of a product, from 32-bit pieces: vectors of i128 would be taken apart lane by lane."""
    t = g.text
    low, shift = constant("i64", 0xFFFFFFFF), constant("i64", 32)
    a0, a1 = t.op("and", a, low), t.op("lshr", a, shift)
    b0, b1 = t.op("and", b, low), t.op("lshr", b, shift)
    middle = t.op("add", t.op("mul", a1, b0), t.op("lshr", t.op("mul", a0, b0), shift))
    other = t.op("add", t.op("mul", a0, b1), t.op("and", middle, low))
    high = t.op("add", t.op("mul", a1, b1), t.op("add", t.op("lshr", middle, shift), t.op("lshr", other, shift)))
    if signed:
        zero = constant("i64", 0)
        high = t.op("sub", high, t.select(t.compare("icmp slt", a, zero), b, zero))
        high = t.op("sub", high, t.select(t.compare("icmp slt", b, zero), a, zero))
    return high


def product(g: Lanes, a: Value, b: Value, type_: str, part: str) -> Value:
    """``lo``, ``hi`` or ``wide`` of a product."""
    t = g.text
    if part == "lo":
        return t.op("mul", a, b)
    bits = a.bits
    if part == "hi" and bits == 64:
        return _high64(g, a, b, is_signed(type_))
    double = f"i{2 * bits}"
    whole = t.op("mul", t.resize(a, double, signed=is_signed(type_)), t.resize(b, double, signed=is_signed(type_)))
    if part == "wide":
        return whole
    return t.resize(t.op("lshr", whole, constant(double, bits)), f"i{bits}")


def product24(g: Lanes, a: Value, b: Value, type_: str, part: str) -> Value:
    """mul24: of the 48-bit product the low or the high 32 bits."""
    t, eight = g.text, constant("i32", 8)
    shift = "ashr" if is_signed(type_) else "lshr"
    a, b = (t.op(shift, t.op("shl", x, eight), eight) for x in (a, b))
    whole = t.op("mul", t.resize(a, "i64", signed=is_signed(type_)), t.resize(b, "i64", signed=is_signed(type_)))
    if part == "hi":
        whole = t.op("lshr", whole, constant("i64", 16))
    return t.resize(whole, "i32")


def multiply_integer(g: Lanes) -> None:
    """mul, mul24."""
    a, b = g.sources(g.type, 1, 2)
    make = product24 if g.instruction.op == "mul24" else product
    g.result(make(g, a, b, g.type, g.instruction.mods[0]), signed=is_signed(g.type))


def multiply_add_integer(g: Lanes) -> None:
    """mad, madc, mad24."""
    t, part = g.text, g.instruction.mods[0]
    a, b = g.sources(g.type, 1, 2)
    wide_type = g.type[0] + str(2 * a.bits) if part == "wide" else g.type
    c = g.source(3, wide_type)
    partial = (product24 if g.instruction.op == "mad24" else product)(g, a, b, g.type, part)
    if g.has("sat"):
        g.result(saturate_s32(g, t.op("add", t.resize(partial, "i64", signed=True), t.resize(c, "i64", signed=True))))
        return
    total = t.op("add", partial, c)
    result = total
    carry = carry_in(g, total.element) if g.instruction.op == "madc" else None
    if carry is not None:
        result = t.op("add", total, carry)
    if g.has("cc"):
        out = t.compare("icmp ult", total, partial)
        if carry is not None:
            out = t.op("or", out, t.compare("icmp ult", result, total))
        set_carry(g, out)
    g.result(result)


def sum_of_differences(g: Lanes) -> None:
    """sad: |a - b| + c."""
    t = g.text
    a, b, c = g.sources(g.type, 1, 2, 3)
    larger = t.compare("icmp sgt" if is_signed(g.type) else "icmp ugt", a, b)
    g.result(t.op("add", t.select(larger, t.op("sub", a, b), t.op("sub", b, a)), c))


def divide_integer(g: Lanes) -> None:
    """div, rem. 32 bits and less go through doubles, which hold every quotient exactly and have a vector division."""
    t, signed = g.text, is_signed(g.type)
    a, b = g.sources(g.type, 1, 2)
    element = a.element
    by_zero = t.compare("icmp eq", b, constant(element, 0))
    safe = t.select(by_zero, constant(element, 1), b)
    if a.bits == 64:
        if a.wide:
            g.pass_lanes(0, a)
            g.pass_lanes(1, safe)
            g.run("kw_divide64", int(signed))
            quotient = g.take_lanes(0, "i64")
        else:
            minus = t.compare("icmp eq", safe, constant("i64", -1))
            if signed:
                other = t.op("sdiv", a, t.select(minus, constant("i64", 1), safe))
                quotient = t.select(minus, t.op("sub", constant("i64", 0), a), other)
            else:
                quotient = t.op("udiv", a, safe)
    else:
        to_real, to_integer = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        x, y = t.cast(to_real, a, "double"), t.cast(to_real, safe, "double")
        quotient = t.resize(t.cast(to_integer, t.op("fdiv", x, y), "i64"), element)
    result = quotient
    if g.instruction.op == "rem":
        result = t.op("sub", a, t.op("mul", quotient, safe))
    g.result(t.select(by_zero, constant(element, -1), result), signed=signed)


def minimum_maximum_integer(g: Lanes) -> None:
    """min, max, with .relu, and on packed halves."""
    t = g.text
    a, b = g.sources(g.type, 1, 2)
    less = (
        ("icmp slt" if is_signed(g.type) else "icmp ult")
        if g.instruction.op == "min"
        else ("icmp sgt" if is_signed(g.type) else "icmp ugt")
    )

    def choose(x: Value, y: Value) -> Value:
        result = t.select(t.compare(less, x, y), x, y)
        if g.has("relu"):
            zero = constant(x.element, 0)
            result = t.select(t.compare("icmp slt", result, zero), zero, result)
        return result

    if g.type in ("u16x2", "s16x2"):
        g.result(joined(g, *(choose(x, y) for x, y in zip(halves(g, a), halves(g, b), strict=True))))
    else:
        g.result(choose(a, b), signed=is_signed(g.type))


def negate_integer(g: Lanes) -> None:
    """neg."""
    a = g.source(1, g.type)
    g.result(g.text.op("sub", constant(a.element, 0), a), signed=True)


def absolute_integer(g: Lanes) -> None:
    """abs: the most negative value stays."""
    t = g.text
    a = g.source(1, g.type)
    zero = constant(a.element, 0)
    g.result(t.select(t.compare("icmp slt", a, zero), t.op("sub", zero, a), a), signed=True)


def dot_product(g: Lanes) -> None:
    """dp4a, dp2a."""
    t = g.text
    type_a, type_b = g.instruction.mods[-2], g.instruction.mods[-1]
    a, b, total = g.sources("b32", 1, 2, 3)
    count, width = (4, 8) if g.instruction.op == "dp4a" else (2, 16)
    first = 2 if g.instruction.mods[0] == "hi" else 0

    def piece(value: Value, shift: int, element: str, signed: bool) -> Value:
        moved = t.op("lshr", value, constant("i32", shift)) if shift else value
        return t.resize(t.resize(moved, element), "i32", signed=signed)

    for i in range(count):
        x = piece(a, width * i, f"i{width}", is_signed(type_a))
        y = piece(b, 8 * (i + first), "i8", is_signed(type_b))
        total = t.op("add", total, t.op("mul", x, y))
    g.result(total)


def packed_type(g: Lanes) -> bool:
    """Whether the operands are integers at all; the arithmetic mnemonics are shared with reals."""
    if g.type not in ELEMENT:
        raise RefusedInstruction(g.instruction, f"type .{g.type}")
    return ELEMENT[g.type] in BITS and g.type[0] in "bus"


INTEGER = {
    "add": add_sub, "sub": add_sub, "mul": multiply_integer, "mad": multiply_add_integer, "div": divide_integer,
    "min": minimum_maximum_integer, "max": minimum_maximum_integer, "neg": negate_integer, "abs": absolute_integer,
}  # fmt: skip
"""Integer emitters of the mnemonics that reals have too; arithmetic.py chooses by type."""

ONLY_INTEGER = {
    "addc": add_sub, "subc": add_sub, "mul24": multiply_integer, "madc": multiply_add_integer,
    "mad24": multiply_add_integer, "sad": sum_of_differences, "rem": divide_integer, "dp4a": dot_product,
    "dp2a": dot_product,
}  # fmt: skip
