"""Smaller sizes for a problem: which constants change, and what of them stays."""

from __future__ import annotations

import pytest

from kernelwright.problem.smaller import smaller

pytestmark = pytest.mark.tiny


def test_sizes_shrink_step_by_step_and_keep_their_remainder() -> None:
    steps = list(smaller({"M": "2048", "K": "1048579", "EPS": "1e-5", "GROUPS": "8"}, ""))
    assert steps == [
        {"M": "1024", "K": "1027"},
        {"M": "256", "K": "259"},
        {"M": "64", "K": "67"},
    ]


def test_a_small_problem_only_takes_the_steps_below_it() -> None:
    assert list(smaller({"N": "600"}, "")) == [{"N": str(256 + 600 % 256)}, {"N": str(64 + 600 % 64)}]
    assert list(smaller({"N": "100"}, "")) == []


def test_a_number_that_the_candidate_relies_on_stays() -> None:
    steps = list(smaller({"M": "4096", "N": "8192"}, "constexpr int N = 8_192;  float x = 4096.5f;"))
    assert steps[0] == {"M": "1024"}


def test_expressions_and_other_literals_are_left_to_recompute() -> None:
    assert list(smaller({"A": "B * 2", "SHAPE": "(4096, 4096)", "ON": "True", "NAME": "'4096'"}, "")) == []
