"""Function bodies: declarations, labels and instructions, in the order of the text.

Source: PTX ISA 9.0, sections 4.3 (statements) and 9.2 (operands),
https://docs.nvidia.com/cuda/parallel-thread-execution/#statements

The rule: nothing is guessed. A name that is neither declared nor special is an error that shows its line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from .ir import (
    Args,
    Guard,
    Imm,
    Instruction,
    Label,
    Mem,
    Not,
    Operand,
    Pair,
    Part,
    Position,
    Reg,
    Sink,
    Special,
    Sym,
    Variable,
    Vec,
)
from .lexer import Tokens
from .literals import parse_number
from .positions import Positions, Triple
from .scopes import Scope
from .types import SPECIAL_REGISTERS, TYPE_BYTES
from .variables import SPACES, parse_variables

_SINK = Sink()
_JUMPS = frozenset({"bra", "brx"})
_SELECTOR = re.compile(r"[bh]\d{1,4}")


@dataclass
class Body:
    """What a function's braces hold, ready to become an ``ir.Function``."""

    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, Reg] = field(default_factory=dict)
    locals: list[Variable] = field(default_factory=list)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)


class BodyParser:
    """Reads one body. ``parameters`` are names that are in scope from the function's head."""

    def __init__(self, tokens: Tokens, positions: Positions, parameters: list[str]) -> None:
        self._tokens = tokens
        self._positions = positions
        self._body = Body()
        self._scope = Scope(None, 0)
        self._scope.variables.update((name, name) for name in parameters)
        self._scopes = 1
        self._position: Position | None = None
        self._jumps: list[tuple[int, Scope, int]] = []
        """(instruction, its scope, its token): label operands to resolve once every label is known."""
        self._target_lists: list[tuple[str, Scope, tuple[str, ...], int]] = []
        self._prototypes: set[str] = set()
        self._opcodes: dict[str, tuple[str, tuple[str, ...]]] = {}

    def parse(self) -> Body:
        """Read from ``{`` to the matching ``}``, both included."""
        tokens = self._tokens
        tokens.expect("{")
        self._positions.enter_function()
        while True:
            word = tokens.peek()
            if word == "{":
                tokens.take()
                self._scope = Scope(self._scope, self._scopes)
                self._scopes += 1
            elif word == "}":
                tokens.take()
                if self._scope.parent is None:
                    break
                self._collect(self._scope)
                self._scope = self._scope.parent
            elif word[:1] == ".":
                self._directive(word)
            elif word == ";":
                tokens.take()
            elif word != "@" and tokens.words[tokens.at + 1] == ":":
                self._label(word)
            else:
                self._instruction()
        self._collect(self._scope)
        self._resolve_labels()
        return self._body

    def _collect(self, scope: Scope) -> None:
        self._body.registers.update((register.name, register) for register in scope.registers.values())

    # ---- directives -------------------------------------------------------------------------------------------

    def _directive(self, word: str) -> None:
        tokens = self._tokens
        if word == ".loc":
            self._loc()
        elif word == ".reg":
            self._registers()
        elif word in SPACES:
            self._variables(external=False)
        elif word == ".extern":
            tokens.take()
            self._variables(external=True)
        elif word == ".pragma":
            while tokens.take() != ";":
                pass
        elif word == ".file":
            tokens.at += 3
        else:
            raise tokens.error(f"unknown directive '{word}' in a function body")

    def _loc(self) -> None:
        tokens = self._tokens
        words, at = tokens.words, tokens.at + 1
        place = (int(words[at]), int(words[at + 1]), int(words[at + 2]))
        at += 3
        function = ""
        inlined_at: Triple | None = None
        while words[at] == ",":
            if words[at + 1] == "function_name":
                function = words[at + 2]
                at += 3
                if words[at] == "+":
                    at += 2
            elif words[at + 1] == "inlined_at":
                inlined_at = (int(words[at + 2]), int(words[at + 3]), int(words[at + 4]))
                at += 5
            else:
                tokens.at = at + 1
                raise tokens.error(f"unknown attribute '{words[at + 1]}' of .loc")
        tokens.at = at
        self._position = self._positions.at(place, function, inlined_at)

    def _registers(self) -> None:
        tokens = self._tokens
        tokens.take()
        type_ = tokens.take()[1:]
        if type_ not in TYPE_BYTES:
            raise tokens.error(f"registers of type '.{type_}' are not supported", index=tokens.at - 1)
        scope = self._scope
        while True:
            name = tokens.take()
            if tokens.accept("<"):
                scope.families[name] = (type_, int(tokens.take()))
                tokens.expect(">")
            else:
                scope.registers[name] = Reg(scope.unique(name), type_)
            if not tokens.accept(","):
                break
        tokens.expect(";")

    def _variables(self, *, external: bool) -> None:
        for variable in parse_variables(self._tokens, external=external):
            unique = self._scope.unique(variable.name)
            self._scope.variables[variable.name] = unique
            self._body.locals.append(replace(variable, name=unique))

    def _label(self, name: str) -> None:
        tokens = self._tokens
        at = tokens.at
        tokens.at += 2
        word = tokens.peek()
        if word == ".branchtargets":
            tokens.take()
            names = [tokens.take()]
            while tokens.accept(","):
                names.append(tokens.take())
            tokens.expect(";")
            unique = self._scope.labels[name] = self._scope.unique(name)
            self._target_lists.append((unique, self._scope, tuple(names), at))
            return
        if word in (".callprototype", ".calltargets"):
            while tokens.take() != ";":
                pass
            self._prototypes.add(name)
            return
        unique = self._scope.unique(name)
        if unique in self._body.labels:
            raise tokens.error(f"label '{name}' is declared twice", index=at)
        self._scope.labels[name] = unique
        self._body.labels[unique] = len(self._body.instructions)

    def _resolve_labels(self) -> None:
        instructions = self._body.instructions
        for index, scope, token in self._jumps:
            instruction = instructions[index]
            operands: list[Operand] = []
            for operand in instruction.operands:
                if isinstance(operand, Label):
                    unique = scope.label(operand.name)
                    if unique is None:
                        raise self._tokens.error(f"unknown label '{operand.name}'", index=token)
                    operand = operand if unique == operand.name else Label(unique)
                operands.append(operand)
            instructions[index] = replace(instruction, operands=tuple(operands))
        for unique_list, scope, names, token in self._target_lists:
            targets = []
            for name in names:
                target = scope.label(name)
                if target is None:
                    raise self._tokens.error(f"unknown label '{name}' in .branchtargets", index=token)
                targets.append(target)
            self._body.branch_targets[unique_list] = tuple(targets)

    # ---- instructions -----------------------------------------------------------------------------------------

    def _instruction(self) -> None:
        tokens = self._tokens
        first = tokens.at
        guard: Guard | None = None
        if tokens.accept("@"):
            negated = tokens.accept("!")
            name = tokens.take()
            register = self._scope.register(name)
            if register is None or register.type != "pred":
                raise tokens.error(f"guard '{name}' is not a declared predicate", index=tokens.at - 1)
            guard = Guard(register, negated)
        opcode = tokens.take()
        parts = self._opcodes.get(opcode)
        if parts is None:
            if not (opcode[0].isalpha() or opcode[0] == "_"):
                raise tokens.error(f"expected an instruction, found '{opcode}'", index=tokens.at - 1)
            op, *mods = opcode.split(".")
            parts = self._opcodes[opcode] = (op, tuple(mods))
        operands: list[Operand] = []
        if not tokens.accept(";"):
            operand = self._call_operand if parts[0] == "call" else self._operand
            jump = parts[0] in _JUMPS
            if jump:
                self._jumps.append((len(self._body.instructions), self._scope, tokens.at))
            while True:
                operands.append(self._jump_operand() if jump else operand())
                if tokens.accept(";"):
                    break
                tokens.expect(",")
        self._body.instructions.append(
            Instruction(parts[0], parts[1], tuple(operands), guard, tokens.line(first), self._position)
        )

    def _jump_operand(self) -> Operand:
        word = self._tokens.take()
        return self._scope.register(word) or Label(word)

    def _call_operand(self) -> Operand:
        tokens = self._tokens
        if tokens.accept("("):
            items: list[Operand] = []
            while not tokens.accept(")"):
                items.append(self._operand())
                tokens.accept(",")
            return Args(tuple(items))
        word = tokens.peek()
        if word in self._prototypes:
            tokens.take()
            return Label(word)
        return self._operand()

    def _operand(self) -> Operand:
        tokens = self._tokens
        word = tokens.words[tokens.at]
        first = word[:1]
        if first == "{":
            tokens.at += 1
            items = [self._operand()]
            while tokens.accept(","):
                items.append(self._operand())
            tokens.expect("}")
            return Vec(tuple(items))
        if first == "[":
            return self._memory()
        if first == "!":
            tokens.at += 1
            name = tokens.take()
            negated = self._scope.register(name)
            if negated is None:
                raise tokens.error(f"'{name}' is not a declared register", index=tokens.at - 1)
            return Not(negated)
        value = self._value()
        if tokens.words[tokens.at] == "|":
            tokens.at += 1
            second = self._value()
            return Pair(value, None if isinstance(second, Sink) else second)
        return value

    def _value(self) -> Reg | Imm | Special | Sym | Part | Sink:
        tokens = self._tokens
        word = tokens.words[tokens.at]
        first = word[:1]
        if first == "-" or first.isdigit():
            return self._number()
        tokens.at += 1
        register = self._scope.register(word)
        if register is not None:
            return register
        if word == "_":
            return _SINK
        if word in SPECIAL_REGISTERS:
            return Special(word)
        base, _, selector = word.rpartition(".")
        whole = self._scope.register(base) if _SELECTOR.fullmatch(selector) else None
        if whole is not None:
            return Part(whole, selector)
        if first == "%" or not (first.isalpha() or first in "_$"):
            raise tokens.error(f"'{word}' is not a declared register", index=tokens.at - 1)
        return Sym(self._scope.variable(word) or word, self._offset())

    def _number(self) -> Imm:
        tokens = self._tokens
        negative = tokens.accept("-")
        word = tokens.take()
        try:
            return parse_number(word, negative=negative)
        except ValueError:
            raise tokens.error(f"'{word}' is not a number", index=tokens.at - 1) from None

    def _offset(self) -> int:
        tokens = self._tokens
        sign = tokens.words[tokens.at]
        if sign not in ("+", "-"):
            return 0
        tokens.at += 1
        negative = tokens.accept("-") != (sign == "-")
        bits = self._number().bits
        value = bits - (1 << 64) if bits >> 63 else bits
        return -value if negative else value

    def _memory(self) -> Mem:
        tokens = self._tokens
        tokens.at += 1
        base = self._value()
        if not isinstance(base, (Reg, Imm, Sym)):
            raise tokens.error("an address must be a register, a number or a variable", index=tokens.at - 1)
        offset = self._offset()
        if isinstance(base, Sym):
            base, offset = Sym(base.name), base.offset + offset
        coordinates: Vec | None = None
        if tokens.accept(","):
            vector = self._operand()
            if not isinstance(vector, Vec):
                raise tokens.error("expected coordinates {…} behind the comma of an address")
            coordinates = vector
        tokens.expect("]")
        return Mem(base, offset, coordinates)
