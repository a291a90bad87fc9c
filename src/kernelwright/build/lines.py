"""Where the text of a source string stands in candidate.py, line by line.

Why: compilers, PTX ``.loc`` and DWARF must speak of lines that a person can open, and the generated ``main.cpp`` is no
such file. The rule: a line is mapped only where candidate.py holds the same text (or where it lies between two mapped
neighbours of one string constant); an unmapped line keeps its place in the generated file. Nothing is executed.
"""

from __future__ import annotations

import ast
import io
import itertools
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "rRbBuUfF"


@dataclass(frozen=True)
class Piece:
    """One string constant of the candidate: its content lines and the physical line that each starts on."""

    lines: tuple[str, ...]
    places: tuple[int, ...]


class LineMap:
    """The string constants of one file, ready to be looked up."""

    def __init__(self, text: str, file: str) -> None:
        self.file = Path(file).name
        """The base name that line markers carry."""
        self.pieces = tuple(_pieces(text))
        self._by_line: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for p, piece in enumerate(self.pieces):
            for i, line in enumerate(piece.lines):
                self._by_line[line].append((p, i))

    def locate(self, source: str) -> list[int]:
        """For each line of ``source`` its 1-based line in the candidate, 0 where it stands nowhere."""
        lines = source.split("\n")
        found = self._exact(lines)
        return found if found is not None else self._by_runs(lines)

    def marked(self, source: str, *, fallback: str, start: int = 1) -> str:
        """``source`` with ``#line`` markers wherever the next line's place is not the last one's plus one.

        ``fallback`` and ``start`` are the name of the generated file and the line ``source`` begins at in it, for
        lines that stand nowhere.
        """
        made: list[str] = []
        expected: tuple[str, int] | None = None
        continued = False
        for i, (text, line) in enumerate(zip(source.split("\n"), self.locate(source), strict=True)):
            here = (self.file, line) if line else (fallback, start + i)
            # A marker would end a line that a backslash continues.
            if here != expected and not continued:
                made.append(f'#line {here[1]} "{here[0]}"')
            made.append(text)
            continued = text.endswith("\\")
            expected = (here[0], here[1] + 1) if not continued or here == expected else expected
        return "\n".join(made)

    def _exact(self, lines: Sequence[str]) -> list[int] | None:
        whole = tuple(lines)
        for piece in self.pieces:
            if piece.lines == whole:
                return list(piece.places)
        return None

    def _by_runs(self, lines: Sequence[str]) -> list[int]:
        """The longest runs of equal lines first come, first served; gaps of equal length between them are filled."""
        owner: list[tuple[int, int] | None] = [None] * len(lines)
        i = 0
        while i < len(lines):
            best: tuple[int, tuple[int, int]] | None = None
            for p, j in self._by_line.get(lines[i], ()):
                length = 0
                piece = self.pieces[p].lines
                while i + length < len(lines) and j + length < len(piece) and piece[j + length] == lines[i + length]:
                    length += 1
                if best is None or length > best[0]:
                    best = (length, (p, j))
            # A lone blank line or brace stands in many places; it is mapped by its neighbours, not by itself.
            if best is None or (best[0] == 1 and len(lines[i].strip()) < 3):
                i += 1
                continue
            length, (p, j) = best
            for k in range(length):
                owner[i + k] = (p, j + k)
            i += length
        _fill(owner)
        return [self.pieces[o[0]].places[o[1]] if o else 0 for o in owner]


def _fill(owner: list[tuple[int, int] | None]) -> None:
    known = [i for i, o in enumerate(owner) if o is not None]
    for left, right in itertools.pairwise(known):
        a, b = owner[left], owner[right]
        if a and b and right - left > 1 and a[0] == b[0] and b[1] - a[1] == right - left:
            for k in range(1, right - left):
                owner[left + k] = (a[0], a[1] + k)
    if known and (first := owner[known[0]]) is not None:  # what precedes the first mapped line of a piece
        for k in range(1, min(known[0], first[1]) + 1):
            owner[known[0] - k] = (first[0], first[1] - k)
    if known and (last := owner[known[-1]]) is not None:
        for k in range(known[-1] + 1, len(owner)):
            owner[k] = (last[0], last[1] + k - known[-1])


def _pieces(text: str) -> list[Piece]:
    """Every string constant: each literal by itself, and adjacent literals (implicit concatenation) as one, too."""
    made: list[Piece] = []
    run: list[tuple[list[str], list[int]]] = []

    def close() -> None:
        if len(run) > 1:
            lines, places = list(run[0][0]), list(run[0][1])
            for more_lines, more_places in run[1:]:
                if not lines[-1]:
                    places[-1] = more_places[0]
                lines[-1] += more_lines[0]
                lines += more_lines[1:]
                places += more_places[1:]
            made.append(Piece(tuple(lines), tuple(places)))
        run.clear()

    try:
        for literal, line in _literals(text):
            if literal:
                lines, places = _content(literal, line)
                made.append(Piece(tuple(lines), tuple(places)))
                run.append((lines, places))
            else:
                close()
    except (tokenize.TokenError, SyntaxError):
        pass  # what was read so far still maps
    close()
    return [
        Piece(
            p.lines,
            p.places if len(p.places) == len(p.lines) else p.places + (p.places[-1],) * (len(p.lines) - len(p.places)),
        )
        for p in made
    ]


# Python 3.12 made several tokens of a format string; before, it was one of type STRING.
_BEGINS, _ENDS = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1)


def _literals(text: str) -> Iterator[tuple[str, int]]:
    """String literals as they are written, with the line that each starts on; ``""`` for whatever else stands between.

    Raises what ``tokenize`` does.
    """
    rows = text.splitlines(keepends=True)
    depth, begun = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == _BEGINS:
            begun = begun if depth else token.start
            depth += 1
        elif token.type == _ENDS:
            depth -= 1
            if not depth:
                yield _between(rows, begun, token.end), begun[0]
        elif depth:
            continue
        elif token.type == tokenize.STRING:
            yield token.string, token.start[0]
        elif token.type not in (tokenize.NL, tokenize.COMMENT):
            yield "", token.start[0]


def _between(rows: Sequence[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text from ``start`` to ``end``, each a line from 1 and a column from 0."""
    if start[0] == end[0]:
        return rows[start[0] - 1][start[1] : end[1]]
    return "".join((rows[start[0] - 1][start[1] :], *rows[start[0] : end[0] - 1], rows[end[0] - 1][: end[1]]))


def _content(literal: str, line: int) -> tuple[list[str], list[int]]:
    """The content lines of one string literal that starts on physical ``line``, and the line each starts on."""
    start = next(i for i, c in enumerate(literal) if c not in _PREFIX)
    prefix = literal[:start].lower()
    quote = literal[start : start + 3] if literal[start : start + 3] in ('"""', "'''") else literal[start]
    body = literal[start + len(quote) : -len(quote)]
    raw, template = "r" in prefix, "f" in prefix
    lines, places = [""], [line]
    physical, i = line, 0
    while i < len(body):
        c = body[i]
        if c == "\n":
            physical += 1
            lines.append("")
            places.append(physical)
            i += 1
        elif c == "\\" and not raw and i + 1 < len(body):
            width, value = _escape(body, i)
            physical += body[i : i + width].count("\n")
            for v in value:
                if v == "\n":
                    lines.append("")
                    places.append(physical)
                else:
                    lines[-1] += v
            i += width
        elif template and body[i : i + 2] in ("{{", "}}"):
            lines[-1] += c
            i += 2
        else:
            lines[-1] += c
            i += 1
    return lines, places


def _escape(body: str, i: int) -> tuple[int, str]:
    """Width and value of the escape at ``body[i]``, by Python's own rules."""
    widths = {"x": 4, "u": 6, "U": 10}
    c = body[i + 1]
    width = widths.get(c, 2)
    if c == "N" and body[i + 2 : i + 3] == "{":
        width = body.index("}", i) + 1 - i
    elif c in "01234567":
        width = 2
        while width < 4 and body[i + width : i + width + 1] in tuple("01234567"):
            width += 1
    text = body[i : i + width]
    if c == "\n":
        return 2, ""
    try:
        value = ast.literal_eval(f'"{text}"' if c != '"' else f"'{text}'")
    except (SyntaxError, ValueError):
        value = text
    return width, str(value)
