"""A ``.cu`` source without the bodies of its device functions: all that the host compiler can depend on.

Why: most edits change a kernel's body, and cudafe++ then makes the same host text again, in the longest step of a
build. The rule: a body is blanked only where host code cannot see it: not in ``__host__``, ``constexpr`` or ``auto``
functions, not with preprocessor lines, statics or launches inside. What is blanked too little costs time, never
correctness; the device pass reads the whole source and finds its errors.
"""

from __future__ import annotations

import re

from kernelwright.build.placed import MARKER

_TOKEN = re.compile(
    r"""
    //[^\n]*                              # comment
  | /\*.*?\*/
  | R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"
  | "(?:[^"\\\n]|\\.)*"
  | '(?:[^'\\\n]|\\.)+'
  | ^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*         # preprocessor line, with its continuations
  | \b\w+\b
  | [{}();\[\]]
    """,
    re.X | re.S | re.M,
)
_SEEN_BY_THE_HOST = frozenset({"__host__", "constexpr", "consteval", "auto", "decltype"})
_KEPT = re.compile(r"^[ \t]*#|\bstatic\b|__constant__|__managed__|<<<", re.M)


def of(source: str) -> str:
    """``source`` with comments and device-only bodies replaced by blanks; line breaks stay where they are."""
    tokens = [(match[0], match.start(), match.end()) for match in _TOKEN.finditer(source)]
    blank: list[tuple[int, int]] = [(s, e) for text, s, e in tokens if text.startswith(("//", "/*"))]
    tokens = [token for token in tokens if not token[0].startswith(("//", "/*"))]
    head: list[str] = []  # words since the last end of a declaration
    i = 0
    while i < len(tokens):
        text, _, _ = tokens[i]
        if text.lstrip().startswith("#") or text in (";", "}"):
            head.clear()
        elif text == "{":
            if _device_only(head) and (end := _closing(tokens, i)) is not None:
                start, stop = tokens[i][2], tokens[end][1]
                if not _KEPT.search(source, start, stop):
                    blank.append((start, stop))
                i = end
            head.clear()
        else:
            head.append(text)
        i += 1
    made = list(source)
    for start, stop in blank:
        for k in range(start, stop):
            if made[k] != "\n":
                made[k] = " "
    return "".join(made)


def device_lines(source: str) -> set[tuple[str, int]]:
    """The places (file, line; by the source's line markers) that lie inside blanked bodies."""
    file, line = "", 1
    made: set[tuple[str, int]] = set()
    for before, after in zip(source.split("\n"), of(source).split("\n"), strict=True):
        marker = MARKER.match(before)
        if marker:
            file, line = marker[2] if marker[2] is not None else file, int(marker[1])
            continue
        if before != after and not _COMMENT.match(before):
            made.add((file, line))
        line += 1
    return made


_COMMENT = re.compile(r"\s*(//|/\*)")


def _device_only(head: list[str]) -> bool:
    words = set(head)
    if not words & {"__global__", "__device__"} or words & _SEEN_BY_THE_HOST or ")" not in words:
        return False
    first = next(i for i, word in enumerate(head) if word in ("__global__", "__device__"))
    # A lambda's introducer, or the middle of an expression.
    return first == 0 or head[first - 1] not in ("]", ")", "=", "return")


def _closing(tokens: list[tuple[str, int, int]], opening: int) -> int | None:
    depth = 0
    for i in range(opening, len(tokens)):
        depth += (tokens[i][0] == "{") - (tokens[i][0] == "}")
        if depth == 0:
            return i
    return None
