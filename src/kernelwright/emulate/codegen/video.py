"""Video instructions: arithmetic on selected bytes and halves, with saturation, merging and a second operation.

Source: PTX ISA 9.0, 9.7.16 and 9.7.17, whose pseudocode this follows step by step.
"""

from __future__ import annotations

from kernelwright.emulate.ptx.ir import Operand, Part, Reg
from kernelwright.emulate.ptx.video import MNEMONICS, Video, places, unlike_the_manual, video, written

from .lane import Lanes, RefusedInstruction, emits
from .text import Value, constant


def _whole(g: Lanes, position: int) -> Value:
    operand = g.instruction.operands[position]
    return g.read(operand.register if isinstance(operand, Part) else operand, "b32")


def _taken(g: Lanes, position: int, lanes: int, signed: bool, element: str) -> list[Value]:
    """The lanes of a source, widened to ``element``."""
    t = g.text
    made = []
    for start, width in places(g.instruction.operands[position], lanes, second=position == 2):
        word = _whole(g, position if lanes == 1 else 1 + start // 32)
        if start % 32:
            word = t.op("lshr", word, constant("i32", start % 32))
        made.append(t.resize(t.resize(word, f"i{width}"), element, signed=signed))
    return made


def _clamped(g: Lanes, value: Value, signed: bool, bits: int) -> Value:
    t, element = g.text, value.element
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    least, most = constant(element, low), constant(element, high)
    value = t.select(t.compare("icmp slt", value, least), least, value)
    return t.select(t.compare("icmp sgt", value, most), most, value)


def _lesser(g: Lanes, a: Value, b: Value, greater: bool) -> Value:
    return g.text.select(g.text.compare("icmp sgt" if greater else "icmp slt", a, b), a, b)


def _compute(g: Lanes, form: Video, a: Value, b: Value) -> Value:
    t, element = g.text, a.element
    match form.operation:
        case "vadd":
            return t.op("add", a, b)
        case "vsub":
            return t.op("sub", a, b)
        case "vabsdiff":
            return t.op("sub", _lesser(g, a, b, True), _lesser(g, a, b, False))
        case "vmin" | "vmax":
            return _lesser(g, a, b, form.operation == "vmax")
        case "vavrg":
            total = t.op("add", a, b)
            up = t.resize(t.compare("icmp sge", total, constant(element, 0)), element)
            return t.op("ashr", t.op("add", total, up), constant(element, 1))
        case "vset":
            signs = "s"  # widened: a signed comparison is right for both
            name = form.relation if form.relation in ("eq", "ne") else signs + form.relation
            return t.resize(t.compare(f"icmp {name}", a, b), element)
        case "vshl" | "vshr":
            limit = constant(element, 32)
            amount = (
                t.op("and", b, constant(element, 31))
                if form.wraps
                else t.select(t.compare("icmp ugt", b, limit), limit, b)
            )
            return t.op("shl" if form.operation == "vshl" else "ashr", a, amount)
        case _:
            raise RefusedInstruction(g.instruction)


@emits(*MNEMONICS)
def _video(g: Lanes) -> None:
    form = video(g.instruction)
    why = unlike_the_manual(form, g.instruction.operands)
    if why:
        raise RefusedInstruction(g.instruction, why)
    if form.operation == "vmad":
        _multiply_add(g, form)
        return
    t, destination = g.text, g.instruction.operands[0]
    element = "i128" if form.operation == "vshl" else "i64"
    a = _taken(g, 1, form.lanes, form.signed[1], element)
    b = _taken(g, 2, form.lanes, form.signed[2], element)
    made = [_compute(g, form, *pair) for pair in zip(a, b, strict=True)]
    part = destination if isinstance(destination, Part) else None
    start, bits = places(part, 1)[0] if part is not None and form.lanes == 1 else (0, form.bits)
    if form.saturates:
        made = [_clamped(g, value, form.signed[0], bits) for value in made]
    lanes = written(destination, form.lanes) if form.lanes > 1 else [0]
    if form.lanes == 1 and part is not None:
        _put(g, destination, _merged(g, [(start, bits, made[0])]))
    elif form.lanes == 1:
        _put(g, destination, _second(g, form, made[0]))
    elif form.second:
        total = t.resize(g.source(3, "b32"), "i64")
        for lane in lanes:
            total = t.op("add", total, made[lane])
        _put(g, destination, t.resize(total, "i32"))
    else:
        _put(g, destination, _merged(g, [(lane * bits, bits, made[lane]) for lane in lanes]))


def _second(g: Lanes, form: Video, value: Value) -> Value:
    """The second operation with c, in 32 bits."""
    t = g.text
    value = t.resize(value, "i32")
    if not form.second:
        return value
    c = g.source(3, "b32")
    if form.second == "add":
        return t.op("add", value, c)
    sign = "s" if form.signed[0] else "u"
    return t.select(t.compare(f"icmp {sign}{'lt' if form.second == 'min' else 'gt'}", value, c), value, c)


def _merged(g: Lanes, pieces: list[tuple[int, int, Value]]) -> Value:
    """c, or nothing where the pieces fill the word, with the pieces in it."""
    t = g.text
    covered = sum(((1 << bits) - 1) << start for start, bits, _ in pieces)
    result = constant("i32", 0)
    if covered != 0xFFFFFFFF:
        result = t.op("and", g.source(3, "b32"), constant("i32", ~covered))
    for start, bits, value in pieces:
        piece = t.op("and", t.resize(value, "i32"), constant("i32", (1 << bits) - 1))
        result = t.op("or", result, t.op("shl", piece, constant("i32", start)))
    return result


def _multiply_add(g: Lanes, form: Video) -> None:
    t, wide = g.text, "i128"
    (a,), (b,) = (_taken(g, position, 1, form.signed[position], wide) for position in (1, 2))
    signed = form.signed[1] or form.signed[2]
    total = t.op("mul", a, b)
    c = t.resize(g.source(3, "b32"), wide, signed=signed)
    total = t.op("add", total, c)
    if form.one:
        total = t.op("add", total, constant(wide, 1))
    if form.shift:
        total = t.op("ashr", total, constant(wide, form.shift))
    if form.saturates:
        total = _clamped(g, total, signed, 32)
    _put(g, g.instruction.operands[0], t.resize(total, "i32"))


def _put(g: Lanes, destination: Operand, value: Value) -> None:
    register = destination.register if isinstance(destination, Part) else destination
    if not isinstance(register, Reg):
        raise RefusedInstruction(g.instruction, "the destination is no register")
    g.assign(register, value)
