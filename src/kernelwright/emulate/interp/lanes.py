"""The lanes that execute one instruction together, and how an instruction reads and writes their registers.

Why: every handler computes on plain arrays with one entry for each executing lane, so that it can neither see nor
disturb the others. The rule: registers hold unsigned bits, ``read`` narrows to the type asked for, ``write`` extends a
narrower result by the sign of its type (PTX ISA 9.0, section 9.4.1: operand size exceeding instruction-type size).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kernelwright.emulate.ptx.ir import Imm, Instruction, Mem, Not, Operand, Pair, Reg, Sink, Special, Sym, Vec
from kernelwright.emulate.ptx.types import TYPE_BYTES

from .errors import AtInstruction
from .formats import Bits, Flags
from .values import DTYPES, dtype_of, immediate, resize

if TYPE_CHECKING:
    from .machine import Frame, Machine

Handler = Callable[["Lanes", Instruction], None]
Indices = npt.NDArray[np.int64]


class Lanes:
    """Lanes ``indices`` of ``machine`` at one instruction of one call frame."""

    def __init__(self, machine: Machine, frame: Frame, indices: Indices, instruction: Instruction) -> None:
        self.machine = machine
        self.frame = frame
        self.indices = indices
        self.instruction = instruction

    @property
    def count(self) -> int:
        """How many lanes execute."""
        return len(self.indices)

    def subset(self, chosen: Flags) -> Lanes:
        """Those of these lanes for which ``chosen`` holds."""
        return Lanes(self.machine, self.frame, self.indices[chosen], self.instruction)

    def error(self, what: str) -> AtInstruction:
        """An error that names this instruction."""
        return AtInstruction(self.instruction, what)

    # ---- reading ----------------------------------------------------------------------------------------------

    def operand(self, index: int) -> Operand:
        """Operand ``index``; raises where the instruction has fewer."""
        if index >= len(self.instruction.operands):
            raise self.error(f"operand {index} is missing")
        return self.instruction.operands[index]

    def read(self, index: int, type_: str) -> Bits:
        """Operand ``index`` as bits of ``type_`` (booleans for ``pred``)."""
        return self.value(self.operand(index), type_)

    def value(self, operand: Operand, type_: str) -> Bits:
        """Any readable operand as bits of ``type_``."""
        if isinstance(operand, Reg):
            held = self.frame.register(operand)[self.indices]
            if operand.type == "pred" or type_ == "pred":
                if operand.type != type_:
                    raise self.error(f"{operand.name} is a .{operand.type} where .{type_} is expected")
                return held
            return held.astype(dtype_of(type_))
        if isinstance(operand, Not):
            negated: Bits = ~self.value(operand.operand, "pred")
            return negated
        if isinstance(operand, Imm):
            if type_ == "pred":
                return np.full(self.count, operand.bits != 0)
            return np.full(self.count, immediate(operand, type_), dtype_of(type_))
        if isinstance(operand, Special):
            return self.machine.special(operand.name, self.indices).astype(dtype_of(type_))
        if isinstance(operand, Sym):
            return self.machine.symbol(self, operand).astype(dtype_of(type_))
        if isinstance(operand, Vec):
            return self._packed(operand, type_)
        raise self.error(f"cannot read {operand}")

    def _packed(self, vector: Vec, type_: str) -> Bits:
        """``{a, b}`` as one value, a lowest."""
        size = TYPE_BYTES[type_] // len(vector.items)
        wide = dtype_of(type_)
        result = np.zeros(self.count, wide)
        for index, item in enumerate(vector.items):
            part = self.value(item, f"b{8 * size}").astype(wide)
            result |= part << wide.type(8 * size * index)
        return result

    def carry(self) -> Flags:
        """CC.CF of each lane."""
        return self.frame.carry[self.indices]

    # ---- writing ----------------------------------------------------------------------------------------------

    def write(self, index: int, bits: Bits, type_: str) -> None:
        """Store ``bits`` of ``type_`` in operand ``index``."""
        self.store(self.operand(index), bits, type_)

    def store(self, operand: Operand, bits: Bits, type_: str) -> None:
        """Store into a register, a vector of registers, or nowhere."""
        if isinstance(operand, Sink):
            return
        if isinstance(operand, Pair):
            self.store(operand.first, bits, type_)
            return
        if isinstance(operand, Vec):
            size = TYPE_BYTES[type_] // len(operand.items)
            for index, item in enumerate(operand.items):
                part = (bits >> bits.dtype.type(8 * size * index)).astype(DTYPES[size])
                self.store(item, part, f"b{8 * size}")
            return
        if not isinstance(operand, Reg):
            raise self.error(f"cannot write {operand}")
        target = self.frame.register(operand)
        if operand.type == "pred":
            if bits.dtype != np.bool_:
                raise self.error(f"{operand.name} is a predicate, the result is not")
            target[self.indices] = bits
            return
        if bits.dtype == np.bool_:
            raise self.error(f"{operand.name} is not a predicate, the result is")
        target[self.indices] = resize(bits, type_, TYPE_BYTES[operand.type]) if TYPE_BYTES[operand.type] <= 8 else bits

    def write_pair(self, index: int, first: Bits, first_type: str, second: Bits, second_type: str) -> None:
        """Store into ``d|p``, or into ``d`` alone where only that is given."""
        operand = self.operand(index)
        if isinstance(operand, Pair):
            self.store(operand.first, first, first_type)
            if operand.second is not None:
                self.store(operand.second, second, second_type)
        else:
            self.store(operand, first, first_type)

    def set_carry(self, carry: Flags) -> None:
        """Set CC.CF."""
        self.frame.carry[self.indices] = carry

    # ---- addresses --------------------------------------------------------------------------------------------

    def addresses(self, operand: Operand, space: str) -> npt.NDArray[np.uint64]:
        """Host addresses of ``[base + offset]`` in ``space`` (empty for generic)."""
        if not isinstance(operand, Mem):
            raise self.error("expected an address in brackets")
        if isinstance(operand.base, Imm):
            base = np.full(self.count, operand.base.bits, np.uint64)
        elif isinstance(operand.base, Reg):
            base = self.frame.register(operand.base)[self.indices].astype(np.uint64)
        else:
            base = self.machine.symbol(self, operand.base)
            if not space:
                # A variable named in a generic access means its generic address.
                space = self.machine.space_of(self, operand.base.name)
        address = base + np.uint64(operand.offset & (2**64 - 1))
        if space == "shared":
            address = (address & np.uint64(0xFFFFFFFF)) + self.machine.shared_base[self.indices]
        return address
