"""Floating-point arithmetic, comparison and selection: expectations from exact fractions.

Source: PTX ISA 9.0, sections 9.7.3 to 9.7.6.
"""

from __future__ import annotations

from collections.abc import Callable

import ieee
from case import Draft, emit, floats, integers, seeded, simple, tuples

SOURCE = "PTX ISA 9.0, floating-point instructions"
MODES = ("rn", "rz", "rm", "rp")
PACKED = {"f16x2": "f16", "bf16x2": "bf16"}

Operation = Callable[..., "int | None"]
OPERATIONS: dict[str, Operation] = {
    "add": ieee.add,
    "sub": lambda t, a, b, m="rn", ftz=False: ieee.add(t, a, b ^ 1 << (ieee.width(t) - 1), m, ftz=ftz),
    "mul": ieee.mul,
    "fma": ieee.fma,
    "div": ieee.div,
    "sqrt": ieee.sqrt,
    "rcp": lambda t, a, m="rn", ftz=False: ieee.div(t, ieee.rounded(t, ieee.Fraction(1)), a, m, ftz=ftz),
}
ARITY = {"fma": 3, "sqrt": 1, "rcp": 1}


def operands(type_: str, count: int) -> dict[str, tuple[str, list[int]]]:
    return {name: (type_, floats(type_)) for name in "abc"[:count]}


def evaluate(op: str, t: str, mode: str, ftz: bool, sat: bool, values: tuple[int, ...]) -> int | str:
    """One operation with its modifiers; ``.sat`` turns NaN into +0."""
    if ftz:
        values = tuple(ieee.flushed(t, v) for v in values)
    result = OPERATIONS[op](t, *values, mode, ftz=ftz)
    if result is None and t == "f64":
        return ieee.inherited(op, values)
    if sat:
        if result is None or ieee.sign(t, result) or result == 0:
            return 0
        one = ieee.rounded(t, ieee.Fraction(1))
        return min(result, one)
    return ieee.text(t, result)


def arithmetic() -> None:
    for op in OPERATIONS:
        for t in ("f32", "f64"):
            for mode in MODES:
                for ftz in (False, True) if t == "f32" else (False,):
                    for sat in (False, True) if t == "f32" and op in ("add", "sub", "mul", "fma") else (False,):
                        if ftz and mode in ("rm", "rz"):
                            continue
                        instruction = ".".join(filter(None, (op, mode, "ftz" if ftz else "", "sat" if sat else "", t)))
                        simple(
                            instruction,
                            operands(t, ARITY.get(op, 2)),
                            t,
                            lambda *v, o=op, t=t, m=mode, f=ftz, s=sat: evaluate(o, t, m, f, s, v),
                            source=SOURCE,
                        )
    for t in ("f16", "bf16"):
        simple(
            f"fma.rn.{t}", operands(t, 3), t, lambda *v, t=t: evaluate("fma", t, "rn", False, False, v), source=SOURCE
        )
        simple(
            f"fma.rn.relu.{t}",
            operands(t, 3),
            t,
            lambda *v, t=t: relu(t, evaluate("fma", t, "rn", False, False, v)),
            source=SOURCE,
        )
    for op in ("add", "sub", "mul"):
        for mods, ftz, sat in (
            ("", False, False),
            (".ftz", True, False),
            (".sat", False, True),
            (".ftz.sat", True, True),
        ):
            simple(
                f"{op}{mods}.f16",
                operands("f16", 2),
                "f16",
                lambda *v, o=op, f=ftz, s=sat: evaluate(o, "f16", "rn", f, s, v),
                source=SOURCE,
            )
        simple(
            f"{op}.bf16",
            operands("bf16", 2),
            "bf16",
            lambda *v, o=op: evaluate(o, "bf16", "rn", False, False, v),
            source=SOURCE,
            target="sm_90",
        )
        packed(f"{op}.f16x2", op, "f16x2", 2)
        packed(f"{op}.bf16x2", op, "bf16x2", 2, target="sm_90")
    packed("fma.rn.f16x2", "fma", "f16x2", 3)
    packed("fma.rn.bf16x2", "fma", "bf16x2", 3)
    packed("fma.rn.ftz.f16x2", "fma", "f16x2", 3, ftz=True)
    packed("fma.rn.sat.f16x2", "fma", "f16x2", 3, sat=True)


def tininess() -> None:
    """Results between the smallest normal and a quarter unit below it, where it matters before which rounding ``.ftz``
    looks: see :func:`ieee.tiny`. No GPU has been asked yet (2026-11-29)."""
    for t, fraction in (("f32", 23), ("f16", 10)):
        rng = seeded(f"tiny{t}")
        pairs: list[tuple[int, int]] = []
        top = 1 << fraction
        while len(pairs) < 32:
            left = rng.randrange(top, 2 * top)
            right = 2 * top * top // left
            missing = 2 * top * top - left * right
            # Mantissas whose product is just below a power of two; the exponents make that the smallest normal.
            if 0 < missing <= top // 4 and top <= right < 2 * top:
                bias = (1 << (ieee.FIELDS[t][0] - 1)) - 1
                pairs.append(((bias - 1) << fraction | left - top, 1 << fraction | right - top))
        minus = 1 << (ieee.width(t) - 1)
        rows = [(a ^ minus if i & 1 else a, b) for i, (a, b) in enumerate(pairs)]
        for mods in ("rn.ftz", "rp.ftz") if t == "f32" else ("ftz",):
            mode = "rp" if "rp" in mods else "rn"
            emit(
                Draft(
                    f"mul.{mods}.{t}.tiny",
                    SOURCE,
                    f"mul.{mods}.{t} d, a, b;",
                    {"a": (t, [r[0] for r in rows]), "b": (t, [r[1] for r in rows])},
                    {"d": (t, [evaluate("mul", t, mode, True, False, row) for row in rows])},
                )
            )
        zeros = [(*row, 0) for row in rows]
        emit(
            Draft(
                f"fma.rn.ftz.{t}.tiny",
                SOURCE,
                f"fma.rn.ftz.{t} d, a, b, c;",
                {n: (t, [row[k] for row in zeros]) for k, n in enumerate("abc")},
                {"d": (t, [evaluate("fma", t, "rn", True, False, row) for row in zeros])},
            )
        )


def tiny_quotients() -> None:
    """Just below twice a power of two, by a power of two: half a subnormal unit below the smallest normal."""
    rng = seeded("tiny quotients")
    minus = 1 << 31
    rows = []
    for i in range(32):
        exponent = rng.randrange(2, 120)
        a = (exponent << 23) | (0x7FFFFF - (i >> 3))
        rows.append((a | minus * (i & 1), (exponent + 127) << 23 | minus * (i >> 1 & 1)))
    for mode in ("rn", "rp"):
        emit(
            Draft(
                f"div.{mode}.ftz.f32.tiny",
                SOURCE,
                f"div.{mode}.ftz.f32 d, a, b;",
                {"a": ("f32", [row[0] for row in rows]), "b": ("f32", [row[1] for row in rows])},
                {"d": ("f32", [evaluate("div", "f32", mode, True, False, row) for row in rows])},
            )
        )


def relu(t: str, result: int | str) -> int | str:
    bits = int(result, 16) if isinstance(result, str) else result
    return 0 if not ieee.is_nan(t, bits) and ieee.sign(t, bits) else result


def packed(
    instruction: str, op: str, type_: str, count: int, *, ftz: bool = False, sat: bool = False, target: str = "sm_80"
) -> None:
    t = PACKED[type_]
    rng = seeded(instruction)
    pool = floats(t)
    pairs = [rng.choice(pool) << 16 | rng.choice(pool) for _ in range(40)]

    def both(*values: int) -> int:
        low, high = (evaluate(op, t, "rn", ftz, sat, tuple(v >> shift & 0xFFFF for v in values)) for shift in (0, 16))
        return number(low) | number(high) << 16

    simple(instruction, dict.fromkeys("abc"[:count], ("b32", pairs)), type_, both, source=SOURCE, target=target)


def number(result: int | str) -> int:
    return int(result, 16) if isinstance(result, str) else result


def extremes() -> None:
    for t, targets in (("f32", "sm_80"), ("f64", "sm_80"), ("f16", "sm_80"), ("bf16", "sm_80")):
        for op in ("min", "max"):
            simple(
                f"{op}.{t}",
                operands(t, 2),
                t,
                lambda a, b, o=op, t=t: extreme(o, t, a, b),
                source=SOURCE,
                target=targets,
                most=240,
            )
            if t != "f64":
                simple(
                    f"{op}.NaN.{t}",
                    operands(t, 2),
                    t,
                    lambda a, b, o=op, t=t: extreme(o, t, a, b, nan=True),
                    source=SOURCE,
                    target=targets,
                )
        if t in ("f32", "f64"):
            top = 1 << (ieee.width(t) - 1)
            finite = [x for x in floats(t) if not ieee.is_nan(t, x)]
            simple(
                f"neg.{t}",
                {"a": (t, finite)},
                t,
                lambda a, top=top, t=t: a ^ top if not ieee.is_nan(t, a) else "nan",
                source=SOURCE,
            )
            simple(
                f"abs.{t}",
                {"a": (t, finite)},
                t,
                lambda a, top=top, t=t: a & ~top if not ieee.is_nan(t, a) else "nan",
                source=SOURCE,
            )
            simple(f"copysign.{t}", operands(t, 2), t, lambda a, b, top=top: (a & top) | (b & ~top), source=SOURCE)
    for op in ("min", "max"):
        simple(
            f"{op}.ftz.f32",
            operands("f32", 2),
            "f32",
            lambda a, b, o=op: extreme(o, "f32", ieee.flushed("f32", a), ieee.flushed("f32", b)),
            source=SOURCE,
        )
    flip = {"neg": lambda a: a ^ 0x8000, "abs": lambda a: a & 0x7FFF}
    for op, change in flip.items():
        for t in ("f16", "bf16"):
            finite = [x for x in floats(t) if not ieee.is_nan(t, x)]
            # Of these only neg.f16 has met a NaN (H200, driver 13.0, 2026-11-29); the manual leaves them open.
            nan = ieee.NAN[t] if (op, t) == ("neg", "f16") else "nan"
            simple(
                f"{op}.{t}",
                {"a": (t, finite)},
                t,
                lambda a, t=t, c=change, nan=nan: c(a) if not ieee.is_nan(t, a) else nan,
                source=SOURCE,
            )
    for what in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        for t in ("f32", "f64"):
            predicate_case(
                f"testp.{what}.{t}",
                f"testp.{what}.{t} p, a;",
                {"a": (t, floats(t))},
                lambda a, w=what, t=t: testp(w, t, a),
            )


def packed_extremes() -> None:
    """min, max, neg and abs on pairs."""
    for type_, t in PACKED.items():
        rng = seeded(f"extremes{type_}")
        pool = floats(t)
        pairs = [rng.choice(pool) << 16 | rng.choice(pool) for _ in range(60)]
        for op in ("min", "max"):

            def both(a: int, b: int, op: str = op, t: str = t) -> int:
                return sum(number(extreme(op, t, a >> s & 0xFFFF, b >> s & 0xFFFF)) << s for s in (0, 16))

            simple(f"{op}.{type_}", dict.fromkeys("ab", ("b32", pairs)), type_, both, source=SOURCE)
        finite = [x for x in pool if not ieee.is_nan(t, x)]
        clean = [rng.choice(finite) << 16 | rng.choice(finite) for _ in range(64)]
        for op, change in (("neg", lambda a: a ^ 0x80008000), ("abs", lambda a: a & 0x7FFF7FFF)):
            emit(
                Draft(
                    f"{op}.{type_}",
                    SOURCE,
                    f"{op}.{type_} d, a;",
                    {"a": ("b32", clean)},
                    {"d": (type_, [change(a) for a in clean])},
                )
            )


def extreme(op: str, t: str, a: int, b: int, *, nan: bool = False) -> int | str:
    na, nb = ieee.is_nan(t, a), ieee.is_nan(t, b)
    if na and nb and t == "f64":
        return ieee.inherited(op, (a, b))
    if (na and nb) or (nan and (na or nb)):
        return ieee.NAN[t]
    if na or nb:
        return b if na else a

    def key(x: int) -> tuple[object, ...]:
        if ieee.is_inf(t, x):
            return (-1 if ieee.sign(t, x) else 1, 0, 0)
        return (0, ieee.value(t, x), -ieee.sign(t, x))

    return min(a, b, key=key) if op == "min" else max(a, b, key=key)


def testp(what: str, t: str, a: int) -> bool:
    nan, infinite = ieee.is_nan(t, a), ieee.is_inf(t, a)
    e, f = ieee.FIELDS[t]
    field = a >> f & ((1 << e) - 1)
    return {
        "finite": not nan and not infinite,
        "infinite": infinite,
        "number": not nan,
        "notanumber": nan,
        # Zeros count as normal (PTX ISA 9.0, 9.7.3.2), and do so on an H200, driver 13.0, 2026-11-29.
        "normal": 0 < field < (1 << e) - 1 or a << 1 & ((1 << ieee.width(t)) - 1) == 0,
        "subnormal": field == 0 and a & ((1 << f) - 1) != 0,
    }[what]


def predicate_case(
    name: str, body: str, inputs: dict[str, tuple[str, list[int]]], expected: Callable[..., bool], *, most: int = 240
) -> None:
    """A case whose result is a predicate."""
    rng = seeded(name)
    widths = [64 if t.endswith("64") else 16 if t.endswith("16") else 32 for t, _ in inputs.values()]
    rows = tuples(rng, [v for _, v in inputs.values()], widths, most=most)
    emit(
        Draft(
            name,
            SOURCE,
            f"{body}\nselp.u32 d, 1, 0, p;",
            {n: (t, [row[k] for row in rows]) for k, (n, (t, _)) in enumerate(inputs.items())},
            {"d": ("b32", [int(expected(*row)) for row in rows])},
            registers=".reg .pred p;",
        )
    )


FLOAT_RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def comparisons() -> None:
    for t in ("f32", "f64", "f16"):
        for relation in FLOAT_RELATIONS:
            predicate_case(
                f"setp.{relation}.{t}",
                f"setp.{relation}.{t} p, a, b;",
                operands(t, 2),
                lambda a, b, r=relation, t=t: ieee.compare(t, r, a, b),
            )
    for relation in ("eq", "lt", "geu"):
        predicate_case(
            f"setp.{relation}.ftz.f32",
            f"setp.{relation}.ftz.f32 p, a, b;",
            operands("f32", 2),
            lambda a, b, r=relation: ieee.compare("f32", r, ieee.flushed("f32", a), ieee.flushed("f32", b)),
        )
    integer = {
        "eq": "==",
        "ne": "!=",
        "lt": "<",
        "le": "<=",
        "gt": ">",
        "ge": ">=",
        "lo": "<",
        "ls": "<=",
        "hi": ">",
        "hs": ">=",
    }
    for t in ("u16", "s16", "u32", "s32", "u64", "s64", "b32"):
        bits = int(t[1:])
        for relation in ("eq", "ne") if t[0] == "b" else tuple(integer) if t[0] == "u" else tuple(integer)[:6]:
            predicate_case(
                f"setp.{relation}.{t}",
                f"setp.{relation}.{t} p, a, b;",
                {n: (f"b{bits}", integers(bits)) for n in "ab"},
                lambda a, b, r=relation, t=t, bits=bits: order(integer[r], reading(t, a, bits), reading(t, b, bits)),
            )
    combined()
    setters()


def reading(t: str, x: int, bits: int) -> int:
    return x - (1 << bits) if t[0] == "s" and x >> (bits - 1) else x


def order(symbol: str, x: int, y: int) -> bool:
    return {"==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[symbol]


def combined() -> None:
    """Both destinations, and a third operand combined by and, or, xor, plain and negated."""
    rows = tuples(seeded("setp.combined"), [floats("f32"), floats("f32"), [0, 1]], [32, 32, 1], most=96)
    inputs = {
        "a": ("f32", [r[0] for r in rows]),
        "b": ("f32", [r[1] for r in rows]),
        "c": ("b32", [r[2] for r in rows]),
    }
    for name, fold in {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "xor": lambda x, y: x != y}.items():
        for negated in (False, True):
            p, q = [], []
            for a, b, c in rows:
                third = bool(c) != negated
                true = ieee.compare("f32", "lt", a, b)
                p.append(int(fold(true, third)))
                q.append(int(fold(not true, third)))
            body = f"""
                setp.ne.u32 r, c, 0;
                setp.lt.{name}.f32 p|q, a, b, {"!" if negated else ""}r;
                selp.u32 d, 1, 0, p;
                selp.u32 e, 1, 0, q;
            """
            emit(
                Draft(
                    f"setp.lt.{name}{'.not' if negated else ''}.f32",
                    SOURCE,
                    body,
                    inputs,
                    {"d": ("b32", p), "e": ("b32", q)},
                    registers=".reg .pred p, q, r;",
                )
            )
    pairs = tuples(
        seeded("setp.f16x2"),
        [[x << 16 | y for x in floats("f16")[::3] for y in floats("f16")[::5]]] * 2,
        [32, 32],
        most=160,
    )
    results = [[int(ieee.compare("f16", "ltu", a >> s & 0xFFFF, b >> s & 0xFFFF)) for a, b in pairs] for s in (0, 16)]
    emit(
        Draft(
            "setp.ltu.f16x2",
            SOURCE,
            "setp.ltu.f16x2 p|q, a, b;\nselp.u32 d, 1, 0, p;\nselp.u32 e, 1, 0, q;",
            {"a": ("b32", [r[0] for r in pairs]), "b": ("b32", [r[1] for r in pairs])},
            {"d": ("b32", results[0]), "e": ("b32", results[1])},
            registers=".reg .pred p, q;",
        )
    )


def setters() -> None:
    one = {"f32": 0x3F800000, "u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF}
    for result in ("u32", "s32", "f32"):
        simple(
            f"set.lt.{result}.f32",
            operands("f32", 2),
            "b32",
            lambda a, b, r=result: one[r] if ieee.compare("f32", "lt", a, b) else 0,
            source=SOURCE,
        )
        simple(
            f"set.ge.{result}.s32",
            {n: ("b32", integers(32)) for n in "ab"},
            "b32",
            lambda a, b, r=result: one[r] if reading("s", a, 32) >= reading("s", b, 32) else 0,
            source=SOURCE,
        )
    pool = [x << 16 | y for x in floats("f16")[::3] for y in floats("f16")[::5]]
    simple(
        "set.eq.f16x2.f16x2",
        dict.fromkeys("ab", ("b32", pool)),
        "b32",
        lambda a, b: sum(
            (0x3C00 if ieee.compare("f16", "eq", a >> s & 0xFFFF, b >> s & 0xFFFF) else 0) << s for s in (0, 16)
        ),
        source=SOURCE,
    )
    for t in ("b16", "b32", "b64", "f32", "f64"):
        bits = int("".join(c for c in t if c.isdigit()))
        rows = tuples(seeded(f"selp{t}"), [integers(bits), integers(bits), [0, 1]], [bits, bits, 1], most=64)
        emit(
            Draft(
                f"selp.{t}",
                SOURCE,
                f"setp.ne.u32 p, c, 0;\nselp.{t} d, a, b, p;",
                {
                    "a": (f"b{bits}", [r[0] for r in rows]),
                    "b": (f"b{bits}", [r[1] for r in rows]),
                    "c": ("b32", [r[2] for r in rows]),
                },
                {"d": (f"b{bits}", [r[0] if r[2] else r[1] for r in rows])},
                registers=".reg .pred p;",
            )
        )
    simple(
        "slct.u32.s32",
        {n: ("b32", integers(32)) for n in "abc"},
        "b32",
        lambda a, b, c: b if c >> 31 else a,
        source=SOURCE,
    )
    simple(
        "slct.b64.f32",
        {"a": ("b64", integers(64)), "b": ("b64", integers(64)), "c": ("f32", floats("f32"))},
        "b64",
        lambda a, b, c: a if not ieee.is_nan("f32", c) and (c == 0x80000000 or not c >> 31) else b,
        source=SOURCE,
    )


def all_cases() -> None:
    arithmetic()
    tininess()
    tiny_quotients()
    extremes()
    packed_extremes()
    comparisons()
