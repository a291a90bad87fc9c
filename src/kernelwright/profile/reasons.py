"""Why a kernel takes its time, in words with the figures that show it.

Why: a table of a hundred metrics leaves the reader to find the one that matters. The rule: each rule looks at one
thing, speaks only where its figures are there, and gives a weight between 0 and 1: the share of the kernel that it
concerns, as far as counters tell. No sentence says "probably".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from kernelwright.counters import metrics as m
from kernelwright.counters import reading
from kernelwright.counters.records import KernelCounters, LineCounters
from kernelwright.measure.records import Ceilings
from kernelwright.profile import metrics as p
from kernelwright.profile.records import Reason
from kernelwright.profile.roofline import bandwidth, rate
from kernelwright.sourceline import SourceLine

MOST_REASONS = 8
LEAST_WEIGHT = 0.05
"""Below it nothing is worth a line."""
STALL_SHARE = 0.15
"""Of a kernel's samples, from here on a line is named."""
BUSY_PCT = 60.0
"""From here on a pipe, or a bandwidth, is what the kernel runs into."""
LOW_OCCUPANCY_PCT = 50.0
CALM_PCT = 40.0
"""Schedulers that issue in fewer cycles than this have too few warps that are ready."""
FEW_THREADS = 24.0
"""Of 32 that take part in an instruction."""
TAKE_TURNS = frozenset({"atom", "red"})
"""Atomics of one warp on one address touch it once each: more sectors than bytes need, and none the worse aligned."""
HOT_ATOMICS = 1024
"""Atomics on one address in one launch."""

_CAUSES = {"global": "performance.uncoalesced", "shared": "performance.bank-conflicts"}

Rule = Callable[[KernelCounters, Ceilings | None], Iterator[Reason]]


def reasons(
    kernels: tuple[KernelCounters, ...], ceilings: Ceilings | None, shares: Mapping[str, float]
) -> tuple[Reason, ...]:
    """The reasons of all kernels, heaviest first; ``shares`` weigh kernels by their part of a forward pass."""
    found: list[tuple[float, Reason]] = []
    shares = shares or _own_shares(kernels)
    for kernel in kernels:
        share = shares.get(kernel.kernel, 0.0)
        said: set[tuple[SourceLine | None, str]] = set()
        for rule in _RULES:
            for reason in rule(kernel, ceilings):
                # A line whose stalls tell of its traffic already needs no second sentence.
                told = (reason.place, reason.cause)
                if reason.weight >= LEAST_WEIGHT and not (reason.place and reason.cause and told in said):
                    said.add(told)
                    found.append((reason.weight * share, reason))
    ordered = sorted(found, key=lambda item: -item[0])
    return tuple(reason for _, reason in ordered[:MOST_REASONS])


def _own_shares(kernels: tuple[KernelCounters, ...]) -> dict[str, float]:
    """Each kernel's part of the time that ncu saw; without times all weigh the same."""
    times = {kernel.kernel: 0.0 for kernel in kernels}
    for kernel in kernels:
        times[kernel.kernel] += kernel.metrics.get(p.TIME, 0.0)
    whole = sum(times.values())
    return {name: time / whole if whole else 1.0 for name, time in times.items()}


# ---- limits that are reached ---------------------------------------------------------------------------------------
def memory_bound(kernel: KernelCounters, ceilings: Ceilings | None) -> Iterator[Reason]:
    """Device memory is busy: what is left is to move less."""
    reached = bandwidth(kernel, ceilings)
    if reached is None or reached.share is None or 100 * reached.share < BUSY_PCT:
        return
    yield Reason(
        kernel.kernel,
        f"device memory is the limit: {reached.gb_s:,.0f} GB/s moved, {100 * reached.share:.0f} % of the "
        f"{reached.source} {reached.ceiling} ceiling of {reached.ceiling_gb_s:,.0f} GB/s",
        weight=min(1.0, reached.share),
    )


_PIPES = {
    p.LSU_PIPE: "the data pipe of L1 and shared memory is",
    p.TENSOR_PIPE: "the tensor cores are",
    p.FMA_PIPE: "the FMA pipe is",
    p.FP64_PIPE: "the fp64 pipe is",
    p.XU_PIPE: "the pipe of special functions is",
}


def pipe_bound(kernel: KernelCounters, ceilings: Ceilings | None) -> Iterator[Reason]:
    """An arithmetic pipe is busy."""
    for name, words in _PIPES.items():
        busy = kernel.metrics.get(name, 0.0)
        if busy < BUSY_PCT:
            continue
        reached = rate(kernel, ceilings)
        beside = ""
        if reached is not None and name != p.LSU_PIPE:
            beside = f", {reached.tflop_s:.3g} TFLOP/s"
        if beside and reached is not None and reached.share is not None:
            beside += (
                f", {100 * reached.share:.0f} % of the {reached.source} {reached.unit} ceiling of "
                f"{reached.ceiling_tflop_s:.4g}"
            )
        yield Reason(kernel.kernel, f"{words} busy in {busy:.0f} % of the cycles{beside}", weight=busy / 100)


# ---- where warps wait ----------------------------------------------------------------------------------------------
def stalls(kernel: KernelCounters, ceilings: Ceilings | None) -> Iterator[Reason]:
    """The lines at which most samples found warps waiting, with what they wait for and what that line moves."""
    total = kernel.metrics.get(p.SAMPLES, 0.0)
    if not total:
        return
    for line in kernel.lines:
        here = {s: line.metrics.get(s.metric, 0.0) for s in p.STALLS if s.column not in p.NOT_STALLED}
        if not any(here.values()):
            continue
        stall = max(here, key=lambda s: here[s])
        share = here[stall] / total
        if share < STALL_SHARE:
            continue
        place = reading.own_frame(line)
        worst = _wasted(line)
        moves = ""
        if worst is not None:
            taken, enough = _count(worst.per_request), _count(worst.ideal_per_request)
            moves = f"; {taken} {worst.unit} per request there, {enough} would do"
        wasted = (worst.units - worst.ideal) / worst.units if worst is not None else 0.0
        yield Reason(
            kernel.kernel,
            f"{100 * share:.0f} % of the stall samples are warps at {_at(place)} that {stall.words}{moves}",
            place=place,
            cause=_CAUSES[worst.space] if worst is not None else "",
            weight=min(1.0, max(share, wasted)),
        )


def _wasted(line: LineCounters) -> reading.Traffic | None:
    """What the line moves most of for nothing; None where it moves no more than it needs."""
    wasted = [one for one in reading.traffic(line.metrics) if one.excess_bytes > 0 and one.op not in TAKE_TURNS]
    return max(wasted, key=lambda one: one.excess_bytes, default=None)


# ---- traffic for nothing -------------------------------------------------------------------------------------------
def excess(kernel: KernelCounters, ceilings: Ceilings | None) -> Iterator[Reason]:
    """Lines that touch more sectors, or take more passes through the banks, than their bytes need."""
    totals = {
        space: sum(one.units for one in reading.traffic(kernel.metrics) if one.space == space) for space in _CAUSES
    }
    together: dict[tuple[SourceLine, str], list[reading.Traffic]] = {}
    for costly in reading.costly_lines(kernel):
        if costly.traffic.op in TAKE_TURNS:
            continue
        together.setdefault((costly.line, costly.traffic.space), []).append(costly.traffic)
    for (line, space), kinds in together.items():
        requests, units = sum(kind.requests for kind in kinds), sum(kind.units for kind in kinds)
        ideal = sum(kind.ideal for kind in kinds)
        share = (units - ideal) / max(totals[space], units)
        # What the banks lose matters as far as their pipe is busy, where that is known.
        used = kernel.metrics.get(p.LSU_PIPE, 100.0) / 100 if space == "shared" else 1.0
        yield Reason(
            kernel.kernel,
            f"{' and '.join(kind.words for kind in kinds)} at {_at(line)} take {_count(units / requests)} "
            f"{kinds[0].unit} a request, {_count(ideal / requests)} would do: {100 * share:.0f} % of the kernel's "
            f"{space} {kinds[0].unit} {'move' if space == 'global' else 'pass'} for nothing",
            place=line,
            cause=_CAUSES[space],
            weight=share * used,
        )


def private_memory(kernel: KernelCounters, ceilings: Ceilings | None) -> Iterator[Reason]:
    """Local memory: registers that spilled, or an array that a run-time index keeps out of them."""
    metrics = kernel.metrics
    local = sum(metrics.get(m.requests("local", op), 0.0) for op in m.LOCAL_OPS)
    if not local:
        return
    global_ = sum(metrics.get(m.requests("global", op), 0.0) for op in m.GLOBAL_OPS)
    code = kernel.code
    spilled = metrics.get(p.LOCAL_SPILLS, 0.0) > 0 or bool(code and code.spill_store_bytes)
    registers = f" at {metrics[m.REGISTERS]:.0f} registers a thread" if m.REGISTERS in metrics else ""
    what = f"registers spill{registers}" if spilled else "an array that a run-time index keeps there"
    yield Reason(
        kernel.kernel,
        f"{local:,.0f} warp requests of local memory beside {global_:,.0f} of global memory: {what}",
        cause="performance.spills" if spilled else "performance.local-array",
        weight=local / (local + global_),
    )


def atomics(kernel: KernelCounters, ceilings: Ceilings | None) -> Iterator[Reason]:
    """Atomics that wait for one another on few addresses."""
    metrics = kernel.metrics
    hottest, all_ = metrics.get(m.ATOMIC_HOTTEST, 0.0), metrics.get(m.ATOMICS, 0.0)
    if hottest >= HOT_ATOMICS and all_:
        yield Reason(
            kernel.kernel,
            f"{all_:,.0f} global atomics go to {metrics.get(m.ATOMIC_ADDRESSES, 0):,.0f} addresses, {hottest:,.0f} of "
            f"them to one in one launch, where they wait for one another",
            cause="performance.atomics",
            weight=min(1.0, hottest * max(1, kernel.launches) / all_),
        )
        return
    requests = {op: metrics.get(m.requests("global", op), 0.0) for op in m.GLOBAL_OPS}
    theirs = requests["atom"] + requests["red"]
    issued = metrics.get(p.ISSUED)
    # ncu does not tell addresses; schedulers that hardly issue beside many atomics do.
    if theirs and issued is not None and issued < 5 and theirs >= 0.2 * sum(requests.values()):
        yield Reason(
            kernel.kernel,
            f"{theirs:,.0f} warp requests of global atomics, and the schedulers issue in {issued:.1f} % of the cycles: "
            f"the atomics wait for one another",
            cause="performance.atomics",
            weight=theirs / sum(requests.values()),
        )


# ---- too few at work -----------------------------------------------------------------------------------------------
def occupancy(kernel: KernelCounters, ceilings: Ceilings | None) -> Iterator[Reason]:
    """Warps that fit a multiprocessor, and what keeps more out."""
    metrics = kernel.metrics
    possible = metrics.get(m.OCCUPANCY)
    if possible is None:
        return
    # A product on the tensor cores needs few warps: where a pipe or the memory is busy, more of them would not help.
    if next(pipe_bound(kernel, ceilings), None) or next(memory_bound(kernel, ceilings), None):
        return
    issued = metrics.get(p.ISSUED)
    if possible <= LOW_OCCUPANCY_PCT and (issued is None or issued < CALM_PCT):
        limits = reading.limited_by(metrics)
        blocks = min((metrics[name] for name in reading.LIMITS if name in metrics), default=0.0)
        details = [f"{blocks:.0f} block{'s' * (blocks != 1)} of {math.prod(kernel.block)} threads fit a multiprocessor"]
        if "registers" in limits and m.REGISTERS in metrics:
            details.insert(0, f"{metrics[m.REGISTERS]:.0f} registers a thread")
        if "shared memory" in limits:
            shared = metrics.get(m.SHARED_STATIC, 0.0) + metrics.get(m.SHARED_DYNAMIC, 0.0)
            details.insert(0, f"{shared:,.0f} bytes of shared memory a block")
        active = metrics.get(p.ACHIEVED)
        reached = f"; {active:.0f} % was reached" if active is not None else ""
        calm = f", and the schedulers issue in {issued:.0f} % of the cycles" if issued is not None else ""
        yield Reason(
            kernel.kernel,
            f"{' and '.join(limits)} limit{'s' * (len(limits) == 1 and not limits[0].endswith('s'))} occupancy to "
            f"{possible:.0f} %: {', '.join(details)}{reached}{calm}",
            cause="performance.low-parallelism",
            weight=0.5 * (1 - possible / 100),
        )
    elif p.ACHIEVED in metrics and metrics[p.ACHIEVED] < 0.6 * possible and (issued or 0.0) < CALM_PCT:
        yield Reason(
            kernel.kernel,
            f"occupancy reaches {metrics[p.ACHIEVED]:.0f} % of the warps where {possible:.0f} % fit: blocks are few, "
            f"short or of unequal length",
            cause="performance.low-parallelism",
            weight=0.5 * (1 - metrics[p.ACHIEVED] / possible),
        )


def waves(kernel: KernelCounters, ceilings: Ceilings | None) -> Iterator[Reason]:
    """How often the blocks fill the device, and how empty the last time is."""
    filled = kernel.metrics.get(m.WAVES)
    blocks = math.prod(kernel.grid)
    if not filled:
        return
    if filled < 1:
        yield Reason(
            kernel.kernel,
            f"{'1 block fills' if blocks == 1 else f'{blocks:,} blocks fill'} {100 * filled:.0f} % of the device once: "
            f"the rest of it idles",
            cause="performance.low-parallelism",
            weight=1 - filled,
        )
        return
    whole = math.ceil(filled)
    yield Reason(
        kernel.kernel,
        f"tail: {blocks:,} blocks fill the device {filled:.3g} times, so in the last of {whole} waves "
        f"{100 * (whole - filled):.0f} % of it idle",
        cause="performance.low-parallelism",
        weight=(whole - filled) / whole,
    )


def imbalance(kernel: KernelCounters, ceilings: Ceilings | None) -> Iterator[Reason]:
    """Multiprocessors that are done long before the last one."""
    mean, most = kernel.metrics.get(p.ACTIVE_MEAN), kernel.metrics.get(p.ACTIVE_MOST)
    if mean and most and mean < 0.8 * most:
        yield Reason(
            kernel.kernel,
            f"multiprocessors are active for {mean:,.0f} cycles on average, the longest for {most:,.0f}: the work is "
            f"not spread evenly",
            cause="performance.low-parallelism",
            weight=1 - mean / most,
        )


def divergence(kernel: KernelCounters, ceilings: Ceilings | None) -> Iterator[Reason]:
    """Instructions that few threads of a warp take part in."""
    threads = kernel.metrics.get(m.THREADS_PER_INST)
    if threads is not None and threads < FEW_THREADS:
        yield Reason(
            kernel.kernel,
            f"{threads:.1f} of 32 threads take part in an instruction: the others wait for them",
            weight=1 - threads / 32,
        )


_RULES: tuple[Rule, ...] = (
    memory_bound, pipe_bound, stalls, excess, private_memory, atomics, occupancy, waves, imbalance, divergence,
)  # fmt: skip


def _at(place: SourceLine) -> str:
    return f"{place.file}:{place.line}"


def _count(value: float) -> str:
    """``32``, ``4``, ``8.4``."""
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"
