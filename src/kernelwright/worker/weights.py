"""Whether two models' weights agree, from their tables alone.

Why: equal seeds give equal weights only where both constructors draw in one order; the supervisor must tell that from a
wrong kernel, and has no torch. The rule: names may differ, values may not.
"""

from __future__ import annotations

from typing import Any

Table = list[list[Any]]
"""``[name, shape, dtype, checksum]`` of each parameter and buffer, in the order of creation."""


def agree(ours: Table, theirs: Table) -> bool:
    """Whether two models hold the same values, by name or, under other names, in any order."""
    if ours == theirs:
        return True
    return sorted(row[1:] for row in ours) == sorted(row[1:] for row in theirs)


def why_not_loadable(candidate: Table, reference: Table) -> str:
    """Why the reference's state cannot be loaded into the candidate by name; empty where it can."""
    mine = {row[0]: row[1] for row in candidate}
    right = {row[0]: row[1] for row in reference}
    missing = [name for name in right if name not in mine]
    extra = [name for name in mine if name not in right]
    if missing or extra:
        parts = []
        if missing:
            parts.append(f"the candidate has no {', '.join(missing)}")
        if extra:
            parts.append(f"the reference has no {', '.join(extra)}")
        return "; ".join(parts)
    for name, shape in right.items():
        if mine[name] != shape:
            return f"{name} has shape {tuple(mine[name])}, the reference's {tuple(shape)}"
    return ""
