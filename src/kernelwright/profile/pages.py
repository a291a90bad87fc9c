"""ncu's CSV pages as counted kernels, under the same names as the emulated device's.

Why: the raw page has a kernel's sums, the source pages what each SASS instruction and thereby each line did; together
they are one record. The rule: a cell that holds no number is absent; a sum is the raw page's wherever it has it, and
what is no arithmetic (a constant moved by an HFMA2) is no flop.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace

from kernelwright.counters import metrics as m
from kernelwright.counters.records import NCU, KernelCounters, LineCounters
from kernelwright.profile import instructions
from kernelwright.profile import metrics as asked
from kernelwright.profile.cells import number
from kernelwright.profile.instructions import Body

NO_INSTRUCTIONS = "instructions and lines (ncu's source page has none of this launch)"
NO_LINES = "lines (ncu has no line table for it: it was built without -lineinfo)"


def kernels(
    raw: str, sass: str, source: str, *, candidate_file: str, candidate_text: str
) -> tuple[KernelCounters, ...]:
    """The profiled kernels, equal launches added up.

    ``sass`` and ``source`` are the source page as ``sass`` and as ``cuda,sass``; either is empty where ncu made none.
    """
    launches = list(_launches(raw))
    places = instructions.places(source, candidate_file=candidate_file, candidate_text=candidate_text)
    bodies = instructions.bodies(sass, places, launches=[launch.kernel for launch in launches])
    made: dict[tuple[object, ...], KernelCounters] = {}
    for launch, body in zip(launches, bodies, strict=True):
        launch = _joined(launch, body)
        key = (launch.kernel, launch.grid, launch.block, launch.dynamic_shared_bytes)
        made[key] = _both(made[key], launch) if key in made else launch
    return tuple(made.values())


def _joined(launch: KernelCounters, body: Body | None) -> KernelCounters:
    """The launch with its instructions and lines, and with the sums that only they tell."""
    if body is None:
        return replace(launch, metrics=_with_operations(launch.metrics), not_checked=(NO_INSTRUCTIONS,))
    lines = tuple(
        LineCounters((line.place,), m.derived(line.metrics))
        for _, line in sorted(body.lines.items(), key=lambda item: item[0])
        if line.metrics
    )
    only_here = {
        *(m.ideal_sectors(op) for op in m.GLOBAL_OPS),
        *(name(op) for op in m.SHARED_OPS for name in (m.shared_requests, m.ideal_wavefronts)),
    }
    sums = {name: value for name, value in body.whole.items() if name in only_here}
    metrics = _with_operations({**sums, **launch.metrics}, moves=body.moves)
    return replace(
        launch, lines=lines, metrics=metrics, instructions=body.opcodes, not_checked=() if lines else (NO_LINES,)
    )


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
            metrics=metrics,
        )


def _with_operations(metrics: dict[str, float], *, moves: float = 0.0) -> dict[str, float]:
    """With what follows from ncu's sums: flop by kind, an FMA twice; instructions of halves are of pairs.

    ``moves`` are threads that ran an HFMA2 which only moves a constant: ncu counts them among the FMAs of halves.
    """
    made = dict(metrics)
    for kind, letter in asked.KINDS.items():
        counts = [metrics.get(m.flops(letter + op)) for op in ("add", "mul", "fma")]
        if any(count is not None for count in counts):
            add, mul, fma = (count or 0.0 for count in counts)
            fma -= min(fma, moves) if kind == "fp16" else 0.0
            made[m.flop(kind)] = (2.0 if kind == "fp16" else 1.0) * (add + mul + 2 * fma)
    # Of a kernel without a branch ncu says that none is uniform.
    if not made.get(m.BRANCHES_DIVERGENT) and not made.get(m.BRANCHES_UNIFORM):
        made.pop(m.BRANCH_UNIFORMITY, None)
    tensor = [metrics[name] for name in asked.TENSOR_OPS.values() if name in metrics]
    if tensor:
        made[m.flop("tensor")] = sum(tensor)
    return m.derived(made)


def _triple(text: str) -> tuple[int, int, int]:
    x, y, z = (int(word) for word in re.findall(r"\d+", text)[:3])
    return x, y, z


def _table(text: str, first: str) -> list[list[str]]:
    """The CSV rows from the line that begins with ``first`` on; what ncu says before is passed over."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith(first)), None)
    return [] if start is None else list(csv.reader(io.StringIO("\n".join(lines[start:]))))
