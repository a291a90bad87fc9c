"""Checks the outputs of the timed runs themselves against the reference on the same inputs.

Why: a candidate can be right in the trials and skip the work while it is timed. The rule: a copy of each timed output
is kept until the run is over (or memory is short), and only then is the reference computed on contents made anew: while
a candidate is timed, the answers to its inputs exist nowhere in the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.measure.pool import tensors
from kernelwright.worker.tree import map_tensors

TWICE = 2.0
"""Candidate and reference may each be one tolerance away from the oracle, hence two from each other."""
PIECE = 1 << 24
"""Elements compared at once."""
TIES = 1e-3
"""Share of an integer output that may differ: where rounding decides, as in an argmax of equal values."""


@dataclass
class Tally:
    """What was found for one contestant."""

    checked: int = 0
    wrong: int = 0
    worst: float = 0.0
    """Largest difference over the largest magnitude of the reference's output."""


class Outputs:
    """Keeps outputs up to ``budget_bytes`` and compares them with ``reference(contents(number))``."""

    def __init__(
        self,
        contents: Callable[[int], list[Any]],
        reference: Callable[[list[Any]], Any],
        *,
        atol: float,
        rtol: float,
        budget_bytes: int,
    ) -> None:
        self._contents, self._reference = contents, reference
        self._atol, self._rtol, self._budget = atol, rtol, budget_bytes
        self._kept: list[tuple[str, int, int, Any]] = []
        self._bytes = 0
        self.tallies: dict[str, Tally] = {}
        self.wrong_rounds: set[tuple[str, int]] = set()

    def keep(self, contestant: str, round: int, number: int, value: Any) -> None:
        """Keep a copy of the output of run ``number``; compares all that is kept once the budget is used up."""
        copied = map_tensors(value, lambda t: t.detach().clone())
        self._kept.append((contestant, round, number, copied))
        self._bytes += sum(t.numel() * t.element_size() for t in tensors(copied))
        if self._bytes >= self._budget:
            self.settle()

    def settle(self) -> None:
        """Compare and drop everything that is kept."""
        for contestant, round, number, value in self._kept:
            tally = self.tallies.setdefault(contestant, Tally())
            good, error = self.right(number, value)
            tally.checked += 1
            tally.wrong += not good
            # NaN, too, must become the worst.
            tally.worst = error if not error <= tally.worst else tally.worst
            if not good:
                self.wrong_rounds.add((contestant, round))
        self._kept, self._bytes = [], 0

    def right(self, number: int, value: Any) -> tuple[bool, float]:
        """Whether ``value`` is the output of run ``number``, and its relative error."""
        expected = tensors(self._reference(self._contents(number)))
        got = tensors(value)
        if len(got) != len(expected):
            return False, float("inf")
        good, worst = True, 0.0
        for mine, right in zip(got, expected, strict=True):
            if mine.shape != right.shape:
                return False, float("inf")
            fits, error = within(mine, right, atol=TWICE * self._atol, rtol=TWICE * self._rtol)
            good = good and fits
            worst = error if not error <= worst else worst
        return good, worst


def within(got: torch.Tensor, expected: torch.Tensor, *, atol: float, rtol: float) -> tuple[bool, float]:
    """Whether every element of ``got`` is near ``expected``, and the largest difference over the largest magnitude.

    NaN equals NaN and nothing else; equal infinities are equal. Integers and booleans may differ in ties only.
    """
    if got.numel() == 0:
        return True, 0.0
    mine, right = got.reshape(-1), expected.to(got.device).reshape(-1)
    if not (right.is_floating_point() or right.is_complex()):
        share = float((mine != right).float().mean())
        return share <= TIES, share
    good, largest, magnitude = True, 0.0, 0.0
    for start in range(0, mine.numel(), PIECE):
        a, b = _wide(mine[start : start + PIECE]), _wide(right[start : start + PIECE])
        same = (a == b) | (a.isnan() & b.isnan())
        error = torch.where(same, torch.zeros((), dtype=torch.float64, device=a.device), (a - b).abs())
        # A tolerance relative to an infinity would let anything pass.
        near = (error <= atol + rtol * b.abs()) & b.isfinite()
        good = good and bool((same | near).all())
        largest = max(largest, float(torch.nan_to_num(error, float("inf"), float("inf")).max()))
        magnitude = max(magnitude, float(torch.nan_to_num(b.abs(), 0.0, 0.0).max()))
    return good, largest / magnitude if magnitude else largest


def _wide(piece: torch.Tensor) -> torch.Tensor:
    return piece.to(torch.complex128) if piece.is_complex() else piece.double()
