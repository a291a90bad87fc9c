"""One function out of a kernel and all it calls, in the few forms that code generation knows.

Why: a warp that stops at a barrier inside a called function must resume there, so calls cannot live on a host stack.
The rule: every call is replaced by the callee's body with its own registers and labels; parameters of calls become
registers where each piece is always accessed the same way, and local memory elsewhere; a guard on an instruction that
lanes wait at, or that ends a thread, becomes a branch around it. An indirect call becomes a
comparison with each function whose address the module takes. Recursion is taken out before, by recursion.py.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from . import alloca
from .call_memory import named_symbols, without_call_memory
from .calls import RefusedCall, renamed
from .ptx.ir import (
    Args,
    Function,
    Guard,
    Imm,
    Instruction,
    Label,
    Module,
    Operand,
    Position,
    Reg,
    Sym,
    Variable,
)  # fmt: skip
from .ptx.operands import call_parts, converges, suspends
from .recursion import BY_POINTER, without_recursion

BUILTINS = frozenset({"vprintf", "__assertfail", "malloc", "free"})
"""Functions without a body that the runtime provides."""

_AROUND = frozenset({"ret", "exit", "trap", "call", "brx"})


@dataclass
class _Body:
    """Instructions in the making, with the labels that stand before each."""

    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    registers: dict[str, Reg] = field(default_factory=dict)
    expansions: int = 0

    def place(self, label: str) -> None:
        self.labels[label] = len(self.instructions)

    def prepend(self, instruction: Instruction) -> None:
        self.instructions.insert(0, instruction)
        self.labels = {label: index + 1 for label, index in self.labels.items()}


def flatten(module: Module, function: Function) -> Function:
    """``function`` with every call expanded. Raises :class:`RefusedCall`."""
    module = without_recursion(module, function)
    body = _Body()
    _expand(module, function, body, suffix="", names={}, outer=None, stack=(function.name,))
    if alloca.TOP.name in body.registers:
        body.variables.append(alloca.ROOM)
        body.prepend(alloca.move(function.instructions[0], alloca.TOP, Imm(0, "s64")))
    end = function.instructions[-1] if function.instructions else None
    body.instructions.append(
        Instruction("exit", (), (), None, end.ptx_line if end else function.ptx_line, end.position if end else None)
    )
    flat = dataclasses.replace(
        function,
        instructions=tuple(body.instructions),
        labels=body.labels,
        registers=body.registers,
        locals=tuple(body.variables),
        branch_targets=body.targets,
    )
    return _branch_around(without_call_memory(flat))


# ---- inlining


def _inlined(position: Position | None, callee: str, call: Position | None) -> Position | None:
    """A callee's position with the call's behind it."""
    if position is None:
        return call
    if position.inlined_at is None:
        return dataclasses.replace(position, function=position.function or callee, inlined_at=call)
    return dataclasses.replace(position, inlined_at=_inlined(position.inlined_at, callee, call))


def _expand(
    module: Module,
    function: Function,
    body: _Body,
    *,
    suffix: str,
    names: dict[str, str],
    outer: tuple[Position | None, str] | None,
    stack: tuple[str, ...],
) -> None:
    """Append ``function``'s instructions; ``outer`` is the calling position and the label behind the call."""

    def rename(name: str) -> str:
        return name + suffix

    names = dict(names)
    for variable in function.locals:
        shared = variable.space == "shared"
        new = f"{function.name}::{variable.name}" if shared and suffix else variable.name + ("" if shared else suffix)
        names[variable.name] = new
        if not any(known.name == new for known in body.variables):
            body.variables.append(dataclasses.replace(variable, name=new))
    for register in function.registers.values():
        body.registers[rename(register.name)] = Reg(rename(register.name), register.type)
    for name, targets in function.branch_targets.items():
        body.targets[rename(name)] = tuple(map(rename, targets))
    standing: dict[int, list[str]] = {}
    for label, index in function.labels.items():
        standing.setdefault(index, []).append(rename(label))
    # What a callee takes by alloca is given back where it returns.
    saved = Reg(rename("%alloca.saved"), "b64")
    gives_back = outer is not None and any(instruction.op == "alloca" for instruction in function.instructions)
    if gives_back:
        body.registers |= {saved.name: saved, alloca.TOP.name: alloca.TOP}
        body.instructions.append(alloca.move(function.instructions[0], saved, alloca.TOP))
    for index, instruction in enumerate(function.instructions):
        for label in standing.get(index, ()):
            body.place(label)
        position = instruction.position
        if outer is not None:
            position = _inlined(position, function.name, outer[0])
        guard = instruction.guard
        if guard is not None:
            guard = Guard(Reg(rename(guard.register.name), guard.register.type), guard.negated)
        operands = tuple(renamed(operand, rename, names) for operand in instruction.operands)
        new_one = dataclasses.replace(instruction, operands=operands, guard=guard, position=position)
        if instruction.op == "brkpt":  # ends a launch where no debugger is attached (H200, driver 13.0, 2026-11-29)
            new_one = dataclasses.replace(new_one, op="trap")
        if instruction.op in alloca.OPERATIONS:
            body.registers[alloca.TOP.name] = alloca.TOP
            body.instructions += alloca.expanded(new_one)
        elif instruction.op == "ret" and outer is not None:
            if gives_back:
                body.instructions.append(dataclasses.replace(alloca.move(new_one, alloca.TOP, saved), guard=guard))
            body.instructions.append(dataclasses.replace(new_one, op="bra", mods=(), operands=(Label(outer[1]),)))
        elif instruction.op == "call":
            _call(module, new_one, body, stack)
        else:
            body.instructions.append(new_one)
    for label in standing.get(len(function.instructions), ()):
        body.place(label)


def _call(module: Module, call: Instruction, body: _Body, stack: tuple[str, ...]) -> None:
    parts = call_parts(call)
    if not isinstance(parts.target, Sym):
        _indirect(module, call, body, stack)
        return
    name = module.aliases.get(parts.target.name, parts.target.name)
    if name in BUILTINS and name not in module.functions:
        body.instructions.append(call)
        if name == "__assertfail":
            body.instructions.append(dataclasses.replace(call, op="exit", mods=(), operands=()))
        return
    callee = module.functions.get(name)
    if callee is None:
        raise RefusedCall(call, f"{name} has no body in this module")
    if name in stack:
        raise AssertionError(f"{name} calls itself, which recursion.py undoes before")
    body.expansions += 1
    number = body.expansions
    behind = f"$behind${number}"
    names: dict[str, str] = {}
    formal = (*callee.params, *callee.returns)
    actual = (*parts.arguments, *parts.returns)
    if len(formal) != len(actual):
        raise RefusedCall(call, f"{name} takes {len(formal)} parameters, {len(actual)} are given")
    for param, operand in zip(formal, actual, strict=True):
        if not isinstance(operand, Sym):
            raise RefusedCall(call, "arguments in registers")
        names[param.name] = operand.name
    skip = f"$skip${number}"
    if call.guard is not None:
        around = Guard(call.guard.register, not call.guard.negated)
        body.instructions.append(dataclasses.replace(call, op="bra", mods=(), operands=(Label(skip),), guard=around))
    _expand(module, callee, body, suffix=f"${number}", names=names, outer=(call.position, behind), stack=(*stack, name))
    body.place(behind)
    body.place(skip)


def function_address(module: Module, name: str) -> int:
    """A number that stands for a function's address: not canonical, so that no load or store takes it for memory."""
    return 0x4B57 << 48 | list(module.functions).index(name) + 1 << 4


def _taken(module: Module) -> set[str]:
    """Functions whose address is an operand or an initial value somewhere."""
    found = {target.name for variable in module.variables.values() for _, target in variable.relocations}
    for function in module.functions.values():
        for instruction in function.instructions:
            if instruction.op != "call":
                found |= set().union(*map(named_symbols, instruction.operands)) if instruction.operands else set()
    return found & {name for name, function in module.functions.items() if not function.entry}


def _indirect(module: Module, call: Instruction, body: _Body, stack: tuple[str, ...]) -> None:
    """A call through a register: each candidate in turn is compared with it and called; none at all is a trap."""
    parts = call_parts(call)
    assert isinstance(parts.target, Reg)
    body.expansions += 1
    number = body.expansions
    done = f"$done${number}"
    differs = Reg(f"%differs${number}", "pred")
    body.registers[differs.name] = differs

    def add(op: str, *mods: str, operands: tuple[Operand, ...] = (), guard: Guard | None = None) -> None:
        body.instructions.append(dataclasses.replace(call, op=op, mods=mods, operands=operands, guard=guard))

    if call.guard is not None:
        add("bra", operands=(Label(done),), guard=Guard(call.guard.register, not call.guard.negated))
    shape = (len(parts.arguments), len(parts.returns))
    for name in sorted(_taken(module)):
        callee = module.functions[name]
        if (len(callee.params), len(callee.returns)) != shape:
            continue
        if name in stack:
            add("setp", "eq", "u64", operands=(differs, parts.target, Imm(function_address(module, name), "s64")))
            add("trap", BY_POINTER, name, guard=Guard(differs, False))
            continue
        other = f"$other${number}${name}"
        add("setp", "ne", "u64", operands=(differs, parts.target, Imm(function_address(module, name), "s64")))
        add("bra", operands=(Label(other),), guard=Guard(differs, False))
        direct = (Args(parts.returns), Sym(name), Args(parts.arguments))
        _call(module, dataclasses.replace(call, operands=direct, guard=None), body, stack)
        add("bra", operands=(Label(done),))
        body.place(other)
    add("trap")
    body.place(done)


# ---- guards


def _branch_around(function: Function) -> Function:
    """Guards on what lanes wait at become branches; a barrier's reduction gets its own instruction behind it."""
    made: list[Instruction] = []
    labels: dict[str, int] = {}
    moved = [0] * (len(function.instructions) + 1)
    for index, instruction in enumerate(function.instructions):
        moved[index] = len(made)
        guard = instruction.guard
        waits = suspends(instruction) or converges(instruction) or instruction.op == "activemask"
        skip = f"$around${index}"
        if guard is not None and (waits or instruction.op in _AROUND):
            around = Guard(guard.register, not guard.negated)
            made.append(dataclasses.replace(instruction, op="bra", mods=(), operands=(Label(skip),), guard=around))
            instruction = dataclasses.replace(instruction, guard=None)
        else:
            guard = None
        made.append(instruction)
        if suspends(instruction) and "red" in instruction.mods:
            kind = next(mod for mod in instruction.mods if mod in ("popc", "and", "or"))
            made.append(dataclasses.replace(instruction, op="kw_red", mods=(kind,), operands=instruction.operands[:1]))
        if guard is not None:
            labels[skip] = len(made)
    moved[len(function.instructions)] = len(made)
    labels.update({label: moved[index] for label, index in function.labels.items()})
    return dataclasses.replace(function, instructions=tuple(made), labels=labels)
