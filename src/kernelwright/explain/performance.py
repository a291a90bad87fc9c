"""What makes a correct candidate slow: causes of the family ``performance``, from counters and from what ptxas said.

Why: a ratio in a table must be found before it helps; one that is far from its ideal at one line is named there. The
rule: counters or the compiler prove each of these; it is named only where its line moves a large part of the kernel's
traffic for nothing, so that a kernel which is good but for a corner stays without advice. Nothing here is a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelwright.counters import metrics as m
from kernelwright.counters import reading
from kernelwright.counters.records import KernelCounters, LineCounters
from kernelwright.explain.access import kernel as short
from kernelwright.explain.case import Case
from kernelwright.records import Cause, KernelFacts, Stage

FAR = 2.0
"""Times the ideal from which on accesses are called bad: half of what moves is for nothing."""
SHARE = 0.25
"""Of the kernel's sectors or wavefronts, those that one line wastes, from which on it is worth a line of advice."""
TURNS = 8.0
"""Turns that the lanes of one atomic request take on average, from which on they serialise."""
BUSY = 2000.0
"""Instructions of a warp from which on idle multiprocessors matter: at five cycles each, twice what a launch costs."""
SPILLED_BYTES = 128
"""Of a thread, out and in, from which on spills are worth a line: a few registers around a loop cost nothing."""


def causes(case: Case) -> Iterator[Cause]:
    """Advice for the candidate, what costs most first within each kind."""
    kernels = case.evidence.counters or ()
    launched = {kernel.kernel for kernel in kernels}
    for record in case.evidence.builds:
        for facts in record.kernels:
            if short(facts.name) in {short(name) for name in launched}:
                yield from _spills(case, facts, record.call_line)
    for kernel in kernels:
        yield from _local_arrays(case, kernel)
        yield from _traffic(case, kernel)
        yield from _idle(case, kernel)


def _spills(case: Case, facts: KernelFacts, call_line: int) -> Iterator[Cause]:
    if facts.spill_store_bytes + facts.spill_load_bytes < SPILLED_BYTES:
        return
    capped = next((n for n, text in enumerate(case.lines, 1) if "maxrregcount" in text), 0)
    bounded = next((n for n, text in enumerate(case.lines, 1) if "__launch_bounds__" in text), 0)
    remedy = (
        "The flag -maxrregcount allows fewer registers than the kernel needs: leave it out, or raise it."
        if capped
        else "Keep less in each thread, or allow it more registers (__launch_bounds__, -maxrregcount)."
    )
    yield case.cause(
        "performance.spills",
        Stage.MEASURE,
        f"{short(facts.name)} spills: with {facts.registers} registers a thread, {facts.spill_store_bytes} bytes go to "
        f"local memory and {facts.spill_load_bytes} come back.",
        line=capped or bounded or call_line,
        evidence=("ptxas -v says so",),
        fix=remedy,
    )


def _local_arrays(case: Case, kernel: KernelCounters) -> Iterator[Cause]:
    found: dict[int, float] = {}
    for line in kernel.lines:
        count = sum(line.metrics.get(m.requests("local", op), 0.0) for op in m.LOCAL_OPS)
        number = _line(case, line)
        if count and number:
            found[number] = found.get(number, 0.0) + count
    if not found:
        return
    number, count = max(found.items(), key=lambda item: (item[1], -item[0]))
    yield case.cause(
        "performance.local-array",
        Stage.MEASURE,
        f"{short(kernel.kernel)} keeps an array in local memory: {count:,.0f} warp accesses at this line go there.",
        line=number,
        evidence=(f"in all {sum(found.values()):,.0f} warp accesses of local memory",),
        fix="Index it only with values known at compile time (unroll the loop), or keep it in shared memory.",
    )


_NAMED = {
    "global": (
        "performance.uncoalesced",
        "Let neighbouring threads touch neighbouring elements: threadIdx.x along the fastest axis, or a tile staged in "
        "shared memory.",
    ),
    "shared": (
        "performance.bank-conflicts",
        "Pad the row by one element ([32][33]), or permute its columns, so that the lanes of a warp meet different "
        "banks.",
    ),
}
_ATOMICS = "Combine within the warp (__shfl_down_sync) or the block (shared memory) before one atomic each."


def _traffic(case: Case, kernel: KernelCounters) -> Iterator[Cause]:
    moved = {
        "global": sum(one.units for one in reading.traffic(kernel.metrics) if one.space == "global"),
        "shared": sum(one.units for one in reading.traffic(kernel.metrics) if one.space == "shared"),
    }
    named: set[str] = set()
    for costly in reading.costly_lines(kernel):
        one, number = costly.traffic, _line(case, costly.counters)
        atomic = one.op in ("atom", "red")
        id, fix = ("performance.atomics", _ATOMICS) if atomic else _NAMED[one.space]
        far = one.units >= FAR * one.ideal and one.units - one.ideal >= SHARE * moved[one.space]
        if atomic:
            far = one.units >= TURNS * one.ideal and far
        if id in named or not far or not number:
            continue
        named.add(id)
        mapping = _mapping(case, number) if id == "performance.uncoalesced" else 0
        yield case.cause(
            id,
            Stage.MEASURE,
            f"{short(kernel.kernel)}, {one.words}: {one.per_request:.1f} {one.unit} per request, "
            f"{one.ideal_per_request:.3g} would do.",
            line=mapping or number,
            evidence=(
                f"threadIdx.x strides through the index of line {number}: {case.text(number)}" if mapping else "",
                f"{one.requests:,.0f} warp requests at line {number}, {one.units:,.0f} {one.unit}",
                f"the kernel's {one.space} accesses move {moved[one.space]:,.0f} {one.unit} in all",
            ),
            fix=fix,
        )


_FROM_THREAD = re.compile(r"\b(\w+)\s*=([^;,=]*\bthreadIdx\.x\b[^;,]*)[;,]")


def _mapping(case: Case, line: int) -> int:
    """Where the variable is made from threadIdx.x that line ``line`` multiplies in an index; 0 without exactly one."""
    function = case.sources.at(line)
    if function is None:
        return 0
    indices = " ".join(re.findall(r"\[([^\[\]]*)\]", case.text(line)))
    found = {
        function.line_at(match.start())
        for match in _FROM_THREAD.finditer(function.body)
        # What is divided is the same in a whole warp, or nearly.
        if "/" not in match[2] and ">>" not in match[2]
        if re.search(rf"\b{match[1]}\s*\*|\*\s*(?:\(\w+\)\s*)?{match[1]}\b", indices)
    }
    return found.pop() if len(found) == 1 and line not in found else 0


def _idle(case: Case, kernel: KernelCounters) -> Iterator[Cause]:
    """Too few blocks for the device, in a launch that is not short."""
    waves = kernel.metrics.get(m.WAVES)
    blocks = kernel.grid[0] * kernel.grid[1] * kernel.grid[2]
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    warps = kernel.launches * blocks * -(-threads // 32)
    held = min((kernel.metrics[name] for name in reading.LIMITS if name in kernel.metrics), default=0.0)
    if not waves or not held or kernel.metrics.get(m.INST, 0.0) < BUSY * warps:
        return
    multiprocessors = round(blocks / (waves * held))
    if 2 * blocks > multiprocessors:
        return
    launch = next((fact for fact in case.evidence.launches if fact.kernel == kernel.kernel and fact.site), None)
    own = case.own_frame((launch.site,)) if launch is not None and launch.site is not None else None
    yield case.cause(
        "performance.low-parallelism",
        Stage.MEASURE,
        f"{short(kernel.kernel)} has {blocks} block{'' if blocks == 1 else 's'} for {multiprocessors} multiprocessors.",
        line=own.line if own else 0,
        evidence=(f"each warp runs {kernel.metrics[m.INST] / warps:,.0f} instructions",),
        fix="Split the work over more blocks: several threads for each output, or a second pass that combines parts.",
    )


def _line(case: Case, line: LineCounters) -> int:
    own = case.own_frame(line.frames)
    return own.line if own is not None else 0
