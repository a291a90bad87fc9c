"""The table of variants: what candidates are known to compute in place of what the reference does.

Why: one row is one public kind of mistake, tried by experiment; see :mod:`kernelwright.judge.experiments`. The rule: of
variants that give the same outputs the one listed first is meant.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.judge.variants import arithmetic, conventions, layout
from kernelwright.judge.variants.variant import Call, Change, Offer

__all__ = ["STATISTICAL", "VARIANTS", "Call", "Change", "changes"]

VARIANTS: dict[str, Offer] = {
    "correction": conventions.correction,
    "other-gelu": conventions.other_gelu,
    "transposed-factor": layout.transposed_factor,
    "other-axis": layout.other_axis,
    "reduced-along-other": layout.reduced_along_other,
    "read-linearly": layout.read_linearly,
    "batch-statistics": conventions.batch_statistics,
    "started-from-zero": conventions.started_from_zero,
    "counted-padding": conventions.counted_padding,
    "flipped-kernel": conventions.flipped_kernel,
    "sum-for-mean": conventions.sum_for_mean,
    "left-out": arithmetic.left_out,
    "no-maximum": arithmetic.no_maximum,
    "naive-exponential": arithmetic.naive_exponential,
    "half-product": arithmetic.half_product,
    "rounded-operands": arithmetic.rounded_operands,
    "difference-of-squares": arithmetic.difference_of_squares,
}
"""Name to what it offers for a call."""

STATISTICAL = frozenset({"difference-of-squares"})
"""Variants that leave nothing but rounding errors, which depend on the order of sums: only their size can agree."""


def changes(call: Call) -> Iterator[Change]:
    """All ways to compute one call differently."""
    for offer in VARIANTS.values():
        try:
            offered = list(offer(call))
        # An overload whose arguments mean something else: there is nothing to try.
        except (TypeError, ValueError, IndexError, AttributeError, RuntimeError):
            continue
        yield from offered
