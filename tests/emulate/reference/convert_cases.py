"""cvt between all types: expectations from exact fractions.

Source: PTX ISA 9.0, section 9.7.9.21.
"""

from __future__ import annotations

import math
from fractions import Fraction

import ieee
from case import Draft, emit, floats, integers, seeded, simple

SOURCE = "PTX ISA 9.0, cvt"
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
ROUNDINGS = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}


def limits(t: str) -> tuple[int, int]:
    bits = int(t[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if t[0] == "s" else (0, (1 << bits) - 1)


def reading(t: str, x: int) -> int:
    bits = int(t[1:])
    return x - (1 << bits) if t[0] == "s" and x >> (bits - 1) else x


def register(t: str) -> str:
    """The column type: 8-bit values lie in 16-bit registers, and ``cvt`` reads or fills the whole register."""
    return f"b{max(int(t[1:]), 16)}"


def filled(t: str, value: int) -> int:
    """What a register holds after a conversion to ``t``: extended by the type's sign where it is wider."""
    bits = int(t[1:])
    return reading(t, value & ((1 << bits) - 1)) & ((1 << max(bits, 16)) - 1)


def integer_to_integer() -> None:
    for of in INTEGERS:
        for to in INTEGERS:
            if of == to:
                continue
            bits = int(of[1:])
            # The upper half of an 8-bit source's register is noise that cvt must ignore.
            noise = 0xC300 if bits == 8 else 0
            values = [v | noise for v in integers(bits)]
            low = lambda a, bits=bits: a & ((1 << bits) - 1)  # noqa: E731
            simple(
                f"cvt.{to}.{of}",
                {"a": (register(of), values)},
                register(to),
                lambda a, to=to, of=of, low=low: filled(to, reading(of, low(a))),
                source=SOURCE,
            )
            if limits(to)[0] <= limits(of)[0] and limits(of)[1] <= limits(to)[1]:
                # Nothing to saturate: ptxas refuses the modifier.
                continue
            simple(
                f"cvt.sat.{to}.{of}",
                {"a": (register(of), values)},
                register(to),
                lambda a, to=to, of=of, low=low: filled(
                    to, min(max(reading(of, low(a)), limits(to)[0]), limits(to)[1])
                ),
                source=SOURCE,
            )


def to_integer(t: str, of: str, mode: str, a: int, *, ftz: bool = False) -> int:
    low, high = limits(t)
    bits = int(t[1:])
    if ieee.is_nan(of, a):
        value = 1 << (bits - 1) if of == "f64" or bits == 64 else 0
        return filled(t, value)
    if ftz:
        a = ieee.flushed(of, a)
    if ieee.is_inf(of, a):
        return filled(t, low if ieee.sign(of, a) else high)
    return filled(t, min(max(integral(ieee.value(of, a), mode), low), high))


def integral(x: Fraction, mode: str) -> int:
    return {
        "rn": lambda: round(x),
        "rz": lambda: math.trunc(x),
        "rm": lambda: math.floor(x),
        "rp": lambda: math.ceil(x),
    }[mode]()


def around(t: str) -> list[int]:
    """Patterns near the edges of integer ranges, and halves."""
    found = []
    for edge in (0, 7, 8, 15, 16, 31, 32, 63, 64):
        for delta in (Fraction(0), Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(1, 4)):
            for sign in (1, -1):
                for direction in (1, -1):
                    x = sign * (Fraction(2) ** edge + direction * delta)
                    found.append(ieee.rounded(t, x))
    return sorted({*found, *floats(t)})


def float_to_integer() -> None:
    for of in ("f16", "f32", "f64"):
        for to in INTEGERS[2:]:
            for spelling, mode in ROUNDINGS.items():
                simple(
                    f"cvt.{spelling}.{to}.{of}",
                    {"a": (of, around(of))},
                    register(to),
                    lambda a, to=to, of=of, m=mode: to_integer(to, of, m, a),
                    source=SOURCE,
                    most=400,
                )
    for to in ("s32", "u32", "s64"):
        simple(
            f"cvt.rpi.ftz.{to}.f32",
            {"a": ("f32", around("f32"))},
            register(to),
            lambda a, to=to: to_integer(to, "f32", "rp", a, ftz=True),
            source=SOURCE,
            most=400,
        )
    for to in ("u8", "s8"):
        simple(
            f"cvt.rzi.{to}.f32",
            {"a": ("f32", around("f32"))},
            register(to),
            lambda a, to=to: to_integer(to, "f32", "rz", a),
            source=SOURCE,
            most=400,
        )


def integer_to_float() -> None:
    for of in INTEGERS:
        bits = int(of[1:])
        values = sorted(
            {
                *integers(bits),
                *(
                    x & ((1 << bits) - 1)
                    for x in (0xFFFFFF, 0x1000001, 0x1000003, (1 << 53) + 1, 0x7FFFFFBF, 2049, 65519, 65520)
                ),
            }
        )
        for to in ("f16", "f32", "f64"):
            for mode in ("rn", "rz", "rm", "rp") if to != "f16" or bits > 8 else ("rn",):
                simple(
                    f"cvt.{mode}.{to}.{of}",
                    {"a": (register(of), values)},
                    to,
                    lambda a, to=to, of=of, m=mode, bits=bits: ieee.rounded(
                        to, Fraction(reading(of, a & ((1 << bits) - 1))), m
                    ),
                    source=SOURCE,
                )


def float_to_float(to: str, of: str, mode: str, a: int, *, ftz: bool = False, sat: bool = False) -> int | str:
    if ieee.is_nan(of, a):
        return 0 if sat else converted_nan(to, of, a, ftz=ftz)
    if ftz and of == "f32":
        a = ieee.flushed(of, a)
    if ieee.is_inf(of, a):
        result = ieee.inf(to, bool(ieee.sign(of, a)))
    else:
        result = ieee.rounded(to, ieee.value(of, a), mode, zero_negative=bool(ieee.sign(of, a)))
    if ftz and to == "f32":
        result = ieee.flushed(to, result)
    if sat:
        return 0 if ieee.sign(to, result) else min(result, ieee.rounded(to, Fraction(1)))
    return result


def converted_nan(to: str, of: str, a: int, *, ftz: bool) -> int | str:
    """What a NaN becomes: observed on an H200, driver 13.0, 2026-11-29.

    From f64 to a narrower type sign and quietness alone remain. To f64 sign and payload remain, but with ``.ftz`` the
    source is read as the canonical f32. Everywhere else the result is the type's canonical NaN.
    """
    e, f = ieee.FIELDS[to]
    if of == "f64" and to != "f64":
        return ieee.sign(of, a) << (e + f) | ieee.quiet(to, ieee.inf(to, False))
    if to == "f64":
        if ftz:
            of, a = "f32", int(ieee.NAN["f32"], 16)
        payload = a & ((1 << ieee.FIELDS[of][1]) - 1)
        return ieee.quiet("f64", ieee.inf("f64", bool(ieee.sign(of, a))) | payload << (f - ieee.FIELDS[of][1]))
    return ieee.NAN[to]


def narrow() -> list[int]:
    """f32 patterns at and around rounding boundaries of f16 and bf16."""
    found = list(floats("f32"))
    for t in ("f16", "bf16"):
        for pattern in floats(t):
            if ieee.is_nan(t, pattern) or ieee.is_inf(t, pattern):
                continue
            here = ieee.value(t, pattern)
            after = (
                ieee.value(t, pattern + 1)
                if not ieee.is_inf(t, pattern + 1) and not ieee.is_nan(t, pattern + 1)
                else here * 2
            )
            for x in ((here + after) / 2, here + (after - here) / 4):
                found.append(ieee.rounded("f32", x))
    return sorted({*found, *(p + d for p in found for d in (1, -1) if 0 <= p + d < 1 << 32)})


def float_float() -> None:
    for mode in ("rn", "rz", "rm", "rp"):
        for to, of in (("f32", "f64"), ("f16", "f32"), ("f16", "f64")):
            pool = (
                narrow()
                if of == "f32"
                else sorted(
                    {
                        *floats("f64"),
                        *(
                            ieee.rounded("f64", ieee.value("f32", x))
                            for x in narrow()
                            if not ieee.is_nan("f32", x) and not ieee.is_inf("f32", x)
                        ),
                    }
                )
            )
            simple(
                f"cvt.{mode}.{to}.{of}",
                {"a": (of, pool)},
                to,
                lambda a, to=to, of=of, m=mode: float_to_float(to, of, m, a),
                source=SOURCE,
                most=400,
            )
    for mode in ("rn", "rz"):
        simple(
            f"cvt.{mode}.bf16.f32",
            {"a": ("f32", narrow())},
            "bf16",
            lambda a, m=mode: float_to_float("bf16", "f32", m, a),
            source=SOURCE,
            most=400,
        )
        for packed, t in (("f16x2", "f16"), ("bf16x2", "bf16")):
            for relu in ("", ".relu"):

                def both(a: int, b: int, t: str = t, m: str = mode, relu: str = relu) -> int:
                    parts = []
                    for x in (b, a):
                        r = float_to_float(t, "f32", m, x)
                        bits = int(r, 16) if isinstance(r, str) else r
                        parts.append(0 if relu and not ieee.is_nan(t, bits) and ieee.sign(t, bits) else bits)
                    return parts[0] | parts[1] << 16

                simple(
                    f"cvt.{mode}{relu}.{packed}.f32",
                    {"a": ("f32", narrow()), "b": ("f32", narrow())},
                    packed,
                    both,
                    source=SOURCE,
                    most=160,
                )
    simple(
        "cvt.f32.f16",
        {"a": ("f16", floats("f16"))},
        "f32",
        lambda a: float_to_float("f32", "f16", "rn", a),
        source=SOURCE,
    )
    simple(
        "cvt.f64.f16",
        {"a": ("f16", floats("f16"))},
        "f64",
        lambda a: float_to_float("f64", "f16", "rn", a),
        source=SOURCE,
    )
    simple(
        "cvt.f64.f32",
        {"a": ("f32", floats("f32"))},
        "f64",
        lambda a: float_to_float("f64", "f32", "rn", a),
        source=SOURCE,
    )
    simple(
        "cvt.ftz.f64.f32",
        {"a": ("f32", floats("f32"))},
        "f64",
        lambda a: float_to_float("f64", "f32", "rn", a, ftz=True),
        source=SOURCE,
    )
    simple(
        "cvt.rn.ftz.f32.f64",
        {"a": ("f64", [*floats("f64"), 4039728865482899456, 4035225266123964416, 13155014511549218816])},
        "f32",
        lambda a: float_to_float("f32", "f64", "rn", a, ftz=True),
        source=SOURCE,
    )
    simple(
        "cvt.rn.ftz.f16.f32",
        {"a": ("f32", narrow())},
        "f16",
        lambda a: float_to_float("f16", "f32", "rn", a, ftz=True),
        source=SOURCE,
        most=400,
    )
    simple(
        "cvt.sat.f32.f32",
        {"a": ("f32", floats("f32"))},
        "f32",
        lambda a: float_to_float("f32", "f32", "rn", a, sat=True),
        source=SOURCE,
    )
    simple(
        "cvt.rn.sat.f32.f64",
        {"a": ("f64", floats("f64"))},
        "f32",
        lambda a: float_to_float("f32", "f64", "rn", a, sat=True),
        source=SOURCE,
    )
    simple(
        "cvt.ftz.f32.f32",
        {"a": ("f32", floats("f32"))},
        "f32",
        lambda a: float_to_float("f32", "f32", "rn", a, ftz=True),
        source=SOURCE,
    )
    simple(
        "cvt.rna.tf32.f32",
        {"a": ("f32", narrow())},
        "b32",
        # A NaN loses its low bits like any other value, and may thereby become an infinity: observed on an H200, driver
        # 13.0, 2026-11-29.
        lambda a: (
            a & ~0x1FFF
            if ieee.is_nan("f32", a) or ieee.is_inf("f32", a)
            else ieee.rounded("f32", ieee.value("f32", a), "rna", zero_negative=bool(a >> 31), keep=10)
        ),
        source=SOURCE,
        most=400,
    )
    for t in ("f16", "f32", "f64"):
        for spelling, mode in ROUNDINGS.items():
            simple(
                f"cvt.{spelling}.{t}.{t}",
                {"a": (t, around(t))},
                t,
                lambda a, t=t, m=mode: integral_float(t, a, m),
                source=SOURCE,
                most=400,
            )


def integral_float(t: str, a: int, mode: str) -> int | str:
    if ieee.is_nan(t, a):
        return converted_nan(t, t, a, ftz=False)
    if ieee.is_inf(t, a):
        return a
    return ieee.rounded(t, Fraction(integral(ieee.value(t, a), mode)), zero_negative=bool(ieee.sign(t, a)))


def to_bf16() -> None:
    """What sm_90 adds: integers to bf16, and f32 to bf16 downwards and upwards."""
    for mode in ("rm", "rp"):
        simple(
            f"cvt.{mode}.bf16.f32",
            {"a": ("f32", narrow())},
            "bf16",
            lambda a, m=mode: float_to_float("bf16", "f32", m, a),
            source=SOURCE,
            most=400,
            target="sm_90",
            version="7.8",
        )
    for of in INTEGERS[2:]:  # not of eight bits
        bits = int(of[1:])
        near = [(1 << p) + d for p in range(7, bits) for d in (-1, 0, 1, 1 << max(p - 8, 0), (1 << max(p - 8, 0)) + 1)]
        for mode in ("rn", "rz", "rm", "rp"):
            simple(
                f"cvt.{mode}.bf16.{of}",
                {"a": (register(of), [x & (1 << bits) - 1 for x in [*integers(bits), *near, *(-x for x in near)]])},
                "bf16",
                lambda a, of=of, m=mode, b=bits: ieee.rounded("bf16", Fraction(reading(of, a & ((1 << b) - 1))), m),
                source=SOURCE,
                most=160,
                target="sm_90",
                version="7.8",
            )


def eight_bit_value(code: int, kind: str) -> Fraction | None:
    """The number of a code; None for an infinity or NaN."""
    fraction, bias = (3, 7) if kind == "e4m3x2" else (2, 15)
    size = code & 0x7F
    if size == 0x7F or (kind == "e5m2x2" and size >= 0x7C):
        return None
    exponent = size >> fraction
    whole = (size & (1 << fraction) - 1) + (1 << fraction if exponent else 0)
    number = Fraction(whole) * Fraction(2) ** (max(exponent, 1) - bias - fraction)
    return -number if code >> 7 else number


def eight_bit_code(bits: int, t: str, kind: str, relu: bool) -> int:
    if ieee.is_nan(t, bits):
        return 0x7F
    negative = bits >> (ieee.width(t) - 1)
    if relu and negative:
        return 0
    numbers = {code: value for code in range(128) if (value := eight_bit_value(code, kind)) is not None}
    largest = max(numbers)
    size = numbers[largest] if ieee.is_inf(t, bits) else abs(Fraction(ieee.value(t, bits)))
    near = min(numbers, key=lambda code: (abs(numbers[code] - size), code & 1))
    return near | (0x80 if negative else 0)


def eight_bits() -> None:
    """Pairs of eight-bit reals (sm_89): from f32 and f16, saturated and rounded to nearest even, and back to f16."""
    reals = [ieee.rounded("f32", Fraction(n, 64) * sign) for n in range(1, 40) for sign in (1, -1)]
    reals += [ieee.rounded("f32", Fraction(n)) for n in (447, 448, 449, 464, 465, 480, 57344, 61440, 61441, 65536)]
    reals += [ieee.rounded("f32", Fraction(n, 1 << 18)) for n in (1, 2, 3, 511, 512, 513, 1023, 1536)]
    both = [*reals, *floats("f32")]
    rng = seeded("eight bits")
    pairs = [(rng.choice(both), rng.choice(both)) for _ in range(160)]
    for kind in ("e4m3x2", "e5m2x2"):
        for relu in ("", ".relu"):
            emit(
                Draft(
                    f"cvt.rn.satfinite{relu}.{kind}.f32",
                    SOURCE,
                    f"cvt.rn.satfinite{relu}.{kind}.f32 d, a, b;",
                    {"a": ("f32", [p[0] for p in pairs]), "b": ("f32", [p[1] for p in pairs])},
                    {
                        "d": (
                            "b16",
                            [
                                eight_bit_code(x, "f32", kind, bool(relu)) << 8
                                | eight_bit_code(y, "f32", kind, bool(relu))
                                for x, y in pairs
                            ],
                        )
                    },
                    target="sm_89",
                    version="8.1",
                )
            )
            halves = [rng.choice(floats("f16")) | rng.getrandbits(16) << 16 for _ in range(128)]
            emit(
                Draft(
                    f"cvt.rn.satfinite{relu}.{kind}.f16x2",
                    SOURCE,
                    f"cvt.rn.satfinite{relu}.{kind}.f16x2 d, a;",
                    {"a": ("b32", halves)},
                    {
                        "d": (
                            "b16",
                            [
                                eight_bit_code(x >> 16, "f16", kind, bool(relu)) << 8
                                | eight_bit_code(x & 0xFFFF, "f16", kind, bool(relu))
                                for x in halves
                            ],
                        )
                    },
                    target="sm_89",
                    version="8.1",
                )
            )
            codes = [code | (code * 37 + 11 & 255) << 8 for code in range(256)]
            emit(
                Draft(
                    f"cvt.rn{relu}.f16x2.{kind}",
                    SOURCE,
                    f"cvt.rn{relu}.f16x2.{kind} d, a;",
                    {"a": ("b16", codes)},
                    {
                        "d": (
                            "b32",
                            [
                                eight_to_half(x >> 8, kind, bool(relu)) << 16 | eight_to_half(x & 255, kind, bool(relu))
                                for x in codes
                            ],
                        )
                    },
                    target="sm_89",
                    version="8.1",
                )
            )


def eight_to_half(code: int, kind: str, relu: bool) -> int:
    value = eight_bit_value(code, kind)
    if value is None and not (kind == "e5m2x2" and code & 0x7F == 0x7C):
        return 0x7FFF
    if relu and code >> 7:
        return 0
    bits = 0x7C00 if value is None else ieee.rounded("f16", abs(value))
    return bits | (code >> 7) << 15


def all_cases() -> None:
    integer_to_integer()
    float_to_integer()
    integer_to_float()
    float_float()
    eight_bits()
    to_bf16()
