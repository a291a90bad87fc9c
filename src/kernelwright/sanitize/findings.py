"""A sanitizer's reports as findings: one a cause and line, with the memory by its tensor's name.

Why: ``explain`` must not care who saw a bad access, and a hundred threads at one line are one mistake. The rule: only
reports at a line of the candidate become findings, since a library's kernel is no cause that its author can mend; what
is left out is counted and told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelwright.records import HOST_STACK, NO_THREAD, Allocation, Finding, SourceLine
from kernelwright.sanitize.report import Place, Report
from kernelwright.sanitize.tools import Run

_ACCESS = {"read": "load", "write": "store", "atomic": "atomic"}
_STACK_BYTES = 64 << 20
"""Threads' stacks have no name in the memory map; they are writable and at most this large."""

_FAR_BYTES = 1 << 20

Key = tuple[str, int, str]


@dataclass(frozen=True)
class Named:
    """What one run's reports come to."""

    findings: tuple[Finding, ...] = ()
    observations: tuple[Finding, ...] = ()
    """Tolerated by hardware, or perhaps meant: racecheck's warnings."""
    elsewhere: int = 0
    """Reports that lie outside the candidate's file."""


def name(run: Run, *, candidate_file: str, candidate_text: str) -> Named:
    """The findings of ``run``, in the order of its reports."""
    lines = candidate_text.splitlines()
    found: dict[Key, Finding] = {}
    tolerated: dict[Key, Finding] = {}
    elsewhere = 0
    for report in run.log.reports:
        cause = _cause(report, run.known)
        finding = _finding(report, run, cause, candidate_file, lines)
        own = own_line(finding, candidate_file)
        if own is None or not cause:
            elsewhere += 1
            continue
        key = (finding.cause, own.line, finding.access)
        into = tolerated if report.warning else found
        into[key] = replace(into[key], count=into[key].count + finding.count) if key in into else finding
    return Named(tuple(found.values()), tuple(tolerated.values()), elsewhere)


def witness(tool: str) -> str:
    """How a finding says who saw it."""
    return f"by compute-sanitizer {tool} on the GPU"


def own_line(finding: Finding, candidate_file: str) -> SourceLine | None:
    """The innermost frame in the candidate's file."""
    own = Path(candidate_file).name
    return next((f for f in (*finding.frames, *finding.other) if Path(f.file).name == own and f.line > 0), None)


def merged(first: Iterable[Finding], second: Iterable[Finding], candidate_file: str) -> tuple[Finding, ...]:
    """``first``, and of ``second`` what ``first`` does not have at the same line; a line seen by both names both.

    The first witness knows more (the emulated device knows tensors and the kernel's launch), so its words stand.
    """
    made = list(first)
    for finding in second:
        place = next((n for n, other in enumerate(made) if same(other, finding, candidate_file)), None)
        if place is None:
            made.append(finding)
        elif finding.witness and finding.witness not in made[place].witness:
            made[place] = replace(made[place], witness=_both(made[place].witness, finding.witness))
    return tuple(made)


def _both(witness: str, another: str) -> str:
    """``on the emulated device at N=64, by compute-sanitizer memcheck on the GPU and by …``."""
    who = [one for told in (witness, another) for one in re.split(r"(?:,| and) (?=by )", told) if one]
    return " and ".join(filter(None, (", ".join(who[:-1]), who[-1])))


def same(one: Finding, other: Finding, candidate_file: str) -> bool:
    """Whether two findings are one event: at one line, of one kind, whatever each calls its cause."""
    mine, theirs = own_line(one, candidate_file), own_line(other, candidate_file)
    if mine is None or theirs is None:
        return False
    lines = {mine.line, *(f.line for f in one.other)}
    if theirs.line not in lines:
        return False
    if _family(one) == _family(other):
        return True
    # What a thread reads past its tensor nobody wrote, either: initcheck's word for memcheck's finding.
    both = {_family(one), _family(other)}
    return both == {"access", "uninitialised"} and (one.thread, one.block) == (other.thread, other.block)


def _family(finding: Finding) -> str:
    if finding.cause == "memory.uninitialised":
        return "uninitialised"
    return "access" if finding.cause.startswith(("memory.", "interface.")) else finding.cause


def _cause(report: Report, known: dict[str, Any]) -> str:
    """The id that a report stands for; empty for one whose meaning is not known."""
    if report.kind == "uninitialised":
        return "memory.uninitialised"
    if report.kind == "race":
        return "sync.shared-race"
    if report.kind == "barrier":
        if "Divergent" in report.text:
            return "sync.divergent-barrier"
        # Of a mask that names lanes which are not there; barriers in memory have texts of their own.
        masked = any("syncwarp" in frame.function for frame in report.frames)
        return "warp.mask" if "Invalid arguments" in report.text and masked else ""
    if report.misaligned:
        return "memory.misaligned"
    if report.freed:
        return "memory.use-after-free"
    if report.space == "local":
        return "memory.local-overrun"
    return "interface.host-memory" if _on_host(report, known) else "memory.out-of-bounds"


def _on_host(report: Report, known: dict[str, Any]) -> bool:
    """Whether the address is host memory; near an allocation of the device it is that one's overrun."""
    if report.space != "global" or report.address is None or report.kind != "invalid" or report.misaligned:
        return False
    near = [report.near, report.near + report.near_bytes] if report.near is not None else []
    distance = min((abs(report.address - end) for end in near), default=_FAR_BYTES)
    return distance >= _FAR_BYTES and _mapping(report.address, known) is not None


def _mapping(address: int, known: dict[str, Any]) -> list[Any] | None:
    """The host's memory that ``address`` lies in: start, end, name."""
    return next((m for m in known.get("maps", ()) if m[0] <= address < m[1]), None)


def _finding(report: Report, run: Run, cause: str, candidate_file: str, lines: list[str]) -> Finding:
    frames = tuple(_line(place, candidate_file, lines) for place in report.frames)
    kernel = report.frames[-1].function if report.frames else ""
    thread, block = report.thread, report.block
    message = ""
    other: tuple[SourceLine, ...] = ()
    count = 1
    if report.kind == "race":
        # A finding's frames are the later access in the order of the code, its other the earlier one.
        first = report.frames[0]
        # Two accesses of one line race, too; another line tells more.
        kind, second = max(report.others, key=lambda o: (o[1].line != first.line, o[0] == "write"), default=("", first))
        early, late = sorted(((report.access, first), (kind, second)), key=lambda pair: pair[1].line)
        frames = (_line(late[1], candidate_file, lines),)
        other = (_line(early[1], candidate_file, lines),)
        access = _ACCESS.get(late[0], "")
        words = "a write and a read" if {early[0], late[0]} == {"read", "write"} else "two writes"
        message = f"{words} of the same bytes of shared memory, {report.hazards:,} times"
        count = max(1, report.hazards)
        # An analysis report is of many threads and names none.
        thread = block = NO_THREAD
    else:
        access = _ACCESS.get(report.access, "barrier" if report.kind == "barrier" else "")
    allocation, offset = _allocation(report, run.known)
    return Finding(
        cause=cause,
        kernel=kernel,
        frames=frames,
        block=block,
        thread=thread,
        access=access,
        space=report.space,
        bytes=report.bytes,
        address=report.address or 0,
        offset=offset,
        allocation=allocation,
        count=count,
        message=message if report.kind != "barrier" else report.text,
        other=other,
        witness=witness(run.tool),
    )


def _line(place: Place, candidate_file: str, lines: list[str]) -> SourceLine:
    own = Path(place.file).name == Path(candidate_file).name if place.file else False
    text = lines[place.line - 1].strip() if own and 0 < place.line <= len(lines) else ""
    return SourceLine(place.file, place.line, text, place.function)


def _allocation(report: Report, known: dict[str, Any]) -> tuple[Allocation | None, int | None]:
    """The memory meant, by its tensor's name where one has it, and the offset in it."""
    address = report.address
    if address is None or report.space != "global":
        return None, None
    host = _mapping(address, known) if _on_host(report, known) else None
    if host is not None:
        stack = host[2] == "[stack]" or (not host[2] and host[1] - host[0] <= _STACK_BYTES)
        name = HOST_STACK if stack else "memory of the host"
        return Allocation("host", host[1] - host[0], name), address - host[0]
    named = [t for t in known.get("tensors", ()) if t["address"] <= address < t["address"] + t["bytes"]]
    if not named and report.near is not None:
        named = [t for t in known.get("tensors", ()) if t["address"] == report.near]
    if named:
        tensor = named[0]
        shape = tuple(int(size) for size in tensor["shape"])
        made = Allocation("global", int(tensor["bytes"]), str(tensor["name"]), str(tensor["dtype"]), shape)
        return made, address - int(tensor["address"])
    if report.near is None:
        return None, None
    return Allocation("global", report.near_bytes), address - report.near
