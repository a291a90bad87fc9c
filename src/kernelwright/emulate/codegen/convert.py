"""cvt: between integers, reals and halves, with every rounding, saturation and flush.

Source: PTX ISA 9.0, 9.7.9.21. A NaN becomes 0, or the most negative pattern where a 64-bit type takes part. Between
reals it keeps its payload, of which an H200 leaves at most the sign: by it judge/poison.py knows what nobody wrote.
"""

from __future__ import annotations

from .half import narrowed, widened
from .integer import halves, is_signed, joined
from .lane import ELEMENT, Lanes, RefusedInstruction, emits
from .real import MODES, flushed, real, saturated
from .text import Value, constant

_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_KINDS = ("f16", "bf16", "f32", "f64")
_WIDENING = {"s32": 8, "u32": 9, "s64": 10, "u64": 11}
"""Integers to f32 with directed rounding, as kw_rounded numbers them; f64 is 2 further for 64-bit sources."""


def _mode(g: Lanes) -> str:
    return next((m for m in g.instruction.mods if m in MODES or m in _TO_INTEGER or m == "rna"), "")


@emits("cvt")
def _convert(g: Lanes) -> None:
    mods = g.instruction.mods
    if mods[0] == "pack":
        _pack(g)
        return
    target, source = mods[-2], mods[-1]
    if target in ("f16x2", "bf16x2") and source == "f32" and len(g.instruction.operands) == 3:
        scalar = target.removesuffix("x2")
        # The first source is the upper half.
        high, low = (_narrow(g, _prepared(g, position, "f32"), scalar) for position in (1, 2))
        g.result(joined(g, low, high))
        return
    if target == "tf32" and source == "f32":
        g.result(_tf32(g))
        return
    if target in _EIGHT_BITS and source in ("f32", "f16x2"):
        _to_eight_bits(g, target, source)
        return
    if source in _EIGHT_BITS and target == "f16x2":
        _from_eight_bits(g, source)
        return
    if target not in ELEMENT or source not in ELEMENT or target.startswith("e") or source.startswith("e"):
        raise RefusedInstruction(g.instruction)
    if source in _KINDS and target in _KINDS:
        _real_to_real(g, target, source)
    elif source in _KINDS:
        _real_to_integer(g, target, source)
    elif target in _KINDS:
        _integer_to_real(g, target, source)
    else:
        _integer_to_integer(g, target, source)


def _prepared(g: Lanes, position: int, type_: str) -> Value:
    """A real source: f16 and bf16 widened to float, f32 flushed under .ftz."""
    value = g.source(position, type_)
    if type_ in ("f16", "bf16"):
        return widened(g, value, type_)
    return flushed(g, value) if g.has("ftz") else value


def _narrow(g: Lanes, value: Value, target: str) -> Value:
    """A float to f16 or bf16 bits, with the instruction's rounding, saturation and relu."""
    t = g.text
    if g.has("sat"):
        value = saturated(g, value)
    if g.has("relu"):
        zero = real("float", 0.0)
        value = t.select(t.compare("fcmp ole", value, zero), zero, value)
    if g.has("satfinite"):
        least, most = real("float", -_LARGEST[target]), real("float", _LARGEST[target])
        value = t.select(t.compare("fcmp olt", value, least), least, value)
        value = t.select(t.compare("fcmp ogt", value, most), most, value)
    mode = MODES.get(_mode(g), 0)
    if not mode:
        return narrowed(g, value, target)
    return _rounded(g, value, target, 0, mode)


def _rounded(g: Lanes, value: Value, target: str, source: int, mode: int) -> Value:
    """Rounded to f16 or bf16 by the runtime; ``source``: 0 float, 1 double, 2 s64, 3 u64."""
    g.pass_lanes(0, value)
    g.run(f"kw_to_{target}", source, mode)
    return g.take_lanes(1, "i16")


_LARGEST = {"f16": 65504.0, "bf16": float.fromhex("0x1.fep+127")}
_EIGHT_BITS = {"e4m3x2": 0, "e5m2x2": 1}
"""Pairs of eight-bit reals as kw_to_fp8 numbers them."""


def _to_eight_bits(g: Lanes, target: str, source: str) -> None:
    """Two reals to a pair of bytes, the first one to the upper byte."""
    t = g.text
    if source == "f32":
        pair = [g.source(1, "f32"), g.source(2, "f32")]
    else:
        low, high = halves(g, g.source(1, "b32"))
        pair = [widened(g, high, "f16"), widened(g, low, "f16")]
    made = []
    for value in pair:
        if g.has("relu"):
            zero = real("float", 0.0)
            value = t.select(t.compare("fcmp ole", value, zero), zero, value)
        g.pass_lanes(0, value)
        g.run("kw_to_fp8", _EIGHT_BITS[target])
        made.append(t.resize(g.take_lanes(1, "i8"), "i16"))
    g.result(t.op("or", made[1], t.op("shl", made[0], constant("i16", 8))))


def _from_eight_bits(g: Lanes, source: str) -> None:
    t = g.text
    pair = g.source(1, "b16")
    made = []
    for part in (pair, t.op("lshr", pair, constant("i16", 8))):
        g.pass_lanes(0, t.resize(part, "i8"))
        g.run("kw_fp8_to_f16", _EIGHT_BITS[source])
        value = g.take_lanes(1, "i16")
        if g.has("relu"):
            nan = t.compare("icmp eq", value, constant("i16", 0x7FFF))
            negative = t.compare("icmp slt", value, constant("i16", 0))
            value = t.select(nan, value, t.select(negative, constant("i16", 0), value))
        made.append(value)
    g.result(joined(g, *made))


def _real_to_real(g: Lanes, target: str, source: str) -> None:
    t, mode = g.text, _mode(g)
    value = _prepared(g, 1, source)
    if mode in _TO_INTEGER:
        value = t.intrinsic(_TO_INTEGER[mode], value)
    if target == "f64":
        if value.element != "double":
            value = t.cast("fpext", value, "double")
        g.result(saturated(g, value) if g.has("sat") else value)
        return
    if source == "f64" and target != "f32":
        if g.has("sat"):
            value = saturated(g, value)
        g.result(_rounded(g, value, target, 1, MODES.get(mode, 0)))
        return
    if source == "f64":
        if MODES.get(mode, 0):
            g.pass_lanes(0, value)
            g.run("kw_rounded", 7, 0, MODES[mode])
            value = g.take_lanes(0, "float")
        else:
            value = t.cast("fptrunc", value, "float")
    if target != "f32":
        g.result(_narrow(g, value, target))
        return
    if g.has("ftz"):
        value = flushed(g, value)
    if g.has("sat"):
        value = saturated(g, value)
    if g.has("relu"):
        zero = real("float", 0.0)
        value = t.select(t.compare("fcmp ole", value, zero), zero, value)
    g.result(value)


def _real_to_integer(g: Lanes, target: str, source: str) -> None:
    t, mode = g.text, _mode(g)
    value = _prepared(g, 1, source)
    rounded = t.intrinsic(_TO_INTEGER.get(mode, "trunc"), value)
    element = ELEMENT[target]
    result = t.intrinsic("fptosi.sat" if is_signed(target) else "fptoui.sat", rounded, result=element)
    if source == "f64" or element == "i64":
        most_negative = constant(element, 1 << (int(element[1:]) - 1))
        result = t.select(t.compare("fcmp uno", value, value), most_negative, result)
    g.result(result, signed=is_signed(target))


def _integer_to_real(g: Lanes, target: str, source: str) -> None:
    t, mode = g.text, MODES.get(_mode(g), 0)
    value = g.source(1, source)
    signed = is_signed(source)
    cast = "sitofp" if signed else "uitofp"
    if target in ("f16", "bf16"):
        made = _rounded(g, t.resize(value, "i64", signed=signed), target, 2 if signed else 3, mode)
        if g.has("sat"):
            made = narrowed(g, saturated(g, widened(g, made, target)), target)
        g.result(made)
        return
    if mode and not (target == "f64" and value.bits < 64):
        if value.bits < 32:
            value = t.resize(value, "i32", signed=signed)
        number = _WIDENING[("s" if signed else "u") + str(value.bits)] + (2 if target == "f64" else 0)
        g.pass_lanes(0, value)
        g.run("kw_rounded", number, int(target == "f64"), mode)
        result = g.take_lanes(0, ELEMENT[target])
    else:
        result = t.cast(cast, value, ELEMENT[target])
    g.result(saturated(g, result) if g.has("sat") else result)


def clamp_integer(g: Lanes, value: Value, source: str, target: str) -> Value:
    """An integer of type ``source`` clamped to the range of ``target``, still in its own width or wider."""
    t = g.text
    width = int(ELEMENT[target][1:])
    value = t.resize(value, "i64", signed=is_signed(source))
    least, most = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed(target) else (0, (1 << width) - 1)
    if source == "u64":
        limit = constant("i64", most)
        return t.select(t.compare("icmp ugt", value, limit), limit, value)
    if width == 64 and not is_signed(target):
        zero = constant("i64", 0)
        return t.select(t.compare("icmp slt", value, zero), zero, value)
    low, high = constant("i64", least), constant("i64", most)
    value = t.select(t.compare("icmp slt", value, low), low, value)
    return t.select(t.compare("icmp sgt", value, high), high, value)


def _integer_to_integer(g: Lanes, target: str, source: str) -> None:
    t = g.text
    value = g.source(1, source)
    if g.has("sat"):
        value = t.resize(clamp_integer(g, value, source, target), ELEMENT[target])
    else:
        value = t.resize(value, ELEMENT[target], signed=is_signed(source))
    g.result(value, signed=is_signed(target))


def _tf32(g: Lanes) -> Value:
    t, mode = g.text, _mode(g)
    value = g.source(1, "f32")
    bits = t.as_type(value, "i32")
    half = constant("i32", 0x1000)
    if mode == "rz":
        rounded = bits
    elif mode == "rn":
        odd = t.op("and", t.op("lshr", bits, constant("i32", 13)), constant("i32", 1))
        rounded = t.op("add", t.op("add", bits, constant("i32", 0xFFF)), odd)
    else:
        rounded = t.op("add", bits, half)
    exponent = constant("i32", 0x7F800000)
    special = t.compare("icmp eq", t.op("and", bits, exponent), exponent)
    result = t.op("and", t.select(special, bits, rounded), constant("i32", -0x2000))
    if g.has("relu"):
        negative = t.compare("icmp slt", result, constant("i32", 0))
        result = t.select(negative, constant("i32", 0), result)
    return t.as_type(result, "float")


def _pack(g: Lanes) -> None:
    """cvt.pack.sat: two integers saturated and packed, optionally above the low part of c."""
    t, mods = g.text, g.instruction.mods
    target, source = mods[2], mods[3]
    a, b = g.sources(source, 1, 2)
    width = int(ELEMENT[target][1:])

    def piece(value: Value) -> Value:
        return t.resize(t.resize(clamp_integer(g, value, source, target), f"i{width}"), "i32")

    result = t.op("or", piece(b), t.op("shl", piece(a), constant("i32", width)))
    if len(mods) > 4:
        c = g.source(3, "b32")
        result = t.op("or", result, t.op("shl", c, constant("i32", 2 * width)))
    g.result(result)
