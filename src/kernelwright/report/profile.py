"""A profile on one screen: the reasons first, then where the time goes, then each kernel's figures and lines.

Why: whoever profiles wants to know what to change; tables are the evidence. The rule: each kernel's counters are shown
as ``check`` shows them, and what has no figure is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from kernelwright.counters import reading
from kernelwright.counters.records import NCU, KernelCounters
from kernelwright.explain.access import kernel as short
from kernelwright.measure import limits
from kernelwright.profile import metrics as p
from kernelwright.profile.records import Profile, Reason
from kernelwright.profile.roofline import bandwidth, moved, rate, seconds
from kernelwright.report import wording
from kernelwright.report.counters import render_counters
from kernelwright.report.page import hang, labelled, paragraph

MOST_TRACED = 8
MOST_LINES = 6
MOST_STALLS = 4
LEAST_SAMPLES_PCT = 3.0
LEAST_PIPE_PCT = 5.0
"""Below it a pipe is worth no word: constants that the compiler moves show on the tensor cores, too."""
NAME_COLUMNS = 44
"""Of a kernel's name within a sentence; it is whole over its counters."""
_PIPES = {"tensor": p.TENSOR_PIPE, "FMA": p.FMA_PIPE, "fp64": p.FP64_PIPE, "special functions": p.XU_PIPE}


def render_profile(profile: Profile, console: Console) -> None:
    """Print ``profile`` on ``console``, in its width."""
    _headline(profile, console)
    if profile.reasons:
        console.print()
        for number, reason in enumerate(profile.reasons, 1):
            _reason(number, reason, profile, console)
    console.print()
    labelled(console, "forward", _forward(profile))
    labelled(console, "limit", _limit(profile))
    labelled(console, "speed", [line for kernel in profile.kernels for line in _speed(kernel, profile)])
    for kernel in profile.kernels:
        render_counters((kernel,), console)
        labelled(console, "samples", _samples(kernel))
    labelled(console, "not checked", profile.notes)


def _headline(profile: Profile, console: Console) -> None:
    word = Text("PROFILE", style="bold cyan")
    hang(console, Text.assemble(word, "  "), Text(profile.candidate, style="bold"))
    device = profile.device
    name = f"the emulated device as {device.name}" if device.kind == "emulated" else device.name
    counted = "counters by ncu" if profile.counted_by == NCU else "counters by the emulated device"
    sizes = "".join(f", {constant}={value}" for constant, value in profile.sets.items())
    text = f"against {profile.problem}{sizes} on {name}, {counted}; {wording.seconds(profile.seconds)}"
    hang(console, Text(" " * (word.cell_len + 2)), Text(text, style="dim"))


def _reason(number: int, reason: Reason, profile: Profile, console: Console) -> None:
    several = len({kernel.kernel for kernel in profile.kernels}) > 1
    name = f"{_cut(short(reason.kernel))}: " if several else ""
    text = Text.assemble((name, "bold"), reason.sentence)
    if reason.cause:
        text.append(f"  [{reason.cause}]", style="dim")
    paragraph(console, text, indent=2, bullet=f"{number}.")
    if reason.place is not None and reason.place.text:
        paragraph(console, Text(f"{reason.place.line} | {reason.place.text}", style="dim"), indent=5)


def _forward(profile: Profile) -> Iterator[str]:
    if profile.forward_us is None:
        return
    yield f"{_us(profile.forward_us)} of kernels in one forward pass (PyTorch's profiler, warm caches)"
    for one in profile.trace[:MOST_TRACED]:
        times = f" in {wording.many(one.launches, 'launch', 'launches')}" if one.launches != 1 else ""
        yield f"{100 * one.share:5.1f} %  {_us(one.total_us)}{times}  {_cut(short(one.name))}"
    if len(profile.trace) > MOST_TRACED:
        yield f"and {wording.many(len(profile.trace) - MOST_TRACED, 'more kernel')}"


def _limit(profile: Profile) -> Iterator[str]:
    """The least time for what the problem demands, and how near the pass comes to it."""
    found = profile.limit
    if found is None:
        return
    share = found.fraction.get("forward")
    reached = f"; these kernels reach {100 * share:.1f} % of that speed" if share is not None else ""
    yield (
        f"{_us(1e3 * found.limit_ms)} by {limits.in_words(found.kind)} ({found.ceilings} ceilings), for "
        f"{wording.bytes_of(found.work.read_bytes)} in and {wording.bytes_of(found.work.written_bytes)} out{reached}"
    )


def _speed(kernel: KernelCounters, profile: Profile) -> Iterator[str]:
    """Time, bandwidth, arithmetic rate and pipes of one kernel beside the device's ceilings."""
    time = seconds(kernel)
    if time is None:
        return
    parts = [f"{_cut(short(kernel.kernel))}: {_us(1e6 * time / max(1, kernel.launches))} with cold caches"]
    moves = bandwidth(kernel, profile.ceilings)
    traffic = moved(kernel)
    if moves is not None and traffic is not None:
        share = f", {100 * moves.share:.1f} % of the {moves.source} {moves.ceiling} ceiling" if moves.share else ""
        read, written = (wording.bytes_of(count / max(1, kernel.launches)) for count in traffic)
        parts.append(f"{read} read and {written} written at {moves.gb_s:,.0f} GB/s{share}")
    computes = rate(kernel, profile.ceilings)
    # What does a thousandth of the arithmetic that the device can is not held against it.
    if computes is not None and (computes.share is None or computes.share >= 0.001):
        share = (
            f", {100 * computes.share:.1f} % of the {computes.source} {computes.unit} ceiling" if computes.share else ""
        )
        parts.append(f"{computes.tflop_s:.3g} TFLOP/s{share}")
    busy = [
        f"{name} {kernel.metrics[m]:.0f} %"
        for name, m in _PIPES.items()
        if kernel.metrics.get(m, 0.0) >= LEAST_PIPE_PCT
    ]
    if busy:
        parts.append(f"pipes busy: {', '.join(busy)}")
    if p.ACHIEVED in kernel.metrics:
        parts.append(f"occupancy reached {kernel.metrics[p.ACHIEVED]:.0f} %")
    if p.ISSUED in kernel.metrics:
        parts.append(f"schedulers issue in {kernel.metrics[p.ISSUED]:.0f} % of the cycles")
    yield "; ".join(parts)


def _samples(kernel: KernelCounters) -> Iterator[str]:
    """The lines at which the warps were when they were sampled, and what most of them did there."""
    total = sum(line.metrics.get(p.SAMPLES, 0.0) for line in kernel.lines)
    if not total:
        yield from _samples_of_all(kernel)
        return
    ordered = sorted(kernel.lines, key=lambda line: -line.metrics.get(p.SAMPLES, 0.0))
    for line in ordered[:MOST_LINES]:
        here = line.metrics.get(p.SAMPLES, 0.0)
        if 100 * here / total < LEAST_SAMPLES_PCT:
            break
        stall = max(p.STALLS, key=lambda s: line.metrics.get(s.metric, 0.0))
        mostly = 100 * line.metrics.get(stall.metric, 0.0) / here
        place = reading.own_frame(line)
        code = f"   {place.text}" if place.text else ""
        yield f"{100 * here / total:5.1f} %  {place.file}:{place.line}  {mostly:.0f} % of them {stall.words}{code}"


def _samples_of_all(kernel: KernelCounters) -> Iterator[str]:
    """The same of a kernel without lines: what its warps did when they were sampled."""
    total = kernel.metrics.get(p.SAMPLES, 0.0)
    if not total:
        return
    ordered = sorted(p.STALLS, key=lambda stall: -kernel.metrics.get(stall.metric, 0.0))
    for stall in ordered[:MOST_STALLS]:
        share = 100 * kernel.metrics.get(stall.metric, 0.0) / total
        if share < LEAST_SAMPLES_PCT:
            break
        yield f"{share:5.1f} %  {stall.words}"


def _us(value: float) -> str:
    """``1.902 ms``, ``2.66 us``."""
    return f"{value / 1000:.4g} ms" if value >= 100 else f"{value:.3g} us"


def _cut(name: str) -> str:
    return name if len(name) <= NAME_COLUMNS else name[: NAME_COLUMNS - 1] + "…"
