"""Which accesses of shared memory are joined: cases that ptxas 13.0 was seen to decide."""

from __future__ import annotations

import pytest

from kernelwright.emulate.analysis import analyse
from kernelwright.emulate.codegen.joins import joined_accesses
from kernelwright.emulate.ptx.parse import parse

pytestmark = pytest.mark.tiny


def joined(body: str) -> list[int | None]:
    """For each access of the body the bytes it moves; None where it is left alone."""
    function = parse(f""".version 8.0
.target sm_80
.address_size 64
.visible .entry t(.param .u64 out)
{{
	.shared .align 4 .b8 tile[4096];
	.reg .b32 %t, %base, %at, %by, %n;
	.reg .f32 %f<16>;
	.reg .b16 %h<16>;
	.reg .b64 %rd;
	.reg .pred %p;
	mov.u32 %t, %tid.x;
	mov.u32 %base, tile;
{body}
	ld.param.u64 %rd, [out];
	st.global.f32 [%rd], %f0;
	ret;
}}
""").functions["t"]
    found = joined_accesses(analyse(function))
    accesses = [i for i, one in enumerate(function.instructions) if one.op in ("ld", "st") and "shared" in one.mods]
    return [found.get(index) for index in accesses]


def loads(*offsets: int, base: str = "%at", kind: str = "f32", register: str = "f") -> str:
    lines = [f"ld.shared.{kind} %{register}{n}, [{base}+{offset}];" for n, offset in enumerate(offsets)]
    return "\n".join(lines + [f"st.global.{kind} [%rd+{4 * n}], %{register}{n};" for n in range(len(offsets))])


def aligned(shift: int) -> str:
    return f"shl.b32 %n, %t, {shift};\nadd.s32 %at, %base, %n;\nld.param.u64 %rd, [out];\n"


@pytest.mark.parametrize(
    ("shift", "offsets", "expected"),
    [
        (4, (0, 4, 8, 12), [16, 0, 0, 0]),
        (5, (0, 4, 8, 12, 16, 20, 24, 28), [16, 0, 0, 0, 16, 0, 0, 0]),
        (4, (8, 12, 16, 20), [8, 0, 8, 0]),
        (3, (0, 4, 8, 12), [8, 0, 8, 0]),
        (4, (0, 4, 8), [16, 0, 0]),
        (2, (0, 4), [None, None]),
        (4, (4, 8), [None, None]),
        (4, (0, 128), [None, None]),
    ],
)
def test_loads_are_joined_as_far_as_their_alignment_is_known(
    shift: int, offsets: tuple[int, ...], expected: list[int | None]
) -> None:
    assert joined(aligned(shift) + loads(*offsets)) == expected


def test_halves_are_joined_by_four() -> None:
    text = loads(*range(2, 16, 2), kind="u16", register="h")
    assert joined(aligned(4) + text) == [8, 0, 0, 8, 0, 0, 0]


def test_stores_need_every_part() -> None:
    def stores(*offsets: int) -> str:
        return "\n".join(f"st.shared.f32 [%at+{offset}], %f1;" for offset in offsets)

    assert joined(aligned(4) + stores(0, 4, 8, 12)) == [16, 0, 0, 0]
    assert joined(aligned(4) + stores(0, 4, 8)) == [8, 0, None]


def test_nothing_is_joined_across_a_barrier_or_a_store_that_may_change_it() -> None:
    first, second = "ld.shared.f32 %f1, [%at];", "ld.shared.f32 %f2, [%at+4];\nadd.f32 %f0, %f1, %f2;"
    assert joined(aligned(4) + first + "\n" + second) == [8, 0]
    assert joined(aligned(4) + first + "\nbar.sync 0;\n" + second) == [None, None]
    assert joined(aligned(4) + first + "\nst.shared.f32 [%base], %f1;\n" + second) == [None, None, None]
    assert joined(aligned(4) + first + "\nst.global.f32 [%rd], %f1;\n" + second) == [8, 0]


def test_what_a_loop_adds_keeps_the_alignment_it_had() -> None:
    body = """	mov.u32 %at, %base;
again:
	ld.shared.f32 %f1, [%at];
	ld.shared.f32 %f2, [%at+4];
	add.f32 %f0, %f1, %f2;
	add.s32 %at, %at, {step};
	setp.lt.u32 %p, %at, 1000;
	@%p bra again;"""
    assert joined(body.replace("{step}", "32")) == [8, 0]
    assert joined(body.replace("{step}", "4")) == [None, None]
