"""Threads that run: one program counter a lane, the lowest rank first, frames for calls, and the waiting at barriers.

Why: a whole block (or, for cooperative launches, the whole grid) advances as arrays, which makes numpy bearable.
The rule: the lanes at the lowest-ranked counter of the deepest call run together until their block of code ends. Lanes
that wait keep their counter; when nobody can run, that is a deadlock and says who waits where. Lanes that spin get
out of the way of others after ``_PATIENCE`` jumps backwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernelwright.emulate.ptx.ir import Instruction, Operand, Reg, Sym
from kernelwright.emulate.ptx.operands import converges, suspends

from .barriers import Barriers
from .calls import Calls
from .errors import InterpreterError, KernelTrap, UnknownInstruction
from .formats import Bits, Flags
from .instructions import handler_of
from .lanes import Indices, Lanes
from .program import Code, Program
from .special import SpecialRegisters
from .values import dtype_of
from .warp import WARP, member_masks

_PATIENCE = 32


class Frame:
    """The registers and the frame memory of one function at one call depth, for all lanes."""

    def __init__(self, machine: Machine, code: Code) -> None:
        self.code = code
        self._count = machine.count
        self._registers: dict[str, npt.NDArray[Any]] = {}
        self.carry: Flags = np.zeros(machine.count, bool)
        self.stride = code.frame_bytes
        self.base = machine.memory.allocate(self.stride * machine.count) if self.stride else 0
        if self.stride:
            machine.frame_ranges.append((self.base, self.base + self.stride * machine.count))

    def register(self, register: Reg) -> npt.NDArray[Any]:
        """The register of every lane; it starts as zero."""
        held = self._registers.get(register.name)
        if held is None:
            if register.type == "b128":
                held = np.zeros((self._count, 2), np.uint64)
            else:
                held = np.zeros(self._count, bool if register.type == "pred" else dtype_of(register.type))
            self._registers[register.name] = held
        return held

    def wide_register(self, lanes: Lanes, operand: Operand) -> Bits:
        """A b128 register as rows of two words."""
        if not isinstance(operand, Reg):
            raise lanes.error("expected a b128 register")
        return self.register(operand)[lanes.indices]

    def slot(self, name: str, indices: Indices) -> npt.NDArray[np.uint64]:
        """Addresses of a frame variable in the given lanes."""
        offset = self.base + self.code.slots[name]
        return (offset + self.stride * indices).astype(np.uint64)


class Machine:
    """The lanes of some blocks of one grid, from their first instruction to their last."""

    def __init__(
        self,
        program: Program,
        kernel: Code,
        special: SpecialRegisters,
        blocks: list[int],
        threads: int,
        params: tuple[int, int],
        shared_bytes: int,
        printed: list[str],
    ) -> None:
        self.program = program
        self.memory = program.memory
        self.kernel = kernel
        self._special = special
        self.params = params
        self.calls = Calls(self, printed)
        width = -(-threads // WARP) * WARP
        self.width = width
        self.count = width * len(blocks)
        lane = np.arange(self.count)
        self.thread = lane % width
        self.block = np.repeat(np.array(blocks, np.int64), width)
        self.local_block = lane // width
        self.shared_bytes = max(shared_bytes, 1)
        bases = [self.memory.allocate(self.shared_bytes, align=1024) for _ in blocks]
        self.shared_base = np.repeat(np.array(bases, np.uint64), width)
        self._bases = bases
        self.frame_ranges: list[tuple[int, int]] = []
        self.frames: dict[tuple[int, str], Frame] = {}
        self.pc = np.full(self.count, kernel.start, np.int64)
        self.depth = np.zeros(self.count, np.int64)
        self.returns: list[npt.NDArray[np.int64]] = []
        """By depth: the counter each lane comes back to."""
        self.done = self.thread >= threads
        self.at_barrier = np.zeros(self.count, bool)
        self.at_sync = np.zeros(self.count, bool)
        self.barriers = Barriers(self)
        self._rank = np.array(program.rank, np.int64)
        self.executed = 0
        self._jumps_back = 0

    # ---- what handlers ask ------------------------------------------------------------------------------------

    def frame(self, depth: int, code: Code) -> Frame:
        """The frame of ``code`` at ``depth``, made on first use."""
        key = (depth, code.function.name)
        found = self.frames.get(key)
        if found is None:
            found = self.frames[key] = Frame(self, code)
        return found

    def special(self, name: str, indices: Indices) -> Bits:
        """A special register in the given lanes."""
        value: Bits = self._special.value(name, self.thread[indices], self.block[indices], indices % WARP)
        return value

    def space_of(self, lanes: Lanes, name: str) -> str:
        """``shared`` for the name of a shared variable, else empty: all other names are host addresses."""
        return "shared" if name in self.program.shared else ""

    def symbol(self, lanes: Lanes, symbol: Sym) -> npt.NDArray[np.uint64]:
        """The address of a variable in its own space."""
        code = lanes.frame.code
        if symbol.name in code.slots:
            return lanes.frame.slot(symbol.name, lanes.indices) + np.uint64(symbol.offset & (2**64 - 1))
        if symbol.name in self.program.shared:
            return np.full(lanes.count, self.program.shared[symbol.name] + symbol.offset, np.uint64)
        for param in code.function.params if code.function.entry else ():
            if param.name == symbol.name:
                return np.full(lanes.count, self.params[0] + param.offset + symbol.offset, np.uint64)
        return np.full(lanes.count, self.program.address_of(symbol), np.uint64)

    def is_shared(self, indices: Indices, addresses: Bits) -> Flags:
        """Which addresses lie in the lane's own shared window."""
        base = self.shared_base[indices]
        return (addresses >= base) & (addresses < base + np.uint64(self.shared_bytes))

    def is_local(self, addresses: Bits) -> Flags:
        """Which addresses lie in a call frame."""
        return _inside(addresses, self.frame_ranges)

    def is_const(self, addresses: Bits) -> Flags:
        """Which addresses lie in a ``.const`` variable."""
        return _inside(addresses, self.program.const_ranges)

    def is_param(self, addresses: Bits) -> Flags:
        """Which addresses lie in the kernel's parameters."""
        return _inside(addresses, [(self.params[0], self.params[0] + self.params[1])])

    # ---- the schedule -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run every lane to its end."""
        while not self.done.all():
            runnable = ~(self.done | self.at_barrier | self.at_sync)
            if not runnable.any():
                raise InterpreterError(self._deadlock())
            depth = int(self.depth[runnable].max())
            runnable &= self.depth == depth
            ranks = self._rank[self.pc[runnable]]
            chosen = ranks.min()
            if chosen == ranks.max():
                self._jumps_back = 0
            elif self._jumps_back > _PATIENCE:
                chosen, self._jumps_back = ranks.max(), 0
            pc = int(self.pc[runnable][int(np.argmax(ranks == chosen))])
            # Lanes that waited here for the others of their warp come along.
            here = (self.pc == pc) & (self.depth == depth) & ~self.done & ~self.at_barrier
            self.at_sync[here] = False
            self._run_together(np.flatnonzero(here), pc, depth)
        for base in self._bases:
            self.memory.release(base)
        for start, _ in self.frame_ranges:
            self.memory.release(start)

    def _run_together(self, indices: Indices, pc: int, depth: int) -> None:
        """Run lanes that share ``pc`` until they branch, wait, or reach a place where others may stand."""
        program = self.program
        frame = self.frame(depth, program.owner[pc])
        first = True
        while True:
            instruction = program.instructions[pc]
            if not first and (program.starts_block[pc] or converges(instruction)):
                self.pc[indices] = pc
                return
            first = False
            lanes = Lanes(self, frame, indices, instruction)
            if instruction.guard is not None:
                held = frame.register(instruction.guard.register)[indices]
                lanes = lanes.subset(held != instruction.guard.negated)
            self.executed += lanes.count
            if self._moves(instruction):
                self.pc[indices] = pc + 1
                self._control(lanes, instruction, pc, depth)
                return
            if converges(instruction):
                self.pc[indices] = pc + 1
                self._warp_wide(lanes, instruction, pc)
                return
            if lanes.count:
                handler_of(instruction)(lanes, instruction)
            pc += 1

    @staticmethod
    def _moves(instruction: Instruction) -> bool:
        return instruction.op in ("bra", "brx", "ret", "exit", "call", "trap", "brkpt") or suspends(instruction)

    def _control(self, lanes: Lanes, instruction: Instruction, pc: int, depth: int) -> None:
        if not lanes.count:
            return
        function = lanes.frame.code.function
        start = lanes.frame.code.start
        match instruction.op:
            case "bra":
                self._jump(lanes.indices, start + function.labels[_label(instruction)], pc)
            case "brx":
                targets = [start + function.labels[name] for name in function.branch_targets[_label(instruction)]]
                chosen = lanes.read(0, "u32")
                if (chosen >= len(targets)).any():
                    raise lanes.error("index beyond its .branchtargets")
                for index in np.unique(chosen):
                    self._jump(lanes.indices[chosen == index], targets[int(index)], pc)
            case "ret":
                self._leave(lanes.indices, depth, exits=False)
            case "exit":
                self._leave(lanes.indices, depth, exits=True)
            case "call":
                self.calls.call(lanes, instruction, pc, depth)
            case "bar" | "barrier":
                self.barriers.arrive(lanes, instruction, pc)
            case _:
                raise KernelTrap(instruction, "executed")

    def _jump(self, indices: Indices, target: int, pc: int) -> None:
        self.pc[indices] = target
        if target <= pc:
            self._jumps_back += 1

    def _leave(self, indices: Indices, depth: int, *, exits: bool) -> None:
        if depth == 0 or exits:
            self.done[indices] = True
            self.at_sync[:] = False
            self.barriers.release()
            return
        self.calls.returned(indices, depth)

    def _warp_wide(self, lanes: Lanes, instruction: Instruction, pc: int) -> None:
        """Execute for lanes whose whole mask is here; the others wait for it."""
        if not lanes.count:
            return
        masks = member_masks(lanes, instruction)
        lane = lanes.indices % WARP
        if (((masks >> lane.astype(np.uint32)) & np.uint32(1)) == 0).any():
            raise lanes.error("a lane executes it that is not in its member mask")
        here = np.zeros(self.count, bool)
        here[lanes.indices] = True
        ready = np.ones(lanes.count, bool)
        for position, (index, mask) in enumerate(zip(lanes.indices.tolist(), masks.tolist(), strict=True)):
            first = index - index % WARP
            present = here[first : first + WARP] | self.done[first : first + WARP]
            ready[position] = all(present[bit] for bit in range(WARP) if mask >> bit & 1)
        if "sync" not in instruction.mods and instruction.op == "vote":
            ready[:] = True
        waiting = lanes.indices[~ready]
        self.pc[waiting] = pc
        self.at_sync[waiting] = True
        if ready.any():
            group = lanes.subset(ready)
            handler_of(instruction)(group, instruction)

    def _deadlock(self) -> str:
        lines = ["deadlock: no thread can go on"]
        stuck = ~self.done
        for pc in np.unique(self.pc[stuck]):
            instruction = self.program.instructions[int(pc)]
            threads = np.flatnonzero(stuck & (self.pc == pc))
            lines.append(f"  {len(threads)} threads wait at PTX line {instruction.ptx_line}: {instruction.opcode}")
        return "\n".join(lines)


def _label(instruction: Instruction) -> str:
    name = getattr(instruction.operands[-1], "name", "")
    if not name:
        raise UnknownInstruction(instruction)
    return str(name)


def _inside(addresses: Bits, ranges: list[tuple[int, int]]) -> Flags:
    found = np.zeros(addresses.shape, bool)
    for start, end in ranges:
        found |= (addresses >= np.uint64(start)) & (addresses < np.uint64(end))
    return found
