"""What is known of a function before it runs: its blocks, who reads which register, what is the same in a whole warp.

Why: code generation saves only live registers, emits diverged copies only where a warp can be split, and keeps
warp-uniform values in one register. The rule: every answer errs on the safe side, and says which side that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .cfg import Block, build_blocks
from .ptx.ir import Function, Instruction, Mem, Reg, Special, Sym
from .ptx.operands import CARRY, Effects, converges, effects, ends_block, has_side_effects, suspends
from .ptx.types import LANE_DEPENDENT_SPECIALS

__all__ = ["CARRY", "Analysis", "Block", "analyse", "converges", "effects", "ends_block", "suspends"]


@dataclass(frozen=True)
class Analysis:
    """Facts about one function. Registers are named by ``Reg.name``; the carry flag is ``%cc`` (``CARRY``)."""

    function: Function
    blocks: tuple[Block, ...]
    """Reachable blocks in scheduling order; ``blocks[i].index == i``. See ``cfg`` for what the order promises."""
    block_of_label: dict[str, int]
    """Label to block number; -1 for a label at the end of the text (an exit). Unreachable labels are absent."""
    effects: tuple[Effects, ...]
    """By instruction index: registers written and read."""
    live_in: tuple[frozenset[str], ...]
    """By block: registers whose value at the block's top may still be read."""
    live_out: tuple[frozenset[str], ...]
    dead: frozenset[int]
    """Instructions (by index) that have no side effect and whose results nobody reads, plain loads included, and
    everything unreachable. ``live_in`` assumes that they are not executed."""
    divergent_registers: frozenset[str]
    """Registers that may differ between the lanes of a warp that have not exited. All others are warp-uniform."""
    divergent_branches: frozenset[int]
    """Blocks whose final branch may send lanes of one warp different ways (a guarded ``ret`` or ``exit`` too)."""
    partial_blocks: frozenset[int]
    """Blocks that may run with some of the warp's unexited lanes missing, provided that the scheduler always runs
    the lowest-numbered pending block first. If it ever deviates (to let a spinning warp progress), every block in
    ``reachable_diverged`` may."""
    reachable_diverged: frozenset[int]
    """Blocks reachable from any divergent branch: a superset of ``partial_blocks``."""

    def is_uniform(self, register: Reg) -> bool:
        """Whether all unexited lanes of a warp always agree on ``register``."""
        return register.name not in self.divergent_registers

    def live_before(self, index: int) -> frozenset[str]:
        """Registers that may still be read at instruction ``index`` or after it."""
        block = next(block for block in self.blocks if block.start <= index < block.end)
        live = set(self.live_out[block.index])
        for position in range(block.end - 1, index - 1, -1):
            _step(live, self.function.instructions[position], self.effects[position])
        return frozenset(live)


def analyse(function: Function, *, split_at_converging: bool = False) -> Analysis:
    """Analyse ``function``. ``split_at_converging`` starts a block at every ``shfl``, ``vote``, ``bar.warp.sync`` …"""
    blocks = build_blocks(function, split_at_converging=split_at_converging)
    all_effects = tuple(effects(instruction) for instruction in function.instructions)
    live_in, live_out = _liveness(function, blocks, all_effects)
    by_start = {block.start: block.index for block in blocks}
    count = len(function.instructions)
    labels = {
        name: -1 if index == count else by_start[index]
        for name, index in function.labels.items()
        if index == count or index in by_start
    }
    registers, branches, partial = _divergence(function, blocks, all_effects)
    reachable: set[int] = set()
    for index in branches:
        reachable |= _reachable(blocks, blocks[index].successors)
    return Analysis(
        function=function,
        blocks=blocks,
        block_of_label=labels,
        effects=all_effects,
        live_in=live_in,
        live_out=live_out,
        dead=_dead(function, blocks, all_effects, live_out),
        divergent_registers=registers,
        divergent_branches=branches,
        partial_blocks=partial,
        reachable_diverged=frozenset(reachable),
    )


# ---- liveness -----------------------------------------------------------------------------------------------------


def _step(live: set[str], instruction: Instruction, effect: Effects) -> bool:
    """Move ``live`` from behind ``instruction`` to before it; False when the instruction is dead.

    A guarded definition does not kill: lanes whose guard is false keep the old value.
    """
    if not has_side_effects(instruction) and not any(register.name in live for register in effect.defs):
        return False
    if instruction.guard is None:
        live.difference_update(register.name for register in effect.defs)
    live.update(register.name for register in effect.uses)
    return True


def _liveness(
    function: Function, blocks: Sequence[Block], all_effects: Sequence[Effects]
) -> tuple[tuple[frozenset[str], ...], tuple[frozenset[str], ...]]:
    """Registers live into and out of each block: a backward fixpoint in which dead instructions read nothing."""
    live_in: list[frozenset[str]] = [frozenset() for _ in blocks]
    live_out: list[frozenset[str]] = [frozenset() for _ in blocks]
    pending = set(range(len(blocks)))
    while pending:
        index = max(pending)
        pending.discard(index)
        block = blocks[index]
        out: set[str] = set()
        for successor in block.successors:
            out |= live_in[successor]
        live_out[index] = frozenset(out)
        for position in range(block.end - 1, block.start - 1, -1):
            _step(out, function.instructions[position], all_effects[position])
        if len(out) != len(live_in[index]):
            live_in[index] = frozenset(out)
            pending.update(block.predecessors)
    return tuple(live_in), tuple(live_out)


def _dead(
    function: Function, blocks: Sequence[Block], all_effects: Sequence[Effects], live_out: Sequence[frozenset[str]]
) -> frozenset[int]:
    needed: set[int] = set()
    for block in blocks:
        live = set(live_out[block.index])
        for position in range(block.end - 1, block.start - 1, -1):
            if _step(live, function.instructions[position], all_effects[position]):
                needed.add(position)
    return frozenset(range(len(function.instructions))) - needed


# ---- divergence ---------------------------------------------------------------------------------------------------

_DIVERGENT_OPS = frozenset(
    {"atom", "mbarrier", "shfl", "match", "elect", "call", "alloca", "ldmatrix", "mma", "wmma", "movmatrix"}
)
"""Mnemonics whose result differs between lanes, whatever they read."""

_COLLECTIVES = frozenset({"vote", "redux"})
"""Mnemonics that give every member of the mask (their last operand) the same result, whatever the lanes bring."""

_UNIFORM_SPACES = frozenset({"param", "const", "global", "shared"})
"""Spaces in which one address is one memory cell for the whole warp (a generic address may be a local one)."""


def _divergence(
    function: Function, blocks: Sequence[Block], all_effects: Sequence[Effects]
) -> tuple[frozenset[str], frozenset[int], frozenset[int]]:
    """Divergent registers, divergent branches, partial blocks: a fixpoint, because each makes more of the others."""
    instructions = function.instructions
    registers: set[str] = set()
    branches: set[int] = set()
    partial: set[int] = set()
    readers: dict[str, list[int]] = {}
    block_of: dict[int, int] = {}
    for block in blocks:
        for position in range(block.start, block.end):
            block_of[position] = block.index
            for register in all_effects[position].uses:
                readers.setdefault(register.name, []).append(position)
    pending = list(block_of)
    while pending:
        position = pending.pop()
        instruction, effect = instructions[position], all_effects[position]
        index = block_of[position]
        sources_diverge = any(register.name in registers for register in _decisive(instruction, effect))
        if effect.defs and (index in partial or sources_diverge or _makes_divergence(function, instruction)):
            for register in effect.defs:
                if register.name not in registers:
                    registers.add(register.name)
                    pending.extend(readers.get(register.name, ()))
        jumps = instruction.op in ("bra", "brx", "ret", "exit", "trap")
        if jumps and sources_diverge and index not in branches:
            branches.add(index)
            for touched in _partial_after(blocks, blocks[index].successors) - partial:
                partial.add(touched)
                pending.extend(range(blocks[touched].start, blocks[touched].end))
    return frozenset(registers), frozenset(branches), frozenset(partial)


def _decisive(instruction: Instruction, effect: Effects) -> tuple[Reg, ...]:
    """The registers read on whose agreement the result's agreement depends."""
    if instruction.op in _COLLECTIVES or (instruction.op in ("bar", "barrier") and "red" in instruction.mods):
        mask = instruction.operands[-1] if instruction.op in _COLLECTIVES else None
        guard = (instruction.guard.register,) if instruction.guard is not None else ()
        return guard + ((mask,) if isinstance(mask, Reg) else ())
    return effect.uses


def _makes_divergence(function: Function, instruction: Instruction) -> bool:
    """Whether the result may differ between lanes although every register read is uniform."""
    if any(isinstance(o, Special) and o.name in LANE_DEPENDENT_SPECIALS for o in instruction.operands):
        return True
    if instruction.op in _DIVERGENT_OPS:
        return True
    if instruction.op != "ld":
        # A local variable has the same offset but another address in each lane.
        return instruction.op in ("mov", "cvta") and any(_is_private(function, o) for o in instruction.operands)
    space = next((mod.split("::")[0] for mod in instruction.mods if mod.split("::")[0] in _UNIFORM_SPACES), "")
    if not space or "volatile" in instruction.mods:
        return True
    address = instruction.operands[1]
    return space == "param" and not (
        function.entry
        and isinstance(address, Mem)
        and (not isinstance(address.base, Sym) or any(address.base.name == param.name for param in function.params))
    )


def _is_private(function: Function, operand: object) -> bool:
    return isinstance(operand, Sym) and any(
        variable.name == operand.name and variable.space in ("local", "param") for variable in function.locals
    )


def _partial_after(blocks: Sequence[Block], successors: Iterable[int]) -> set[int]:
    """Blocks that may run partially once a warp is split over ``successors``, lowest number first.

    The split is over at block j if everything reachable from the successors without passing j is numbered below j:
    all of it has run before j does, and whoever has not exited stands at j.
    """
    roots = tuple(successors)
    everything = _reachable(blocks, roots)
    for join in sorted(everything):
        before = _reachable(blocks, (root for root in roots if root != join), without=join)
        if all(index < join for index in before):
            return before
    return everything


def _reachable(blocks: Sequence[Block], roots: Iterable[int], *, without: int = -1) -> set[int]:
    found: set[int] = set()
    pending = list(roots)
    while pending:
        index = pending.pop()
        if index in found or index == without:
            continue
        found.add(index)
        pending.extend(blocks[index].successors)
    return found
