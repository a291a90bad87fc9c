"""What was timed, in a few lines: the word, the figures, the limit, and what makes any of them doubtful.

Why: "1.21x" alone is a claim; beside its interval, its baseline and the limit it is a result. The rule: the candidate
first, then each baseline with the word about it, then the limit; UNSURE is never printed without its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kernelwright.measure import limits
from kernelwright.measure.records import CardSummary, Ceilings, Comparison, Contestant, Interval, Limit, Timing
from kernelwright.report import wording

_NAMES = {
    "eager": "PyTorch eager",
    "tf32": "PyTorch eager with TF32 (not fp32-accurate)",
    "compile": "torch.compile",
    "max-autotune": "torch.compile max-autotune",
}
CLOCKS_SHARE = 0.05
"""From here on what two events alone show is worth a line."""
_STOPPED = {
    "precise": "until each speed-up was known to a quarter of a per cent",
    "samples": "as many as were asked for",
    "budget": "until their time was up",
}


def timing_lines(timing: Timing | None) -> Iterator[str]:
    """Lines about ``timing``; none where nothing was timed."""
    if timing is None:
        return
    by_name = {contestant.name: contestant for contestant in timing.contestants}
    yield _figures("candidate", by_name["candidate"])
    for comparison in timing.comparisons:
        yield _comparison(comparison, by_name[comparison.baseline])
    own = by_name["candidate"].device.median
    if timing.empty_ms > CLOCKS_SHARE * own:
        yield f"the clock's own {_ms(timing.empty_ms)} is in each of these figures, {100 * timing.empty_ms / own:.0f} %"
    if timing.limit is not None:
        yield from _limit(timing.limit)
    marks = Counter(mark.value for sample in timing.samples for mark in sample.marks)
    marked = "".join(f", {wording.many(count, 'sample')} marked {mark}" for mark, count in sorted(marks.items()))
    until = _STOPPED.get(timing.stopped, timing.stopped)
    yield (f"{wording.many(timing.rounds, 'round')} in random order, {until}{marked}; inputs {timing.inputs}")
    yield _card(timing.card)
    if timing.unmet:
        yield f"required speed-up NOT shown: {timing.unmet}"
    yield from timing.notes


def ceilings_lines(ceilings: Ceilings) -> Iterator[str]:
    """One line a ceiling: what it is, at best and sustained, and what reached it."""
    for one in ceilings.ceilings.values():
        if one.unit == "ms":
            yield f"{one.name}: {1000 * one.best:.2f} us, {one.how}"
            continue
        late = f", {one.sustained:.4g} sustained" if one.sustained is not None else ""
        clock = f" at {one.sm_mhz} MHz" if one.sm_mhz else ""
        yield f"{one.name}: {one.best:.4g} {one.unit}{late}{clock}; {one.how}"


def _figures(name: str, one: Contestant) -> str:
    parts = [f"{name} {_interval(one.device)}"]
    if one.with_launch is not None:
        parts.append(f"{_ms(one.with_launch.median)} with its launch")
    if one.graph is not None:
        parts.append(f"{_ms(one.graph.median)} as a CUDA graph")
    elif one.graph_note and not one.cached and name == "candidate":
        parts.append(f"no CUDA graph: {one.graph_note}")
    if one.wrong:
        parts.append(f"{one.wrong} of {one.checked} timed outputs WRONG")
    elif one.checked and name == "candidate":
        parts.append(f"all {one.checked} timed outputs right")
    return ", ".join(parts)


def _comparison(comparison: Comparison, baseline: Contestant) -> str:
    speedup = comparison.speedup
    kept = ", timed earlier" if baseline.cached else ""
    reason = f" ({comparison.reason.value}: {comparison.sentence})" if comparison.word.value == "UNSURE" else ""
    return (
        f"{comparison.word.value} {speedup.median:.4g}x [{speedup.low:.4g}, {speedup.high:.4g}] against "
        f"{_figures(_NAMES.get(comparison.baseline, comparison.baseline), baseline)}{kept}{reason}"
    )


def _limit(limit: Limit) -> Iterator[str]:
    candidate = limit.fraction.get("candidate", 0.0)
    others = "".join(
        f", {_NAMES.get(name, name)} {100 * share:.1f} %"
        for name, share in limit.fraction.items()
        if name != "candidate"
    )
    yield (
        f"limit {_ms(limit.limit_ms)} by {limits.in_words(limit.kind)} ({limit.ceilings} ceilings): "
        f"the candidate reaches {100 * candidate:.1f} %{others}"
    )
    ways = "".join(f", {way} {_ms(time)}" for way, time in limit.arithmetic_ms.items())
    yield (
        f"its terms: memory {_ms(limit.memory_ms)} for {wording.bytes_of(limit.work.read_bytes)} in and "
        f"{wording.bytes_of(limit.work.written_bytes)} out{ways}, launch {_ms(limit.launch_ms)}"
    )


def _card(card: CardSummary) -> str:
    if not card.readings:
        return f"the card was not watched: {card.note}"
    low, middle, high = card.sm_mhz
    throttled = "".join(
        f", {reason} {100 * share:.0f} % of the time" for reason, share in card.throttle.items() if reason != "idle"
    )
    shared = f", {wording.many(card.others, 'other process', 'other processes')} on it" if card.others else ""
    return (
        f"{card.name}, driver {card.driver}: {low} to {high} MHz (median {middle}), {card.temperature_c[1]} degrees C, "
        f"{card.power_w[1]:.0f} W at most{throttled}{shared}"
    )


def _interval(one: Interval) -> str:
    return f"{_ms(one.median)} [{one.low:.4g}, {one.high:.4g}]"


def _ms(value: float) -> str:
    """``1.902 ms``, ``2.66 us``."""
    return f"{value:.4g} ms" if value >= 0.1 else f"{1000 * value:.3g} us"
