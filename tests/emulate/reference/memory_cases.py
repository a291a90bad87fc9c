"""Loads, stores, moves, address conversion and atomics.

Source: PTX ISA 9.0, sections 9.7.9 and 9.7.13.6.
"""

from __future__ import annotations

from fractions import Fraction

import ieee
from case import Draft, emit, seeded

SOURCE = "PTX ISA 9.0, data movement"
ATOMICS = "PTX ISA 9.0, atom"
LANES = 32


def noise(name: str, bits: int, count: int = LANES) -> list[int]:
    rng = seeded(name)
    return [rng.getrandbits(bits) for _ in range(count)]


def extend(t: str, value: int, bits: int) -> int:
    width = int(t[1:])
    value &= (1 << width) - 1
    return (value - (1 << width) if t[0] == "s" and value >> (width - 1) else value) & ((1 << bits) - 1)


def loads() -> None:
    """Sub-word loads into wider registers, from each space."""
    for t in ("u8", "s8", "u16", "s16", "b8", "b16"):
        values = noise(f"ld{t}", 32)
        for bits in (32, 64):
            emit(
                Draft(
                    f"ld.global.{t}.b{bits}",
                    SOURCE,
                    f"mad.wide.u32 %at, %row, 4, %in;\nld.global.{t} d, [%at+1];"
                    if int(t[1:]) == 8
                    else f"mad.wide.u32 %at, %row, 4, %in;\nld.global.{t} d, [%at+2];",
                    {"a": ("b32", values)},
                    {"d": (f"b{bits}", [extend(t, v >> (8 if int(t[1:]) == 8 else 16), bits) for v in values])},
                )
            )
    values = noise("vectors", 32)
    for space, declaration in (
        ("shared", ".shared .align 16 .b8 room[512];"),
        ("local", ".local .align 16 .b8 room[16];"),
    ):
        place = (
            "mov.u32 place, room;\nmad.lo.u32 place, %thread, 16, place;"
            if space == "shared"
            else "mov.u64 place, room;"
        )
        body = f"""
            {place}
            add.u32 b, a, 1;
            not.b32 c, a;
            st.{space}.v4.b32 [place], {{a, b, c, 7}};
            ld.{space}.v2.b32 {{d, e}}, [place];
            ld.{space}.v2.b32 {{f, g}}, [place+8];
            ld.{space}.u8 h, [place+1];
            ld.{space}.s16 k, [place+6];
        """
        emit(
            Draft(
                f"st.{space}.v4",
                SOURCE,
                body,
                {"a": ("b32", values)},
                {
                    "d": ("b32", values),
                    "e": ("b32", [(v + 1) & 0xFFFFFFFF for v in values]),
                    "f": ("b32", [v ^ 0xFFFFFFFF for v in values]),
                    "g": ("b32", [7] * LANES),
                    "h": ("b32", [v >> 8 & 255 for v in values]),
                    "k": ("b32", [extend("s16", (v + 1) >> 16, 32) for v in values]),
                },
                registers=declaration
                + "\n.reg .b32 b, c;\n.reg .b"
                + ("32" if space == "shared" else "64")
                + " place;",
            )
        )
    emit(
        Draft(
            "generic.shared",
            SOURCE,
            """
            mov.u32 place, room;
            mad.lo.u32 place, %thread, 4, place;
            cvt.u64.u32 wide, place;
            cvta.shared.u64 wide, wide;
            st.b32 [wide], a;
            ld.shared.b32 d, [place];
            cvta.to.shared.u64 back, wide;
            cvt.u32.u64 place2, back;
            sub.u32 e, place2, place;
            isspacep.shared p, wide;
            selp.u32 f, 1, 0, p;
            isspacep.global p, wide;
            selp.u32 g, 1, 0, p;
            isspacep.global p, %at;
            selp.u32 h, 1, 0, p;
            """,
            {"a": ("b32", values)},
            {
                "d": ("b32", values),
                "e": ("b32", [0] * LANES),
                "f": ("b32", [1] * LANES),
                "g": ("b32", [0] * LANES),
                "h": ("b32", [1] * LANES),
            },
            registers=".shared .align 4 .b8 room[128];\n.reg .b32 place, place2;\n.reg .b64 wide, back;\n.reg .pred p;",
        )
    )
    emit(
        Draft(
            "ld.const",
            SOURCE,
            "mov.u64 place, table;\nand.b32 i, a, 3;\nmad.wide.u32 place, i, 4, place;\nld.const.b32 d, [place];\n"
            "ld.global.u64 where, [pointer];\nld.global.u16 e, [where];",
            {"a": ("b32", values)},
            {
                "d": ("b32", [[0x01020304, 0xFFFFFFFE, 5, 0x3F800000][v & 3] for v in values]),
                "e": ("b32", [0x0807] * LANES),
            },
            registers=".reg .b64 place, where;\n.reg .b32 i;",
            outside=".const .align 4 .u32 table[4] = {0x01020304, -2, 5, 1065353216};\n"
            ".global .align 4 .b8 bytes[8] = {3, 4, 5, 6, 7, 8};\n.global .align 8 .u64 pointer = generic(bytes)+4;",
        )
    )
    emit(
        Draft(
            "ld.zero_tail",
            SOURCE,
            "ld.global.u16 d, [bytes+6];\nadd.u32 d, d, a;",
            {"a": ("b32", [0] * LANES)},
            {"d": ("b32", [0] * LANES)},
            outside=".global .align 4 .b8 bytes[8] = {3, 4, 5, 6, 7, 8};",
        )
    )


def moves() -> None:
    wide = noise("mov", 64)
    emit(
        Draft(
            "mov.unpack",
            SOURCE,
            "mov.b64 {d, e}, a;\nmov.b32 {f, g}, d;\nmov.b64 {_, h}, a;\n"
            "mov.b64 {k0, k1, k2, k3}, a;\nmov.b64 k, {k3, k2, k1, k0};\n"
            "mov.b32 m, {g, f};",
            {"a": ("b64", wide)},
            {
                "d": ("b32", [v & 0xFFFFFFFF for v in wide]),
                "e": ("b32", [v >> 32 for v in wide]),
                "f": ("b16", [v & 0xFFFF for v in wide]),
                "g": ("b16", [v >> 16 & 0xFFFF for v in wide]),
                "h": ("b32", [v >> 32 for v in wide]),
                "k": ("b64", [sum((v >> 16 * i & 0xFFFF) << 16 * (3 - i) for i in range(4)) for v in wide]),
                "m": ("b32", [(v & 0xFFFF) << 16 | v >> 16 & 0xFFFF for v in wide]),
            },
            registers=".reg .b16 k0, k1, k2, k3;",
        )
    )
    emit(
        Draft(
            "mov.special",
            SOURCE,
            "mov.u32 d, %laneid;\nmov.u32 e, %lanemask_lt;\nmov.u32 f, %lanemask_ge;\n"
            "mov.u32 g, %ntid.x;\nmov.u32 h, %nctaid.x;\n"
            "mov.u32 k, %warpid;\nmov.u32 m, WARP_SZ;\nmov.u32 n, %ctaid.y;\nadd.u32 n, n, a;",
            {"a": ("b32", [0] * 64)},
            {
                "d": ("b32", [i % 32 for i in range(64)]),
                "e": ("b32", [(1 << i % 32) - 1 for i in range(64)]),
                "f": ("b32", [0xFFFFFFFF << i % 32 & 0xFFFFFFFF for i in range(64)]),
                "g": ("b32", [64] * 64),
                "h": ("b32", [1] * 64),
                # %warpid names a slot of the multiprocessor and may be any: an H200 answered 2 for the first warp.
                "k": ("b32", ["any"] * 64),
                "m": ("b32", [32] * 64),
                "n": ("b32", [0] * 64),
            },
            block=64,
        )
    )


def atomics() -> None:
    """One cell a lane (old and new value), so that the order of lanes does not matter."""
    operations = {
        "add": lambda t, o, b: wrapped(t, reading(t, o) + reading(t, b)),
        "min": lambda t, o, b: wrapped(t, min(reading(t, o), reading(t, b))),
        "max": lambda t, o, b: wrapped(t, max(reading(t, o), reading(t, b))),
        "and": lambda t, o, b: o & b,
        "or": lambda t, o, b: o | b,
        "xor": lambda t, o, b: o ^ b,
        "exch": lambda t, o, b: b,
        "inc": lambda t, o, b: 0 if o >= b else o + 1,
        "dec": lambda t, o, b: b if o == 0 or o > b else o - 1,
    }
    forms = {
        "add": ("u32", "s32", "u64"),
        "min": ("u32", "s32", "u64", "s64"),
        "max": ("u32", "s32", "u64", "s64"),
        "and": ("b32", "b64"),
        "or": ("b32", "b64"),
        "xor": ("b32", "b64"),
        "exch": ("b32", "b64"),
        "inc": ("u32",),
        "dec": ("u32",),
    }
    for op, types in forms.items():
        for t in types:
            bits = int(t[1:])
            old = [*noise(f"atom.{op}.{t}.old", bits, 28), 0, 5, 1 << (bits - 1), (1 << bits) - 1]
            new = [*noise(f"atom.{op}.{t}.new", bits, 28), 7, 5, (1 << bits) - 1, 1]
            expected = [operations[op](t, o, b) for o, b in zip(old, new, strict=True)]
            cell_case(f"atom.{op}.{t}", f"{op}.{t}", t, old, [new], expected)
    for bits in (16, 32, 64):
        old = noise(f"cas{bits}", bits)
        same = [o if i % 2 else o ^ 1 for i, o in enumerate(old)]
        new = noise(f"casnew{bits}", bits)
        expected = [n if s == o else o for o, s, n in zip(old, same, new, strict=True)]
        cell_case(f"atom.cas.b{bits}", f"cas.b{bits}", f"b{bits}", old, [same, new], expected)
    for t in ("f32", "f64", "f16", "bf16"):
        pool = list(_finite(t))
        rng = seeded(f"atomadd{t}")
        old = [rng.choice(pool) for _ in range(LANES)]
        new = [rng.choice(pool) for _ in range(LANES)]

        def expected_of(o: int, b: int, t: str = t, ftz: bool = t == "f32") -> int | str:
            if ftz:
                o, b = ieee.flushed(t, o), ieee.flushed(t, b)
            r = ieee.add(t, o, b)
            return "nan" if r is None else ieee.flushed(t, r) if ftz else r

        mods = "add.noftz" if t in ("f16", "bf16") else "add"
        cell_case(
            f"atom.add.{t}",
            f"{mods}.{t}",
            t,
            old,
            [new],
            [expected_of(o, b) for o, b in zip(old, new, strict=True)],
            target="sm_90" if t == "bf16" else "sm_80",
        )
        if t == "f32":
            cell_case(
                "atom.shared.add.f32",
                "add.f32",
                t,
                old,
                [new],
                [expected_of(o, b, ftz=False) for o, b in zip(old, new, strict=True)],
                shared=True,
            )
    pairs()
    collisions()


def pairs() -> None:
    """Atomic addition on packed halves; sums that are NaN do not occur."""
    for type_, t in (("f16x2", "f16"), ("bf16x2", "bf16")):
        rng = seeded(f"atom{type_}")
        pool = _finite(t)
        old, new = ([rng.choice(pool) << 16 | rng.choice(pool) for _ in range(LANES)] for _ in "ab")
        expected = []
        for o, b in zip(old, new, strict=True):
            halves = [ieee.add(t, o >> s & 0xFFFF, b >> s & 0xFFFF) for s in (0, 16)]
            expected.append((halves[0] or 0) | (halves[1] or 0) << 16)
        body = f"""
            mad.wide.u32 place, %row, 4, %in;
            atom.global.add.noftz.{type_} d, [place], b;
            ld.global.b32 e, [place];
        """
        emit(
            Draft(
                f"atom.add.{type_}",
                ATOMICS,
                body,
                {"a": ("b32", old), "b": ("b32", new)},
                {"d": ("b32", old), "e": (type_, expected)},
                registers=".reg .b64 place;",
                target="sm_90" if t == "bf16" else "sm_80",
            )
        )


def _finite(t: str) -> list[int]:
    from case import floats

    return [p for p in floats(t) if not ieee.is_nan(t, p) and not ieee.is_inf(t, p)]


def reading(t: str, x: int) -> int:
    bits = int(t[1:])
    return x - (1 << bits) if t[0] == "s" and x >> (bits - 1) else x


def wrapped(t: str, x: int) -> int:
    return x & ((1 << int(t[1:])) - 1)


def cell_case(
    name: str,
    operation: str,
    t: str,
    old: list[int],
    operands: list[list[int]],
    expected: list[int | str],
    *,
    shared: bool = False,
    target: str = "sm_80",
) -> None:
    bits = int("".join(c for c in t if c.isdigit()))
    size = bits // 8
    space = "shared" if shared else "global"
    if shared:
        place = f"mov.u32 place, room;\nmad.lo.u32 place, %thread, {size}, place;\nst.shared.b{bits} [place], a;"
        registers = f".shared .align 8 .b8 room[{32 * size}];\n.reg .b32 place;"
    else:
        # The first operand column itself is the cells: each lane owns its element.
        place = f"mad.wide.u32 place, %row, {size}, %in;"
        registers = ".reg .b64 place;"
    names = [chr(ord("b") + k) for k in range(len(operands))]
    body = f"""
        {place}
        atom.{space}.{operation} d, [place], {", ".join(names)};
        ld.{space}.b{bits} e, [place];
    """
    column = t if t in ieee.FIELDS else f"b{bits}"
    emit(
        Draft(
            name,
            ATOMICS,
            body,
            {"a": (column, old)} | {n: (column, v) for n, v in zip(names, operands, strict=True)},
            {"d": (column, old), "e": (column, expected)},
            registers=registers,
            target=target,
        )
    )
    if not shared and "cas" not in operation and "exch" not in operation:
        emit(
            Draft(
                name.replace("atom", "red"),
                ATOMICS,
                f"{place}\nred.global.{operation} [place], b;\nld.global.b{bits} d, [place];",
                {"a": (column, old), "b": (column, operands[0])},
                {"d": (column, expected)},
                registers=registers,
                target=target,
            )
        )


def collisions() -> None:
    """All lanes on one shared cell: only the final value is defined."""
    values = noise("collide", 32)
    for op, fold in (("add", sum(values) & 0xFFFFFFFF), ("max", max(values)), ("xor", 0)):
        total = fold
        if op == "xor":
            for v in values:
                total ^= v
        t = "b32" if op == "xor" else "u32"
        emit(
            Draft(
                f"atom.shared.{op}.all",
                ATOMICS,
                f"""
                mov.u32 place, room;
                mov.u32 zero, 0;
                st.shared.u32 [place], zero;
                bar.sync 0;
                atom.shared.{op}.{t} old, [place], a;
                bar.sync 0;
                ld.shared.u32 d, [place];
                """,
                {"a": ("b32", values)},
                {"d": ("b32", [total] * LANES)},
                registers=".shared .align 4 .b8 room[4];\n.reg .b32 place, zero, old;",
            )
        )


def vector_atomics() -> None:
    """atom and red on two and four neighbours (sm_90): each lane its own cells, which hold 1.5 before."""
    start = 0x3FC00000
    names = "abef"
    for n in (2, 4):
        columns = {
            name: [ieee.rounded("f32", Fraction(x, 8)) for x in noise(f"vector{n}{name}", 10)] for name in names[:n]
        }
        after = {
            name: [ieee.rounded("f32", Fraction(ieee.value("f32", x)) + Fraction(3, 2)) for x in column]
            for name, column in columns.items()
        }
        for op in ("atom", "red"):
            old = "{" + ", ".join(f"o{i}" for i in range(n)) + "}, " if op == "atom" else ""
            reads = "{" + ", ".join(f"d{i}" for i in range(n)) + "}"
            vector = "{" + ", ".join(names[:n]) + "}"
            start_of = "{" + ", ".join(["first"] * n) + "}"
            body = f"""
                mov.b32 first, {start};
                mad.wide.u32 place, %row, 16, %out;
                add.u64 place, place, 2048;
                st.global.v{n}.b32 [place], {start_of};
                {op}.global.add.v{n}.f32 {old}[place], {vector};
                ld.global.v{n}.b32 {reads}, [place];
            """
            outputs: dict[str, tuple[str, list[int | str]]] = {
                f"d{i}": ("b32", list(after[name])) for i, name in enumerate(names[:n])
            }
            if op == "atom":
                outputs |= {f"o{i}": ("b32", [start] * LANES) for i in range(n)}
            room = 8 - len(outputs)
            outputs |= {f"z{i}": ("b32", ["any"] * LANES) for i in range(room)}
            outputs |= {f"y{i}": ("b32", ["any"] * LANES) for i in range(2)}
            unused = "\n".join(f"mov.b32 {name}, 0;" for name in outputs if name[0] in "yz")
            registers = ".reg .b32 first;\n.reg .b64 place;"
            inputs = {name: ("f32", column) for name, column in columns.items()}
            emit(
                Draft(
                    f"{op}.add.v{n}.f32",
                    ATOMICS,
                    body + unused,
                    inputs,
                    outputs,
                    registers=registers,
                    target="sm_90",
                    version="8.1",
                )
            )


def all_cases() -> None:
    loads()
    moves()
    atomics()
    vector_atomics()
