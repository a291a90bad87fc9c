"""Parameters of calls without memory: what a caller stores and a callee loads becomes a register.

Why: after inlining, ``st.param`` and ``ld.param`` on a call's scratch are moves. The rule: a variable becomes registers
only where every access to a piece of it has the same offset and size; where pieces overlap or an address is taken, it
becomes local memory.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field

from .ptx.ir import Args, Function, Instruction, Mem, Operand, Reg, Sym, Variable, Vec
from .ptx.types import TYPE_BYTES


@dataclass
class _Use:
    pieces: set[tuple[int, int]] = field(default_factory=set)
    plain: bool = True


def _components(instruction: Instruction) -> tuple[Operand, ...]:
    operand = instruction.operands[0] if instruction.op == "ld" else instruction.operands[1]
    return operand.items if isinstance(operand, Vec) else (operand,)


def _scratch_access(instruction: Instruction, scratch: dict[str, Variable]) -> tuple[str, int] | None:
    """Variable and offset of a ``ld.param``/``st.param`` on a call's scratch."""
    if instruction.op not in ("ld", "st") or not any(mod.split("::")[0] == "param" for mod in instruction.mods):
        return None
    memory = instruction.operands[1 if instruction.op == "ld" else 0]
    if not isinstance(memory, Mem) or not isinstance(memory.base, Sym) or memory.base.name not in scratch:
        return None
    return memory.base.name, memory.base.offset + memory.offset


def named_symbols(operand: Operand) -> set[str]:
    """The variables and functions that an operand names."""
    if isinstance(operand, Sym):
        return {operand.name}
    if isinstance(operand, Mem):
        return named_symbols(operand.base)
    if isinstance(operand, (Vec, Args)):
        return set().union(*map(named_symbols, operand.items)) if operand.items else set()
    return set()


def without_call_memory(function: Function) -> Function:
    """Call parameters as registers, or as local memory where pieces overlap or an address is taken."""
    scratch = {variable.name: variable for variable in function.locals if variable.space == "param"}
    if not scratch:
        return function
    uses = {name: _Use() for name in scratch}
    for instruction in function.instructions:
        access = _scratch_access(instruction, scratch)
        if access is not None:
            size = TYPE_BYTES[instruction.mods[-1]]
            for number in range(len(_components(instruction))):
                uses[access[0]].pieces.add((access[1] + number * size, size))
            continue
        if instruction.op == "call":
            for operand in instruction.operands:
                for name in named_symbols(operand) & scratch.keys():
                    uses[name].pieces.add((0, scratch[name].size))
            continue
        for operand in instruction.operands:
            for name in named_symbols(operand) & scratch.keys():
                uses[name].plain = False
    for use in uses.values():
        ordered = sorted(use.pieces)
        use.plain = use.plain and all(a + s <= b for (a, s), (b, _) in itertools.pairwise(ordered))
    made: list[Instruction] = []
    moved = [0] * (len(function.instructions) + 1)
    registers = dict(function.registers)

    def piece(name: str, offset: int, size: int) -> Reg:
        register = Reg(f"%{name}+{offset}", f"b{8 * size}")
        registers[register.name] = register
        return register

    def as_register(operand: Operand) -> Operand:
        if isinstance(operand, Sym) and operand.name in scratch:
            return piece(operand.name, 0, scratch[operand.name].size)
        if isinstance(operand, Args):
            return Args(tuple(map(as_register, operand.items)))
        return operand

    for index, instruction in enumerate(function.instructions):
        moved[index] = len(made)
        access = _scratch_access(instruction, scratch)
        if instruction.op == "call":
            made.append(dataclasses.replace(instruction, operands=tuple(map(as_register, instruction.operands))))
        elif access is None:
            made.append(instruction)
        elif not uses[access[0]].plain:
            mods = tuple("local" if mod.split("::")[0] == "param" else mod for mod in instruction.mods)
            made.append(dataclasses.replace(instruction, mods=mods))
        else:
            type_ = instruction.mods[-1]
            size = TYPE_BYTES[type_]
            for number, component in enumerate(_components(instruction)):
                register = piece(access[0], access[1] + number * size, size)
                pair = (component, register) if instruction.op == "ld" else (register, component)
                made.append(dataclasses.replace(instruction, op="mov", mods=(type_,), operands=pair))
    moved[len(function.instructions)] = len(made)
    variables = tuple(
        dataclasses.replace(variable, space="local") if variable.name in scratch else variable
        for variable in function.locals
        if variable.name not in scratch or not uses[variable.name].plain
    )
    return dataclasses.replace(
        function,
        instructions=tuple(made),
        labels={label: moved[index] for label, index in function.labels.items()},
        registers=registers,
        locals=variables,
    )
