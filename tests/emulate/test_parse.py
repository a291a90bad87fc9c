"""The PTX parser: what it reads, and what it refuses with which words."""

from __future__ import annotations

import struct
import time

import ptx_samples
import pytest

from kernelwright.emulate.ptx.ir import (
    Function,
    Imm,
    Instruction,
    Label,
    Mem,
    Module,
    Pair,
    Reg,
    Sink,
    Special,
    Sym,
    Vec,
)
from kernelwright.emulate.ptx.operands import call_parts
from kernelwright.emulate.ptx.parse import PtxSyntaxError, parse

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


INLINED = """
.visible .entry k()
{
    .reg .b32 a;
    .loc 1 32 41
    mov.b32 a, 1;
    .loc 2 2647 1, function_name $L__info_string0, inlined_at 1 32 41
    .loc 2 2561 1, function_name $L__info_string1, inlined_at 2 2647 1
    mov.b32 a, 2;
    .loc 1 0 3
    mov.b32 a, 3;
}
    .file 1 "user.py"
    .file 2 "/inc/fp16.hpp"
    .section .debug_str
    {
$L__info_string0:
.b8 95,90
.b8 65,0
$L__info_string1:
.b8 66,0
    }
"""


def module_of(text: str) -> Module:
    return parse(HEAD + text)


def body_of(body: str) -> Function:
    return module_of(f".visible .entry k(.param .u64 p)\n{{\n{body}\n}}\n").functions["k"]


def one(body: str) -> Instruction:
    return body_of(body).instructions[-1]


def test_operands_keep_the_order_of_the_manual() -> None:
    instruction = one(".reg .b32 %r<4>; .reg .pred %p<2>;\n@!%p1 shfl.sync.down.b32 %r1|%p0, %r2, 16, 31, -1;")
    assert instruction.opcode == "shfl.sync.down.b32"
    assert instruction.guard is not None and instruction.guard.negated
    assert instruction.guard.register == Reg("%p1", "pred")
    assert instruction.operands == (
        Pair(Reg("%r1", "b32"), Reg("%p0", "pred")),
        Reg("%r2", "b32"),
        Imm(16, "s64"),
        Imm(31, "s64"),
        Imm(2**64 - 1, "s64"),
    )


def test_vectors_sinks_specials_and_addresses() -> None:
    function = body_of(
        ".reg .b32 %r<4>; .reg .b64 %rd<2>;\n"
        "ld.global.v2.u32 {%r1, _}, [%rd1+-16];\nmov.u32 %r2, %tid.y;\nst.shared.u32 [8], %r2;\nld.param.u64 %rd1, [p];"
    )
    load, move, store, param = function.instructions
    assert load.operands == (Vec((Reg("%r1", "b32"), Sink())), Mem(Reg("%rd1", "b64"), -16))
    assert move.operands[1] == Special("%tid.y")
    assert store.operands[0] == Mem(Imm(8, "s64"))
    assert param.operands[1] == Mem(Sym("p"))
    assert [instruction.ptx_line for instruction in function.instructions] == [7, 8, 9, 10]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0f3F800000", Imm(0x3F800000, "f32")),
        ("0d3FF0000000000000", Imm(0x3FF0000000000000, "f64")),
        ("0xFFU", Imm(255, "s64")),
        ("-1", Imm(2**64 - 1, "s64")),
        ("0b101", Imm(5, "s64")),
        ("017", Imm(15, "s64")),
        ("1.5", Imm(struct.unpack("<Q", struct.pack("<d", 1.5))[0], "f64")),
        ("-2e3", Imm(struct.unpack("<Q", struct.pack("<d", -2000.0))[0], "f64")),
    ],
)
def test_literals(text: str, expected: Imm) -> None:
    assert one(f".reg .b64 a;\nmov.b64 a, {text};").operands[1] == expected


def test_inner_scopes_hide_outer_names_and_stay_unique() -> None:
    function = body_of(
        ".reg .b32 a, %r<3>; .reg .pred %p<3>;\n"
        "mov.b32 a, 1;\n{ .reg .b32 a; .reg .pred %p1; mov.b32 a, 2; setp.eq.u32 %p1, a, %r1; @%p1 bra L; L: }\n"
        "{ .reg .b32 a; mov.b32 a, 3; L: }\nmov.b32 a, 4;"
    )
    written = [i.operands[0] for i in function.instructions if i.op == "mov"]
    names = [register.name for register in written if isinstance(register, Reg)]
    assert names[0] == names[3] == "a"
    assert len(set(names)) == 3
    branch = next(i for i in function.instructions if i.op == "bra")
    assert isinstance(branch.operands[0], Label)
    assert function.labels[branch.operands[0].name] == 4
    assert branch.guard is not None and branch.guard.register.name != "%p1"
    assert len(function.labels) == 2


def test_inlined_positions_form_a_chain() -> None:
    module = module_of(INLINED)
    own, inlined, none = (instruction.position for instruction in module.functions["k"].instructions)
    assert own is not None and (own.file, own.line, own.inlined_at) == ("user.py", 32, None)
    assert inlined is not None and (inlined.line, inlined.function) == (2561, "B")
    middle = inlined.inlined_at
    assert middle is not None and (middle.line, middle.function, middle.file) == (2647, "_ZA", "/inc/fp16.hpp")
    assert middle.inlined_at == own
    assert none is None, "line 0 means that the compiler knows no line"


def test_initialisers_hold_bytes_and_addresses() -> None:
    variables = module_of(
        ".global .align 1 .b8 text[6] = {110, 60, 49};\n.const .align 4 .f32 c[2] = {0f3F800000, 2.5};\n"
        ".global .align 8 .u64 where[3] = {generic(text), f, text+4};\n"
        ".global .align 4 .s32 m[2][2] = {{1, -2}, {3}};\n"
        ".extern .shared .align 16 .b8 dyn[];\n.weak .global .u32 one = 7;\n.func f()\n{\nret;\n}\n"
    ).variables
    assert variables["text"].initial == b"n<1\0\0\0"
    assert variables["c"].initial == struct.pack("<ff", 1.0, 2.5)
    assert variables["where"].relocations == ((0, Sym("text")), (8, Sym("f")), (16, Sym("text", 4)))
    assert variables["where"].size == 24 and variables["where"].initial == bytes(24)
    assert variables["m"].initial == struct.pack("<iiii", 1, -2, 3, 0)
    assert variables["dyn"].size == 0 and variables["dyn"].external
    assert variables["one"].initial == b"\7\0\0\0"


def test_parameters_lie_where_the_driver_puts_them() -> None:
    function = module_of(
        ".entry k(.param .u8 a, .param .u64 .ptr .global .align 16 b, .param .u32 c, .param .align 64 .b8 d[128])\n"
        ".maxntid 128, 2\n.reqntid 64\n.minnctapersm 2\n{\nret;\n}\n"
    ).functions["k"]
    assert [(p.offset, p.size, p.align) for p in function.params] == [(0, 1, 1), (8, 8, 8), (16, 4, 4), (64, 128, 64)]
    assert function.max_threads == (128, 2, 1) and function.required_threads == (64, 1, 1)


def test_calls_are_taken_apart() -> None:
    function = module_of(
        ".func (.param .b32 r) f(.param .b32 x)\n{\nret;\n}\n.entry k()\n{\n.reg .b64 t;\n{\n"
        ".param .b32 a;\n.param .b32 b;\n"
        "call.uni (b), f, (a);\nproto : .callprototype (.param .b32 _) _ (.param .b32 _);\n"
        "call (b), t, (a), proto;\n}\n}\n"
    ).functions["k"]
    direct, indirect = (call_parts(instruction) for instruction in function.instructions)
    assert direct.target == Sym("f") and direct.prototype == ""
    assert isinstance(indirect.target, Reg) and indirect.prototype == "proto"
    assert [variable.space for variable in function.locals] == ["param", "param"]
    assert direct.arguments == (Sym(function.locals[0].name),)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("mov.b32 %r1, 1;", "'%r1' is not a declared register"),
        (".reg .b32 a;\nbra NOWHERE;", "unknown label 'NOWHERE'"),
        (".reg .b32 a;\nmov.b32 a, [;", "not a declared register"),
        (".reg .b32 a;\nmov.b32 a, thing;", "'thing' is not declared"),
        (".reg .b32 a;\n.surprise 3;", "unknown directive '.surprise'"),
        (".reg .b32 a;\n@a bra L;\nL:", "not a declared predicate"),
        (".reg .b32 a;\nmov.b32 a, 09;", "'09' is not a number"),
        ("L:\nL:", "declared twice"),
        (".reg .b32 a;\nadd.s32 a, a", "expected ','"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(body: str, words: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        body_of(body)
    assert words in caught.value.what
    lines = (HEAD + f".visible .entry k(.param .u64 p)\n{{\n{body}\n}}\n").splitlines()
    assert lines[caught.value.line - 1] == caught.value.text


def test_five_thousand_lines_parse_in_under_a_second() -> None:
    lines = [f"fma.rn.f32 %f{i % 90}, %f{i % 7}, %f{i % 11}, 0f3F800000;" for i in range(5000)]
    text = ".reg .f32 %f<100>;\n" + "\n".join(lines)
    start = time.perf_counter()
    function = body_of(text)
    # 0.1 s on the slowest machine tried; the bound leaves room for a busy one.
    assert time.perf_counter() - start < 1.0
    assert len(function.instructions) == 5000


@pytest.mark.emu
@pytest.mark.skipif(not ptx_samples.available(), reason="no nvcc")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ptx_samples.NAMES)
def test_nvcc_output_parses_with_every_position_known(name: str, arch: str) -> None:
    module = parse(ptx_samples.ptx_of(name, arch))
    kernel = module.functions[name]
    assert kernel.entry and module.target == arch
    places = [instruction.position for instruction in kernel.instructions]
    known = [place for place in places if place is not None]
    assert len(known) > 0.8 * len(places)
    for place in known:
        while place.inlined_at is not None:
            assert place.function
            place = place.inlined_at
        assert place.file.endswith(f"{name}.cu")
