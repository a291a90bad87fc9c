"""What lanes tell one another: shfl, vote, match, redux, activemask, bar.warp.sync.

Source: PTX ISA 9.0, 9.7.9.6 and 9.7.13. Each stands at the top of its own block, where kernel.py lets lanes wait for
the members that are not there yet; here only the exchange itself is left.
"""

from __future__ import annotations

from kernelwright.emulate.ptx.ir import Instruction, Operand, Pair

from .lane import ELEMENT, Lanes, RefusedInstruction, emits
from .text import constant

AT_SYNC = 6
"""enum kw_access."""


def members(instruction: Instruction) -> Operand | None:
    """The member mask operand of a warp-wide instruction; None for the forms before Volta, which have none."""
    if instruction.op not in ("shfl", "vote", "match", "redux", "bar", "elect"):
        return None
    if instruction.op not in ("bar", "elect") and "sync" not in instruction.mods:
        return None
    return instruction.operands[-1] if instruction.operands else None


def pass_members(g: Lanes) -> None:
    """Put the member masks into data row 1."""
    operand = members(g.instruction)
    value = constant("i32", -1) if operand is None else g.read(operand, "b32")
    g.pass_lanes(1, value)


@emits("shfl")
def _shuffle(g: Lanes) -> None:
    mode = next(m for m in g.instruction.mods if m in ("up", "down", "bfly", "idx"))
    pass_members(g)
    g.pass_lanes(0, g.source(1, "b32"))
    g.pass_lanes(2, g.source(2, "b32"))
    g.pass_lanes(3, g.source(3, "b32"))
    inside = g.ask(f"kw_shfl_{mode}", g.site(AT_SYNC, 0))
    predicate = g.bits_to_lanes(inside) if isinstance(g.instruction.operands[0], Pair) else None
    g.result(g.take_lanes(0, "i32"), predicate=predicate)


_VOTES = {"all": 0, "any": 1, "uni": 2, "ballot": 3}


@emits("vote")
def _vote(g: Lanes) -> None:
    mode = next(m for m in g.instruction.mods if m in _VOTES)
    bits = g.lanes_to_bits(g.source(1, "pred"))
    pass_members(g)
    g.run("kw_vote", g.site(AT_SYNC, 0), _VOTES[mode], bits)
    value = g.take_lanes(0, "i32")
    g.result(value if mode == "ballot" else g.text.compare("icmp ne", value, constant("i32", 0)))


@emits("match")
def _match(g: Lanes) -> None:
    element = ELEMENT[g.instruction.mods[-1] if g.instruction.mods[-1] in ELEMENT else "b32"]
    value = g.text.resize(g.source(1, "b64" if element == "i64" else "b32"), "i64")
    pass_members(g)
    g.pass_lanes(0, value)
    agree = g.ask("kw_match", g.site(AT_SYNC, 0), int(g.has("all")))
    predicate = g.bits_to_lanes(agree) if isinstance(g.instruction.operands[0], Pair) else None
    g.result(g.take_lanes(2, "i32"), predicate=predicate)


_REDUCTIONS = {"add": 0, "min": 1, "max": 2, "and": 3, "or": 4, "xor": 5}


@emits("redux")
def _reduce(g: Lanes) -> None:
    operation = next((m for m in g.instruction.mods if m in _REDUCTIONS), "")
    if not operation or g.type not in ("u32", "s32", "b32"):
        raise RefusedInstruction(g.instruction)
    pass_members(g)
    g.pass_lanes(0, g.source(1, "b32"))
    g.run("kw_redux", g.site(AT_SYNC, 0), _REDUCTIONS[operation], int(g.type == "s32"))
    g.result(g.take_lanes(0, "i32"))


@emits("activemask")
def _active_mask(g: Lanes) -> None:
    g.result(g.text.splat(g.mask))


@emits("elect")
def _elect(g: Lanes) -> None:
    t = g.text
    group = t.op("and", g.source(1, "b32"), g.mask)
    leader = t.intrinsic("cttz", group, extra=", i1 false")
    lane = g.special("%laneid")
    g.result(t.splat(leader), predicate=t.compare("icmp eq", lane, leader))
