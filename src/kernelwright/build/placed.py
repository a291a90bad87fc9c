"""Text apart from the lines it stands on, so that an object is compiled once however its source moves.

Why: a line added to a kernel moves every later line of candidate.py, and with it the host code's line table;
compiling the host code again for that costs most of an edit. The rule: the cache's key is the text without line
markers and without what cudafe++ switched off; the assembly is kept, and where only lines moved its ``.loc``
directives are rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Place = tuple[str, int]

MARKER = re.compile(r'^#(?:line)? (\d+)(?: "((?:[^"\\]|\\.)*)")?[ 0-9]*$')
"""A line marker, as a preprocessor or a ``#line`` directive writes it: line, file."""


def separate(text: str) -> tuple[str, list[Place]]:
    """``text`` without line markers, ``#if 0`` blocks and blank lines, and the place of each line that is left."""
    kept: list[str] = []
    places: list[Place] = []
    file, line = "", 1
    off = 0
    for raw in text.split("\n"):
        if raw.startswith("#"):
            marker = MARKER.match(raw)
            if marker:
                if not off:
                    line = int(marker[1])
                    file = marker[2] if marker[2] is not None else file
                continue
            word = raw[1:].lstrip().split(" ", 1)[0]
            if off:
                off += (word in ("if", "ifdef", "ifndef")) - (word == "endif")
                line += 1
                continue
            if re.match(r"#\s*if 0\s*$", raw):
                off = 1
                line += 1
                continue
        if not off and raw.strip():
            kept.append(raw)
            places.append((file, line))
        line += 1
    return "\n".join(kept), places


def names_lines(text: str) -> bool:
    """Whether the text itself uses line numbers, so that it cannot be moved."""
    return re.search(r"\b(__LINE__|assert|__builtin_LINE|source_location)\b", text) is not None


def moved(assembly: str, old: Sequence[Place], new: Sequence[Place]) -> str:
    """``assembly``, compiled when its source stood at ``old``, as if it had stood at ``new`` (equal length)."""
    if list(old) == list(new):
        return assembly
    lines: dict[Place, int] = {}
    for (old_file, old_line), (new_file, new_line) in zip(old, new, strict=True):
        if old_file == new_file:
            lines.setdefault((old_file, old_line), new_line)
    files: dict[str, str] = {}
    for number, names in re.findall(r"^\s*\.file (\d+) (.*)$", assembly, re.M):
        parts = re.findall(r'"((?:[^"\\]|\\.)*)"', names)
        if parts:
            files[number] = parts[-1]

    def place(match: re.Match[str]) -> str:
        name = files.get(match[2], "")
        line = int(match[3])
        found = lines.get((name, line))
        if found is None:  # a line between two known ones moves with the one above
            near = max((k for k in lines if k[0] == name and k[1] <= line), key=lambda k: k[1], default=None)
            found = line if near is None else lines[near] + line - near[1]
        return f"{match[1]}{match[2]} {found}"

    return re.sub(r"^(\s*\.loc )(\d+) (\d+)", place, assembly, flags=re.M)


def retold(text: str, old: Sequence[Place], new: Sequence[Place]) -> str:
    """``text`` with its line markers moved from ``old`` to ``new`` places."""
    lines = dict(reversed(list(zip(old, new, strict=True))))
    if all(a == b for a, b in lines.items()):
        return text
    file = ""
    made: list[str] = []
    for raw in text.split("\n"):
        marker = MARKER.match(raw)
        if marker:
            file = marker[2] if marker[2] is not None else file
            moved_to = lines.get((file, int(marker[1])))
            if moved_to:
                raw = f"# {moved_to[1]}" + (f' "{file}"' if marker[2] is not None else "")
        made.append(raw)
    return "\n".join(made)
