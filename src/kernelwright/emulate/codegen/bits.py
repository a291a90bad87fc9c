"""Logic, shifts and bit fields: and to prmt.

Source: PTX ISA 9.0, 9.7.1 (bit fields) and 9.7.8 (logic and shift).
"""

from __future__ import annotations

from kernelwright.emulate.ptx.ir import Imm

from .integer import is_signed
from .lane import Lanes, emits
from .text import Value, constant


@emits("and", "or", "xor")
def _logic(g: Lanes) -> None:
    a, b = g.sources(g.type, 1, 2)
    g.result(g.text.op(g.instruction.op, a, b))


@emits("not")
def _not(g: Lanes) -> None:
    a = g.source(1, g.type)
    g.result(g.text.op("xor", a, constant(a.element, -1)))


@emits("cnot")
def _logical_not(g: Lanes) -> None:
    a = g.source(1, g.type)
    g.result(g.text.resize(g.text.compare("icmp eq", a, constant(a.element, 0)), a.element))


def clamped(g: Lanes, amount: Value, most: int) -> Value:
    """min(amount, most), unsigned."""
    limit = constant(amount.element, most)
    return g.text.select(g.text.compare("icmp ugt", amount, limit), limit, amount)


@emits("shl", "shr")
def _shift(g: Lanes) -> None:
    t = g.text
    a, amount = g.source(1, g.type), g.source(2, "u32")
    arithmetic = g.instruction.op == "shr" and is_signed(g.type)
    operation = "shl" if g.instruction.op == "shl" else "ashr" if arithmetic else "lshr"
    written = g.instruction.operands[2]
    if isinstance(written, Imm) and written.bits < a.bits:
        g.result(t.op(operation, a, constant(a.element, written.bits)), signed=is_signed(g.type))
        return
    inside = t.resize(clamped(g, amount, a.bits - 1), a.element)
    result = t.op(operation, a, inside)
    if not arithmetic:
        result = t.select(t.compare("icmp ugt", amount, constant("i32", a.bits - 1)), constant(a.element, 0), result)
    g.result(result, signed=is_signed(g.type))


@emits("shf")
def _funnel(g: Lanes) -> None:
    t = g.text
    a, b, c = g.sources("b32", 1, 2, 3)
    amount = clamped(g, c, 32) if g.instruction.mods[1] == "clamp" else t.op("and", c, constant("i32", 31))
    pair = t.op("or", t.resize(a, "i64"), t.op("shl", t.resize(b, "i64"), constant("i64", 32)))
    wide = t.resize(amount, "i64")
    if g.instruction.mods[0] == "r":
        g.result(t.resize(t.op("lshr", pair, wide), "i32"))
    else:
        g.result(t.resize(t.op("lshr", t.op("shl", pair, wide), constant("i64", 32)), "i32"))
        # A shift by 32 moves the low half up whole: shl on 64 bits does just that.


@emits("lop3")
def _look_up(g: Lanes) -> None:
    t = g.text
    a, b, c = g.sources("b32", 1, 2, 3)
    table = g.instruction.operands[4]
    bits = table.bits & 0xFF if isinstance(table, Imm) else 0
    if not isinstance(table, Imm):
        raise AssertionError("lop3 takes a literal table")
    ones = constant("i32", -1)

    def chosen(low: Value, high: Value, by: Value) -> Value:
        """by ? high : low, bitwise."""
        if low == high:
            return low
        if (low.text, high.text) == ("0", ones.text):
            return by
        if (low.text, high.text) == (ones.text, "0"):
            return t.op("xor", by, ones)
        return t.op("xor", low, t.op("and", by, t.op("xor", low, high)))

    level = [ones if bits >> i & 1 else constant("i32", 0) for i in range(8)]
    for by in (c, b, a):
        level = [chosen(level[i], level[i + 1], by) for i in range(0, len(level), 2)]
    result = level[0]
    if g.instruction.mods[0] in ("and", "or"):
        other = g.source(5, "pred")
        nonzero = t.compare("icmp ne", result, constant("i32", 0))
        g.result(result, predicate=t.op(g.instruction.mods[0], nonzero, other))
    else:
        g.result(result)


@emits("popc")
def _count(g: Lanes) -> None:
    g.result(g.text.resize(g.text.intrinsic("ctpop", g.source(1, g.type)), "i32"))


@emits("clz")
def _leading(g: Lanes) -> None:
    g.result(g.text.resize(g.text.intrinsic("ctlz", g.source(1, g.type), extra=", i1 false"), "i32"))


@emits("fns")
def _nth_set(g: Lanes) -> None:
    for row, position in enumerate((1, 2, 3)):
        g.pass_lanes(row, g.source(position, "b32"))
    g.run("kw_find_nth_set")
    g.result(g.take_lanes(0, "i32"))


@emits("bfind")
def _highest(g: Lanes) -> None:
    t = g.text
    a = g.source(1, g.type)
    if is_signed(g.type):
        negative = t.compare("icmp slt", a, constant(a.element, 0))
        a = t.select(negative, t.op("xor", a, constant(a.element, -1)), a)
    leading = t.resize(t.intrinsic("ctlz", a, extra=", i1 false"), "i32")
    none = t.compare("icmp eq", a, constant(a.element, 0))
    place = leading if g.has("shiftamt") else t.op("sub", constant("i32", a.bits - 1), leading)
    g.result(t.select(none, constant("i32", -1), place))


@emits("brev")
def _reverse(g: Lanes) -> None:
    g.result(g.text.intrinsic("bitreverse", g.source(1, g.type)))


def _low_ones(g: Lanes, count: Value, element: str) -> Value:
    """``count`` ones (count already of ``element`` and at most its width)."""
    t = g.text
    width = int(element[1:])
    full = t.compare("icmp ugt", count, constant(element, width - 1))
    some = t.op(
        "sub", t.op("shl", constant(element, 1), t.op("and", count, constant(element, width - 1))), constant(element, 1)
    )
    return t.select(full, constant(element, -1), some)


def _field_operand(g: Lanes, operand: int, width: int) -> Value:
    """A field's position or length, at most ``width`` wherever more changes nothing.

    Only 32-bit fields take the low 8 bits, as the manual has it for both: an H200 with driver 13.0 (2026-11-29) reads
    all 32 bits where the field has 64.
    """
    value = g.source(operand, "u32")
    return g.text.op("and", value, constant("i32", 255)) if width == 32 else clamped(g, value, width)


@emits("bfe")
def _extract(g: Lanes) -> None:
    t = g.text
    a = g.source(1, g.type)
    width = a.bits
    position, length = (_field_operand(g, i, width) for i in (2, 3))
    beyond = t.compare("icmp ugt", position, constant("i32", width - 1))
    start = t.resize(clamped(g, position, width - 1), a.element)
    count = t.resize(clamped(g, length, width), a.element)
    moved = t.op("lshr", a, start)
    ones = _low_ones(g, count, a.element)
    field = t.op("and", t.select(beyond, constant(a.element, 0), moved), ones)
    if is_signed(g.type):
        last = t.op("sub", t.op("add", position, length), constant("i32", 1))
        last = t.resize(clamped(g, last, width - 1), a.element)
        sign = t.op("and", t.op("lshr", a, last), constant(a.element, 1))
        empty = t.compare("icmp eq", length, constant("i32", 0))
        # The fill starts where the field ends, or where the source does.
        available = t.op("sub", constant(a.element, width), start)
        available = t.select(beyond, constant(a.element, 0), available)
        filled_from = t.select(t.compare("icmp ult", count, available), count, available)
        upper = t.op("xor", _low_ones(g, filled_from, a.element), constant(a.element, -1))
        fill = t.select(t.compare("icmp ne", sign, constant(a.element, 0)), upper, constant(a.element, 0))
        field = t.select(empty, constant(a.element, 0), t.op("or", field, fill))
    g.result(field)


@emits("bfi")
def _insert(g: Lanes) -> None:
    t = g.text
    a, b = g.sources(g.type, 1, 2)
    width = a.bits
    position, length = (_field_operand(g, i, width) for i in (3, 4))
    beyond = t.compare("icmp ugt", position, constant("i32", width - 1))
    start = t.resize(clamped(g, position, width - 1), a.element)
    ones = _low_ones(g, t.resize(clamped(g, length, width), a.element), a.element)
    window = t.select(beyond, constant(a.element, 0), t.op("shl", ones, start))
    moved = t.op("shl", a, start)
    g.result(t.op("xor", b, t.op("and", t.op("xor", b, moved), window)))


@emits("szext")
def _extend(g: Lanes) -> None:
    t = g.text
    a, b = g.source(1, "b32"), g.source(2, "u32")
    count = clamped(g, b, 32) if g.instruction.mods[0] == "clamp" else t.op("and", b, constant("i32", 31))
    empty = t.compare("icmp eq", count, constant("i32", 0))
    away = t.op("and", t.op("sub", constant("i32", 32), count), constant("i32", 31))
    moved = t.op("shl", a, away)
    back = t.op("ashr" if is_signed(g.type) else "lshr", moved, away)
    g.result(t.select(empty, constant("i32", 0), back))


@emits("bmsk")
def _mask(g: Lanes) -> None:
    t = g.text
    a, b = g.sources("u32", 1, 2)
    if g.instruction.mods[0] == "clamp":
        a, b = clamped(g, a, 32), clamped(g, b, 32)
    else:
        a, b = (t.op("and", x, constant("i32", 31)) for x in (a, b))
    ones = t.op("sub", t.op("shl", constant("i64", 1), t.resize(b, "i64")), constant("i64", 1))
    g.result(t.resize(t.op("shl", ones, t.resize(a, "i64")), "i32"))


_MODES = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}
"""prmt's named modes: for each value of c & 3 the source bytes of d's bytes 0 to 3."""


@emits("prmt")
def _permute(g: Lanes) -> None:
    t = g.text
    a, b, c = g.sources("b32", 1, 2, 3)
    pair = t.op("or", t.resize(a, "i64"), t.op("shl", t.resize(b, "i64"), constant("i64", 32)))
    mode, written = g.type, g.instruction.operands[3]
    result: Value = constant("i32", 0)
    for byte in range(4):
        sign: Value | None = None
        if mode in _MODES:
            which = t.op("and", c, constant("i32", 3))
            selector: Value = constant("i32", _MODES[mode][3][byte])
            for k in (2, 1, 0):
                match = t.compare("icmp eq", which, constant("i32", k))
                selector = t.select(match, constant("i32", _MODES[mode][k][byte]), selector)
        elif isinstance(written, Imm):
            nibble = written.bits >> 4 * byte & 15
            selector = constant("i32", nibble & 7)
            sign = constant("i1", 1) if nibble & 8 else None
        else:
            nibble_value = t.op("lshr", c, constant("i32", 4 * byte))
            selector = t.op("and", nibble_value, constant("i32", 7))
            sign = t.compare("icmp ne", t.op("and", nibble_value, constant("i32", 8)), constant("i32", 0))
        shift = t.op("shl", t.resize(selector, "i64"), constant("i64", 3))
        value = t.resize(t.op("lshr", pair, shift), "i8")
        if sign is not None:
            value = t.select(sign, t.op("ashr", value, constant("i8", 7)), value)
        placed = t.op("shl", t.resize(value, "i32"), constant("i32", 8 * byte))
        result = placed if byte == 0 else t.op("or", result, placed)
    g.result(result)
