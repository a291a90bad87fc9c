"""Patterns in a kernel's code that are legal, yet explain a wrong result when there is one.

Why: no check at run time can object to a shuffle that stays within its warp, but the code shows that its author took it
for a block-wide broadcast. The rule: a pattern is evidence only beside a wrong result, never a finding by itself; it is
reported with the sets of warps that make it one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .analysis import Analysis, analyse
from .ptx.ir import Function, Imm, Instruction, Operand, Pair, Position, Reg
from .threadsets import ThreadSets

_COMBINES = frozenset({"shfl", "redux"})


@dataclass(frozen=True)
class BroadcastPattern:
    """A ``shfl.idx`` whose source lane holds a block-wide result in some warps only, read by other warps too."""

    position: Position | None
    ptx_line: int
    holders: tuple[int, ...]
    """Warps in which the broadcast value stems from the cross-warp combination."""
    others: tuple[int, ...]
    """Warps that run the same shuffle, use its result, and have no part in that combination."""
    source: Position | None
    """Where the holders combine the warps' values."""


def block_broadcasts(function: Function, block: tuple[int, int, int]) -> tuple[BroadcastPattern, ...]:
    """Shuffles of ``function``, launched with ``block``, that are used as if they reached the whole block."""
    analysis = analyse(function)
    sets = ThreadSets(analysis, block)
    if not len(sets.warp) > 32:
        return ()
    found = []
    for position, instruction in enumerate(function.instructions):
        if instruction.op != "shfl" or "idx" not in instruction.mods or position in analysis.dead:
            continue
        if not _is_constant(function, sets, instruction.operands[2], position):
            continue
        pattern = _broadcast_at(analysis, sets, position)
        if pattern is not None:
            found.append(pattern)
    return tuple(found)


def _broadcast_at(analysis: Analysis, sets: ThreadSets, position: int) -> BroadcastPattern | None:
    instructions = analysis.function.instructions
    shuffle = instructions[position]
    running = _warps(sets, position)
    users = _warps_using(analysis, sets, position)
    combined = _shared_dependants(analysis, sets, position)
    for origin in combined:
        holders = _warps(sets, origin) & running
        others = (running & users) - holders
        if holders and others:
            return BroadcastPattern(
                position=shuffle.position,
                ptx_line=shuffle.ptx_line,
                holders=tuple(sorted(holders)),
                others=tuple(sorted(others)),
                source=instructions[origin].position,
            )
    return None


def _warps(sets: ThreadSets, position: int) -> set[int]:
    return {int(warp) for warp in np.unique(sets.warp[sets.reaching(position)])}


def _warps_using(analysis: Analysis, sets: ThreadSets, position: int) -> set[int]:
    """Warps in which some instruction reads what the shuffle at ``position`` returned."""
    destination = analysis.function.instructions[position].operands[0]
    first = destination.first if isinstance(destination, Pair) else destination
    users: set[int] = set()
    if isinstance(first, Reg):
        for reader, effect in enumerate(analysis.effects):
            if reader not in analysis.dead and any(register.name == first.name for register in effect.uses):
                users |= _forward_warps(analysis, sets, reader)
    return users


def _forward_warps(analysis: Analysis, sets: ThreadSets, reader: int) -> set[int]:
    """Warps that use the value beyond moving it: a copy is no use, its readers are."""
    instruction = analysis.function.instructions[reader]
    if instruction.op != "mov" or not isinstance(instruction.operands[0], Reg):
        return _warps(sets, reader)
    name = instruction.operands[0].name
    warps: set[int] = set()
    for position, effect in enumerate(analysis.effects):
        if position != reader and position not in analysis.dead and any(r.name == name for r in effect.uses):
            warps |= _warps(sets, position)
    return warps


def _shared_dependants(analysis: Analysis, sets: ThreadSets, position: int) -> list[int]:
    """Loads from shared memory, and warp-wide combinations of them, that the shuffled value may stem from.

    The slice runs backwards over data dependences and stops at a shared load: what was stored there came from
    other warps already. Nearest to the shuffle first.
    """
    instructions = analysis.function.instructions
    source = instructions[position].operands[1]
    from_shared: dict[int, bool] = {}

    def depends(index: int, path: frozenset[int]) -> bool:
        if index in from_shared:
            return from_shared[index]
        if index in path:
            return False
        instruction = instructions[index]
        if instruction.op == "ld":
            from_shared[index] = "shared" in instruction.mods
            return from_shared[index]
        reached = [depends(d, path | {index}) for d in _definitions(sets, instruction.operands[1:], index)]
        from_shared[index] = any(reached)
        return from_shared[index]

    order: list[int] = []
    pending = _definitions(sets, (source,), position)
    seen: set[int] = set()
    while pending:
        index = pending.pop(0)
        if index in seen:
            continue
        seen.add(index)
        instruction = instructions[index]
        loads = instruction.op == "ld" and "shared" in instruction.mods
        if loads or (instruction.op in _COMBINES and depends(index, frozenset())):
            order.append(index)
        if instruction.op != "ld":
            pending += _definitions(sets, instruction.operands[1:], index)
    return order


def _definitions(sets: ThreadSets, operands: tuple[Operand, ...], position: int) -> list[int]:
    """Definitions of the registers in ``operands`` that may reach ``position``."""
    names = dict.fromkeys(operand.name for operand in operands if isinstance(operand, Reg))
    return [origin for name in names for origin in sets.definitions.reaching(name, position)]


def _is_constant(function: Function, sets: ThreadSets, operand: Operand, position: int) -> bool:
    """Whether the source lane is a literal, directly or through one ``mov``."""
    if isinstance(operand, Imm):
        return True
    if not isinstance(operand, Reg):
        return False
    origins = sets.definitions.reaching(operand.name, position)
    return len(origins) == 1 and _moves_literal(function.instructions[origins[0]])


def _moves_literal(instruction: Instruction) -> bool:
    return instruction.op == "mov" and isinstance(instruction.operands[1], Imm)
