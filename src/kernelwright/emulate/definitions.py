"""Which definitions of a register may reach an instruction.

Why: PTX is not in SSA form (a loop's counter shares its register with the value it starts from), so "the" definition
of a register exists only at a place. The rule: walk backwards over the blocks from the reading instruction; a guarded
definition does not end the walk, because lanes whose guard is false keep the older value.
"""

from __future__ import annotations

from bisect import bisect_left

from .analysis import Analysis


class Definitions:
    """Reaching definitions of one function, found on demand and remembered."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._by_register: dict[str, list[int]] = {}
        for position, effect in enumerate(analysis.effects):
            for register in effect.defs:
                self._by_register.setdefault(register.name, []).append(position)
        self._block_of: dict[int, int] = {}
        for block in analysis.blocks:
            for position in range(block.start, block.end):
                self._block_of[position] = block.index
        self._known: dict[tuple[str, int], tuple[int, ...]] = {}

    def block_of(self, position: int) -> int | None:
        """The block that holds an instruction; None where it is unreachable."""
        return self._block_of.get(position)

    def reaching(self, register: str, position: int) -> tuple[int, ...]:
        """Instruction indices that may have written what ``position`` reads from ``register``."""
        key = (register, position)
        if key not in self._known:
            self._known[key] = self._walk(register, position)
        return self._known[key]

    def _walk(self, register: str, position: int) -> tuple[int, ...]:
        defining = self._by_register.get(register, [])
        home = self._block_of.get(position)
        if home is None or not defining:
            return ()
        blocks, instructions = self._analysis.blocks, self._analysis.function.instructions
        found: list[int] = []
        pending = [(home, position)]
        visited: set[int] = set()
        while pending:
            index, end = pending.pop()
            place = bisect_left(defining, end)
            killed = False
            while place > 0 and defining[place - 1] >= blocks[index].start and not killed:
                place -= 1
                found.append(defining[place])
                killed = instructions[defining[place]].guard is None
            if killed:
                continue
            for predecessor in blocks[index].predecessors:
                if predecessor not in visited:
                    visited.add(predecessor)
                    pending.append((predecessor, blocks[predecessor].end))
        return tuple(dict.fromkeys(found))
