"""Asynchronous copies and mbarrier: what is in shared memory, and what the questions are answered.

An mbarrier's word and the states that it hands out are opaque, so cases look only at what they may be used for.
Source: PTX ISA 9.0, sections 9.7.9.25 (cp.async) and 9.7.13.15 (mbarrier).
"""

from __future__ import annotations

from case import Draft, emit, seeded

COPIES = "PTX ISA 9.0, cp.async"
BARRIERS = "PTX ISA 9.0, mbarrier"
LANES = 32
ROOM = ".shared .align 16 .b8 room[512];\n.reg .b32 place;\n.reg .b64 from;"


def noise(name: str, count: int = LANES, bits: int = 32) -> list[int]:
    rng = seeded(name)
    return [rng.getrandbits(bits) for _ in range(count)]


def little(words: list[int]) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


def copies() -> None:
    """Each thread copies some of its own row and reads it back, by each way to wait."""
    waits = {
        "wait_all": "cp.async.wait_all;",
        "wait_group": "cp.async.commit_group;\ncp.async.wait_group 0;",
    }
    for cache, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        columns = {name: ("b32", noise(f"cp{name}{size}")) for name in "abef"}
        # A row of 16 bytes of the operands' memory, in which columns lie 256 bytes apart.
        for wait, text in waits.items():
            body = f"""
                mov.u32 place, room;
                mad.lo.u32 place, %thread, 16, place;
                st.shared.v4.b32 [place], {{0, 0, 0, 0}};
                mad.wide.u32 from, %thread, 16, %in;
                cp.async.{cache}.shared.global [place], [from], {size};
                {text}
                ld.shared.v4.b32 {{d, g, h, k}}, [place];
            """
            memory = b"".join(little(values) + bytes(256 - 4 * LANES) for _, values in columns.values())
            wanted = [memory[16 * i : 16 * i + size] + bytes(16 - size) for i in range(LANES)]
            emit(
                Draft(
                    f"cp.async.{cache}.{size}.{wait}",
                    COPIES,
                    body,
                    columns,
                    _words(wanted),
                    registers=ROOM,
                )
            )
    sizes = [i % 17 for i in range(LANES)]
    columns = {name: ("b32", noise(f"cp{name}")) for name in "abef"} | {"n": ("b32", sizes)}
    memory = b"".join(little(values) + bytes(256 - 4 * LANES) for _, values in columns.values())
    wanted = [memory[16 * i : 16 * i + sizes[i]] + bytes(16 - sizes[i]) for i in range(LANES)]
    emit(
        Draft(
            "cp.async.cg.16.partial",
            COPIES,
            """
            mov.u32 place, room;
            mad.lo.u32 place, %thread, 16, place;
            mad.wide.u32 from, %thread, 16, %in;
            cp.async.cg.shared.global [place], [from], 16, n;
            cp.async.wait_all;
            ld.shared.v4.b32 {d, g, h, k}, [place];
            """,
            columns,
            _words(wanted),
            registers=ROOM,
        )
    )
    emit(
        Draft(
            "cp.async.groups",
            COPIES,
            """
            mov.u32 place, room;
            mad.lo.u32 place, %thread, 8, place;
            mad.wide.u32 from, %thread, 4, %in;
            cp.async.ca.shared.global [place], [from], 4;
            cp.async.commit_group;
            cp.async.ca.shared.global [place+4], [from+256], 4;
            cp.async.commit_group;
            cp.async.wait_group 1;
            ld.shared.b32 d, [place];
            cp.async.wait_group 0;
            ld.shared.b32 g, [place+4];
            """,
            {"a": ("b32", columns["a"][1]), "b": ("b32", columns["b"][1])},
            {"d": ("b32", columns["a"][1]), "g": ("b32", columns["b"][1])},
            registers=ROOM,
        )
    )


def _words(rows: list[bytes]) -> dict[str, tuple[str, list[int | str]]]:
    return {
        name: ("b32", [int.from_bytes(row[4 * i : 4 * i + 4], "little") for row in rows])
        for i, name in enumerate("dghk")
    }


BAR = """.shared .align 16 .b8 room[256];
.shared .align 8 .b64 bar;
.reg .b64 s, from, generic;
.reg .b32 place, one, left;
.reg .pred p, q, first;"""
INIT = """
setp.eq.u32 first, %thread, 0;
@first mbarrier.init.shared.b64 [bar], {count};
bar.sync 0;
"""


def spin(question: str) -> str:
    """Asks until the answer is yes; a GPU that never says so must not hang."""
    return f"""
        mov.u32 left, 1000000;
        WAIT:
        mbarrier.{question};
        @p bra GO;
        sub.u32 left, left, 1;
        setp.ne.u32 q, left, 0;
        @q bra WAIT;
        GO:
    """


def answer(name: str) -> str:
    return f"selp.u32 {name}, 1, 0, p;\n"


def column(value: int, count: int = LANES) -> tuple[str, list[int | str]]:
    return "b32", [value] * count


def barriers() -> None:
    """One barrier of one warp or two, through a phase and what comes after."""
    row = {"a": ("b32", list(range(LANES)))}
    ask = spin("test_wait.shared.b64 p, [bar], s")
    case = [
        (
            "arrive",
            INIT.format(count=32) + "mbarrier.arrive.shared.b64 s, [bar];\n" + ask + answer("d"),
            {"d": column(1)},
        ),
        (
            "arrive.sink",
            INIT.format(count=32)
            + "mbarrier.test_wait.parity.shared.b64 p, [bar], 0;\n"
            + answer("d")
            + "mbarrier.test_wait.parity.shared.b64 p, [bar], 1;\n"
            + answer("e")
            + "bar.warp.sync 0xffffffff;\nmbarrier.arrive.shared.b64 _, [bar];\n"
            + spin("test_wait.parity.shared.b64 p, [bar], 0")
            + "bar.warp.sync 0xffffffff;\n"
            + "mbarrier.test_wait.parity.shared.b64 p, [bar], 1;\n"
            + answer("f"),
            {"d": column(0), "e": column(1), "f": column(0)},
        ),
        (
            "arrive.noComplete",
            INIT.format(count=96)
            + "mbarrier.arrive.noComplete.shared.b64 s, [bar], 2;\n"
            + "mbarrier.test_wait.shared.b64 p, [bar], s;\n"
            + answer("d")
            + "bar.warp.sync 0xffffffff;\nmbarrier.arrive.shared.b64 s, [bar];\n"
            + ask
            + answer("e"),
            {"d": column(0), "e": column(1)},
        ),
        (
            "arrive_drop",
            # The upper half leaves; the next phase is complete with 16 arrivals.
            INIT.format(count=32)
            + "setp.lt.u32 first, %thread, 16;\n"
            + "@first mbarrier.arrive.shared.b64 s, [bar];\n"
            + "@!first mbarrier.arrive_drop.shared.b64 s, [bar];\n"
            + ask
            + answer("d")
            + "bar.warp.sync 0xffffffff;\n@!first bra END;\nmbarrier.arrive.shared.b64 s, [bar];\nEND:\n"
            + "bar.warp.sync 0xffffffff;\nmbarrier.test_wait.parity.shared.b64 p, [bar], 1;\n"
            + answer("e"),
            {"d": column(1), "e": column(1)},
        ),
        (
            "arrive_drop.noComplete",
            INIT.format(count=96)
            + "mbarrier.arrive_drop.noComplete.shared.b64 s, [bar], 1;\n"
            + "bar.warp.sync 0xffffffff;\nmbarrier.arrive.noComplete.shared.b64 s, [bar], 1;\n"
            + "bar.warp.sync 0xffffffff;\nmbarrier.arrive.shared.b64 s, [bar];\n"
            + ask
            + answer("d"),
            {"d": column(1)},
        ),
        (
            "pending_count",
            INIT.format(count=40)
            + "mov.u32 d, 0;\nmov.u32 e, 0;\n@!first bra END;\n"
            + "mbarrier.arrive.shared.b64 s, [bar];\nmbarrier.pending_count.b64 d, s;\n"
            + "mbarrier.arrive.noComplete.shared.b64 s, [bar], 7;\nmbarrier.pending_count.b64 e, s;\nEND:\n",
            {"d": ("b32", [40] + [0] * 31), "e": ("b32", [39] + [0] * 31)},
        ),
        (
            "inval",
            # The room is used as a barrier, as a number, and as a barrier again.
            INIT.format(count=32)
            + "mbarrier.arrive.shared.b64 s, [bar];\n"
            + ask
            + "bar.sync 0;\n@first mbarrier.inval.shared.b64 [bar];\n@first st.shared.b64 [bar], 77;\nbar.sync 0;\n"
            + "ld.shared.u32 d, [bar];\nbar.sync 0;\n@first mbarrier.init.shared.b64 [bar], 64;\nbar.sync 0;\n"
            + "mbarrier.arrive.shared.b64 s, [bar];\nmbarrier.test_wait.shared.b64 p, [bar], s;\n"
            + answer("e"),
            {"d": column(77), "e": column(0)},
        ),
        (
            "generic",
            "mov.u32 place, bar;\ncvt.u64.u32 generic, place;\ncvta.shared.u64 generic, generic;\n"
            + "setp.eq.u32 first, %thread, 0;\n@first mbarrier.init.b64 [generic], 32;\nbar.sync 0;\n"
            + "mbarrier.arrive.b64 s, [generic];\n"
            + spin("test_wait.b64 p, [generic], s")
            + answer("d"),
            {"d": column(1)},
        ),
        (
            "arrive.copies.noinc",
            INIT.format(count=32)
            + "mov.u32 place, room;\nmad.lo.u32 one, %thread, 4, place;\nmad.wide.u32 from, %thread, 4, %in;\n"
            + "cp.async.ca.shared.global [one], [from], 4;\ncp.async.mbarrier.arrive.noinc.shared.b64 [bar];\n"
            + spin("test_wait.parity.shared.b64 p, [bar], 0")
            + "xor.b32 one, %thread, 31;\nmad.lo.u32 one, one, 4, place;\nld.shared.u32 d, [one];\n",
            {"d": ("b32", [31 - i for i in range(LANES)])},
        ),
        (
            "arrive.copies",
            INIT.format(count=32)
            + "mov.u32 place, room;\nmad.lo.u32 one, %thread, 4, place;\nmad.wide.u32 from, %thread, 4, %in;\n"
            + "cp.async.ca.shared.global [one], [from], 4;\ncp.async.mbarrier.arrive.shared.b64 [bar];\n"
            + "mbarrier.arrive.shared.b64 s, [bar];\n"
            + ask
            + "xor.b32 one, %thread, 31;\nmad.lo.u32 one, one, 4, place;\nld.shared.u32 d, [one];\n",
            {"d": ("b32", [31 - i for i in range(LANES)])},
        ),
    ]
    for name, body, outputs in case:
        emit(Draft(f"mbarrier.{name}", BARRIERS, body, row, outputs, registers=BAR))
    _two_warps()
    _bytes()


def _two_warps() -> None:
    """One warp makes what the other takes, twice, through one barrier."""
    count = 64
    wait = spin("test_wait.shared.b64 p, [bar], s")
    body = (
        INIT.format(count=64)
        + f"""
        mov.u32 d, 0;
        mov.u32 round, 0;
        NEXT:
        mov.u32 place, room;
        setp.lt.u32 first, %thread, 32;
        @!first bra MADE;
        mad.lo.u32 one, round, 128, place;
        mad.lo.u32 one, %thread, 4, one;
        mad.lo.u32 value, round, 1000, a;
        st.shared.u32 [one], value;
        MADE:
        mbarrier.arrive.shared.b64 s, [bar];
        {wait}
        @first bra TAKEN;
        sub.u32 one, 95, %thread;
        sub.u32 one, one, 32;
        mad.lo.u32 one, one, 4, place;
        mad.lo.u32 one, round, 128, one;
        ld.shared.u32 value, [one];
        add.u32 d, d, value;
        TAKEN:
        add.u32 round, round, 1;
        setp.lt.u32 p, round, 2;
        @p bra NEXT;
    """
    )
    data = noise("two warps", count, 16)
    taken = [0 if i < 32 else 2 * data[63 - i] + 1000 for i in range(count)]
    registers = BAR + "\n.reg .b32 value, round;"
    columns = {"a": ("b32", data)}
    outputs = {"d": ("b32", taken)}
    emit(Draft("mbarrier.two-warps", BARRIERS, body, columns, outputs, registers=registers, block=64))


def _bytes() -> None:
    """Bytes are pending until they are said to be there (sm_90)."""
    body = (
        INIT.format(count=1)
        + """
        mov.u32 d, 9;
        mov.u32 e, 9;
        mov.u32 f, 9;
        @!first bra END;
        mbarrier.arrive.expect_tx.shared.b64 s, [bar], 48;
        mbarrier.test_wait.shared.b64 p, [bar], s;
        selp.u32 d, 1, 0, p;
        mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 16;
        mbarrier.test_wait.shared.b64 p, [bar], s;
        selp.u32 e, 1, 0, p;
        mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 32;
    """
    )
    body += spin("try_wait.shared.b64 p, [bar], s") + "selp.u32 f, 1, 0, p;\nEND:\n"
    outputs = {name: ("b32", [value] + [9] * 31) for name, value in (("d", 0), ("e", 0), ("f", 1))}
    row = {"a": ("b32", list(range(LANES)))}
    emit(Draft("mbarrier.bytes", BARRIERS, body, row, outputs, registers=BAR, target="sm_90"))


def all_cases() -> None:
    copies()
    barriers()
