"""C++ and CUDA in a candidate file, read as text: functions, launches, allocations, arrays.

Why: a record from the device names a kernel and a line; the cause is often a neighbour, such as the wrapper's signature
or the tensor that was allocated for it. The rule: nothing is parsed that a scan with comments and literals blanked
cannot decide; where two places are equally possible, none is returned, because a wrong line is worse than none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

# A statement that declares: a type, then a name. What follows is looked through for names with brackets.
_DECLARATION = re.compile(
    r"\s*(?:const\s+|unsigned\s+|volatile\s+)*(?P<type>[A-Za-z_][\w:]*)(?:<[^;]*>)?\s+(?=[A-Za-z_])"
)

_NOT_FUNCTIONS = frozenset(
    ("if", "for", "while", "switch", "catch", "return", "sizeof", "decltype", "alignof", "static_assert", "defined")
)

_NOT_TYPES = frozenset(("return", "else", "case", "goto", "throw", "delete", "extern", "static", "__shared__"))

# Uninitialised or filled tensors made in C++: torch::empty(…), at::zeros(…), x.new_empty(…).
_ALLOCATION = re.compile(r"\b(?:torch|at)::(empty|zeros|ones|full|rand|randn|arange|tensor|empty_strided)(_like)?\s*\(")
_NEW = re.compile(r"\.(new_(?:empty|zeros|ones|full))\s*\(")
_ON_DEVICE = re.compile(r"\.options\s*\(|\bdevice\s*\(|kCUDA|\.device\(\)")


@dataclass(frozen=True)
class Function:
    """A function's definition."""

    name: str
    line: int
    """Where its name stands, 1-based, in the candidate file."""
    parameters: str
    """The text between the parentheses, comments blanked."""
    body: str
    """The text between the braces, comments and literals blanked."""
    body_line: int
    """Line of the opening brace."""
    is_kernel: bool

    def line_at(self, position: int) -> int:
        """The file's line at offset ``position`` of the body."""
        return self.body_line + self.body.count("\n", 0, position)

    @property
    def raw_pointers(self) -> list[str]:
        """The parameters that are raw pointers, as written."""
        return [p.strip() for p in split_arguments(self.parameters) if "*" in p]

    @property
    def last_line(self) -> int:
        """Line of the closing brace."""
        return self.body_line + self.body.count("\n")


@dataclass(frozen=True)
class Launch:
    """A ``kernel<<<grid, block, …>>>(…)`` expression."""

    kernel: str
    line: int
    configuration: list[str]
    """The expressions between the chevrons."""
    within: Function


@dataclass(frozen=True)
class Allocation:
    """An expression that makes a tensor in C++."""

    line: int
    name: str
    """The variable it initialises; empty where there is none."""
    call: str
    """``empty``, ``zeros_like``, ``new_empty``, …"""
    on_device: bool
    """Whether its text says which device; ``_like`` and ``new_`` follow their tensor."""


@dataclass(frozen=True)
class Sources:
    """The C++ of a candidate: its string literals, or the whole text where it is not Python."""

    text: str
    segments: tuple[tuple[int, str], ...] = field(default=())
    """(first line in the file, blanked text) of each piece."""

    @staticmethod
    def of(candidate_text: str) -> Sources:
        """The C++ in the string literals of a Python file."""
        return Sources(candidate_text, tuple((line, blank(text)) for line, text in _literals(candidate_text)))

    @cached_property
    def functions(self) -> list[Function]:
        """Every function definition, in file order."""
        found = [function for line, text in self.segments for function in _functions(text, line)]
        return sorted(found, key=lambda function: function.line)

    @cached_property
    def launches(self) -> list[Launch]:
        """Every launch, in file order."""
        return [launch for function in self.functions for launch in _launches(function)]

    def named(self, name: str) -> list[Function]:
        """Definitions of ``name``."""
        return [function for function in self.functions if function.name == name]

    def kernel(self, demangled: str) -> Function | None:
        """The definition of a kernel by its demangled name; None where there is none, or more than one."""
        found = [f for f in self.functions if f.is_kernel and f.name == base_name(demangled)]
        return found[0] if len(found) == 1 else None

    def launches_of(self, demangled: str) -> list[Launch]:
        """The launches of a kernel by its demangled name."""
        return [launch for launch in self.launches if launch.kernel == base_name(demangled)]

    def at(self, line: int) -> Function | None:
        """The function around ``line``."""
        for function in self.functions:
            if function.line <= line <= function.last_line:
                return function
        return None


def base_name(demangled: str) -> str:
    """``reduce`` of ``void ns::reduce<float, 4>(float const*, int)``."""
    bare = re.sub(r"\s*\([^()]*\)\s*$", "", demangled.split("(", 1)[0])
    depth, kept = 0, []
    for character in bare:
        depth += character == "<"
        if depth == 0:
            kept.append(character)
        depth -= character == ">"
    words = "".join(kept).split()
    return words[-1].split("::")[-1] if words else demangled


def allocations(function: Function) -> list[Allocation]:
    """The tensors that ``function`` makes, in order."""
    found = []
    for pattern in (_ALLOCATION, _NEW):
        for match in pattern.finditer(function.body):
            close = _closing(function.body, match.end() - 1)
            arguments = function.body[match.end() : close]
            call = "".join(part or "" for part in match.groups())
            before = function.body[max(0, match.start() - 120) : match.start()]
            target = re.search(r"([A-Za-z_]\w*)\s*=\s*$", before)
            follows = "_like" in call or call.startswith("new_")
            tail = function.body[close : close + 60]
            moved = re.match(r"\)\s*\.(?:cuda|to)\s*\(", tail) is not None
            found.append(
                Allocation(
                    line=function.line_at(match.start()),
                    name=target[1] if target else "",
                    call=call,
                    on_device=follows or moved or bool(_ON_DEVICE.search(arguments)),
                )
            )
    return sorted(found, key=lambda allocation: allocation.line)


def returned_allocation(function: Function) -> Allocation | None:
    """The tensor that ``function`` returns, where its text shows it being made; None where it does not."""
    made = allocations(function)
    returns = list(re.finditer(r"\breturn\b\s*([^;]*);", function.body))
    if not returns:
        return None
    names = {match[1].strip() for match in returns}
    named = [allocation for allocation in made if allocation.name and allocation.name in names]
    if len(named) == 1:
        return named[0]
    lines = {function.line_at(match.start()) for match in returns}
    inline = [allocation for allocation in made if allocation.line in lines]
    return inline[0] if len(inline) == 1 and not named else None


def dim3_line(function: Function, name: str) -> int:
    """Where ``function`` declares the ``dim3`` called ``name``; 0 where it does not."""
    for statement in re.finditer(r"\bdim3\b[^;]*;", function.body):
        declared = re.search(rf"(?:\bdim3\s+|,\s*){re.escape(name)}\s*[({{=,;]", statement[0])
        if declared:
            return function.line_at(statement.start() + statement[0].index(name, declared.start()))
    return 0


def local_arrays(function: Function) -> dict[str, int]:
    """The per-thread arrays that ``function`` declares, with their lines; shared memory is not per thread."""
    found: dict[str, int] = {}
    for statement in re.finditer(r"[^;{}]+", function.body):
        declares = _DECLARATION.match(statement[0])
        if declares is None or declares["type"] in _NOT_TYPES:
            continue
        for part in split_arguments(statement[0][declares.end() :]):
            array = re.match(r"\s*([A-Za-z_]\w*)\s*\[", part)
            if array:
                at = statement[0].index(part, declares.end()) + array.start(1)
                found.setdefault(array[1], function.line_at(statement.start() + at))
    return found


def stores(function: Function) -> list[tuple[str, int]]:
    """(pointer parameter, line) of each ``p[…] = …`` in ``function``, compound assignments included."""
    pointers = [p for p in function.raw_pointers if "const" not in p.split("*")[0]]
    names = [p.replace("__restrict__", "").split("*")[-1].strip() for p in pointers]
    found = []
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            continue
        for match in re.finditer(rf"\b{name}\s*\[", function.body):
            close = _closing(function.body, match.end() - 1, "[", "]")
            if re.match(r"\]\s*(?:\.\w+\s*)?(?:[-+*/|&^]|<<|>>)?=(?!=)", function.body[close:]):
                found.append((name, function.line_at(match.start())))
    return found


def split_arguments(text: str) -> list[str]:
    """``text`` at its top-level commas."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        elif character == "," and depth <= 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part for part in parts if part.strip()]


def blank(text: str) -> str:
    """``text`` with comments, string and character literals replaced by spaces; line breaks stay."""
    pattern = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _literals(candidate_text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each multi-line or C++-like string literal whose lines stand in the file as they are."""
    try:
        tree = ast.parse(candidate_text)
    except SyntaxError:
        yield 1, candidate_text
        return
    lines = candidate_text.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ("{" in node.value or "(" in node.value):
            parts = node.value.splitlines()
            # An escape or a joined literal would shift lines: then this literal's lines cannot be named.
            at = node.lineno - 1
            if all(at + k < len(lines) and part.strip() in lines[at + k] for k, part in enumerate(parts)):
                yield node.lineno, node.value


def _functions(text: str, first_line: int) -> Iterator[Function]:
    end = 0
    for match in re.finditer(r"([A-Za-z_]\w*)\s*\(", text):
        name = match[1]
        if match.start() < end or name in _NOT_FUNCTIONS or name.startswith("__"):
            continue
        close = _closing(text, match.end() - 1)
        after = re.match(r"\)\s*(?:const\b|noexcept\b|\s)*(?:->\s*[\w:<>&*\s]+)?\{", text[close:])
        if after is None:
            continue
        opening = close + after.end() - 1
        closing = _closing(text, opening, "{", "}")
        start = max(text.rfind(mark, 0, match.start()) for mark in ";{}") + 1
        head = text[start : match.start()]
        if not head.strip():
            # A macro with a body, such as PYBIND11_MODULE(name, m) { … }: no return type stands before it.
            end = closing if name.isupper() else end
            continue
        end = closing
        yield Function(
            name=name,
            line=first_line + text.count("\n", 0, match.start()),
            parameters=text[match.end() : close],
            body=text[opening + 1 : closing],
            body_line=first_line + text.count("\n", 0, opening),
            is_kernel="__global__" in head,
        )


def _launches(function: Function) -> Iterator[Launch]:
    for match in re.finditer(r"([A-Za-z_]\w*)\s*(?:<[^<>;]*>)?\s*<<<(.*?)>>>", function.body, re.DOTALL):
        yield Launch(
            kernel=match[1],
            line=function.line_at(match.start()),
            configuration=[part.strip() for part in split_arguments(match[2])],
            within=function,
        )


def _closing(text: str, opening: int, left: str = "(", right: str = ")") -> int:
    """Offset of the bracket that closes the one at ``opening``; the text's end where none does."""
    depth = 0
    for position in range(opening, len(text)):
        if text[position] == left:
            depth += 1
        elif text[position] == right:
            depth -= 1
            if depth == 0:
                return position
    return len(text)
