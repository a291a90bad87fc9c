"""ncu's CSV pages as counted kernels, under the same names as the emulated device's.

Why: the raw page has a kernel's sums, the source page what each SASS instruction and thereby each line did; together
they are one record. The rule: a cell that holds no number is absent; an instruction counts at the line that the
compiler gave it, the innermost of an inlined call, and repeated rows count once.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelwright.counters import metrics as m
from kernelwright.counters.records import NCU, KernelCounters, LineCounters
from kernelwright.profile import metrics as asked
from kernelwright.sourceline import SourceLine

_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNITS = (
    (re.compile(r"^([KMGT]?)byte(/.*)?$"), 1.0),
    (re.compile(r"^([KMGT]?)hz$", re.I), 1.0),
)
_TIMES = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}

_MEMORY = {
    "LDG": ("global", "ld"), "STG": ("global", "st"), "ATOMG": ("global", "atom"), "REDG": ("global", "red"),
    "LD": ("global", "ld"), "ST": ("global", "st"), "ATOM": ("global", "atom"), "RED": ("global", "red"),
    "LDS": ("shared", "ld"), "LDSM": ("shared", "ldsm"), "STS": ("shared", "st"), "STSM": ("shared", "st"),
    "ATOMS": ("shared", "atom"), "LDL": ("local", "ld"), "STL": ("local", "st"), "LDGSTS": ("global", "ldgsts"),
}  # fmt: skip
"""SASS mnemonics of memory to the kind of access, as the counters name it."""


@dataclass
class _Line:
    """Sums of one line's instructions."""

    place: SourceLine
    metrics: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, value: float | None) -> None:
        if value:
            self.metrics[name] = self.metrics.get(name, 0.0) + value


@dataclass
class _Body:
    """What the source page says of one launch."""

    kernel: str
    files: set[str] = field(default_factory=set)
    lines: dict[tuple[str, int], _Line] = field(default_factory=dict)
    opcodes: dict[str, float] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    """Addresses."""


def kernels(raw: str, source: str, *, candidate_file: str, candidate_text: str) -> tuple[KernelCounters, ...]:
    """The profiled kernels, equal launches added up. ``source`` is the page ``cuda,sass``; empty if there is none."""
    launches = list(_launches(raw))
    bodies = list(_bodies(source, candidate_file, candidate_text))
    made: dict[tuple[object, ...], KernelCounters] = {}
    at = 0
    for launch in launches:
        # Launches without line tables are not on the source page, so names decide which launch a body belongs to.
        found = next((n for n in range(at, len(bodies)) if bodies[n].kernel == launch.kernel), None)
        if found is not None:
            at = found + 1
            launch = _joined(launch, bodies[found])
        else:
            launch = replace(launch, not_checked=("lines (its source page has none: it was built without -lineinfo)",))
        key = (launch.kernel, launch.grid, launch.block, launch.dynamic_shared_bytes)
        made[key] = _both(made[key], launch) if key in made else launch
    return tuple(made.values())


def _both(one: KernelCounters, other: KernelCounters) -> KernelCounters:
    """Two equal launches as one."""
    opcodes = dict(one.instructions)
    for name, count in other.instructions.items():
        opcodes[name] = opcodes.get(name, 0.0) + count
    lines = {line.frames: line for line in one.lines}
    for line in other.lines:
        mine = lines.get(line.frames)
        lines[line.frames] = replace(line, metrics=m.added(mine.metrics, line.metrics)) if mine else line
    total = m.added(one.metrics, other.metrics)
    # A share or a rate of two launches is neither's; the first one's stands, as the launches are equal.
    total.update({name: value for name, value in one.metrics.items() if not _adds(name)})
    return replace(one, launches=one.launches + 1, metrics=total, lines=tuple(lines.values()), instructions=opcodes)


def _adds(name: str) -> bool:
    return name.endswith(".sum") or name.startswith(("memory_", "smsp__pcsamp", "derived__"))


# ---- the raw page --------------------------------------------------------------------------------------------------
def _launches(raw: str) -> Iterator[KernelCounters]:
    rows = _table(raw, '"ID"')
    if len(rows) < 2:
        return
    header, units = rows[0], rows[1]
    wanted = {*asked.ASKED, *m.METRICS, asked.SAMPLES, asked.LOCAL_SPILLS, *(stall.metric for stall in asked.STALLS)}
    for row in rows[2:]:
        cells = dict(zip(header, row, strict=False))
        metrics: dict[str, float] = {}
        for name, unit, text in zip(header, units, row, strict=False):
            value = number(text, unit) if name in wanted else None
            if value is not None:
                metrics[name] = value
        yield KernelCounters(
            kernel=cells["Kernel Name"],
            grid=_triple(cells["Grid Size"]),
            block=_triple(cells["Block Size"]),
            dynamic_shared_bytes=int(metrics.get(m.SHARED_DYNAMIC, 0)),
            source=NCU,
            metrics=_with_operations(metrics),
        )


def _with_operations(metrics: dict[str, float]) -> dict[str, float]:
    """With what follows from ncu's sums: flop by kind, an FMA twice; instructions of halves are of pairs."""
    made = dict(metrics)
    for kind, letter in asked.KINDS.items():
        counts = [metrics.get(m.flops(letter + op)) for op in ("add", "mul", "fma")]
        if any(count is not None for count in counts):
            add, mul, fma = (count or 0.0 for count in counts)
            made[m.flop(kind)] = (2.0 if kind == "fp16" else 1.0) * (add + mul + 2 * fma)
    # Of a kernel without a branch ncu says that none is uniform.
    if not made.get(m.BRANCHES_DIVERGENT) and not made.get(m.BRANCHES_UNIFORM):
        made.pop(m.BRANCH_UNIFORMITY, None)
    tensor = [metrics[name] for name in asked.TENSOR_OPS.values() if name in metrics]
    if tensor:
        made[m.flop("tensor")] = sum(tensor)
    return m.derived(made)


def number(text: str, unit: str = "") -> float | None:
    """A cell as a number in the base unit (byte, ns, Hz); None where it holds none."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    if value != value:
        return None
    if unit in _TIMES:
        return value * _TIMES[unit]
    for pattern, base in _UNITS:
        if found := pattern.match(unit):
            return value * base * _SCALES[found[1].upper()]
    return value


def _triple(text: str) -> tuple[int, int, int]:
    x, y, z = (int(word) for word in re.findall(r"\d+", text)[:3])
    return x, y, z


# ---- the source page -----------------------------------------------------------------------------------------------
def _bodies(text: str, candidate_file: str, candidate_text: str) -> Iterator[_Body]:
    """One body a launch: blocks of a further file of the same launch have its name and a file that is new."""
    own = Path(candidate_file).name
    lines = candidate_text.splitlines()
    body: _Body | None = None
    file, header = "", list[str]()
    place: _Line | None = None
    for row in csv.reader(io.StringIO(text)):
        if len(row) >= 2 and row[0] in ("File Path", "File Name"):
            file, header = row[1], []
        elif len(row) >= 2 and row[0] in ("Function Name", "Kernel Name"):
            if body is None or body.kernel != row[1] or file in body.files:
                if body is not None:
                    yield body
                body = _Body(row[1])
            body.files.add(file)
            header, place = [], None
        elif row and row[0] == "Line No":
            header = row
        elif body is not None and header and len(row) == len(header):
            cells = dict(zip(header[4:], row[4:], strict=True))
            if row[0].isdigit():
                number_of = int(row[0])
                mine = Path(file).name == own
                told = lines[number_of - 1].strip() if mine and number_of <= len(lines) else row[1].strip()
                line = SourceLine(own if mine else file, number_of, told, body.kernel)
                place = body.lines.setdefault((file, number_of), _Line(line))
            elif place is not None and row[2].startswith("0x") and row[2] not in body.seen:
                body.seen.add(row[2])
                _instruction(body, place, row[3], cells)
    if body is not None:
        yield body


def _instruction(body: _Body, line: _Line, sass: str, cells: Mapping[str, str]) -> None:
    """Add one SASS instruction to its line."""
    executed = number(cells.get("Instructions Executed", ""))
    opcode = _opcode(sass)
    base = opcode.split(".", 1)[0]
    if executed:
        body.opcodes[opcode] = body.opcodes.get(opcode, 0.0) + executed
    line.add(m.INST, executed)
    line.add(m.THREAD_INST, number(cells.get("Thread Instructions Executed", "")))
    line.add(m.THREAD_INST_ON, number(cells.get("Predicated-On Thread Instructions Executed", "")))
    line.add(asked.SAMPLES, number(cells.get("# Samples", "")))
    for stall in asked.STALLS:
        line.add(stall.metric, number(cells.get(stall.column, "")))
    sectors, ideal = (number(cells.get(f"L2 Theoretical Sectors Global{word}", "")) for word in ("", " Ideal"))
    passes, least = (number(cells.get(f"L1 Wavefronts Shared{word}", "")) for word in ("", " Ideal"))
    line.add(m.SECTORS_GLOBAL, sectors)
    line.add(m.SECTORS_GLOBAL_IDEAL, ideal)
    line.add(m.WAVEFRONTS_SHARED, passes)
    line.add(m.WAVEFRONTS_SHARED_IDEAL, least)
    space, op = _MEMORY.get(base, ("", ""))
    if space == "global" and sectors:
        line.add(m.requests("global", op), executed)
        line.add(m.sectors("global", op), sectors)
        line.add(m.ideal_sectors(op), ideal)
    if (space == "shared" or op == "ldgsts") and passes:
        line.add(m.shared_requests(op), executed)
        line.add(m.wavefronts(op), passes)
        line.add(m.ideal_wavefronts(op), least)
    if space == "local":
        line.add(m.requests("local", op), executed)


def _opcode(sass: str) -> str:
    """``LDG.E`` of ``@!P0 LDG.E R2, …``."""
    words = sass.replace("{", " ").split()
    return next((word.rstrip(";") for word in words if not word.startswith("@")), "")


def _joined(launch: KernelCounters, body: _Body) -> KernelCounters:
    """The launch with its lines, and with the sums that only its instructions tell."""
    lines = tuple(
        LineCounters((line.place,), m.derived(line.metrics)) for _, line in sorted(body.lines.items()) if line.metrics
    )
    sums: dict[str, float] = {}
    only_here = [
        *(m.ideal_sectors(op) for op in m.GLOBAL_OPS),
        *(name(op) for op in m.SHARED_OPS for name in (m.shared_requests, m.ideal_wavefronts)),
    ]
    for line in lines:
        for name in only_here:
            if name in line.metrics:
                sums[name] = sums.get(name, 0.0) + line.metrics[name]
    metrics = m.derived({**sums, **launch.metrics})
    return replace(launch, lines=lines, metrics=metrics, instructions=body.opcodes)


def _table(text: str, first: str) -> list[list[str]]:
    """The CSV rows from the line that begins with ``first`` on; what ncu says before is passed over."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith(first)), None)
    return [] if start is None else list(csv.reader(io.StringIO("\n".join(lines[start:]))))
