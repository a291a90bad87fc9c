"""alloca as arithmetic: each thread has a local array, and a register says from where on it is free.

Why: code generation lays out local memory once for a kernel. The rule: a callee gives back what it took where it
returns (flatten.py sees to that); beyond the array an access is ``memory.local-overrun``, as beyond a GPU's stack.
"""

from __future__ import annotations

import dataclasses

from .calls import RefusedCall
from .ptx.ir import Imm, Instruction, Operand, Reg, Sym, Variable

BYTES = 4096
"""What a thread may have at once; CUDA's default stack is 1 KiB (cudaLimitStackSize)."""
OPERATIONS = frozenset({"alloca", "stacksave", "stackrestore"})
ROOM = Variable("$alloca", "local", "b8", 16, BYTES)
TOP = Reg("%alloca.top", "b64")
"""Offset in :data:`ROOM` of what is free."""


def move(like: Instruction, target: Reg, source: Operand) -> Instruction:
    """``mov`` at the place of ``like``, unguarded."""
    return dataclasses.replace(like, op="mov", mods=("u64",), operands=(target, source), guard=None)


def expanded(instruction: Instruction) -> list[Instruction]:
    """``alloca``, ``stacksave`` or ``stackrestore`` in other instructions. Raises :class:`RefusedCall`."""
    operands = instruction.operands
    made: list[Instruction] = []

    def add(op: str, *mods: str, operands: tuple[Operand, ...]) -> None:
        made.append(dataclasses.replace(instruction, op=op, mods=mods, operands=operands))

    if instruction.mods[-1] != "u64":
        raise RefusedCall(instruction, "addresses of 32 bits")
    if instruction.op == "stacksave":
        add("mov", "u64", operands=(operands[0], TOP))
    elif instruction.op == "stackrestore":
        add("mov", "u64", operands=(TOP, operands[0]))
    else:
        align = operands[2].bits if len(operands) > 2 and isinstance(operands[2], Imm) else 8
        add("add", "u64", operands=(TOP, TOP, Imm(align - 1, "s64")))
        add("and", "b64", operands=(TOP, TOP, Imm(-align & (1 << 64) - 1, "s64")))
        add("mov", "u64", operands=(operands[0], Sym(ROOM.name)))
        add("add", "u64", operands=(operands[0], operands[0], TOP))
        add("add", "u64", operands=(TOP, TOP, operands[1]))
    return made
