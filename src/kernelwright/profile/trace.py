"""The traced kernels of a few forward passes as a table: by name, longest first.

The rule: each figure is of one forward pass, the median of several; what differs between passes shows as a median, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from kernelwright.profile.records import TracedKernel

Pass = Sequence[tuple[str, float]]
"""Name and microseconds of each kernel of one forward pass."""


def table(passes: Sequence[Pass]) -> tuple[TracedKernel, ...]:
    """Each name with its launches, its time and its share of all kernels' time."""
    times: dict[str, list[float]] = defaultdict(list)
    counts: dict[str, list[int]] = defaultdict(list)
    for name in {name for one in passes for name, _ in one}:
        for one in passes:
            mine = [time for other, time in one if other == name]
            times[name].append(sum(mine))
            counts[name].append(len(mine))
    totals = {name: median(values) for name, values in times.items()}
    whole = sum(totals.values())
    made = [
        TracedKernel(name, round(median(counts[name])), total, total / whole if whole else 0.0)
        for name, total in totals.items()
    ]
    return tuple(sorted(made, key=lambda one: (-one.total_us, one.name)))


def forward_us(passes: Sequence[Pass]) -> float | None:
    """All kernels of one forward pass together, its median; None without a pass."""
    return median(sum(time for _, time in one) for one in passes) if passes else None


def shares(traced: Sequence[TracedKernel], names: Sequence[str]) -> dict[str, float]:
    """Each of ``names``'s share of a forward pass; the trace and ncu spell a name with other blanks and brackets."""
    plain = {_plain(one.name): one.share for one in traced}
    return {name: plain.get(_plain(name), 0.0) for name in names} if traced else {}


def _plain(name: str) -> str:
    """A name without what differs between demanglers: the parameters, ``void``, blanks, ``(int)`` before a number."""
    head = name.removeprefix("void ").split("(anonymous namespace)::")
    text = "".join(head)
    depth, end = 0, len(text)
    for place, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            end = place
            break
    kept = text[:end]
    for cast in ("(int)", "(bool)", "(unsigned int)", "(long)", "(unsigned long)", "(unnamed)"):
        kept = kept.replace(cast, "")
    return kept.replace(" ", "").replace("true", "1").replace("false", "0")
