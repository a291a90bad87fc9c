"""Block-wide barriers: bar and barrier, by number, with counts and reductions.

The rule: a warp has arrived once all its unexited lanes have; without a count a barrier opens when every warp that
still has lanes has arrived; exited warps need not. Waiting lanes stay at their instruction; an opened barrier runs it
once more, to deliver the reduction and go on.
Source: PTX ISA 9.0, section 9.7.13.1,
https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-bar
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernelwright.emulate.ptx.ir import Instruction

from .errors import UnknownInstruction
from .formats import Flags
from .lanes import Lanes
from .warp import WARP

if TYPE_CHECKING:
    from .machine import Machine


class _Barrier:
    """One barrier of one block, between two openings."""

    def __init__(self, count: int) -> None:
        self.waiting: Flags = np.zeros(count, bool)
        self.predicate: Flags = np.zeros(count, bool)
        self.contributes: Flags = np.zeros(count, bool)
        self.arrived = 0
        """Threads of ``bar.arrive``, in whole warps."""
        self.expected: int | None = None
        """Threads, where the instructions give a count."""
        self.instructions: dict[int, tuple[Lanes, Instruction]] = {}
        """By counter of the waiting lanes: how to finish their instruction."""


class Barriers:
    """All barriers of a machine's blocks."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._open: dict[tuple[int, int], _Barrier] = {}

    def arrive(self, lanes: Lanes, instruction: Instruction, pc: int) -> None:
        """``bar.sync``, ``bar.red`` and ``bar.arrive``, in all spellings."""
        mods = [mod for mod in instruction.mods if mod not in ("cta", "aligned")]
        kind = mods[0]
        if kind not in ("sync", "red", "arrive"):
            raise UnknownInstruction(instruction)
        first = 1 if kind == "red" else 0
        operands = instruction.operands
        names = lanes.read(first, "u32")
        with_count = len(operands) > (first + 2 if kind == "red" else first + 1)
        counts = lanes.read(first + 1, "u32") if with_count else None
        predicate = lanes.read(len(operands) - 1, "pred") if kind == "red" else None
        blocks = self._machine.local_block[lanes.indices]
        for block, name in {(int(b), int(n)) for b, n in zip(blocks, names, strict=True)}:
            chosen = (blocks == block) & (names == name)
            part = lanes.subset(chosen)
            barrier = self._open.setdefault((block, name), _Barrier(self._machine.count))
            if counts is not None:
                barrier.expected = int(counts[chosen][0])
            if kind == "arrive":
                barrier.arrived += WARP * len(np.unique(part.indices // WARP))
                continue
            barrier.waiting[part.indices] = True
            if predicate is not None:
                barrier.predicate[part.indices] = predicate[chosen]
                barrier.contributes[part.indices] = True
            known = barrier.instructions.get(pc)
            if known is not None:
                part = Lanes(part.machine, part.frame, np.concatenate([known[0].indices, part.indices]), instruction)
            barrier.instructions[pc] = (part, instruction)
            self._machine.at_barrier[part.indices] = True
            self._machine.pc[part.indices] = pc
        self.release()

    def release(self) -> None:
        """Open every barrier that is complete."""
        for key, barrier in list(self._open.items()):
            if self._complete(key[0], barrier):
                del self._open[key]
                self._finish(barrier)

    def _complete(self, block: int, barrier: _Barrier) -> bool:
        machine = self._machine
        lanes = slice(block * machine.width, (block + 1) * machine.width)
        alive: Flags = ~machine.done[lanes].reshape(-1, WARP)
        waiting = barrier.waiting[lanes].reshape(-1, WARP)
        whole: Flags = np.logical_and((waiting | ~alive).all(axis=1), waiting.any(axis=1))
        if barrier.expected is None:
            return bool(waiting.any() and whole[alive.any(axis=1)].all())
        arrived = int(whole.sum()) * WARP + barrier.arrived
        return arrived >= barrier.expected

    def _finish(self, barrier: _Barrier) -> None:
        machine = self._machine
        for pc, (lanes, instruction) in barrier.instructions.items():
            if barrier.contributes.any() and "red" in instruction.mods:
                self._deliver(lanes, instruction, barrier)
            machine.pc[lanes.indices] = pc + 1
            machine.at_barrier[lanes.indices] = False

    @staticmethod
    def _deliver(lanes: Lanes, instruction: Instruction, barrier: _Barrier) -> None:
        votes = barrier.predicate[barrier.contributes]
        if "popc" in instruction.mods:
            lanes.write(0, np.full(lanes.count, votes.sum(), np.uint32), "u32")
        elif "and" in instruction.mods or "or" in instruction.mods:
            result = votes.all() if "and" in instruction.mods else votes.any()
            lanes.write(0, np.full(lanes.count, bool(result)), "pred")
        else:
            raise UnknownInstruction(instruction)
