"""A cell of ncu's CSV pages as a number in the base unit.

Why: ncu picks the unit by the value (us or ms, Kbyte or Mbyte), and writes thousands with commas. The rule: byte, ns
and Hz are the base units; a cell that holds no number is None, never 0.
"""

from __future__ import annotations

import re

_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNITS = (
    (re.compile(r"^([KMGT]?)byte(/.*)?$"), 1.0),
    (re.compile(r"^([KMGT]?)hz$", re.I), 1.0),
)
_TIMES = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}


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
