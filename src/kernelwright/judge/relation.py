"""What the wrong values are to the right ones: a factor, an offset, zero, the opposite sign.

Why: "every mismatch is 2 times the expected value" names a doubled term at once. The rule: a relation is stated only
if every wrong, finite element obeys it far more tightly than chance allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

TIGHT = 1e-3
"""Relative spread below which a factor or offset counts as one: above float32 noise, below any two formulas."""
ENOUGH = 4
"""Elements needed: fewer always lie on a line."""


@dataclass
class Relation:
    """Fed with wrong elements; keeps extremes only, so that pieces of any size may come."""

    count: int = 0
    zeros: int = 0
    skipped: bool = False
    _ratio: tuple[float, float] = (math.inf, -math.inf)
    _offset: tuple[float, float] = (math.inf, -math.inf)
    _value: tuple[float, float] = (math.inf, -math.inf)
    _expected: tuple[float, float] = (math.inf, -math.inf)

    def add(self, got: torch.Tensor, expected: torch.Tensor) -> None:
        """Flat tensors of wrong elements; those that are not finite are left out."""
        if got.is_complex() or expected.is_complex():
            return
        finite = got.isfinite() & expected.isfinite()
        got, expected = got[finite], expected[finite]
        if not got.numel():
            return
        self.count += got.numel()
        self.zeros += int((got == 0).sum())
        self._value = _extremes(self._value, got)
        self._expected = _extremes(self._expected, expected)
        self._offset = _extremes(self._offset, got - expected)
        divisible = expected != 0
        if bool(divisible.all()):
            self._ratio = _extremes(self._ratio, got / expected)
        else:
            self._ratio = (-math.inf, math.inf)

    def sentence(self) -> str:
        """The relation, as the end of a sentence; empty where there is none."""
        if self.count < ENOUGH:
            return ""
        if self.zeros == self.count:
            return "; every wrong value is 0"
        varied = self._expected[1] - self._expected[0] > TIGHT * max(map(abs, self._expected))
        if self._value[0] == self._value[1] and varied:
            return f"; every wrong value is {self._value[0]:.6g}"
        ratio = _one(self._ratio)
        if ratio is not None and varied:
            return (
                "; every wrong value has the opposite sign"
                if abs(ratio + 1) < TIGHT
                else (f"; every wrong value is {ratio:.4g} times the expected one")
            )
        offset = _one(self._offset)
        if offset is not None and varied:
            return f"; every wrong value is the expected one {'plus' if offset > 0 else 'minus'} {abs(offset):.4g}"
        return ""


def _extremes(before: tuple[float, float], values: torch.Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(values)
    return min(before[0], float(low)), max(before[1], float(high))


def _one(extremes: tuple[float, float]) -> float | None:
    low, high = extremes
    middle = (low + high) / 2
    return middle if high - low <= TIGHT * abs(middle) else None
