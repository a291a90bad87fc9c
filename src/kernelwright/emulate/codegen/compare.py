"""Comparison, selection and moves: setp, set, selp, slct, mov.

Source: PTX ISA 9.0, 9.7.6, 9.7.7 and 9.7.9.3. An ordered comparison with a NaN is false, an unordered one (``equ`` …)
true.
"""

from __future__ import annotations

from kernelwright.emulate.ptx.ir import Not, Operand, Pair, Reg, Sink, Sym, Vec

from .half import flushed_half, widened
from .integer import halves, is_signed, joined
from .lane import ELEMENT, Lanes, RefusedInstruction, emits
from .real import flushed, real
from .text import BITS, Value, constant

_INTEGER = {
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "lo": "lt",
    "ls": "le",
    "hi": "gt",
    "hs": "ge",
}
_ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "num": "ord"}
_UNORDERED = {"equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "nan": "uno"}
_JOINS = ("and", "or", "xor")


def _comparison(g: Lanes, operator: str, type_: str, a: Value, b: Value) -> Value:
    t = g.text
    if a.element in ("float", "double"):
        name = _ORDERED.get(operator) or _UNORDERED.get(operator)
        if name is None:
            raise RefusedInstruction(g.instruction)
        return t.compare("fcmp " + name, a, b)
    name = _INTEGER.get(operator)
    if name is None:
        raise RefusedInstruction(g.instruction)
    if name in ("eq", "ne"):
        return t.compare("icmp " + name, a, b)
    signed = is_signed(type_) and operator not in ("lo", "ls", "hi", "hs")
    return t.compare(f"icmp {'s' if signed else 'u'}{name}", a, b)


def _operands(g: Lanes, type_: str) -> tuple[Value, Value]:
    if type_ in ("f16", "bf16"):
        bits = g.sources("b16", 1, 2)
        if g.has("ftz"):
            bits = tuple(flushed_half(g, value, type_) for value in bits)
        return widened(g, bits[0], type_), widened(g, bits[1], type_)
    a, b = g.sources(type_, 1, 2)
    return (flushed(g, a), flushed(g, b)) if g.has("ftz") else (a, b)


def _joined(g: Lanes, value: Value, position: int) -> Value:
    """Combined with the predicate operand, where the opcode says how."""
    join = next((m for m in g.instruction.mods[1:2] if m in _JOINS), "")
    if not join:
        return value
    return g.text.op(join, value, g.source(position, "pred"))


def _both_halves(g: Lanes, operator: str, type_: str) -> tuple[Value, Value]:
    """The comparison of the low and of the high halves of packed operands."""
    scalar = type_.removesuffix("x2")
    made = []
    for x, y in zip(*(halves(g, value) for value in g.sources("b32", 1, 2)), strict=True):
        if g.has("ftz"):
            x, y = flushed_half(g, x, scalar), flushed_half(g, y, scalar)
        made.append(_joined(g, _comparison(g, operator, type_, widened(g, x, scalar), widened(g, y, scalar)), 3))
    return made[0], made[1]


@emits("setp")
def _set_predicate(g: Lanes) -> None:
    t, type_, operator = g.text, g.type, g.instruction.mods[0]
    destination = g.instruction.operands[0]
    if type_ in ("f16x2", "bf16x2"):
        made = _both_halves(g, operator, type_)
        g.result(made[0], predicate=made[1])
        return
    value = _comparison(g, operator, type_, *_operands(g, type_))
    if isinstance(destination, Pair):
        inverse = t.op("xor", value, constant("i1", 1))
        g.result(_joined(g, value, 3), predicate=_joined(g, inverse, 3))
    else:
        g.result(_joined(g, value, 3))


@emits("set")
def _set(g: Lanes) -> None:
    t, operator = g.text, g.instruction.mods[0]
    target, type_ = g.instruction.mods[-2], g.type
    if type_ in ("f16x2", "bf16x2"):
        ones = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(target, 0xFFFF)
        parts = _both_halves(g, operator, type_)
        g.result(joined(g, *(t.select(part, constant("i16", ones), constant("i16", 0)) for part in parts)))
        return
    value = _joined(g, _comparison(g, operator, type_, *_operands(g, type_)), 3)
    if target == "f32":
        g.result(t.select(value, real("float", 1.0), real("float", 0.0)))
    elif target == "f16":
        g.result(t.select(value, constant("i16", 0x3C00), constant("i16", 0)))
    elif target == "bf16":
        g.result(t.select(value, constant("i16", 0x3F80), constant("i16", 0)))
    else:
        g.result(t.cast("sext", value, ELEMENT[target]), signed=True)


@emits("selp")
def _select(g: Lanes) -> None:
    a, b = g.sources(g.type, 1, 2)
    g.result(g.text.select(g.source(3, "pred"), a, b))


@emits("slct")
def _select_by_sign(g: Lanes) -> None:
    t = g.text
    a, b = g.sources(g.instruction.mods[-2], 1, 2)
    c = g.source(3, g.type)
    if g.type == "f32":
        c = flushed(g, c) if g.has("ftz") else c
        condition = t.compare("fcmp oge", c, real("float", 0.0))
    else:
        condition = t.compare("icmp sge", c, constant("i32", 0))
    g.result(t.select(condition, a, b))


@emits("mov")
def _move(g: Lanes) -> None:
    destination, source = g.instruction.operands[0], g.instruction.operands[1]
    if isinstance(destination, Vec):
        _unpack(g, destination, source)
    elif isinstance(source, Vec):
        _pack(g, source)
    elif isinstance(source, Sym) and g.type in ("u32", "b32", "s32"):
        g.result(g.text.resize(g.symbol(source), "i32"))
    else:
        g.result(g.read(source, g.type if not isinstance(source, Not) else "pred"))


def _unpack(g: Lanes, destination: Vec, source: Operand) -> None:
    t = g.text
    whole = g.read(source, g.type)
    whole = t.as_type(whole, f"i{whole.bits}")
    part = whole.bits // len(destination.items)
    values = []
    for i in range(len(destination.items)):
        moved = t.op("lshr", whole, constant(whole.element, part * i)) if i else whole
        values.append(t.resize(moved, f"i{part}"))
    for item, value in zip(destination.items, values, strict=True):
        if isinstance(item, Reg):
            g.assign(item, value)
        elif not isinstance(item, Sink):
            raise RefusedInstruction(g.instruction)


def _pack(g: Lanes, source: Vec) -> None:
    t = g.text
    element = ELEMENT[g.type]
    part = BITS[element] // len(source.items)
    whole: Value | None = None
    for i, item in enumerate(source.items):
        value = t.resize(g.read(item, f"b{part}"), element)
        moved = t.op("shl", value, constant(element, part * i)) if i else value
        whole = moved if whole is None else t.op("or", whole, moved)
    if whole is None:
        raise RefusedInstruction(g.instruction)
    g.result(whole)
