"""PTX text to a typed ``Module``: the directives of a file, and one ``BodyParser`` a function.

Why: everything in ``emulate`` starts from PTX as nvcc (or a person, or Triton) writes it. The rule: unknown means
refused, with the line and its text; nothing is skipped because it looked unimportant, except debug sections.
Source: PTX ISA 9.0, https://docs.nvidia.com/cuda/parallel-thread-execution/
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .body import Body, BodyParser
from .ir import Args, Function, Instruction, Mem, Module, Operand, Pair, Param, Sym, Variable, Vec
from .lexer import PtxSyntaxError, Tokens
from .literals import parse_number
from .positions import Positions
from .types import TYPE_BYTES, align_up
from .variables import SPACES, parse_variables

__all__ = ["PtxSyntaxError", "parse"]

_LINKAGE = frozenset({".visible", ".weak", ".common"})
_COUNTED = frozenset({".minnctapersm", ".maxnctapersm", ".maxnreg", ".maxclusterrank", ".abi_preserve"})
_COUNTED_OR_MORE = frozenset({".maxntid", ".reqntid", ".reqnctapercluster"})
_BARE = frozenset({".noreturn", ".explicitcluster", ".blocksareclusters"})


@dataclass
class _Head:
    """A function's head: everything before its body."""

    name: str
    entry: bool
    line: int
    params: tuple[Param, ...] = ()
    returns: tuple[Param, ...] = ()
    shape: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def function(self, body: Body) -> Function:
        return Function(
            name=self.name,
            entry=self.entry,
            params=self.params,
            returns=self.returns,
            instructions=tuple(body.instructions),
            labels=body.labels,
            registers=body.registers,
            locals=tuple(body.locals),
            branch_targets=body.branch_targets,
            max_threads=self.shape.get(".maxntid"),
            required_threads=self.shape.get(".reqntid"),
            ptx_line=self.line,
        )


def parse(text: str) -> Module:
    """Read a whole PTX file. Raises ``PtxSyntaxError`` naming the line of whatever is malformed or unknown."""
    return _ModuleParser(text).parse()


class _ModuleParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = Tokens(text)
        self._positions = Positions(text)
        self._version = ""
        self._target = ""
        self._functions: dict[str, Function] = {}
        self._declarations: dict[str, Function] = {}
        self._variables: dict[str, Variable] = {}
        self._aliases: dict[str, str] = {}

    def parse(self) -> Module:
        tokens = self._tokens
        external = False
        while word := tokens.peek():
            if word in _LINKAGE:
                tokens.take()
            elif word == ".extern":
                tokens.take()
                external = True
            elif word in SPACES:
                for variable in parse_variables(tokens, external=external):
                    self._declare(variable)
                external = False
            elif word in (".entry", ".func"):
                self._function()
                external = False
            else:
                self._directive(word)
        for function in self._functions.values():
            self._check_symbols(function)
        return Module(
            version=self._version,
            target=self._target,
            functions=self._functions,
            declarations={n: f for n, f in self._declarations.items() if n not in self._functions},
            variables=self._variables,
            text=self._text,
            aliases=self._aliases,
        )

    def _declare(self, variable: Variable) -> None:
        """Keep a variable; a definition wins over an ``.extern`` declaration of the same name."""
        known = self._variables.get(variable.name)
        if known is None or known.external:
            self._variables[variable.name] = variable

    def _directive(self, word: str) -> None:
        tokens = self._tokens
        if word == ".version":
            tokens.take()
            self._version = tokens.take()
        elif word == ".target":
            tokens.take()
            self._target = tokens.take()
            while tokens.accept(","):
                tokens.take()
        elif word == ".address_size":
            tokens.take()
            if tokens.take() != "64":
                raise tokens.error("only .address_size 64 is supported", index=tokens.at - 1)
        elif word == ".file":
            tokens.at += 3
            while tokens.accept(","):
                tokens.take()
        elif word == ".section":
            self._skip_section()
        elif word == ".alias":
            tokens.take()
            name = tokens.take()
            tokens.expect(",")
            self._aliases[name] = tokens.take()
            tokens.expect(";")
        elif word == ".pragma":
            while tokens.take() != ";":
                pass
        elif word == ";":
            tokens.take()
        else:
            raise tokens.error(f"unknown directive '{word}'")

    def _skip_section(self) -> None:
        tokens = self._tokens
        while tokens.take() != "{":
            pass
        depth = 1
        while depth:
            word = tokens.take()
            depth += (word == "{") - (word == "}")

    # ---- functions --------------------------------------------------------------------------------------------

    def _function(self) -> None:
        tokens = self._tokens
        line = tokens.line(tokens.at)
        entry = tokens.take() == ".entry"
        while tokens.accept(".attribute"):
            while tokens.take() != ")":
                pass
        returns = self._parameters() if tokens.peek() == "(" else ()
        head = _Head(tokens.take(), entry, line, returns=returns)
        if tokens.peek() == "(":
            head.params = self._parameters()
        while tokens.peek() not in ("{", ";"):
            self._performance(head)
        if tokens.accept(";"):
            self._declarations[head.name] = head.function(Body())
            return
        names = [param.name for param in (*head.params, *head.returns)]
        body = BodyParser(tokens, self._positions, names).parse()
        if head.name in self._functions:
            raise tokens.error(f"function '{head.name}' is defined twice")
        self._functions[head.name] = head.function(body)

    def _performance(self, head: _Head) -> None:
        tokens = self._tokens
        word = tokens.take()
        if word in _COUNTED_OR_MORE:
            counts = [int(tokens.take())]
            while tokens.accept(","):
                counts.append(int(tokens.take()))
            counts += [1] * (3 - len(counts))
            head.shape[word] = (counts[0], counts[1], counts[2])
        elif word in _COUNTED:
            tokens.take()
        elif word == ".pragma":
            tokens.take()
            tokens.accept(";")
        elif word not in _BARE:
            raise tokens.error(f"unknown directive '{word}' in the head of '{head.name}'", index=tokens.at - 1)

    def _parameters(self) -> tuple[Param, ...]:
        tokens = self._tokens
        tokens.expect("(")
        found: list[Param] = []
        offset = 0
        while not tokens.accept(")"):
            if tokens.peek() != ".param":
                raise tokens.error("only .param parameters are supported")
            param = self._parameter(offset)
            found.append(param)
            offset = param.offset + param.size
            tokens.accept(",")
        return tuple(found)

    def _parameter(self, offset: int) -> Param:
        tokens = self._tokens
        tokens.take()
        align, type_ = 0, ""
        while tokens.peek().startswith("."):
            word = tokens.take()[1:]
            if word in TYPE_BYTES:
                type_ = word
            elif word == "align":
                # Behind .ptr it describes what the pointer points to, not the parameter.
                value = int(tokens.take())
                align = align if type_ else value
            elif word not in ("ptr", "global", "const", "shared", "local", "surfref", "texref", "samplerref"):
                raise tokens.error(f"unknown parameter type '.{word}'", index=tokens.at - 1)
        if not type_:
            raise tokens.error("a parameter without a supported type")
        name = tokens.take()
        size = TYPE_BYTES[type_]
        align = align or size
        while tokens.accept("["):
            if tokens.accept("]"):
                size = 0
                continue
            size *= parse_number(tokens.take()).bits
            tokens.expect("]")
        return Param(name, type_, align, size, align_up(offset, align))

    # ---- symbols ----------------------------------------------------------------------------------------------

    def _check_symbols(self, function: Function) -> None:
        """Raise for a symbol that nothing declares: by now every declaration of the file is known."""
        known = {variable.name for variable in function.locals}
        known |= {param.name for param in (*function.params, *function.returns)}
        for tables in (self._variables, self._functions, self._declarations, self._aliases):
            known |= tables.keys()
        for instruction in function.instructions:
            for operand in instruction.operands:
                for name in _symbols(operand):
                    if name not in known:
                        raise self._unknown(instruction, name)

    def _unknown(self, instruction: Instruction, name: str) -> PtxSyntaxError:
        text = self._text.splitlines()[instruction.ptx_line - 1]
        return PtxSyntaxError(instruction.ptx_line, text, f"'{name}' is not declared")


def _symbols(operand: Operand) -> tuple[str, ...]:
    if isinstance(operand, Sym):
        return (operand.name,)
    if isinstance(operand, Mem):
        return (operand.base.name,) if isinstance(operand.base, Sym) else ()
    if isinstance(operand, (Vec, Args)):
        return tuple(name for item in operand.items for name in _symbols(item))
    if isinstance(operand, Pair):
        return _symbols(operand.first)
    return ()
