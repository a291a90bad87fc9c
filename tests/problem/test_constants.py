"""``--set`` replaces module-level constants in the syntax tree and nothing else."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from kernelwright.errors import UsageError
from kernelwright.problem.constants import constants, replace

pytestmark = pytest.mark.tiny

SOURCE = """
M = 2048
K: int = 512
A, B = 3, 4
P = Q = 7
C, D = divmod(17, 5)
M2 = M * 2
N = 1
N += 1


def where():
    return __import__("sys")._getframe().f_lineno
"""


def run(source: str, **sets: str) -> dict[str, Any]:
    """Names of ``source`` after running it with ``sets``."""
    names: dict[str, Any] = {}
    exec(compile(replace(ast.parse(source), sets, file="problem.py"), "problem.py", "exec"), names)
    return names


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("M", "16", 16),
        ("K", "8", 8),
        ("A", "30", 30),
        ("B", "-1", -1),
        ("P", "9", 9),
        ("D", "0.5", 0.5),
        ("N", "100", 100),
        ("M", "(1, 2)", (1, 2)),
        ("M", "'gelu'", "gelu"),
    ],
)
def test_each_form_of_assignment_takes_the_value_and_leaves_its_neighbours(name: str, text: str, value: object) -> None:
    plain, changed = run(SOURCE), run(SOURCE, **{name: text})
    assert changed[name] == value
    others = {"M", "K", "A", "B", "P", "Q", "C", "D", "N"} - {name}
    assert {other: changed[other] for other in others} == {other: plain[other] for other in others}


def test_derived_constants_recompute_and_lines_keep_their_numbers() -> None:
    changed = run(SOURCE, M="10", D="9", N="5")
    assert changed["M2"] == 20
    assert changed["where"]() == run(SOURCE)["where"]()


def test_an_unknown_constant_is_refused_with_the_list_of_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"problem\.py has no constant Z") as caught:
        run(SOURCE, Z="1")
    assert "M=2048, K=512, A=3, B=4, P=7, Q=7" in caught.value.hint


@pytest.mark.parametrize("text", ["M * 2", "open('x')", "1 +", ""])
def test_a_value_that_is_no_literal_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no Python literal"):
        run(SOURCE, M=text)


def test_constants_are_listed_in_order_with_their_sources() -> None:
    assert list(constants(ast.parse("B = 2\nA: int = B * 3\nX, Y = 1, 2\n")).items()) == [
        ("B", "2"),
        ("A", "B * 3"),
        ("X", "1"),
        ("Y", "2"),
    ]
