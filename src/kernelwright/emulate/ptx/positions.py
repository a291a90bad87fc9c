"""``.loc`` directives to source positions with their chain of inlined calls.

Why: a finding must name the user's line, and most instructions of a modern kernel come from inlined headers. nvcc
writes each inlined position as ``.loc f l c, function_name label, inlined_at f l c``, where the triple behind
``inlined_at`` refers to an earlier ``.loc`` with the same triple, which may itself be inlined.
Source: PTX ISA 9.0, section 11.5.3, https://docs.nvidia.com/cuda/parallel-thread-execution/#debugging-directives-loc

The rule: line 0 means that the compiler itself says "no one line", so it yields no position.
"""

from __future__ import annotations

import re

from .ir import Position

_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"((?:[^"\\]|\\.)*)"', re.MULTILINE)
_DEBUG_STRINGS = re.compile(r"^[ \t]*\.section[ \t]+\.debug_str\s*\{(.*?)\}", re.MULTILINE | re.DOTALL)
_STRING = re.compile(r"^([\w$]+):((?:\s*\.b8[ \t0-9,]*)+)", re.MULTILINE)

Triple = tuple[int, int, int]


class Positions:
    """The file table and function names of one module, and the ``.loc`` triples seen so far in the current function."""

    def __init__(self, text: str) -> None:
        self._files: dict[int, str] = {int(number): name for number, name in _FILE.findall(text)}
        self._functions: dict[str, str] = {}
        for section in _DEBUG_STRINGS.findall(text):
            for label, values in _STRING.findall(section):
                data = bytes(int(value) & 255 for value in values.replace(".b8", ",").split(",") if value.strip())
                self._functions[label] = data.split(b"\0")[0].decode("utf-8", "replace")
        self._seen: dict[Triple, Position] = {}

    def enter_function(self) -> None:
        """Forget the triples of the function before: chains never cross functions."""
        self._seen = {}

    def at(self, place: Triple, function: str = "", inlined_at: Triple | None = None) -> Position | None:
        """The position of ``.loc place[, function_name function, inlined_at inlined_at]``."""
        file, line, _ = place
        if line == 0:
            return None
        outer: Position | None = None
        if inlined_at is not None:
            outer = self._seen.get(inlined_at) or Position(self._file(inlined_at[0]), inlined_at[1])
        position = Position(self._file(file), line, self._functions.get(function, function), outer)
        self._seen[place] = position
        return position

    def _file(self, number: int) -> str:
        return self._files.get(number, f"<file {number}>")
