"""Block order, liveness, dead code and uniformity on small functions whose answers are known."""

from __future__ import annotations

import ptx_samples
import pytest

from kernelwright.emulate.analysis import Analysis, analyse, effects, suspends
from kernelwright.emulate.ptx.parse import parse

REGISTERS = ".reg .b32 a, b, c, d, e; .reg .b64 w; .reg .pred p, q;\n"


def analysed(body: str, *, split: bool = False) -> Analysis:
    text = (
        f".version 8.0\n.target sm_80\n.address_size 64\n.shared .b32 s;\n"
        f".entry k(.param .u32 n)\n{{\n{REGISTERS}{body}\n}}\n"
    )
    return analyse(parse(text).functions["k"], split_at_converging=split)


def names(analysis: Analysis, label: str) -> frozenset[str]:
    return analysis.live_in[analysis.block_of_label[label]]


DIAMOND = """
mov.u32 a, %tid.x;
setp.eq.u32 p, a, 0;
@p bra THEN;
mov.u32 b, 1;
bra JOIN;
THEN:
mov.u32 b, 2;
JOIN:
st.shared.u32 [s], b;
ret;
"""


def test_a_join_is_numbered_behind_both_branches() -> None:
    analysis = analysed(DIAMOND)
    join = analysis.block_of_label["JOIN"]
    assert all(join > index for index in range(len(analysis.blocks)) if index != join)
    assert analysis.divergent_branches == {0}
    assert analysis.partial_blocks == {index for index in range(1, len(analysis.blocks)) if index != join}
    assert "b" in analysis.divergent_registers


def test_a_loop_is_numbered_without_gaps_and_before_its_exit() -> None:
    analysis = analysed(
        "mov.u32 a, 0;\nHEAD:\nsetp.gt.u32 p, a, 9;\n@p bra OUT;\nadd.u32 a, a, 1;\nbra HEAD;\nOUT:\n"
        "st.shared.u32 [s], a;\nret;"
    )
    head, out = analysis.block_of_label["HEAD"], analysis.block_of_label["OUT"]
    assert (head, out, len(analysis.blocks)) == (1, 3, 4)
    assert not analysis.divergent_branches and not analysis.divergent_registers


def test_a_loop_that_lanes_leave_one_by_one_is_partial_and_its_exit_is_not() -> None:
    analysis = analysed(
        "mov.u32 a, %laneid;\nmov.u32 b, 0;\nHEAD:\nadd.u32 b, b, 1;\nsetp.lt.u32 p, b, a;\n@p bra HEAD;\n"
        "st.shared.u32 [s], b;\nret;"
    )
    head = analysis.block_of_label["HEAD"]
    assert analysis.partial_blocks == {head}
    # The counter is the same for all lanes in the loop, but not behind it.
    assert "b" in analysis.divergent_registers


def test_an_early_return_leaves_the_rest_converged() -> None:
    analysis = analysed(
        "mov.u32 a, %tid.x;\nld.param.u32 b, [n];\nsetp.ge.u32 p, a, b;\n@p bra END;\nmov.u32 c, 0;\nLOOP:\n"
        "add.u32 c, c, 1;\nsetp.lt.u32 q, c, b;\n@q bra LOOP;\nst.shared.u32 [s], c;\nEND:\nret;"
    )
    assert analysis.block_of_label["END"] == 1, "blocks that only return come right behind the entry"
    assert analysis.partial_blocks == {1}
    assert "c" not in analysis.divergent_registers


def test_a_guarded_definition_does_not_kill() -> None:
    analysis = analysed("bra L;\nL:\n@p mov.u32 a, 1;\nst.shared.u32 [s], a;\nret;")
    assert names(analysis, "L") == {"a", "p"}
    plain = analysed("bra L;\nL:\nmov.u32 a, 1;\nst.shared.u32 [s], a;\nret;")
    assert names(plain, "L") == set()


def test_dead_code_reads_nothing() -> None:
    analysis = analysed("bra L;\nL:\nadd.u32 b, a, 1;\nadd.u32 c, b, 1;\nld.shared.u32 d, [e];\nret;")
    assert names(analysis, "L") == set()
    assert [analysis.function.instructions[index].op for index in sorted(analysis.dead)] == ["add", "add", "ld"]
    kept = analysed("bra L;\nL:\nld.volatile.shared.u32 d, [e];\natom.shared.add.u32 c, [e], b;\nret;")
    assert names(kept, "L") == {"b", "e"} and not kept.dead


def test_a_value_dead_round_a_loop_is_dead() -> None:
    analysis = analysed(
        "mov.u32 a, 0;\nmov.u32 c, 0;\nL:\nadd.u32 c, c, 1;\nadd.u32 a, a, 1;\nsetp.lt.u32 p, a, 9;\n@p bra L;\nret;"
    )
    assert names(analysis, "L") == {"a"}, "c only feeds itself"


def test_the_carry_flag_is_a_register() -> None:
    analysis = analysed("add.cc.u32 a, b, c;\naddc.u32 d, b, c;\nst.shared.v2.u32 [s], {a, d};\nret;")
    first, second = analysis.function.instructions[:2]
    assert [register.name for register in effects(first).defs] == ["a", "%cc"]
    assert [register.name for register in effects(second).uses] == ["b", "c", "%cc"]
    assert analysis.live_before(1) == {"a", "b", "c", "%cc"}


@pytest.mark.parametrize(
    ("line", "defs", "uses"),
    [
        ("st.global.v2.b32 [w], {a, b};", "", "w a b"),
        ("ld.global.v2.b32 {a, b}, [w+4];", "a b", "w"),
        ("@p mov.b32 a, b;", "a", "p b"),
        ("setp.lt.and.s32 p|q, a, b, !p;", "p q", "a b p"),
        ("atom.global.add.u32 a, [w], b;", "a", "w b"),
        ("red.global.add.u32 [w], b;", "", "w b"),
        ("bar.red.popc.u32 a, 0, !p;", "a", "p"),
        ("bar.sync a, b;", "", "a b"),
        ("vote.sync.ballot.b32 a, p, b;", "a", "p b"),
        ("mov.b64 {a, b}, w;", "a b", "w"),
        ("mbarrier.arrive.shared.b64 w, [a];", "w", "a"),
        ("mbarrier.init.shared.b64 [a], b;", "", "a b"),
        ("cp.async.cg.shared.global [a], [w], 16;", "", "a w"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {a, b}, [c];", "a b", "c"),
        ("membar.gl;", "", ""),
    ],
)
def test_effects(line: str, defs: str, uses: str) -> None:
    effect = analysed(line + "\nret;").effects[0]
    assert " ".join(register.name for register in effect.defs) == defs
    assert " ".join(register.name for register in effect.uses) == uses


def test_blocks_end_behind_barriers_and_start_at_exchanges_when_asked() -> None:
    body = (
        "bar.sync 0;\nmov.u32 a, 1;\nbar.warp.sync -1;\nshfl.sync.up.b32 b, a, 1, 0, -1;\nst.shared.u32 [s], b;\nret;"
    )
    assert [block.start for block in analysed(body).blocks] == [0, 1]
    assert [block.start for block in analysed(body, split=True).blocks] == [0, 1, 2, 3]
    assert suspends(analysed(body).function.instructions[0])
    assert not suspends(analysed(body).function.instructions[2])


def test_ballots_are_uniform_and_shuffles_are_not() -> None:
    analysis = analysed(
        "mov.u32 a, %tid.x;\nsetp.eq.u32 p, a, 3;\nvote.sync.ballot.b32 b, p, -1;\nshfl.sync.up.b32 c, b, 1, 0, -1;\n"
        "bar.red.or.pred q, 0, p;\nld.param.u32 d, [n];\nmov.u32 e, %ctaid.x;\nret;"
    )
    assert analysis.divergent_registers == {"a", "p", "c"}


def test_brx_idx_reaches_every_target() -> None:
    analysis = analysed(
        "mov.u32 a, %tid.x;\nts: .branchtargets A, B, A;\nbrx.idx a, ts;\nA:\nmov.u32 b, 1;\nB:\n"
        "st.shared.u32 [s], b;\nret;"
    )
    assert set(analysis.blocks[0].successors) == {analysis.block_of_label["A"], analysis.block_of_label["B"]}
    assert analysis.divergent_branches == {0}


@pytest.mark.emu
@pytest.mark.skipif(not ptx_samples.available(), reason="no nvcc")
@pytest.mark.parametrize("name", ptx_samples.NAMES)
def test_no_kernel_of_nvcc_reads_a_register_before_writing_it(name: str) -> None:
    for function in parse(ptx_samples.ptx_of(name)).functions.values():
        analysis = analyse(function)
        assert not analysis.live_in[0], function.name
        for block in analysis.blocks:
            for successor in block.successors:
                assert block.index in analysis.blocks[successor].predecessors
                assert analysis.live_in[successor] <= analysis.live_out[block.index]
