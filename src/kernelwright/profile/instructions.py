"""ncu's source pages: what each SASS instruction of a launch did, and at which line it stands.

Why: the page as ``sass`` has every launch, a library's kernels too, and no lines; the page as ``cuda,sass`` has lines,
but leaves out what has no line table, and writes a template's name in another way than the raw page. The rule: an
instruction's *address* ties the two together, never a name; it counts at the line that the compiler gave it, the
innermost of an inlined call, and repeated rows count once.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelwright.counters import metrics as m
from kernelwright.profile import metrics as asked
from kernelwright.profile.cells import number
from kernelwright.sourceline import SourceLine

_MEMORY = {
    "LDG": ("global", "ld"), "STG": ("global", "st"), "ATOMG": ("global", "atom"), "REDG": ("global", "red"),
    "LD": ("global", "ld"), "ST": ("global", "st"), "ATOM": ("global", "atom"), "RED": ("global", "red"),
    "LDS": ("shared", "ld"), "LDSM": ("shared", "ldsm"), "STS": ("shared", "st"), "STSM": ("shared", "st"),
    "ATOMS": ("shared", "atom"), "LDL": ("local", "ld"), "STL": ("local", "st"), "LDGSTS": ("global", "ldgsts"),
}  # fmt: skip
"""SASS mnemonics of memory to the kind of access, as the counters name it."""

_MOVE = re.compile(r"\bHFMA2(\.MMA)?\s+\w+,\s*-?RZ(\.\w+)?,\s*-?RZ(\.\w+)?,")
"""0 times 0 plus a constant: ptxas's way to move a constant through an idle pipe (``HFMA2.MMA R9, -RZ, RZ, 0, 0``)."""

_THREADS_ON = "Predicated-On Thread Instructions Executed"


@dataclass
class Line:
    """Sums of one line's instructions."""

    place: SourceLine
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Body:
    """What the instructions of one launch did."""

    kernel: str
    lines: dict[tuple[str, int], Line] = field(default_factory=dict)
    """By file and number; without those instructions that have no line."""
    opcodes: dict[str, float] = field(default_factory=dict)
    """Warp instructions executed."""
    whole: dict[str, float] = field(default_factory=dict)
    """Sums over all instructions."""
    moves: float = 0.0
    """Threads that ran an HFMA2 which only moves a constant."""


Places = Mapping[str, tuple[str, int, str]]
"""File, line and text of each address."""


def places(source: str, *, candidate_file: str, candidate_text: str) -> Places:
    """Where each instruction stands, from the page as ``cuda,sass``."""
    own = Path(candidate_file).name
    lines = candidate_text.splitlines()
    found: dict[str, tuple[str, int, str]] = {}
    file, place = "", ("", 0, "")
    for row in csv.reader(io.StringIO(source)):
        if len(row) >= 2 and row[0] in ("File Path", "File Name"):
            file, place = row[1], ("", 0, "")
        elif len(row) >= 4 and row[0].isdigit():
            line = int(row[0])
            mine = Path(file).name == own
            told = lines[line - 1].strip() if mine and line <= len(lines) else row[1].strip()
            place = (own if mine else file, line, told)
        elif len(row) >= 4 and row[2].startswith("0x") and place[0]:
            found.setdefault(row[2], place)
    return found


def bodies(sass: str, places: Places, *, launches: Sequence[str]) -> list[Body | None]:
    """The instructions of each launch (its kernel's name), from the page as ``sass``; None where it has none.

    Blocks are in the order of the launches; ncu 2025.3 writes each twice where two sections hold samples. Where some
    launch has none, names decide.
    """
    blocks = list(_blocks(sass))
    if launches and blocks and len(blocks) % len(launches) == 0:
        return [_body(name, rows, places) for name, rows in blocks[:: len(blocks) // len(launches)]]
    made: list[Body | None] = []
    for launch in launches:
        at = next((n for n, (name, _) in enumerate(blocks) if name == launch), None)
        made.append(None if at is None else _body(launch, blocks[at][1], places))
        blocks = blocks if at is None else blocks[at + 1 :]
    return made


def _blocks(sass: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Kernel name and instructions of each block of the page."""
    name, header, rows = "", list[str](), list[dict[str, str]]()
    for row in csv.reader(io.StringIO(sass)):
        if len(row) >= 2 and row[0] in ("Kernel Name", "Function Name"):
            if header:
                yield name, rows
            name, header, rows = row[1], [], []
        elif row and row[0] == "Address":
            header = row
        elif header and row and row[0].startswith("0x"):
            rows.append(dict(zip(header, row, strict=False)))
    if header:
        yield name, rows


def _body(name: str, rows: list[dict[str, str]], places: Places) -> Body:
    body = Body(name)
    for row in rows:
        sass = row.get("Source", "")
        did = _did(sass, row)
        _add(body.whole, did)
        executed = did.get(m.INST)
        if executed:
            opcode = _opcode(sass)
            body.opcodes[opcode] = body.opcodes.get(opcode, 0.0) + executed
        if _MOVE.search(sass):
            body.moves += did.get(m.THREAD_INST_ON, 0.0)
        at = places.get(row["Address"])
        if at is not None:
            line = body.lines.setdefault(at[:2], Line(SourceLine(*at, name)))
            _add(line.metrics, did)
    return body


def _did(sass: str, cells: Mapping[str, str]) -> dict[str, float]:
    """What one instruction did; what it did none of is absent."""
    executed = number(cells.get("Instructions Executed", ""))
    sectors, ideal = (number(cells.get(f"L2 Theoretical Sectors Global{word}", "")) for word in ("", " Ideal"))
    passes, least = (number(cells.get(f"L1 Wavefronts Shared{word}", "")) for word in ("", " Ideal"))
    made = {
        m.INST: executed,
        m.THREAD_INST: number(cells.get("Thread Instructions Executed", "")),
        m.THREAD_INST_ON: number(cells.get(_THREADS_ON, "")),
        asked.SAMPLES: number(cells.get("# Samples", "")),
        **{stall.metric: number(cells.get(stall.column, "")) for stall in asked.STALLS},
        m.SECTORS_GLOBAL: sectors,
        m.SECTORS_GLOBAL_IDEAL: ideal,
        m.WAVEFRONTS_SHARED: passes,
        m.WAVEFRONTS_SHARED_IDEAL: least,
    }
    space, op = _MEMORY.get(_opcode(sass).split(".", 1)[0], ("", ""))
    if space == "global" and sectors:
        made |= {m.requests("global", op): executed, m.sectors("global", op): sectors, m.ideal_sectors(op): ideal}
    if (space == "shared" or op == "ldgsts") and passes:
        made |= {m.shared_requests(op): executed, m.wavefronts(op): passes, m.ideal_wavefronts(op): least}
    if space == "local":
        made[m.requests("local", op)] = executed
    return {metric: value for metric, value in made.items() if value}


def _add(sums: dict[str, float], did: Mapping[str, float]) -> None:
    for metric, value in did.items():
        sums[metric] = sums.get(metric, 0.0) + value


def _opcode(sass: str) -> str:
    """``LDG.E`` of ``@!P0 LDG.E R2, …``."""
    words = sass.replace("{", " ").split()
    return next((word.rstrip(";") for word in words if not word.startswith("@")), "")
