"""Integer and logic instructions: expectations in Python's unbounded integers.

Source: PTX ISA 9.0, sections 9.7.1, 9.7.2, 9.7.8.
"""

from __future__ import annotations

from case import Draft, emit, integers, seeded, simple, tuples

SOURCE = "PTX ISA 9.0, integer arithmetic and logic instructions"
SHIFTS = [0, 1, 7, 15, 16, 31, 32, 33, 63, 64, 65, 0xFFFFFFFF]


def wrap(value: int, bits: int) -> int:
    return value & ((1 << bits) - 1)


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def reading(type_: str, value: int) -> int:
    bits = int(type_[1:])
    return signed(value, bits) if type_[0] == "s" else value


def binary(type_: str) -> dict[str, tuple[str, list[int]]]:
    bits = int(type_[1:])
    return {"a": (f"b{bits}", integers(bits)), "b": (f"b{bits}", integers(bits))}


def arithmetic() -> None:
    for type_ in ("u16", "s16", "u32", "s32", "u64", "s64"):
        bits = int(type_[1:])
        ab = binary(type_)
        abc = {**ab, "c": (f"b{bits}", integers(bits))}

        def r(x: int, type_: str = type_) -> int:
            return reading(type_, x)

        def w(x: int, bits: int = bits) -> int:
            return wrap(x, bits)

        out = f"b{bits}"
        simple(f"add.{type_}", ab, out, lambda a, b, w=w: w(a + b), source=SOURCE)
        simple(f"sub.{type_}", ab, out, lambda a, b, w=w: w(a - b), source=SOURCE)
        simple(f"mul.lo.{type_}", ab, out, lambda a, b, w=w: w(a * b), source=SOURCE)
        simple(f"mul.hi.{type_}", ab, out, lambda a, b, w=w, r=r, bits=bits: w((r(a) * r(b)) >> bits), source=SOURCE)
        simple(f"mad.lo.{type_}", abc, out, lambda a, b, c, w=w: w(a * b + c), source=SOURCE)
        simple(
            f"mad.hi.{type_}",
            abc,
            out,
            lambda a, b, c, w=w, r=r, bits=bits: w(((r(a) * r(b)) >> bits) + c),
            source=SOURCE,
        )
        simple(f"sad.{type_}", abc, out, lambda a, b, c, w=w, r=r: w(abs(r(a) - r(b)) + c), source=SOURCE)
        simple(f"min.{type_}", ab, out, lambda a, b, w=w, r=r: w(min(r(a), r(b))), source=SOURCE)
        simple(f"max.{type_}", ab, out, lambda a, b, w=w, r=r: w(max(r(a), r(b))), source=SOURCE)
        simple(f"div.{type_}", ab, out, lambda a, b, w=w, r=r: w(quotient(r(a), r(b))), source=SOURCE)
        simple(f"rem.{type_}", ab, out, lambda a, b, w=w, r=r: w(remainder(r(a), r(b))), source=SOURCE)
        if bits < 64:
            wide = 2 * bits
            simple(
                f"mul.wide.{type_}", ab, f"b{wide}", lambda a, b, r=r, wide=wide: wrap(r(a) * r(b), wide), source=SOURCE
            )
            simple(
                f"mad.wide.{type_}",
                {**ab, "c": (f"b{wide}", integers(wide))},
                f"b{wide}",
                lambda a, b, c, r=r, wide=wide: wrap(r(a) * r(b) + c, wide),
                source=SOURCE,
            )
        if type_[0] == "s":
            one = {"a": (f"b{bits}", integers(bits))}
            simple(f"abs.{type_}", one, out, lambda a, w=w, r=r: w(abs(r(a))), source=SOURCE)
            simple(f"neg.{type_}", one, out, lambda a, w=w: w(-a), source=SOURCE)
    clip = lambda x: wrap(min(max(x, -(2**31)), 2**31 - 1), 32)  # noqa: E731
    s = lambda x: signed(x, 32)  # noqa: E731
    simple("add.sat.s32", binary("s32"), "b32", lambda a, b: clip(s(a) + s(b)), source=SOURCE)
    simple("sub.sat.s32", binary("s32"), "b32", lambda a, b: clip(s(a) - s(b)), source=SOURCE)
    abc = {**binary("s32"), "c": ("b32", integers(32))}
    simple("mad.hi.sat.s32", abc, "b32", lambda a, b, c: clip(((s(a) * s(b)) >> 32) + s(c)), source=SOURCE)
    low24 = lambda t, x: signed(x & 0xFFFFFF, 24) if t == "s32" else x & 0xFFFFFF  # noqa: E731
    for t in ("u32", "s32"):
        ab = {"a": ("b32", [low24(t, x) & 0xFFFFFFFF for x in integers(32)]), "b": ("b32", integers(24))}
        simple(f"mul24.lo.{t}", ab, "b32", lambda a, b, t=t: wrap(low24(t, a) * low24(t, b), 32), source=SOURCE)
        simple(f"mul24.hi.{t}", ab, "b32", lambda a, b, t=t: wrap((low24(t, a) * low24(t, b)) >> 16, 32), source=SOURCE)
        simple(
            f"mad24.lo.{t}",
            {**ab, "c": ("b32", integers(32))},
            "b32",
            lambda a, b, c, t=t: wrap(low24(t, a) * low24(t, b) + c, 32),
            source=SOURCE,
        )


def quotient(a: int, b: int) -> int:
    """Truncating; by zero all ones, as GPUs answer."""
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)


def carries() -> None:
    """A 96-bit (or 192-bit) addition, subtraction and multiply-add, whose parts are chained through CC.CF."""
    for bits in (32, 64):
        rng = seeded(f"carry{bits}")
        names = ["a0", "a1", "a2", "b0", "b1", "b2"]
        rows = tuples(rng, [integers(bits)] * 6, [bits] * 6, most=96)
        inputs = {n: (f"b{bits}", [row[k] for row in rows]) for k, n in enumerate(names)}

        def split(value: int, bits: int = bits, parts: int = 3) -> list[int]:
            return [(value >> (bits * k)) & ((1 << bits) - 1) for k in range(parts)]

        def whole(parts: tuple[int, ...], bits: int = bits) -> int:
            return sum(part << (bits * k) for k, part in enumerate(parts))

        for op in ("add", "sub"):
            results = [split(whole(r[:3]) + (1 if op == "add" else -1) * whole(r[3:])) for r in rows]
            emit(
                Draft(
                    f"{op}c.cc.u{bits}",
                    SOURCE,
                    f"{op}.cc.u{bits} d0, a0, b0;\n{op}c.cc.u{bits} d1, a1, b1;\n{op}c.u{bits} d2, a2, b2;",
                    inputs,
                    {f"d{k}": (f"b{bits}", [r[k] for r in results]) for k in range(3)},
                )
            )
        # (a0 + a1 B) * b0 + (b1 + b2 B): low and high products, chained.
        results = [split(row[0] * row[3] + row[4] + ((row[1] * row[3] + row[5]) << bits)) for row in rows]
        body = f"""
            mad.lo.cc.u{bits} d0, a0, b0, b1;
            madc.hi.cc.u{bits} d1, a0, b0, b2;
            madc.hi.u{bits} d2, a1, b0, 0;
            mad.lo.cc.u{bits} d1, a1, b0, d1;
            addc.u{bits} d2, d2, 0;
        """
        emit(
            Draft(
                f"madc.u{bits}",
                SOURCE,
                body,
                {n: inputs[n] for n in names if n != "a2"},
                {f"d{k}": (f"b{bits}", [r[k] for r in results]) for k in range(3)},
            )
        )


def bits_and_fields() -> None:
    for bits in (16, 32, 64):
        ab = {"a": (f"b{bits}", integers(bits)), "b": (f"b{bits}", integers(bits))}
        one = {"a": (f"b{bits}", integers(bits))}
        out = f"b{bits}"
        w = lambda x, bits=bits: wrap(x, bits)  # noqa: E731
        simple(f"and.b{bits}", ab, out, lambda a, b: a & b, source=SOURCE)
        simple(f"or.b{bits}", ab, out, lambda a, b: a | b, source=SOURCE)
        simple(f"xor.b{bits}", ab, out, lambda a, b: a ^ b, source=SOURCE)
        simple(f"not.b{bits}", one, out, lambda a, w=w: w(~a), source=SOURCE)
        simple(f"cnot.b{bits}", one, out, lambda a: int(a == 0), source=SOURCE)
        by = {"a": (f"b{bits}", integers(bits)), "b": ("b32", SHIFTS)}
        simple(f"shl.b{bits}", by, out, lambda a, b, w=w, bits=bits: w(a << min(b, bits)), source=SOURCE)
        simple(f"shr.u{bits}", by, out, lambda a, b, bits=bits: a >> min(b, bits), source=SOURCE)
        simple(f"shr.s{bits}", by, out, lambda a, b, w=w, bits=bits: w(signed(a, bits) >> min(b, bits)), source=SOURCE)
    for bits in (32, 64):
        one = {"a": (f"b{bits}", [*integers(bits), 1 << 20, 1 << (bits // 2)])}
        simple(f"popc.b{bits}", one, "b32", lambda a: a.bit_count(), source=SOURCE)
        simple(f"clz.b{bits}", one, "b32", lambda a, bits=bits: bits - a.bit_length(), source=SOURCE)
        simple(f"brev.b{bits}", one, f"b{bits}", lambda a, bits=bits: int(f"{a:0{bits}b}"[::-1], 2), source=SOURCE)
        for t in ("u", "s"):
            top = lambda a, t=t, bits=bits: (wrap(~a, bits) if t == "s" and a >> (bits - 1) else a).bit_length() - 1  # noqa: E731
            simple(f"bfind.{t}{bits}", one, "b32", lambda a, top=top: wrap(top(a), 32), source=SOURCE)
            simple(
                f"bfind.shiftamt.{t}{bits}",
                one,
                "b32",
                lambda a, top=top, bits=bits: 0xFFFFFFFF if top(a) < 0 else bits - 1 - top(a),
                source=SOURCE,
            )
            field = {
                "a": (f"b{bits}", integers(bits)),
                "b": ("b32", [0, 1, 5, 31, 32, 63, 64, 255, 256]),
                "c": ("b32", [0, 1, 4, 31, 32, 33, 64, 255, 257]),
            }
            simple(
                f"bfe.{t}{bits}",
                field,
                f"b{bits}",
                lambda a, b, c, t=t, bits=bits: extract(t, bits, a, b, c),
                source=SOURCE,
                most=200,
            )
        field = {
            "a": (f"b{bits}", integers(bits)),
            "b": (f"b{bits}", integers(bits)),
            "c": ("b32", [0, 1, 5, 31, 32, 63, 255, 256]),
            "e": ("b32", [0, 1, 4, 31, 32, 33, 64, 255]),
        }
        simple(
            f"bfi.b{bits}",
            field,
            f"b{bits}",
            lambda a, b, c, e, bits=bits: insert(bits, a, b, c, e),
            source=SOURCE,
            most=200,
        )
    for op in ("l", "r"):
        for mode in ("clamp", "wrap"):
            abc = {"a": ("b32", integers(32)), "b": ("b32", integers(32)), "c": ("b32", SHIFTS)}
            simple(
                f"shf.{op}.{mode}.b32",
                abc,
                "b32",
                lambda a, b, c, op=op, mode=mode: funnel(op, mode, a, b, c),
                source=SOURCE,
            )
    abc = {name: ("b32", integers(32)) for name in "abc"}
    for table in (0x00, 0x96, 0xE8, 0xCA, 0x1B, 0xFF):
        rows = tuples(seeded(f"lop3{table}"), [v for _, v in abc.values()], [32] * 3, most=64)
        emit(
            Draft(
                f"lop3.b32.{table:02x}",
                SOURCE,
                f"lop3.b32 d, a, b, c, {table};",
                {n: ("b32", [row[k] for row in rows]) for k, n in enumerate("abc")},
                {"d": ("b32", [lop3(table, *row) for row in rows])},
            )
        )
    for mode in ("clamp", "wrap"):
        by = {"a": ("b32", integers(32)), "b": ("b32", SHIFTS)}
        for t in ("u32", "s32"):
            simple(
                f"szext.{mode}.{t}",
                by,
                "b32",
                lambda a, b, t=t, mode=mode: extend(t, mode, a, b),
                source=SOURCE,
                version="7.6",
            )
        simple(
            f"bmsk.{mode}.b32",
            {"a": ("b32", SHIFTS), "b": ("b32", SHIFTS)},
            "b32",
            lambda a, b, mode=mode: mask(mode, a, b),
            source=SOURCE,
            version="7.6",
        )


def extract(t: str, bits: int, a: int, b: int, c: int) -> int:
    """The manual's loop, but for 64 bits position and length are not reduced to 8 bits."""
    msb, pos, length = bits - 1, field_operand(bits, b), field_operand(bits, c)
    fill = 0 if t == "u" or length == 0 else (a >> min(pos + length - 1, msb)) & 1
    return sum(((a >> (pos + i)) & 1 if i < length and pos + i <= msb else fill) << i for i in range(bits))


def field_operand(bits: int, x: int) -> int:
    """A position or length as the hardware reads it: its low 8 bits, says the manual, and 32-bit fields do so; for
    64-bit ones all of it counts. Observed on an H200, driver 13.0, 2026-11-29."""
    return x & 255 if bits == 32 else x


def insert(bits: int, a: int, b: int, c: int, e: int) -> int:
    pos, length = field_operand(bits, c), field_operand(bits, e)
    for i in range(min(length, bits)):
        if pos + i < bits:
            b = b & ~(1 << (pos + i)) | ((a >> i) & 1) << (pos + i)
    return b


def funnel(op: str, mode: str, a: int, b: int, c: int) -> int:
    n = min(c, 32) if mode == "clamp" else c & 31
    pair = b << 32 | a
    return wrap(pair << n >> 32, 32) if op == "l" else wrap(pair >> n, 32)


def lop3(table: int, a: int, b: int, c: int) -> int:
    return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i for i in range(32))


def extend(t: str, mode: str, a: int, b: int) -> int:
    n = min(b, 32) if mode == "clamp" else b & 31
    if n == 0:
        return 0
    low = a & ((1 << n) - 1)
    return wrap(signed(low, n) if t == "s32" else low, 32)


def mask(mode: str, a: int, b: int) -> int:
    start, count = (min(a, 32), min(b, 32)) if mode == "clamp" else (a & 31, b & 31)
    return wrap(((1 << count) - 1) << start, 32)


def permutes() -> None:
    words = {"a": ("b32", [0x03020100, 0x80FF7F01, 0x12345678]), "b": ("b32", [0x07060504, 0xF0E18293, 0xFFFFFFFF])}
    selectors = [0x3210, 0x7654, 0x0123, 0xFEDC, 0x8888, 0xBA98, 0x5410, 0xF7E6, 0xFFFF3210, 0]
    simple("prmt.b32", {**words, "c": ("b32", selectors)}, "b32", permute, source=SOURCE)
    tables = {
        "f4e": ["3210", "4321", "5432", "6543"],
        "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"],
        "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"],
        "rc16": ["1010", "3232", "1010", "3232"],
    }
    for mode, table in tables.items():
        simple(
            f"prmt.b32.{mode}",
            {**words, "c": ("b32", [0, 1, 2, 3, 4, 7, 0xFFFFFFFE])},
            "b32",
            lambda a, b, c, table=table: permute(a, b, int(table[c & 3], 16)),
            source=SOURCE,
        )


def permute(a: int, b: int, c: int) -> int:
    data = (b << 32 | a).to_bytes(8, "little")
    result = 0
    for i in range(4):
        nibble = c >> (4 * i) & 15
        byte = data[nibble & 7]
        result |= (0xFF * (byte >> 7) if nibble & 8 else byte) << (8 * i)
    return result


def dots() -> None:
    abc = {
        "a": ("b32", [0x7F80FF01, 0, 0xFFFFFFFF, 0x80808080]),
        "b": ("b32", [0x7F80FF01, 1, 0x80808080]),
        "c": ("b32", integers(32)),
    }

    def part(t: str, word: int, bits: int, i: int) -> int:
        x = word >> (bits * i) & ((1 << bits) - 1)
        return signed(x, bits) if t == "s32" else x

    for ta in ("u32", "s32"):
        for tb in ("u32", "s32"):
            simple(
                f"dp4a.{ta}.{tb}",
                abc,
                "b32",
                lambda a, b, c, ta=ta, tb=tb: wrap(
                    c + sum(part(ta, a, 8, i) * part(tb, b, 8, i) for i in range(4)), 32
                ),
                source=SOURCE,
            )
            for half, first in (("lo", 0), ("hi", 2)):
                simple(
                    f"dp2a.{half}.{ta}.{tb}",
                    abc,
                    "b32",
                    lambda a, b, c, ta=ta, tb=tb, first=first: wrap(
                        c + sum(part(ta, a, 16, i) * part(tb, b, 8, i + first) for i in range(2)), 32
                    ),
                    source=SOURCE,
                )


def nth_set(mask: int, base: int, offset: int) -> int:
    """The manual's code."""
    steps = offset - (1 << 32) if offset >> 31 else offset
    if steps == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    places = [at for at in (range(base, 32) if steps > 0 else range(base, -1, -1)) if mask >> at & 1]
    return places[abs(steps) - 1] if abs(steps) <= len(places) else 0xFFFFFFFF


def find_nth() -> None:
    simple(
        "fns.b32",
        {
            "a": ("b32", [0, 1, 0x80000000, 0xFFFFFFFF, 0x00F0A505]),
            "b": ("b32", [0, 1, 7, 16, 31]),
            "c": ("b32", [0, 1, 2, 5, 32, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFE0]),
        },
        "b32",
        lambda a, b, c: nth_set(a, b, c) if b < 32 else "any",
        source="PTX ISA 9.0, fns",
        most=200,
    )


def all_cases() -> None:
    arithmetic()
    carries()
    bits_and_fields()
    permutes()
    dots()
    find_nth()
