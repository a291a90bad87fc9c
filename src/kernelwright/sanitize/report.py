"""What compute-sanitizer writes, as records.

Why: its text is the one form that all its tools and versions share; the XML of 2025.3 leaves out the races' lines. The
rule: a report is a header with the indented lines below it; a line that no pattern knows is kept as it is and never
guessed at. Formats: the Compute Sanitizer user manual, and recordings from an H200 (tests/sanitize/recorded).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Place:
    """Where in the code: file and line are empty and 0 without a line table."""

    function: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Report:
    """One report of one tool."""

    kind: str
    """``invalid`` | ``uninitialised`` | ``race`` | ``barrier``."""
    frames: tuple[Place, ...] = ()
    """Innermost first; the last is the kernel's own."""
    text: str = ""
    """The header."""
    access: str = ""
    """``read`` | ``write`` | ``atomic``."""
    space: str = ""
    """``global`` | ``shared`` | ``local``."""
    bytes: int = 0
    thread: Triple = (0, 0, 0)
    block: Triple = (0, 0, 0)
    address: int | None = None
    misaligned: bool = False
    freed: bool = False
    near: int | None = None
    """Start of the nearest allocation."""
    near_bytes: int = 0
    others: tuple[tuple[str, Place], ...] = ()
    """A race's further accesses, each with its kind."""
    hazards: int = 0
    warning: bool = False


@dataclass(frozen=True)
class Log:
    """Everything that one run of one tool wrote."""

    reports: tuple[Report, ...]
    complete: bool
    """It ended with its summary."""
    errors: int = 0
    """As its summary counts them; more than the reports where it printed only the first."""
    complaints: tuple[str, ...] = field(default=())
    """What it said of itself or of the program rather than of an access."""


_PREFIX = re.compile(r"^=========(?: (?P<body>.*))?$")
_INVALID = re.compile(r"(?:Potential i|I)nvalid __(\w+?)__ (\w+) of size ([\d,]+)")
_UNINITIALISED = re.compile(r"Uninitialized __(\w+?)__ memory (\w+) of size ([\d,]+)")
_RACE = re.compile(r"(?:(\w+): )?Race reported between (\w+) access at (.+)$", re.I)
_AND = re.compile(r"and (\w+) access at (.+?)(?: \[([\d,]+) hazards?\])?$", re.I)
_BARRIER = re.compile(r"Barrier error detected\. ?(.*)")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: ([\d,]+)")
_THREAD = re.compile(r"by threads? \((\d+),(\d+),(\d+)\).* in block \((\d+),(\d+),(\d+)\)")
_ADDRESS = re.compile(r"(?:Address|Access (?:at|to)) (0x[0-9a-f]+)", re.I)
_NEAR = re.compile(r"nearest allocation at (0x[0-9a-f]+) of size ([\d,]+)", re.I)
_FRAME = re.compile(r"(?:at|Device Frame:) ?(.*)$")

# "kernel(float *)+0x90 in candidate.py:31", and older "0x90 in candidate.py:31:kernel(float*)".
_NAMED = re.compile(r"^(?P<function>.*?)\+0x[0-9a-f]+(?: in (?P<file>.+):(?P<line>\d+))?$")
_OLDER = re.compile(r"^0x[0-9a-f]+ in (?:(?P<file>.+?):(?P<line>\d+):?)?(?P<function>.*)$")


def read(text: str) -> Log:
    """The log of one run. What the program itself printed in between is passed over."""
    reports: list[Report] = []
    complaints: list[str] = []
    complete, errors = False, 0
    for header, details in _paragraphs(text):
        if summary := _SUMMARY.match(header):
            complete = True
            if "not printed" not in header:
                errors = max(errors, _number(summary[1]))
        elif report := _report(header, details):
            reports.append(report)
        elif header not in ("", "COMPUTE-SANITIZER") and not header.startswith("Saved host backtrace"):
            complaints.append(header)
    return Log(tuple(reports), complete, errors, tuple(complaints))


def _paragraphs(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each header with its indented lines; a race's "and …" lines may stand unindented below it."""
    header: str | None = None
    details: list[str] = []
    for line in text.splitlines():
        found = _PREFIX.match(line.rstrip())
        if found is None:
            continue
        body = found["body"] or ""
        if not body.strip():
            continue
        if body.startswith(" ") or (header is not None and _AND.match(body)):
            details.append(body.strip())
            continue
        if header is not None:
            yield header, details
        header, details = body.strip(), []
    if header is not None:
        yield header, details


def _report(header: str, details: list[str]) -> Report | None:
    if found := _INVALID.match(header):
        return _access("invalid", found, header, details)
    if found := _UNINITIALISED.match(header):
        return _access("uninitialised", found, header, details)
    if found := _BARRIER.match(header):
        thread, block = _threads(details)
        return Report("barrier", text=header, frames=_frames(details), thread=thread, block=block)
    if found := _RACE.match(header):
        return _race(found, header, details)
    return None


def _access(kind: str, found: re.Match[str], header: str, details: list[str]) -> Report:
    whole = "\n".join(details)
    address, near = _ADDRESS.search(whole), _NEAR.search(whole)
    thread, block = _threads(details)
    return Report(
        kind,
        frames=_frames(details),
        text=header,
        access=found[2].lower(),
        space=found[1],
        bytes=_number(found[3]),
        address=int(address[1], 16) if address else None,
        misaligned="misaligned" in whole,
        freed="freed" in whole,
        near=int(near[1], 16) if near else None,
        near_bytes=_number(near[2]) if near else 0,
        thread=thread,
        block=block,
    )


def _race(found: re.Match[str], header: str, details: list[str]) -> Report:
    # The place may go on in a line of its own, and the first access may be told on one line with the second.
    first, _, rest = found[3].partition(" and ")
    lines = [*([f"and {rest}"] if rest else []), *details]
    if lines and lines[0].startswith("in "):
        first = f"{first} {lines.pop(0)}"
    others: list[tuple[str, Place]] = []
    hazards = 0
    for line in lines:
        if other := _AND.match(line):
            others.append((other[1].lower(), place(other[2])))
            hazards += _number(other[3] or "0")
    return Report(
        "race",
        frames=(place(first),),
        text=header,
        access=found[2].lower(),
        space="shared",
        others=tuple(others),
        hazards=hazards,
        warning=(found[1] or "").lower() in ("warning", "info"),
    )


def _frames(details: list[str]) -> tuple[Place, ...]:
    return tuple(place(found[1]) for line in details if (found := _FRAME.match(line)))


def place(text: str) -> Place:
    """``kernel(float *)+0x90 in candidate.py:31`` and its older form."""
    text = text.strip()
    found = _OLDER.match(text) or _NAMED.match(text)
    if found is None:
        function, _, where = text.partition(" in ")
        file, _, line = where.rpartition(":")
        return Place(function.strip(), file, int(line)) if line.isdigit() else Place(function.strip())
    return Place(found["function"].strip(), found["file"] or "", int(found["line"] or 0))


def _threads(details: list[str]) -> tuple[Triple, Triple]:
    """Thread and block; zeros where the report names none."""
    for line in details:
        if found := _THREAD.search(line):
            x, y, z, a, b, c = (int(number) for number in found.groups())
            return (x, y, z), (a, b, c)
    return (0, 0, 0), (0, 0, 0)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
