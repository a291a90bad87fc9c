"""Counted kernels in a few lines each: actual beside ideal, then the lines that cost most.

Why: a table of a hundred metrics hides the one that matters. The rule: the same lines whether the emulated device or
Nsight Compute counted; what was not counted is not shown, and every ratio stands beside what would do.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from kernelwright.counters import metrics as m
from kernelwright.counters import reading
from kernelwright.counters.records import EMULATED, KernelCounters
from kernelwright.explain.access import kernel as short
from kernelwright.records import Cause
from kernelwright.report import wording
from kernelwright.report.page import LABEL_COLUMNS, hang

MOST_KERNELS = 6
MOST_LINES = 5
MOST_ADVICE = 4
WORTH_A_LINE = 1.25
"""Times the ideal from which on a source line is shown."""
MOST_OPCODES = 8


def render_counters(kernels: tuple[KernelCounters, ...] | None, console: Console, *, label: str = "counters") -> None:
    """Print every counted kernel under ``label``; nothing where nothing was counted."""
    if not kernels:
        return
    for number, kernel in enumerate(kernels[:MOST_KERNELS]):
        hang(console, _lead(label if number == 0 else ""), _title(kernel))
        for line in kernel_lines(kernel):
            hang(console, _lead("  ", indent=2), line)
    if len(kernels) > MOST_KERNELS:
        hang(console, _lead(""), f"and {wording.many(len(kernels) - MOST_KERNELS, 'more kernel')}")


def advice_lines(advice: tuple[Cause, ...]) -> Iterator[str]:
    """What makes kernels slow: each with its line, its figures and what to do."""
    for cause in advice[:MOST_ADVICE]:
        place = f"{cause.file}:{cause.line}  " if cause.line else ""
        yield f"{place}{cause.id}: {cause.sentence} {cause.fix}".rstrip()
    if len(advice) > MOST_ADVICE:
        yield f"and {wording.many(len(advice) - MOST_ADVICE, 'more remark')}"


def _lead(label: str, *, indent: int = 0) -> Text:
    return Text(label.ljust(LABEL_COLUMNS + indent), style="bold")


def _title(kernel: KernelCounters) -> str:
    grid, block = (f"({','.join(str(n) for n in sizes)})" for sizes in (kernel.grid, kernel.block))
    times = f", {wording.many(kernel.launches, 'launch', 'launches')}" if kernel.launches > 1 else ""
    counted = "PTX, on the emulated device" if kernel.source == EMULATED else f"SASS, by {kernel.source}"
    return f"{short(kernel.kernel)}<<<{grid}, {block}>>>{times}, counted: {counted}"


def kernel_lines(kernel: KernelCounters) -> Iterator[str]:
    """One kernel: what it ran, what it moved, what it occupies, its costly lines, and what is not known."""
    for part in (_instructions, _memory, _atomics, _occupancy, _code, _lines):
        yield from part(kernel)
    yield from (f"not checked: {reason}" for reason in kernel.not_checked)


def _instructions(kernel: KernelCounters) -> Iterator[str]:
    metrics = kernel.metrics
    if m.INST in metrics:
        parts = [f"{wording.scaled(metrics[m.INST])} warp instructions"]
        if m.THREADS_PER_INST in metrics:
            parts.append(f"{metrics[m.THREADS_PER_INST]:.1f} of 32 threads taking part")
        parted = reading.divergence(metrics)
        if parted is not None:
            parts.append(f"{100 * parted:.1f} % of branches divergent" if parted else "no branch divergent")
        yield ", ".join(parts)
    done = reading.operations(metrics)
    if done:
        yield "flop: " + ", ".join(f"{wording.scaled(count)} {kind}" for kind, count in done.items())


def _memory(kernel: KernelCounters) -> Iterator[str]:
    metrics = kernel.metrics
    for one in reading.traffic(metrics):
        yield f"{one.words}: {_ratio(one)}, {wording.scaled(one.requests)} requests"
    local = [(op, metrics.get(m.requests("local", op), 0.0)) for op in m.LOCAL_OPS]
    if any(count for _, count in local):
        words = {"ld": "loads", "st": "stores"}
        yield "local memory: " + ", ".join(f"{wording.scaled(count)} {words[op]}" for op, count in local if count)
    if m.COMPULSORY_READ in metrics:
        read, written = metrics[m.COMPULSORY_READ], metrics.get(m.COMPULSORY_WRITE, 0.0)
        yield f"distinct memory: {wording.bytes_of(read)} read, {wording.bytes_of(written)} written"


def _ratio(one: reading.Traffic) -> str:
    said = f"{one.per_request:.1f} {one.unit}/request"
    return f"{said}, {_number(one.ideal_per_request)} would do" if one.excess_bytes > 0 else said


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"


def _atomics(kernel: KernelCounters) -> Iterator[str]:
    metrics = kernel.metrics
    if metrics.get(m.ATOMICS):
        hottest, addresses = metrics.get(m.ATOMIC_HOTTEST, 0.0), metrics.get(m.ATOMIC_ADDRESSES, 0.0)
        places = wording.many(int(addresses), "address", "addresses")
        yield (
            f"global atomics: {wording.scaled(metrics[m.ATOMICS])} on {places}, "
            f"at most {wording.scaled(hottest)} on one"
        )


def _occupancy(kernel: KernelCounters) -> Iterator[str]:
    metrics = kernel.metrics
    if m.OCCUPANCY not in metrics:
        return
    parts = [f"occupancy: {metrics[m.OCCUPANCY]:.0f} % of the warps"]
    if metrics[m.OCCUPANCY] < 100:
        parts[0] += f", limited by {' and '.join(reading.limited_by(metrics))}"
    if m.WAVES in metrics:
        parts.append(f"the blocks fill the device {metrics[m.WAVES]:.2g} times")
    yield "; ".join(parts)


def _code(kernel: KernelCounters) -> Iterator[str]:
    code = kernel.code
    if code is None:
        return
    parts = []
    if code.registers is not None:
        parts.append(wording.many(code.registers, "register"))
    if code.spill_store_bytes or code.spill_load_bytes:
        out, back = wording.bytes_of(code.spill_store_bytes or 0), wording.bytes_of(code.spill_load_bytes or 0)
        parts.append(f"spills {out} out, {back} in")
    if code.instructions:
        most = sorted(code.instructions.items(), key=lambda item: (-item[1], item[0]))[:MOST_OPCODES]
        mix = ", ".join(f"{count} {name}" for name, count in most)
        parts.append(f"{wording.many(sum(code.instructions.values()), 'SASS instruction')} ({mix}, …)")
    if parts:
        yield f"code for {code.arch}: " + ", ".join(parts)


def _lines(kernel: KernelCounters) -> Iterator[str]:
    found = reading.costly_lines(kernel)
    worth = [costly for costly in found if costly.traffic.units >= WORTH_A_LINE * costly.traffic.ideal]
    for costly in worth[:MOST_LINES]:
        one, line = costly.traffic, costly.line
        yield f"{line.file}:{line.line}  {one.words}: {_ratio(one)}" + (f"   {line.text}" if line.text else "")
