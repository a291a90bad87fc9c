"""The traced kernels of a few forward passes as a table: by name, longest first.

The rule: each figure is of one forward pass, the median of several; what differs between passes shows as a median, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
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


def shares(traced: Sequence[TracedKernel], times: Mapping[str, float]) -> dict[str, float]:
    """Each counted kernel's share of a forward pass; ``times`` are by name, in any unit, 0 where nobody timed.

    The trace and ncu spell lambdas and template arguments in different ways: kernels that no full name finds share what
    is left of their template's name, by their times.
    """
    if not traced:
        return {}
    plain = {_plain(one.name): one.share for one in traced}
    found = {name: plain[_plain(name)] for name in times if _plain(name) in plain}
    named = {_plain(name) for name in found}
    for template in {_template(name) for name in times if name not in found}:
        left = sum(share for name, share in plain.items() if name not in named and _template(name) == template)
        group = {name: time for name, time in times.items() if name not in found and _template(name) == template}
        whole = sum(group.values())
        found |= {name: left * (time / whole if whole else 1 / len(group)) for name, time in group.items()}
    return {name: found[name] for name in times}


def _template(name: str) -> str:
    """A kernel's plain name up to its template arguments."""
    return _plain(name).split("<", 1)[0]


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
