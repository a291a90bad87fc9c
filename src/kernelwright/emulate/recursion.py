"""Functions that call themselves, or one another in a ring, as one function with a stack of its own.

Why: flattening replaces a call by the callee's body, which for a recursive one would never end. The rule: all functions
of a ring become one body that never calls itself. Each activation has a frame in local memory, with parameters, result,
local variables and the registers that a call must not lose; a call writes the callee's frame and jumps, a return jumps
to where the frame says. Beyond :data:`DEPTH` activations a thread ends with a finding that says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from .activation import activation
from .call_memory import named_symbols
from .calls import RefusedCall, callee, renamed
from .ptx.ir import Function, Guard, Imm, Instruction, Label, Mem, Module, Operand, Param, Reg, Sym, Variable
from .ptx.operands import call_parts
from .ptx.types import TYPE_BYTES

DEPTH = 64
"""Activations that one thread may have at once: CUDA's default stack of 1 KiB (cudaLimitStackSize) holds as many frames
of 16 bytes, and a GPU's are larger."""
TOO_DEEP = "kw_too_deep"
"""First modifier of the ``trap`` at which a thread ends that recurses deeper; the second names the function."""

BY_POINTER = "kw_by_pointer"
"""The same for a function that would be entered again through a pointer, which this file does not undo."""

_FRAME = Reg("%frame", "b32")
_DEPTH = Reg("%depth", "b32")
_LINK = Reg("%link", "b32")
_FLAG = Reg("%flag", "b32")
_FULL = Reg("%full", "pred")
_COMMON = (_FRAME, _DEPTH, _LINK, _FLAG, _FULL)
_STACK = "frames"
_RETURNS = "$returns"
_OUT = "$out"


def without_recursion(module: Module, kernel: Function) -> Module:
    """``module`` with every recursive function that ``kernel`` reaches replaced by one that is not.

    Raises :class:`RefusedCall` for a recursive call whose arguments are registers.
    """
    calls = _call_graph(module, kernel)
    reach = {name: _closure(calls, called) for name, called in calls.items()}
    rings = {name: [other for other in calls if other in reach[name] and name in reach[other]] for name in calls}
    made = {name: _Ring(module, ring).function(name) for name, ring in rings.items() if ring}
    return dataclasses.replace(module, functions={**module.functions, **made}) if made else module


def _call_graph(module: Module, kernel: Function) -> dict[str, list[str]]:
    """Who calls whom by name, for all that ``kernel`` reaches."""
    found: dict[str, list[str]] = {}
    pending = [kernel.name]
    while pending:
        name = pending.pop()
        if name in found or name not in module.functions:
            continue
        called = dict.fromkeys(callee(module, one) for one in module.functions[name].instructions)
        found[name] = [other for other in called if other in module.functions]
        pending += found[name]
    return found


def _closure(calls: dict[str, list[str]], roots: Iterable[str]) -> set[str]:
    found: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += calls[name]
    return found


class _Ring:
    """The functions of one ring, becoming one body."""

    def __init__(self, module: Module, names: list[str]) -> None:
        self._module = module
        self._functions = [module.functions[name] for name in names]
        self._number = {name: number for number, name in enumerate(names)}
        self._frames = [activation(module, function, names) for function in self._functions]
        self._instructions: list[Instruction] = []
        self._labels: dict[str, int] = {}
        self._landings: list[str] = [_OUT]
        self._at = self._functions[0].instructions[0]

    # ---- emitting

    def _add(self, op: str, *mods: str, operands: tuple[Operand, ...], guard: Guard | None = None) -> None:
        self._instructions.append(dataclasses.replace(self._at, op=op, mods=mods, operands=operands, guard=guard))

    def _place(self, label: str) -> None:
        self._labels[label] = len(self._instructions)

    def _jump(self, label: str, guard: Guard | None = None) -> None:
        self._add("bra", operands=(Label(label),), guard=guard)

    def _copy(self, source: Mem, target: Mem, size: int, align: int, spaces: tuple[str, str]) -> None:
        """``size`` bytes, in pieces as large as the alignment allows."""
        done = 0
        while done < size:
            step = min(max(align, 1), 8)
            while step > size - done:
                step //= 2
            temporary = self._temporary(8 * step)
            type_ = f"b{8 * step}"
            self._add(
                "ld", spaces[0], type_, operands=(temporary, dataclasses.replace(source, offset=source.offset + done))
            )
            self._add(
                "st", spaces[1], type_, operands=(dataclasses.replace(target, offset=target.offset + done), temporary)
            )
            done += step

    @staticmethod
    def _temporary(bits: int) -> Reg:
        return Reg(f"%copy{bits}", f"b{max(bits, 16)}")

    def function(self, entry: str) -> Function:
        """The ring as entered at ``entry``: a function with that one's name, parameters and result."""
        root = self._functions[self._number[entry]]
        frame = self._frames[self._number[entry]]
        self._add("mov", "u32", operands=(_FRAME, Sym(_STACK)))
        self._add("mov", "u32", operands=(_DEPTH, Imm(1, "s64")))
        self._add("st", "local", "u32", operands=(Mem(_FRAME), Imm(0, "s64")))
        for param in root.params:
            target = Mem(_FRAME, frame.places[param.name])
            self._copy(Mem(Sym(param.name)), target, param.size, param.align, ("param", "local"))
        self._jump(self._entry(entry))
        for number in range(len(self._functions)):
            self._body(number)
        self._place(_OUT)
        for param in root.returns:
            source = Mem(_FRAME, frame.places[param.name])
            self._copy(source, Mem(Sym(param.name)), param.size, param.align, ("local", "param"))
        self._add("ret", operands=())
        registers = [*_COMMON, *map(self._temporary, (8, 16, 32, 64))]
        registers += [self._register(n, reg) for n, f in enumerate(self._functions) for reg in f.registers.values()]
        size = DEPTH * max(frame.size for frame in self._frames)
        variables = [Variable(_STACK, "local", "b8", 16, size)]
        targets = {_RETURNS: tuple(self._landings)}
        for number, function in enumerate(self._functions):
            variables += [
                dataclasses.replace(v, name=f"{v.name}~{number}")
                for v in function.locals
                if v.name not in self._frames[number].places
            ]
            for name, labels in function.branch_targets.items():
                targets[f"{name}~{number}"] = tuple(f"{label}~{number}" for label in labels)
        return dataclasses.replace(
            root,
            instructions=tuple(self._instructions),
            labels=self._labels,
            registers={register.name: register for register in registers},
            locals=tuple(variables),
            branch_targets=targets,
        )

    @staticmethod
    def _entry(name: str) -> str:
        return f"$enter${name}"

    @staticmethod
    def _register(number: int, register: Reg) -> Reg:
        return Reg(f"{register.name}~{number}", register.type)

    def _body(self, number: int) -> None:
        function, frame = self._functions[number], self._frames[number]
        names = {v.name: f"{v.name}~{number}" for v in function.locals if v.name not in frame.places}
        standing: dict[int, list[str]] = {}
        for label, index in function.labels.items():
            standing.setdefault(index, []).append(f"{label}~{number}")
        self._place(self._entry(function.name))
        for index, instruction in enumerate(function.instructions):
            for label in standing.get(index, ()):
                self._place(label)
            position = instruction.position
            if position is not None and position.inlined_at is None:
                position = dataclasses.replace(position, function=position.function or function.name)
            guard = instruction.guard
            if guard is not None:
                guard = Guard(self._register(number, guard.register), guard.negated)
            self._at = dataclasses.replace(instruction, position=position, guard=guard)
            if callee(self._module, instruction) in self._number:
                self._call(number, index)
            elif instruction.op == "ret":
                self._return(guard)
            else:
                self._other(number, names)
        for label in standing.get(len(function.instructions), ()):
            self._place(label)
        self._return(None)

    def _other(self, number: int, names: dict[str, str]) -> None:
        """Any other instruction, with what lies in the frame addressed there."""
        instruction, places = self._at, self._frames[number].places
        operands = []
        for operand in instruction.operands:
            new = renamed(operand, lambda name: f"{name}~{number}", names)
            framed = False
            if isinstance(new, Mem) and isinstance(new.base, Sym) and new.base.name in places:
                offset = places[new.base.name] + new.base.offset + new.offset
                new, framed = dataclasses.replace(new, base=_FRAME, offset=offset), True
            if framed or (isinstance(new, Mem) and isinstance(new.base, Reg)):
                # A parameter whose address is in a register lies in the frame too.
                mods = tuple("local" if mod.split("::")[0] == "param" else mod for mod in instruction.mods)
                instruction = dataclasses.replace(instruction, mods=mods)
            operands.append(new)
        address = operands[1] if len(operands) == 2 else None
        if instruction.op == "mov" and isinstance(address, Sym) and address.name in places:
            distance = Imm(places[address.name] + address.offset, "s64")
            type_ = "u32" if instruction.mods[-1].endswith("32") else "u64"
            self._add("add", type_, operands=(operands[0], _FRAME, distance), guard=instruction.guard)
            return
        left = set().union(*map(named_symbols, operands)) & places.keys() if operands else set()
        if left:
            raise RefusedCall(instruction, f"{min(left)} of a recursive function, used as {instruction.opcode} does")
        self._instructions.append(dataclasses.replace(instruction, operands=tuple(operands)))

    def _return(self, guard: Guard | None) -> None:
        self._add("ld", "local", "u32", operands=(_LINK, Mem(_FRAME)), guard=guard)
        self._add("brx", "idx", operands=(_LINK, Label(_RETURNS)), guard=guard)

    def _call(self, number: int, index: int) -> None:
        call, frame = self._at, self._frames[number]
        name = callee(self._module, call)
        called, other = self._functions[self._number[name]], self._frames[self._number[name]]
        parts = call_parts(call)
        landing, skip = f"$landing${len(self._landings)}", f"$skip${len(self._landings)}"
        if call.guard is not None:
            self._jump(skip, Guard(call.guard.register, not call.guard.negated))
        self._add("setp", "ge", "u32", operands=(_FULL, _DEPTH, Imm(DEPTH, "s64")))
        self._add("trap", TOO_DEEP, name, operands=(), guard=Guard(_FULL, False))
        kept = frame.kept[index]
        for register in kept:
            self._keep(self._register(number, self._functions[number].registers[register]), frame.registers[register])
        for argument, param in self._pairs(parts.arguments, called.params):
            source = Mem(_FRAME, frame.places[argument])
            target = Mem(_FRAME, frame.size + other.places[param.name])
            self._copy(source, target, param.size, param.align, ("local", "local"))
        self._add("st", "local", "u32", operands=(Mem(_FRAME, frame.size), Imm(len(self._landings), "s64")))
        self._add("add", "u32", operands=(_FRAME, _FRAME, Imm(frame.size, "s64")))
        self._add("add", "u32", operands=(_DEPTH, _DEPTH, Imm(1, "s64")))
        self._jump(self._entry(name))
        self._landings.append(landing)
        self._place(landing)
        self._add("sub", "u32", operands=(_FRAME, _FRAME, Imm(frame.size, "s64")))
        self._add("sub", "u32", operands=(_DEPTH, _DEPTH, Imm(1, "s64")))
        for register in kept:
            self._restore(
                self._register(number, self._functions[number].registers[register]), frame.registers[register]
            )
        for result, param in self._pairs(parts.returns, called.returns):
            source = Mem(_FRAME, frame.size + other.places[param.name])
            target = Mem(_FRAME, frame.places[result])
            self._copy(source, target, param.size, param.align, ("local", "local"))
        self._place(skip)

    def _pairs(self, actual: tuple[Operand, ...], formal: tuple[Param, ...]) -> list[tuple[str, Param]]:
        if len(actual) != len(formal):
            raise RefusedCall(self._at, f"{len(formal)} parameters, {len(actual)} are given")
        names = [operand.name for operand in actual if isinstance(operand, Sym)]
        if len(names) != len(actual):
            raise RefusedCall(self._at, "arguments in registers")
        return list(zip(names, formal, strict=True))

    def _keep(self, register: Reg, place: int) -> None:
        if register.type == "pred":
            self._add("selp", "u32", operands=(_FLAG, Imm(1, "s64"), Imm(0, "s64"), register))
            register = _FLAG
        self._add("st", "local", f"b{8 * TYPE_BYTES[register.type]}", operands=(Mem(_FRAME, place), register))

    def _restore(self, register: Reg, place: int) -> None:
        if register.type != "pred":
            self._add("ld", "local", f"b{8 * TYPE_BYTES[register.type]}", operands=(register, Mem(_FRAME, place)))
            return
        self._add("ld", "local", "u32", operands=(_FLAG, Mem(_FRAME, place)))
        self._add("setp", "ne", "u32", operands=(register, _FLAG, Imm(0, "s64")))
