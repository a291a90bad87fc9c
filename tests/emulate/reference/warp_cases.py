"""Exchanges within a warp: expectations by the manual's definitions.

Source: PTX ISA 9.0, sections 9.7.9.6 (shfl) and 9.7.13 (vote, match, redux, activemask).
"""

from __future__ import annotations

from collections.abc import Callable

from case import Draft, emit, seeded

SOURCE = "PTX ISA 9.0, warp-level instructions"
LANES = 32


def values(name: str, bits: int = 32) -> list[int]:
    rng = seeded(name)
    return [rng.getrandbits(bits) for _ in range(LANES)]


def shuffles() -> None:
    data = values("shfl")
    clamps = {"up": 0, "down": 31, "bfly": 31, "idx": 31}
    for mode, clamp in clamps.items():
        for width in (32, 16, 8, 4):
            for b in (0, 1, 3, 5, 17, 31):
                c = (32 - width) << 8 | clamp
                results = [shuffle(mode, data, lane, b, c) for lane in range(LANES)]
                emit(
                    Draft(
                        f"shfl.{mode}.w{width}.b{b}",
                        SOURCE,
                        f"shfl.sync.{mode}.b32 d|p, a, {b}, {c}, 0xffffffff;\nselp.u32 e, 1, 0, p;",
                        {"a": ("b32", data)},
                        {"d": ("b32", [r[0] for r in results]), "e": ("b32", [int(r[1]) for r in results])},
                        registers=".reg .pred p;",
                    )
                )
        lanes = [x & 31 for x in values(f"shfl.{mode}.b")]
        controls = [(32 - w) << 8 | clamp for w in (32, 8, 16, 2) for _ in range(8)]
        results = [shuffle(mode, data, lane, lanes[lane], controls[lane]) for lane in range(LANES)]
        emit(
            Draft(
                f"shfl.{mode}.registers",
                SOURCE,
                f"shfl.sync.{mode}.b32 d|p, a, b, c, m;\nselp.u32 e, 1, 0, p;",
                {"a": ("b32", data), "b": ("b32", lanes), "c": ("b32", controls), "m": ("b32", [0xFFFFFFFF] * LANES)},
                {"d": ("b32", [r[0] for r in results]), "e": ("b32", [int(r[1]) for r in results])},
                registers=".reg .pred p;",
            )
        )


def shuffle(mode: str, data: list[int], lane: int, b: int, c: int) -> tuple[int, bool]:
    """The manual's pseudocode."""
    clamp, segment = c & 31, c >> 8 & 31
    highest = (lane & segment) | (clamp & ~segment)
    lowest = lane & segment
    if mode == "up":
        j, valid = lane - b, lane - b >= highest
    elif mode == "down":
        j, valid = lane + b, lane + b <= highest
    elif mode == "bfly":
        j, valid = lane ^ b, (lane ^ b) <= highest
    else:
        j = lowest | (b & ~segment)
        valid = j <= highest
    return (data[j] if valid else data[lane]), valid


def votes() -> None:
    patterns = {
        "none": [0] * 32,
        "all": [1] * 32,
        "one": [int(i == 13) for i in range(32)],
        "some": [x & 1 for x in values("vote")],
    }
    masks = {"full": [0xFFFFFFFF] * 32, "halves": [0xFFFF if i < 16 else 0xFFFF0000 for i in range(32)]}
    for name, bits in patterns.items():
        for where, mask in masks.items():
            ballots = [sum(bits[j] << j for j in range(32) if mask[i] >> j & 1) for i in range(32)]
            body = """
                setp.ne.u32 p, a, 0;
                vote.sync.ballot.b32 d, p, m;
                vote.sync.any.pred q, p, m;
                selp.u32 e, 1, 0, q;
                vote.sync.all.pred q, p, m;
                selp.u32 f, 1, 0, q;
                vote.sync.uni.pred q, p, m;
                selp.u32 g, 1, 0, q;
                vote.sync.ballot.b32 h, !p, m;
            """
            emit(
                Draft(
                    f"vote.{name}.{where}",
                    SOURCE,
                    body,
                    {"a": ("b32", bits), "m": ("b32", mask)},
                    {
                        "d": ("b32", ballots),
                        "e": ("b32", [int(b != 0) for b in ballots]),
                        "f": ("b32", [int(b == m) for b, m in zip(ballots, mask, strict=True)]),
                        "g": ("b32", [int(b in (0, m)) for b, m in zip(ballots, mask, strict=True)]),
                        "h": ("b32", [m & ~b for b, m in zip(ballots, mask, strict=True)]),
                    },
                    registers=".reg .pred p, q;",
                )
            )


def matches() -> None:
    for bits in (32, 64):
        data = [[3, 3, 1 << (bits - 1), 0][x % 4] for x in values(f"match{bits}")]
        halves = [0xFFFF if i < 16 else 0xFFFF0000 for i in range(32)]
        same = [9] * 16 + data[16:]
        any_ = [sum(1 << j for j in range(32) if halves[i] >> j & 1 and data[j] == data[i]) for i in range(32)]
        all_ = [halves[i] if len({same[j] for j in range(32) if halves[i] >> j & 1}) == 1 else 0 for i in range(32)]
        body = f"match.any.sync.b{bits} d, a, m;\nmatch.all.sync.b{bits} e|p, b, m;\nselp.u32 f, 1, 0, p;"
        emit(
            Draft(
                f"match.b{bits}",
                SOURCE,
                body,
                {"a": (f"b{bits}", data), "b": (f"b{bits}", same), "m": ("b32", halves)},
                {"d": ("b32", any_), "e": ("b32", all_), "f": ("b32", [int(x != 0) for x in all_])},
                registers=".reg .pred p;",
            )
        )


def reductions() -> None:
    data = values("redux")
    mask = [0x00FF00FF if 0x00FF00FF >> i & 1 else 0xFF00FF00 for i in range(32)]
    signed = lambda x: x - (1 << 32) if x >> 31 else x  # noqa: E731
    forms = {
        "add.u32": lambda xs: sum(xs),
        "add.s32": lambda xs: sum(xs),
        "min.u32": min,
        "max.u32": max,
        "min.s32": lambda xs: min(map(signed, xs)),
        "max.s32": lambda xs: max(map(signed, xs)),
        "and.b32": lambda xs: fold(xs, lambda p, q: p & q),
        "or.b32": lambda xs: fold(xs, lambda p, q: p | q),
        "xor.b32": lambda xs: fold(xs, lambda p, q: p ^ q),
    }
    for form, function in forms.items():
        expected = [function([data[j] for j in range(32) if mask[i] >> j & 1]) & 0xFFFFFFFF for i in range(32)]
        emit(
            Draft(
                f"redux.{form}",
                SOURCE,
                f"redux.sync.{form} d, a, m;",
                {"a": ("b32", data), "m": ("b32", mask)},
                {"d": ("b32", expected)},
            )
        )


def fold(xs: list[int], combine: Callable[[int, int], int]) -> int:
    total = xs[0]
    for x in xs[1:]:
        total = combine(total, x)
    return total


def divergence() -> None:
    """Lanes that take different ways: masks of the active, and an exchange within one branch."""
    data = values("diverged")
    body = """
        and.b32 bit, %thread, 1;
        setp.ne.u32 p, bit, 0;
        mov.u32 d, 0;
        mov.u32 e, 0;
        @p bra ODD;
        activemask.b32 d;
        shfl.sync.bfly.b32 e, a, 2, 31, 0x55555555;
        bra JOIN;
        ODD:
        activemask.b32 d;
        shfl.sync.bfly.b32 e, a, 4, 31, 0xaaaaaaaa;
        JOIN:
        bar.warp.sync 0xffffffff;
        vote.sync.ballot.b32 f, p, 0xffffffff;
    """
    emit(
        Draft(
            "diverged.exchange",
            SOURCE,
            body,
            {"a": ("b32", data)},
            {
                "d": ("b32", [0xAAAAAAAA if i & 1 else 0x55555555 for i in range(32)]),
                "e": ("b32", [data[i ^ (4 if i & 1 else 2)] for i in range(32)]),
                "f": ("b32", [0xAAAAAAAA] * 32),
            },
            registers=".reg .pred p;\n.reg .b32 bit;",
        )
    )


def all_cases() -> None:
    shuffles()
    votes()
    matches()
    reductions()
    divergence()
