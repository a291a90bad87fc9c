"""What each instruction writes and reads, and how it behaves towards its warp: one table for every reader of the IR.

Why: liveness, uniformity, code generation and the interpreter must agree on which operands are destinations. The
rule: the first operand is the destination, unless the opcode stands in a table below; a memory operand is never
written as a register, only read as an address.
Source: the syntax lines of PTX ISA 9.0, section 9.7, https://docs.nvidia.com/cuda/parallel-thread-execution/#instructions
"""

from __future__ import annotations

from dataclasses import dataclass

from .ir import Args, Instruction, Label, Mem, Not, Operand, Pair, Part, Reg, Sym, Vec

CARRY = Reg("%cc", "pred")
"""The condition code register CC.CF, which no operand names: ``add.cc`` writes it, ``addc`` reads it."""

_NEVER = (
    "st", "red", "bra", "brx", "ret", "exit", "trap", "brkpt", "call", "pmevent", "membar", "fence", "nanosleep",
    "prefetch", "prefetchu", "discard", "applypriority", "stmatrix", "stackrestore", "setmaxnreg", "griddepcontrol",
    "sust", "sured", "clusterlaunchcontrol", "cp", "tensormap",
)  # fmt: skip
_NO_DESTINATION: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(_NEVER, ((),)),
    "bar": (("sync",), ("arrive",), ("warp",), ("cta", "sync"), ("cta", "arrive")),
    "barrier": (("sync",), ("arrive",), ("cta", "sync"), ("cta", "arrive"), ("cluster",)),
    "mbarrier": (("init",), ("inval",), ("expect_tx",), ("complete_tx",)),
    "wgmma": (("fence",), ("commit_group",), ("wait_group",)),
    "wmma": (("store",),),
    "multimem": (("st",), ("red",)),
    "tcgen05": (
        ("alloc",), ("dealloc",), ("relinquish_alloc_permit",), ("st",), ("cp",), ("shift",), ("mma",),
        ("commit",), ("fence",), ("wait",),
    ),
}  # fmt: skip
"""Mnemonic to the modifier prefixes under which it has no destination."""

_READ_AND_WRITTEN = frozenset({"wgmma"})
"""Mnemonics whose destination is also an accumulator that they read."""

_SIDE_EFFECTS = frozenset(
    {
        "st", "red", "atom", "call", "bar", "barrier", "bra", "brx", "ret", "exit", "trap", "brkpt", "pmevent",
        "membar", "fence", "nanosleep", "shfl", "vote", "match", "redux", "activemask", "elect",
        "mma", "wmma", "wgmma", "ldmatrix", "stmatrix", "cp", "mbarrier", "prefetch", "prefetchu", "discard",
        "applypriority", "alloca", "stacksave", "stackrestore", "setmaxnreg", "griddepcontrol", "multimem", "tcgen05",
        "tensormap", "suld", "sust", "sured", "clusterlaunchcontrol", "getctarank", "movmatrix",
    }
)  # fmt: skip
"""Mnemonics that do something beside writing their destination, so that they stay even if nobody reads it.

Warp-wide instructions count: lanes wait for one another there, whoever reads the result.
"""

_CARRY_READERS = frozenset({"addc", "subc", "madc"})

_BLOCK_WIDE = frozenset({"sync", "red", "arrive"})
_WARP_WIDE = frozenset(
    {"shfl", "vote", "match", "redux", "elect", "mma", "wmma", "ldmatrix", "stmatrix", "movmatrix", "wgmma"}
)


@dataclass(frozen=True, slots=True)
class Effects:
    """The registers an instruction writes and reads, ``CARRY`` included; reads include guard and addresses."""

    defs: tuple[Reg, ...]
    uses: tuple[Reg, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A ``call``, taken apart: ``call (returns), target, (arguments), prototype``."""

    returns: tuple[Operand, ...]
    target: Sym | Reg
    arguments: tuple[Operand, ...]
    prototype: str


def has_destination(instruction: Instruction) -> bool:
    """Whether the first operand is written."""
    if not instruction.operands:
        return False
    first = instruction.operands[0]
    if isinstance(first, Mem):
        return False
    mods = instruction.mods
    return not any(mods[: len(prefix)] == prefix for prefix in _NO_DESTINATION.get(instruction.op, ()))


def effects(instruction: Instruction) -> Effects:
    """What ``instruction`` writes and reads."""
    defs: list[Reg] = []
    uses: list[Reg] = []
    if instruction.guard is not None:
        uses.append(instruction.guard.register)
    operands = instruction.operands
    if instruction.op == "call":
        parts = call_parts(instruction)
        defs += _registers(Args(parts.returns))
        uses += _registers(Args(parts.arguments))
        if isinstance(parts.target, Reg):
            uses.append(parts.target)
    else:
        if has_destination(instruction):
            destination = _registers(operands[0])
            defs += destination
            if instruction.op in _READ_AND_WRITTEN:
                uses += destination
            operands = operands[1:]
        for operand in operands:
            uses += _registers(operand)
    if "cc" in instruction.mods:
        defs.append(CARRY)
    if instruction.op in _CARRY_READERS:
        uses.append(CARRY)
    return Effects(tuple(defs), tuple(uses))


def has_side_effects(instruction: Instruction) -> bool:
    """Whether the instruction must stay although nobody reads what it writes. Plain loads may go: ptxas drops them."""
    if instruction.op == "ld":
        return "volatile" in instruction.mods or "mmio" in instruction.mods
    return instruction.op in _SIDE_EFFECTS or not has_destination(instruction)


def call_parts(instruction: Instruction) -> Call:
    """The parts of a ``call`` instruction."""
    lists: list[tuple[Operand, ...]] = [(), ()]
    target: Sym | Reg | None = None
    prototype = ""
    for operand in instruction.operands:
        if isinstance(operand, Args):
            lists[0 if target is None else 1] = operand.items
        elif isinstance(operand, Label):
            prototype = operand.name
        elif target is None and isinstance(operand, (Sym, Reg)):
            target = operand
        else:
            target = None
            break
    if target is None:
        raise ValueError(f"malformed call in PTX line {instruction.ptx_line}")
    return Call(lists[0], target, lists[1], prototype)


def suspends(instruction: Instruction) -> bool:
    """Whether the warp may have to wait for other warps here: ``bar.sync``, ``barrier.red``, ``barrier.cluster.wait`` …

    ``bar.arrive`` counts although it never waits, because it changes what others wait for.
    """
    if instruction.op not in ("bar", "barrier"):
        return False
    mods = instruction.mods
    if mods[:1] == ("cluster",):
        return True
    kind = mods[1] if mods[:1] == ("cta",) else mods[0]
    return kind in _BLOCK_WIDE


def converges(instruction: Instruction) -> bool:
    """Whether lanes of one warp wait for one another here: ``shfl.sync``, ``vote``, ``bar.warp.sync``, ``mma`` …"""
    if instruction.op == "bar":
        return instruction.mods[:1] == ("warp",)
    return instruction.op in _WARP_WIDE


def ends_block(instruction: Instruction) -> bool:
    """Whether a basic block ends behind this instruction."""
    return instruction.op in ("bra", "brx", "ret", "exit", "trap") or suspends(instruction)


def _registers(operand: Operand) -> tuple[Reg, ...]:
    if isinstance(operand, Reg):
        return (operand,)
    if isinstance(operand, Mem):
        address = (operand.base,) if isinstance(operand.base, Reg) else ()
        return address + (_registers(operand.coordinates) if operand.coordinates is not None else ())
    if isinstance(operand, (Vec, Args)):
        return tuple(register for item in operand.items for register in _registers(item))
    if isinstance(operand, Not):
        return (operand.operand,)
    if isinstance(operand, Part):
        return (operand.register,)
    if isinstance(operand, Pair):
        return _registers(operand.first) + (() if operand.second is None else _registers(operand.second))
    return ()
