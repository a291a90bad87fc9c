"""Video instructions: the manual's pseudocode on Python integers.

Source: PTX ISA 9.0, sections 9.7.16 (scalar) and 9.7.17 (SIMD).
"""

from __future__ import annotations

from case import Draft, emit, integers, seeded, tuples

SOURCE = "PTX ISA 9.0, video instructions"
WORD = 0xFFFFFFFF
ROWS = 96
# Registers of the body are named a, b, c; the operands as written may select from them.
FORMS = [
    *(f"{op}.{d}.{a}.{b}{sat}" for op in ("vadd", "vsub", "vabsdiff")
      for d, a, b, sat in (("s32", "u32", "s32", ""), ("s32", "s32", "s32", ".sat"))),
    "vsub.u32.u32.u32.sat", "vabsdiff.u32.u32.u32.sat",
    *(f"{op}.{d}.{a}.{b}{sat}" for op in ("vmin", "vmax")
      for d, a, b, sat in (("s32", "u32", "s32", ""), ("s32", "s32", "s32", ".sat"), ("u32", "u32", "s32", ".sat"))),
    "vadd.s32.s32.u32.min", "vsub.u32.u32.u32.add", "vmax.s32.s32.s32.add",
    "vadd.s32.s32.s32.sat.min",
    *(f"vshl.{d}.{d}.u32.{mode}" for d in ("u32", "s32") for mode in ("clamp", "wrap")),
    *(f"vshr.{d}.{d}.u32{sat}.{mode}" for d in ("u32", "s32") for sat in ("", ".sat") for mode in ("clamp", "wrap")),
    "vshr.u32.u32.u32.clamp.add",
    *(f"vmad.s32.s32.s32{rest}" for rest in ("", ".sat", ".shr7", ".sat.shr15", ".po.shr7")),
    *(f"vset.{a}.{b}.{cmp}" for a, b, cmp in (("s32", "s32", "lt"), ("u32", "u32", "ge"), ("u32", "s32", "eq"))),
    "vset.s32.u32.gt.add", "vset.u32.u32.ne.max",
]  # fmt: skip
"""Forms that an H200 computes as the manual says; the others are refused (ptx/video.py, unlike_the_manual)."""
SELECTED = [
    ("vadd.s32.s32.u32", "d", "a.b3", "b.h1", False),
    ("vsub.u32.s32.s32", "d.b2", "a.h0", "b.b1", True),
    ("vmin.s32.s32.s32", "d.b0", "a.b0", "b", True),
    ("vabsdiff.u32.u32.u32", "d.h0", "a.h1", "b.h0", True),
    ("vmad.s32.s32.s32", "d", "a.h0", "b.h1", True),
    ("vset.s32.s32.le", "d.b3", "a.b1", "b.b2", True),
    ("vshl.u32.u32.u32.wrap", "d", "a.h0", "b.b0", False),
]
SIMD = [
    *(f"{op}{n}.{d}.{a}.{b}{rest}" for op in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax") for n in (2, 4)
      for d, a, b, rest in (("u32", "u32", "u32", ""), ("s32", "s32", "s32", ".sat"), ("s32", "u32", "s32", ".add"))),
    *(f"vset{n}.{a}.{b}.{cmp}{rest}" for n in (2, 4)
      for a, b, cmp, rest in (("u32", "u32", "lt", ""), ("s32", "s32", "ge", ".add"), ("u32", "s32", "ne", ""))),
]  # fmt: skip
SIMD_SELECTED = [
    ("vadd2.u32.u32.u32.sat", "d.h1", "a.h02", "b.h31"),
    ("vsub2.s32.s32.s32.add", "d.h0", "a.h33", "b.h10"),
    ("vabsdiff4.u32.u32.u32", "d.b20", "a.b7160", "b.b0213"),
    ("vmin4.s32.s32.s32.add", "d.b310", "a.b3210", "b.b7766"),
    ("vset4.u32.s32.gt", "d.b3", "a.b4567", "b.b0123"),
]


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def pick(word: int, selector: str, type_: str) -> int:
    width, number = (32, 0) if not selector else (8 if selector[0] == "b" else 16, int(selector[1:]))
    value = word >> width * number & (1 << width) - 1
    return signed(value, width) if type_ == "s32" else value


def clamp(value: int, type_: str, bits: int) -> int:
    if type_ == "s32":
        return max(-(1 << bits - 1), min(value, (1 << bits - 1) - 1))
    return max(0, min(value, (1 << bits) - 1))


def combine(op: str, x: int, y: int, mods: list[str]) -> int:
    if op in ("vshl", "vshr"):
        y = y & 31 if "wrap" in mods else min(y, 32)
        return x << y if op == "vshl" else x >> y
    relations = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
    if op == "vset":
        return int(next(relations[mod] for mod in mods if mod in relations))
    total = x + y
    values = {
        "vadd": total, "vsub": x - y, "vabsdiff": abs(x - y), "vmin": min(x, y), "vmax": max(x, y),
        "vavrg": (total + 1) // 2 if total >= 0 else total // 2,
    }  # fmt: skip
    return values[op]


def scalar(form: str, selectors: tuple[str, str, str], a: int, b: int, c: int) -> int:
    op, *mods = form.split(".")
    types = [mod for mod in mods if mod in ("u32", "s32")]
    if op == "vset":
        types = ["u32", *types]
    x, y = pick(a, selectors[1], types[1]), pick(b, selectors[2], types[2])
    if op == "vmad":
        sign = "s32" if "s32" in types[1:] else "u32"
        value = x * y + (signed(c, 32) if sign == "s32" else c) + ("po" in mods)
        value >>= 15 if "shr15" in mods else 7 if "shr7" in mods else 0
        return (clamp(value, sign, 32) if "sat" in mods else value) & WORD
    value = combine(op, x, y, mods)
    part = selectors[0]
    bits = 32 if not part else 8 if part[0] == "b" else 16
    if "sat" in mods:
        value = clamp(value, types[0], bits)
    if part:
        at = bits * int(part[1:])
        mask = ((1 << bits) - 1) << at
        return c & ~mask & WORD | value << at & mask
    value &= WORD
    for mod in mods:
        if mod == "add":
            return (value + c) & WORD
        if mod in ("min", "max"):
            pair = [signed(v, 32) if types[0] == "s32" else v for v in (value, c)]
            return (min(pair) if mod == "min" else max(pair)) & WORD
    return value


def simd(form: str, selectors: tuple[str, str, str], a: int, b: int, c: int) -> int:
    name, *mods = form.split(".")
    op, n = name[:-1], int(name[-1])
    bits = 32 // n
    types = [mod for mod in mods if mod in ("u32", "s32")]
    if op == "vset":
        types = ["u32", *types]
    both = a | b << 32
    numbers = [
        [int(digit) for digit in reversed(selector[1:])] if selector else [first + i for i in range(n)]
        for selector, first in ((selectors[1], 0), (selectors[2], n))
    ]
    results = []
    for i in range(n):
        x, y = (both >> bits * number[i] & (1 << bits) - 1 for number in numbers)
        x = signed(x, bits) if types[1] == "s32" else x
        y = signed(y, bits) if types[2] == "s32" else y
        value = combine(op, x, y, mods)
        results.append(clamp(value, types[0], bits) if "sat" in mods else value)
    chosen = {int(digit) for digit in selectors[0][1:]} if selectors[0] else set(range(n))
    if "add" in mods:
        return (c + sum(results[i] for i in chosen)) & WORD
    for i in chosen:
        mask = ((1 << bits) - 1) << bits * i
        c = c & ~mask & WORD | results[i] << bits * i & mask
    return c


def selector(operand: str) -> str:
    return operand.partition(".")[2]


def case(form: str, operands: tuple[str, str, str], with_c: bool, function: object) -> None:
    written = (*operands, "c") if with_c else operands
    name = form + "".join(f".{selector(o)}" for o in operands if selector(o))
    edge = [*integers(32), 5, 31, 33, 0x80FF7F01, 0x00010203, 0xFFFE0000]
    rows = tuples(seeded(name), [edge] * 3, [32] * 3, most=ROWS)[:ROWS]
    selectors = tuple(map(selector, operands))
    assert callable(function)
    emit(
        Draft(
            name,
            SOURCE,
            f"{form} {', '.join(written)};",
            {n: ("b32", [row[k] for row in rows]) for k, n in enumerate("abc")},
            {"d": ("b32", [function(form, selectors, *row) for row in rows])},
        )
    )


def all_cases() -> None:
    for form in FORMS:
        case(form, ("d", "a", "b"), form.startswith("vmad") or any(m in form for m in (".add", ".min", ".max")), scalar)
    for form, d, a, b, with_c in SELECTED:
        case(form, (d, a, b), with_c, scalar)
    for form in SIMD:
        case(form, ("d", "a", "b"), True, simd)
    for form, d, a, b in SIMD_SELECTED:
        case(form, (d, a, b), True, simd)
