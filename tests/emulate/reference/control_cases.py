"""Branches, loops, calls, barriers: small programs whose result says which way each lane went.

Source: PTX ISA 9.0, sections 9.7.12 (control flow) and 9.7.13.1 (barriers).
"""

from __future__ import annotations

from case import Draft, emit, seeded

SOURCE = "PTX ISA 9.0, control flow and barriers"


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def branches() -> None:
    numbers = list(range(1, 33))
    emit(
        Draft(
            "loop.collatz",
            SOURCE,
            """
            mov.u32 d, 0;
            mov.u32 n, a;
            LOOP:
            setp.eq.u32 p, n, 1;
            @p bra DONE;
            and.b32 bit, n, 1;
            setp.ne.u32 odd, bit, 0;
            @!odd bra EVEN;
            mad.lo.u32 n, n, 3, 1;
            bra.uni NEXT;
            EVEN:
            shr.u32 n, n, 1;
            NEXT:
            add.u32 d, d, 1;
            bra LOOP;
            DONE:
            """,
            {"a": ("b32", numbers)},
            {"d": ("b32", [collatz(n) for n in numbers])},
            registers=".reg .pred p, odd;\n.reg .b32 n, bit;",
        )
    )
    emit(
        Draft(
            "brx.idx",
            SOURCE,
            """
            and.b32 i, a, 3;
            mov.u32 d, 0;
            targets: .branchtargets ONE, TWO, THREE, TWO;
            brx.idx i, targets;
            ONE:
            add.u32 d, d, 100;
            bra TWO;
            THREE:
            add.u32 d, d, 300;
            bra END;
            TWO:
            add.u32 d, d, 20;
            END:
            """,
            {"a": ("b32", list(range(32)))},
            {"d": ("b32", [[120, 20, 300, 20][i & 3] for i in range(32)])},
            registers=".reg .b32 i;",
        )
    )
    emit(
        Draft(
            "exit.guarded",
            SOURCE,
            """
            setp.lt.u32 p, %row, 20;
            mad.wide.u32 %at, %row, 4, %out;
            st.global.u32 [%at], a;
            @!p exit;
            vote.sync.ballot.b32 b, p, 0xfffff;
            st.global.u32 [%at+256], b;
            """,
            {"a": ("b32", list(range(1, 33)))},
            {"d": ("b32", list(range(1, 33))), "e": ("b32", [0xFFFFF] * 20 + [0xA5A5A5A5] * 12)},
            registers=".reg .pred p;\n.reg .b32 b;",
            stores=False,
        )
    )
    emit(
        Draft(
            "guard.keeps",
            SOURCE,
            "setp.gt.s32 p, a, 0;\nmov.u32 d, 7;\n@p add.u32 d, d, a;\n@!p sub.u32 d, d, 1;",
            {"a": ("b32", [x & 0xFFFFFFFF for x in range(-16, 16)])},
            {"d": ("b32", [7 + x if x > 0 else 6 for x in range(-16, 16)])},
            registers=".reg .pred p;",
        )
    )
    emit(
        Draft(
            "scopes",
            SOURCE,
            """
            {
            .reg .b32 a;
            .reg .pred p;
            mov.u32 a, 5;
            setp.eq.u32 p, a, 5;
            { .reg .b32 a<2>; mov.u32 a0, 1; mov.u32 a1, 2; add.u32 d, a0, a1; @p bra SKIP; add.u32 d, d, 100; SKIP: }
            add.u32 d, d, a;
            }
            { SKIP: add.u32 d, d, a; }
            """,
            {"a": ("b32", list(range(32)))},
            {"d": ("b32", [8 + x for x in range(32)])},
        )
    )


def calls() -> None:
    functions = """
.func (.param .b32 result) fib(.param .b32 n)
{
	.reg .b32 a, b, c;
	.reg .pred p;
	ld.param.u32 a, [n];
	mov.u32 c, a;
	setp.lt.u32 p, a, 2;
	@p bra DONE;
	{
	.param .b32 x;
	.param .b32 y;
	sub.u32 b, a, 1;
	st.param.b32 [x], b;
	call.uni (y), fib, (x);
	ld.param.b32 c, [y];
	}
	{
	.param .b32 x;
	.param .b32 y;
	sub.u32 b, a, 2;
	st.param.b32 [x], b;
	call.uni (y), fib, (x);
	ld.param.b32 b, [y];
	add.u32 c, c, b;
	}
	DONE:
	st.param.b32 [result], c;
	ret;
}
.func (.param .b32 result) twice(.param .b32 n)
{
	.reg .b32 a;
	ld.param.u32 a, [n];
	shl.b32 a, a, 1;
	st.param.b32 [result], a;
	ret;
}
.func (.param .b32 result) next(.param .b32 n)
{
	.reg .b32 a;
	ld.param.u32 a, [n];
	add.u32 a, a, 1;
	st.param.b32 [result], a;
	ret;
}
.func (.param .align 8 .b8 result[16]) swap(.param .align 8 .b8 pair[16])
{
	.reg .b64 a, b;
	ld.param.v2.b64 {a, b}, [pair];
	st.param.b64 [result], b;
	st.param.b64 [result+8], a;
	ret;
}
.global .align 8 .u64 table[2] = {twice, next};
"""
    small = [x % 9 for x in range(32)]
    emit(
        Draft(
            "call.recursive",
            SOURCE,
            "{\n.param .b32 x;\n.param .b32 y;\nst.param.b32 [x], a;\ncall.uni (y), fib, (x);\nld.param.b32 d, [y];\n}",
            {"a": ("b32", small)},
            {"d": ("b32", [fib(x) for x in small])},
            outside=functions,
        )
    )
    emit(
        Draft(
            "call.indirect",
            SOURCE,
            """
            and.b32 i, a, 1;
            mov.u64 where, table;
            mad.wide.u32 where, i, 8, where;
            ld.global.u64 target, [where];
            {
            .param .b32 x;
            .param .b32 y;
            st.param.b32 [x], a;
            shape: .callprototype (.param .b32 _) _ (.param .b32 _);
            call (y), target, (x), shape;
            ld.param.b32 d, [y];
            }
            """,
            {"a": ("b32", list(range(32)))},
            {"d": ("b32", [x + 1 if x & 1 else 2 * x for x in range(32)])},
            registers=".reg .b32 i;\n.reg .b64 where, target;",
            outside=functions,
        )
    )
    rng = seeded("swap")
    wide = [rng.getrandbits(64) for _ in range(32)]
    emit(
        Draft(
            "call.struct",
            SOURCE,
            """
            add.u64 b, a, 1;
            {
            .param .align 8 .b8 x[16];
            .param .align 8 .b8 y[16];
            st.param.b64 [x], a;
            st.param.b64 [x+8], b;
            call.uni (y), swap, (x);
            ld.param.v2.b64 {d, e}, [y];
            }
            """,
            {"a": ("b64", wide)},
            {"d": ("b64", [(x + 1) & (1 << 64) - 1 for x in wide]), "e": ("b64", wide)},
            registers=".reg .b64 b;",
            outside=functions,
        )
    )


def barriers() -> None:
    data = [x * 7 % 64 for x in range(64)]
    emit(
        Draft(
            "bar.sync",
            SOURCE,
            """
            mov.u32 place, room;
            mad.lo.u32 mine, %thread, 4, place;
            st.shared.u32 [mine], a;
            bar.sync 0;
            sub.u32 other, 63, %thread;
            mad.lo.u32 mine, other, 4, place;
            ld.shared.u32 d, [mine];
            """,
            {"a": ("b32", data)},
            {"d": ("b32", data[::-1])},
            registers=".shared .align 4 .b8 room[256];\n.reg .b32 place, mine, other;",
            block=64,
        )
    )
    odd = [x & 1 for x in data]
    emit(
        Draft(
            "bar.red",
            SOURCE,
            """
            and.b32 bit, a, 1;
            setp.ne.u32 p, bit, 0;
            bar.red.popc.u32 d, 0, p;
            bar.red.and.pred q, 0, p;
            selp.u32 e, 1, 0, q;
            bar.red.or.pred q, 0, !p;
            selp.u32 f, 1, 0, q;
            """,
            {"a": ("b32", data)},
            {"d": ("b32", [sum(odd)] * 64), "e": ("b32", [int(all(odd))] * 64), "f": ("b32", [int(not all(odd))] * 64)},
            registers=".reg .pred p, q;\n.reg .b32 bit;",
            block=64,
        )
    )
    emit(
        Draft(
            "bar.arrive",
            SOURCE,
            """
            mov.u32 place, room;
            and.b32 lane, %thread, 31;
            mad.lo.u32 mine, lane, 4, place;
            mov.u32 d, 0;
            setp.ge.u32 p, %thread, 32;
            @p bra READER;
            st.shared.u32 [mine], a;
            bar.arrive 1, 64;
            bra END;
            READER:
            bar.sync 1, 64;
            ld.shared.u32 d, [mine];
            END:
            """,
            {"a": ("b32", data)},
            {"d": ("b32", [0] * 32 + data[:32])},
            registers=".shared .align 4 .b8 room[128];\n.reg .b32 place, mine, lane;\n.reg .pred p;",
            block=64,
        )
    )
    emit(
        Draft(
            "bar.exited",
            SOURCE,
            """
            mov.u32 place, room;
            mad.lo.u32 mine, %thread, 4, place;
            st.shared.u32 [mine], a;
            setp.ge.u32 p, %thread, 32;
            mad.wide.u32 %at, %row, 4, %out;
            @p exit;
            bar.sync 0;
            xor.b32 other, %thread, 1;
            mad.lo.u32 mine, other, 4, place;
            ld.shared.u32 d, [mine];
            st.global.u32 [%at], d;
            """,
            {"a": ("b32", data)},
            {"r": ("b32", [data[i ^ 1] for i in range(32)] + [0xA5A5A5A5] * 32)},
            registers=".shared .align 4 .b8 room[256];\n.reg .b32 place, mine, other, d;\n.reg .pred p;",
            block=64,
            stores=False,
        )
    )
    emit(
        Draft(
            "spin.lock",
            SOURCE,
            """
            mov.u32 place, room;
            mov.u32 zero, 0;
            setp.eq.u32 p, %thread, 0;
            @p st.shared.v2.u32 [place], {zero, zero};
            bar.sync 0;
            TRY:
            atom.shared.cas.b32 old, [place], 0, 1;
            setp.ne.u32 p, old, 0;
            @p bra TRY;
            ld.volatile.shared.u32 sum, [place+4];
            add.u32 sum, sum, a;
            st.volatile.shared.u32 [place+4], sum;
            membar.cta;
            atom.shared.exch.b32 old, [place], 0;
            bar.sync 0;
            ld.shared.u32 d, [place+4];
            """,
            {"a": ("b32", data)},
            {"d": ("b32", [sum(data)] * 64)},
            registers=".shared .align 8 .b8 room[8];\n.reg .b32 place, zero, old, sum;\n.reg .pred p;",
            block=64,
        )
    )


def stacks() -> None:
    """alloca: as much as each lane asks for, given back by a callee and by stackrestore."""
    callee = """
.func (.param .b32 result) summed(.param .b32 n)
{
	.reg .b32 i, m, v, s;
	.reg .b64 room, place, bytes;
	.reg .pred p;
	ld.param.u32 m, [n];
	mul.wide.u32 bytes, m, 4;
	alloca.u64 room, bytes, 16;
	mov.u32 i, 0;
	FILL:
	mul.wide.u32 place, i, 4;
	add.u64 place, place, room;
	mad.lo.u32 v, i, i, m;
	st.local.u32 [place], v;
	add.u32 i, i, 1;
	setp.lt.u32 p, i, m;
	@p bra FILL;
	mov.u32 s, 0;
	SUM:
	sub.u32 i, i, 1;
	mul.wide.u32 place, i, 4;
	add.u64 place, place, room;
	ld.local.u32 v, [place];
	add.u32 s, s, v;
	setp.ne.u32 p, i, 0;
	@p bra SUM;
	st.param.b32 [result], s;
	ret;
}"""
    body = """
        mov.u32 d, 0;
        mov.u32 round, 0;
        AGAIN:
        {
        .param .b32 x;
        .param .b32 y;
        st.param.b32 [x], a;
        call.uni (y), summed, (x);
        ld.param.b32 e, [y];
        }
        add.u32 d, d, e;
        add.u32 round, round, 1;
        setp.lt.u32 p, round, 40;
        @p bra AGAIN;
        stacksave.u64 mark;
        alloca.u64 room, 64, 8;
        st.local.u32 [room], a;
        ld.local.u32 f, [room];
        stackrestore.u64 mark;
    """
    counts = list(range(1, 33))
    sums = [sum(i * i + n for i in range(n)) for n in counts]
    emit(
        Draft(
            "alloca",
            SOURCE,
            body,
            {"a": ("b32", counts)},
            {"d": ("b32", [40 * s for s in sums]), "e": ("b32", sums), "f": ("b32", counts)},
            registers=".reg .b32 round;\n.reg .b64 mark, room;\n.reg .pred p;",
            outside=callee,
        )
    )


def all_cases() -> None:
    branches()
    calls()
    barriers()
    stacks()
