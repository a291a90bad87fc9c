"""Where a mismatch lies, said in the output's axes: rows, columns, every 32nd, the last block, the tail.

Why: "5 % of elements differ" helps nobody; "columns 1024-1087, the last 64" names a grid that is too small. The rule:
a pattern is stated only if it holds for every mismatch; otherwise the text says "scattered" and gives counts.
"""

from __future__ import annotations

import torch

STEPS = (2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Distances at which kernels go wrong regularly: vector widths, warps, blocks."""
LISTED = 6
"""Indices that are written out before a count takes over."""


def describe(mask: torch.Tensor) -> str:
    """The pattern of the true elements of a boolean ``mask`` of any shape; empty where there are none."""
    total = mask.numel()
    count = int(mask.sum())
    if count == 0:
        return ""
    if count == total:
        return "every element" if total > 1 else "the only element"
    if mask.dim() > 1:
        axes = [_any_along(mask, axis) for axis in range(mask.dim())]
        sizes = [int(axis.sum()) for axis in axes]
        product = 1
        for size in sizes:
            product *= size
        if product == count:
            return _axes(axes)
    flat = _indices(mask.reshape(-1), "elements" if mask.dim() == 1 else "elements in memory order")
    if flat:
        return flat
    if mask.dim() > 1:
        return _scattered_axes(axes, count, total)
    where = torch.nonzero(mask).flatten()
    return f"{_share(count, total)} scattered over elements {int(where[0])}-{int(where[-1])} of {total}"


def _share(count: int, total: int) -> str:
    if count > 0.98 * total:
        return f"all but {total - count} of {total} elements,"
    return f"{count} of {total} elements ({100 * count / total:.3g} %)"


def _any_along(mask: torch.Tensor, axis: int) -> torch.Tensor:
    """For each index of ``axis``: whether anything at it is set."""
    for other in reversed(range(mask.dim())):
        if other != axis:
            mask = mask.any(dim=other)
    return mask


def _axes(axes: list[torch.Tensor]) -> str:
    """The outer product of one index set for each axis."""
    parts: list[str] = []
    for axis, hit in enumerate(axes):
        name = {2: ("rows", "columns")}.get(len(axes), tuple(f"axis {n}:" for n in range(len(axes))))[axis]
        if bool(hit.all()):
            if hit.numel() > 1:
                parts.append(f"all of axis {axis}")
            continue
        text = _indices(hit, name)
        if not text:
            where = torch.nonzero(hit).flatten().tolist()
            listed = ", ".join(map(str, where[:LISTED])) + (", …" if len(where) > LISTED else "")
            text = f"{name} {listed} ({len(where)} of {hit.numel()})"
        parts.append(text if f"axis {axis}" in text else f"{text} of axis {axis}")
    # What restricts comes first, what is whole after it.
    parts.sort(key=lambda part: part.startswith("all of"))
    return "; ".join(parts)


def _indices(hit: torch.Tensor, name: str) -> str:
    """One index set as text; empty where it has no simple form."""
    size = hit.numel()
    where = torch.nonzero(hit).flatten()
    count = where.numel()
    first, last = int(where[0]), int(where[-1])
    singular = name.replace("rows", "row").replace("columns", "column").replace("elements", "element")
    if count == 1:
        return f"{singular} {first}" + (" (the last)" if first == size - 1 and size > 1 else "")
    if last - first + 1 == count:
        place = ""
        if last == size - 1:
            place = f", the last {count}"
        elif first == 0:
            place = f", the first {count}"
        return f"{name} {first}-{last}{place}"
    if count == 2:
        return f"{name} {first} and {last}"
    steps = where[1:] - where[:-1]
    step = int(steps[0])
    if bool((steps == step).all()):
        return f"{name} {first}, {first + step}, {first + 2 * step}, … (every {_ordinal(step)})"
    missing = torch.nonzero(~hit).flatten()
    if missing.numel() == 1:
        return f"all {name} but {int(missing[0])}"
    if missing.numel() > 2:
        gaps = missing[1:] - missing[:-1]
        gap = int(gaps[0])
        if gap > 1 and bool((gaps == gap).all()):
            start = int(missing[0])
            return f"all {name} but {start}, {start + gap}, {start + 2 * gap}, … (every {_ordinal(gap)} is right)"
    for period in STEPS:
        if period * 2 > size:
            break
        residues = torch.unique(where % period)
        expected = sum((size - int(r) + period - 1) // period for r in residues)
        if residues.numel() < period and expected == count:
            return f"{name} whose index modulo {period} is {_residues(residues.tolist())}"
    if int(missing[0]) == 0 or int(missing[-1]) == size - 1 or missing.numel() < count:
        low, high = int(missing[0]), int(missing[-1])
        if high - low + 1 == missing.numel():
            return f"all {name} but {low}-{high}"
    return ""


def _residues(values: list[int]) -> str:
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][1] + 1 == value:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _scattered_axes(axes: list[torch.Tensor], count: int, total: int) -> str:
    parts = [_share(count, total) + " scattered"]
    for axis, hit in enumerate(axes):
        number = int(hit.sum())
        if number < hit.numel():
            where = torch.nonzero(hit).flatten()
            name = {2: ("rows", "columns")}.get(len(axes), tuple(f"indices of axis {n}" for n in range(len(axes))))[
                axis
            ]
            text = _indices(hit, name)
            parts.append(text or f"within {number} of {hit.numel()} {name} ({int(where[0])}-{int(where[-1])})")
    return "; ".join(parts)


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
