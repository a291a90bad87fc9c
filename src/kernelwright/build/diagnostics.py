"""Reads what nvcc, cudafe++, cicc, g++, ptxas and ld print, and puts each message at its line.

Why: one mistake prints up to hundreds of lines, through generated files and headers. The rule: a message keeps the
tool's own words; its place is the first one in a file that the user wrote (the message's own, or the instantiation it
was reached from).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kernelwright.build.link import Unresolved, without_facade
from kernelwright.build.nvcc import CommandFailed
from kernelwright.records import BuildRecord, Cause, Diagnostic

_GCC = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?P<severity>fatal error|error|warning|note): (?P<message>.*)$"
)
_EDG = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?P<severity>error|catastrophic error|warning|remark)"
    r"(?: #[\w-]+)?: (?P<message>.*)$"
)
_PTXAS = re.compile(
    r"^ptxas (?:(?P<file>[^,\n]+), line (?P<line>\d+); )?(?P<severity>error|fatal|warning)\s*: (?P<message>.*)$"
)
_NVCC = re.compile(r"^nvcc (?P<severity>fatal|error|warning)\s*: (?P<message>.*)$")
_LD = re.compile(
    r"^(?:(?P<file>[^\s:][^:\n]*):(?P<line>\d+): |[^\n:]*:? ?[^\n:]*: )?"
    r"(?P<message>(?:multiple definition of|undefined reference to|cannot find|undefined symbol) .*)$"
)
_AT_LINE = re.compile(r"at line (\d+)(?: of ([^\s]+))?")

_TOOLS = {
    "cudafe++": "nvcc",
    "cicc": "nvcc",
    "gcc": "g++",
    "cc1plus": "g++",
    "c++": "g++",
    "clang++": "g++",
    "as": "g++",
}


def read(tool: str, output: str, *, own: Iterable[str], text: str = "") -> tuple[Diagnostic, ...]:
    """The messages in ``output``. ``own`` are base names of files the user wrote; ``text`` is the first of them."""
    files = list(own)
    made = list(_messages(_TOOLS.get(tool, tool), without_facade(output), files, text))
    return tuple(dict.fromkeys(made))


def of_failure(failure: CommandFailed | Unresolved, *, own: Sequence[str], text: str) -> tuple[Diagnostic, ...]:
    """The diagnostics of a failed step; never empty."""
    if isinstance(failure, Unresolved):
        return tuple(
            Diagnostic(
                "loader",
                "error",
                f"{failure.module}: undefined symbol: {use.symbol} ({use.name})",
                use.file if use.file in own else "",
                use.line if use.file in own else 0,
                _line(text, use.line) if own and use.file == own[0] else "",
            )
            for use in failure.references
        )
    found = read(failure.tool, failure.output, own=own, text=text)
    if any(d.severity == "error" for d in found):
        return found
    tail = failure.output.strip().splitlines()
    return (
        *found,
        Diagnostic(_TOOLS.get(failure.tool, failure.tool), "error", tail[-1] if tail else f"{failure.tool} failed"),
    )


def _messages(tool: str, output: str, own: list[str], text: str) -> Iterator[Diagnostic]:
    lines = output.splitlines()
    trail: list[tuple[str, int]] = []  # gcc prints where it came from before the message
    for i, line in enumerate(lines):
        match = _GCC.match(line) or _EDG.match(line) or _PTXAS.match(line) or _NVCC.match(line)
        if match is None:
            linked = _LD.match(line)
            if linked is not None and tool in ("g++", "ld"):
                file, number = linked["file"] or "", int(linked["line"] or 0)
                yield _made("ld", "error", linked["message"], file, number, own, text)
            elif place := _place_in(line, own):
                trail.append(place)
            elif not line.startswith((" ", "In ", "from")):
                trail.clear()
            continue
        found = match.groupdict()
        file, number = found.get("file") or "", int(found.get("line") or 0)
        severity = {"remark": "note", "warning": "warning", "note": "note"}.get(found["severity"], "error")
        message = found["message"]
        operands = re.search(r"^\s*operand types are: .*", "\n".join(lines[i + 1 : i + 5]), re.M)
        if operands and "matches these operands" in message:
            message += f" ({operands[0].strip()})"
        if Path(file).name not in own:
            place = (trail[-1] if trail else None) or _place_after(lines, i, own)
            if place:
                file, number = place
        which = "ptxas" if line.startswith("ptxas") else tool
        yield _made(which, severity, message, file, number, own, text)
        if severity == "error":
            trail.clear()


def _place_in(line: str, own: list[str]) -> tuple[str, int] | None:
    found = re.search(r"([\w./-]+):(\d+)(?::\d+)?[:,]", line)
    if found and Path(found[1]).name in own:
        return Path(found[1]).name, int(found[2])
    return None


def _place_after(lines: list[str], i: int, own: list[str]) -> tuple[str, int] | None:
    """EDG prints the instantiation stack after the message: ``instantiation of … at line 12 of candidate.py``."""
    for line in lines[i + 1 : i + 40]:
        if _GCC.match(line) or _EDG.match(line):
            return None
        found = _AT_LINE.search(line)
        if found and found[2] and Path(found[2]).name in own:
            return Path(found[2]).name, int(found[1])
        if found and not found[2] and own:
            return own[0], int(found[1])
    return None


def _made(tool: str, severity: str, message: str, file: str, line: int, own: list[str], text: str) -> Diagnostic:
    name = Path(file).name if Path(file).name in own else file
    return Diagnostic(tool, severity, message.strip(), name, line, _line(text, line) if own and name == own[0] else "")


def _line(text: str, line: int) -> str:
    lines = text.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def causes_of(record: BuildRecord, candidate_text: str) -> Iterator[Cause]:
    """The causes that this record's diagnostics show, best first; see :mod:`kernelwright.build.causes`."""
    from kernelwright.build.causes import causes

    return causes(record, candidate_text)
