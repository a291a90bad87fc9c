"""Asynchronous copies and the barriers in shared memory that they, and threads, arrive at: cp.async, mbarrier.

Source: PTX ISA 9.0, 9.7.9.25 and 9.7.13.15. What they do is in native/runtime_matrix.c and native/runtime_mbarrier.c.
"""

from __future__ import annotations

from kernelwright.emulate.ptx.ir import Imm, Mem, Sink, Sym

from .lane import Lanes, RefusedInstruction, emits
from .memory import ATOMIC, LOAD, SPACES, STORE, pass_addresses, space_of
from .text import constant


@emits("cp")
def _copy(g: Lanes) -> None:
    mods, operands = g.instruction.mods, g.instruction.operands
    if mods[0] != "async" or mods[1] == "bulk":
        raise RefusedInstruction(g.instruction)
    if mods[1] == "mbarrier":
        _arrive_after_copies(g)
        return
    if mods[1] == "commit_group":
        g.run("kw_cp_commit")
        return
    if mods[1] in ("wait_group", "wait_all"):
        g.run("kw_cp_wait", g.read(operands[0], "u32") if mods[1] == "wait_group" else -1)
        return
    target, source, size = (*operands, None, None, None)[:3]
    known = mods[1] in ("ca", "cg") and isinstance(target, Mem) and isinstance(source, Mem) and isinstance(size, Imm)
    if not known or len(operands) > 5:
        raise RefusedInstruction(g.instruction)
    assert isinstance(target, Mem) and isinstance(source, Mem) and isinstance(size, Imm)
    partial = len(operands) > 3 and not g.has("L2::cache_hint")
    read = g.read(operands[3], "u32") if partial else constant("i32", size.bits)
    g.pass_lanes(2, g.address(target, narrow=True))
    g.pass_lanes(3, read)
    pass_addresses(g, source, "global")
    g.count_access("ldgsts", size.bits, "global")
    load_site = g.site(LOAD, SPACES["global"], size=size.bits, operand=source)
    store_site = g.site(STORE, SPACES["shared"], size=size.bits, operand=target)
    g.run("kw_cp_async", g.active(), load_site, store_site, size.bits)


# ---- mbarrier

_DOES = {
    "init": 0, "inval": 1, "arrive": 2, "arrive_drop": 3, "test_wait": 4, "try_wait": 4, "expect_tx": 6,
    "complete_tx": 7,
}  # fmt: skip
"""What an mbarrier instruction does, as kw_mbarrier_do numbers it; a wait by parity is one more than one by state."""
_PLAIN = frozenset({"init", "inval"})
"""Those that are ordinary stores: nobody may use the object meanwhile."""


def _place(g: Lanes, position: int, access: int) -> tuple[int, int]:
    """Passes the object's addresses; the site's number and the space's."""
    memory = g.instruction.operands[position]
    space = space_of(g)
    if not isinstance(memory, Mem) or space not in ("shared", "generic") or "shared::cluster" in g.instruction.mods:
        raise RefusedInstruction(g.instruction)
    if space == "generic" and isinstance(memory.base, Sym):
        space = "shared"  # the name of a shared variable is its offset
    pass_addresses(g, memory, space)
    return g.site(access, SPACES[space], size=8, operand=memory), SPACES[space]


def _numbers(g: Lanes, row: int, position: int, type_: str, absent: int) -> None:
    """An operand into data row ``row`` as 64-bit lanes, or ``absent`` where the instruction has none."""
    given = len(g.instruction.operands) > position
    value = g.read(g.instruction.operands[position], type_) if given else constant("i32", absent)
    g.pass_lanes(row, g.text.resize(value, "i64"))


@emits("mbarrier")
def _mbarrier(g: Lanes) -> None:
    t, kind = g.text, g.instruction.mods[0]
    if kind == "pending_count":
        word = t.op("lshr", g.source(1, "b64"), constant("i64", 20))
        g.result(t.resize(t.op("and", word, constant("i64", 0xFFFFF)), "i32"))
        return
    if kind not in _DOES:
        raise RefusedInstruction(g.instruction)
    answers = kind in ("arrive", "arrive_drop", "test_wait", "try_wait")
    first = 1 if answers else 0
    expects = kind in ("expect_tx", "complete_tx") or g.has("expect_tx")
    does = _DOES[kind] + int(g.has("parity"))
    if answers and "wait" in kind:
        _numbers(g, 0, first + 1, "u32" if g.has("parity") else "b64", 0)
        _numbers(g, 1, len(g.instruction.operands), "u32", 0)
    elif expects:
        g.pass_lanes(0, constant("i64", 1))
        _numbers(g, 1, first + 1, "u32", 0)
    else:
        _numbers(g, 0, first + 1, "u32", 1)
        g.pass_lanes(1, constant("i64", 0))
    site, space = _place(g, first, STORE if kind in _PLAIN else ATOMIC)
    yes = g.ask("kw_mbarrier_do", g.active(), site, space, does)
    if "wait" in kind:
        g.result(g.bits_to_lanes(yes))
    elif answers and not isinstance(g.instruction.operands[0], Sink):
        g.result(g.take_lanes(0, "i64"))


def _arrive_after_copies(g: Lanes) -> None:
    """cp.async.mbarrier.arrive."""
    site, space = _place(g, 0, ATOMIC)
    g.run("kw_mbarrier_after_copies", g.active(), site, space, int(g.has("noinc")))
