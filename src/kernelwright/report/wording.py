"""Numbers and places as people read them.

Why: the same size or duration must look the same in every line of every rendering. The rule: a unit with every number,
three significant digits, and no number without its meaning.
"""

from __future__ import annotations

import math

from kernelwright.explain.access import kernel
from kernelwright.records import LaunchFact


def seconds(value: float) -> str:
    """``0.31 s``, ``12.4 s``, ``3 min 5 s``."""
    if value < 0.995:
        return f"{value:.2f} s"
    if value < 99.5:
        return f"{value:.1f} s"
    return f"{int(value + 0.5) // 60} min {int(value + 0.5) % 60} s"


def bytes_of(value: float) -> str:
    """``512 B``, ``48 KiB``, ``1.5 MiB``."""
    size, unit = float(value), 0
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    while abs(size) >= 1024 and unit < len(units) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.4g} {units[unit]}"


def error(value: float) -> str:
    """An error such as ``3.58e-07``; exact zero is ``0``, NaN and infinities are named."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return "0" if value == 0 else f"{value:.3g}"


def many(count: int, one: str, several: str = "") -> str:
    """``1 launch``, ``3 launches``: ``several`` is ``one`` + "s" unless given."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def shape(sizes: tuple[int, ...]) -> str:
    """``512 x 512``; ``scalar`` without axes."""
    return " x ".join(str(size) for size in sizes) or "scalar"


def launch(fact: LaunchFact) -> str:
    """``kernel<<<(64,1,1), (256,1,1)>>>``, with the dynamic shared memory where there is any."""
    grid, block = (f"({','.join(str(n) for n in sizes)})" for sizes in (fact.grid, fact.block))
    dynamic = f", {fact.dynamic_shared_bytes} B" if fact.dynamic_shared_bytes else ""
    return f"{kernel(fact.kernel)}<<<{grid}, {block}{dynamic}>>>"


def scaled(value: float) -> str:
    """``812``, ``1.2 thousand``, ``3.4 million``, ``5.6 billion``."""
    for limit, word in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if value >= limit:
            return f"{value / limit:.3g} {word}"
    return f"{value:.0f}"
