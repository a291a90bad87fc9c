"""What every reader of calls shares: whom an instruction calls, operands under new names, and the refusal of a call.

The rule: names are changed by one function, so that no kind of operand is forgotten in one place and not in another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .ptx.ir import Args, Imm, Instruction, Label, Mem, Module, Not, Operand, Pair, Part, Reg, Sym, Vec
from .ptx.operands import call_parts


class RefusedCall(Exception):
    """A call that cannot be flattened; names the callee and the place."""

    def __init__(self, instruction: Instruction, why: str) -> None:
        place = f"PTX line {instruction.ptx_line}"
        if instruction.position is not None:
            place += f", {instruction.position.file}:{instruction.position.line}"
        super().__init__(f"{instruction.opcode} is not emulated ({place}): {why}")
        self.instruction = instruction
        target = call_parts(instruction).target if instruction.op == "call" else None
        self.what, self.why = getattr(target, "name", instruction.opcode), why
        self.kernel = ""
        """Mangled; known once the refusal leaves the module."""


def callee(module: Module, instruction: Instruction) -> str:
    """The name that a direct call calls, aliases resolved; "" for every other instruction."""
    if instruction.op != "call":
        return ""
    target = call_parts(instruction).target
    return module.aliases.get(target.name, target.name) if isinstance(target, Sym) else ""


def renamed(operand: Operand, rename: Callable[[str], str], names: dict[str, str]) -> Operand:
    """``operand`` with registers and labels renamed by ``rename`` and variables by ``names``."""

    def again(item: Operand) -> Operand:
        return renamed(item, rename, names)

    if isinstance(operand, Reg):
        return Reg(rename(operand.name), operand.type)
    if isinstance(operand, Sym):
        return Sym(names.get(operand.name, operand.name), operand.offset)
    if isinstance(operand, Mem):
        base = again(operand.base)
        assert isinstance(base, (Reg, Sym, Imm))
        return dataclasses.replace(operand, base=base)
    if isinstance(operand, Vec):
        return Vec(tuple(map(again, operand.items)))
    if isinstance(operand, Args):
        return Args(tuple(map(again, operand.items)))
    if isinstance(operand, Pair):
        return Pair(again(operand.first), None if operand.second is None else again(operand.second))
    if isinstance(operand, Not):
        return Not(Reg(rename(operand.operand.name), operand.operand.type))
    if isinstance(operand, Part):
        return Part(Reg(rename(operand.register.name), operand.register.type), operand.selector)
    if isinstance(operand, Label):
        return Label(rename(operand.name))
    return operand
