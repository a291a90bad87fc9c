"""What is said of where a mismatch lies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelwright.judge.pattern import describe


def mask(*shape: int, at: Callable[[torch.Tensor], object]) -> torch.Tensor:
    made = torch.zeros(shape, dtype=torch.bool)
    at(made)
    return made


def put(*index: object) -> Callable[[torch.Tensor], object]:
    return lambda made: made.__setitem__(index if len(index) > 1 else index[0], True)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (mask(8, 8, at=lambda m: None), ""),
        (mask(8, 8, at=lambda m: m.fill_(True)), "every element"),
        (mask(128, 8, at=put(slice(0, None, 32))), "rows 0, 32, 64, … (every 32nd) of axis 0; all of axis 1"),
        (mask(4, 100, at=put(slice(None), slice(64, None))), "columns 64-99, the last 36 of axis 1; all of axis 0"),
        (mask(64, 8, at=put(slice(0, 16))), "rows 0-15, the first 16 of axis 0; all of axis 1"),
        (mask(64, 8, at=put(slice(5, 9), 3)), "rows 5-8 of axis 0; column 3 of axis 1"),
        (mask(64, 8, at=put(63)), "row 63 (the last) of axis 0; all of axis 1"),
        (mask(2, 3, 4, 4, at=put(slice(None), 1)), "axis 1: 1; all of axis 0; all of axis 2; all of axis 3"),
        (mask(1000, at=put(slice(768, None))), "elements 768-999, the last 232"),
        (mask(256, at=put(slice(1, None, 2))), "elements 1, 3, 5, … (every 2nd)"),
        (mask(256, at=lambda m: (m.fill_(True), m.__setitem__(slice(0, None, 32), False))),
         "all elements but 0, 32, 64, … (every 32nd is right)"),
        (mask(10, 10, at=lambda m: m.view(-1).__setitem__(slice(96, None), True)),
         "row 9 (the last) of axis 0; columns 6-9, the last 4 of axis 1"),
        (mask(10, 10, at=lambda m: m.view(-1).__setitem__(slice(86, None), True)),
         "elements in memory order 86-99, the last 14"),
        (mask(64, at=lambda m: m.view(8, 8)[:, 2:4].fill_(True)), "elements whose index modulo 8 is 2-3"),
    ],
)  # fmt: skip
def test_a_crafted_pattern_is_named(made: torch.Tensor, text: str) -> None:
    assert describe(made) == text


def test_what_has_no_pattern_is_called_scattered_with_its_share() -> None:
    torch.manual_seed(1)
    made = torch.rand(50, 50) < 0.1
    assert describe(made).startswith(f"{int(made.sum())} of 2500 elements")
    assert "scattered" in describe(made)
