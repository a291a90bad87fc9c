"""Outputs of timed runs against the reference on contents made again."""

from __future__ import annotations

import math

import pytest
import torch

from kernelwright.measure.outputs import Outputs, within
from kernelwright.measure.pool import Pool

pytestmark = pytest.mark.tiny


def pool() -> Pool:
    return Pool(lambda: [torch.randn(16, 8)], seed=11, device="cpu")


def outputs(inputs: Pool, *, budget: int = 1 << 20) -> Outputs:
    return Outputs(inputs.contents, lambda x: x[0].sum(1), atol=1e-4, rtol=1e-4, budget_bytes=budget)


def test_right_outputs_pass_and_a_stale_one_is_found_in_its_round() -> None:
    inputs = pool()
    checked = outputs(inputs)
    for number in range(1, 5):
        right = inputs.take(number)[0].sum(1)
        checked.keep("candidate", number, number, right)
    checked.keep("candidate", 5, 5, inputs.contents(4)[0].sum(1))
    checked.settle()
    tally = checked.tallies["candidate"]
    assert (tally.checked, tally.wrong) == (5, 1)
    assert checked.wrong_rounds == {("candidate", 5)}
    assert tally.worst > 0.1


def test_an_output_buffer_that_the_candidate_uses_again_is_copied_in_time() -> None:
    inputs = pool()
    checked = outputs(inputs)
    buffer = torch.empty(16)
    for number in range(1, 4):
        torch.sum(inputs.take(number)[0], 1, out=buffer)
        checked.keep("candidate", number, number, buffer)
    checked.settle()
    assert checked.tallies["candidate"].wrong == 0


def test_a_full_budget_is_settled_at_once() -> None:
    inputs = pool()
    checked = outputs(inputs, budget=100)
    checked.keep("candidate", 0, 1, inputs.take(1)[0].sum(1))
    assert checked.tallies == {}
    checked.keep("candidate", 1, 2, inputs.take(2)[0].sum(1))
    assert checked.tallies["candidate"].checked == 2


@pytest.mark.parametrize(
    ("got", "expected", "good"),
    [
        ([1.0, 2.0], [1.0, 2.0002], True),
        ([1.0, 2.0], [1.0, 2.01], False),
        ([math.nan], [1.0], False),
        ([1.0], [math.nan], False),
        ([math.nan], [math.nan], True),
        ([math.inf], [math.inf], True),
        ([-math.inf], [math.inf], False),
        ([], [], True),
    ],
)
def test_nan_never_passes_for_a_number(got: list[float], expected: list[float], good: bool) -> None:
    assert within(torch.tensor(got), torch.tensor(expected), atol=1e-4, rtol=1e-4)[0] is good


def test_integers_may_differ_in_ties_only() -> None:
    right = torch.arange(10_000)
    few, many = right.clone(), right.clone()
    few[:5] += 1
    many[:500] += 1
    assert within(few, right, atol=0, rtol=0)[0]
    assert not within(many, right, atol=0, rtol=0)[0]


def test_another_shape_or_number_of_outputs_is_wrong() -> None:
    inputs = pool()
    checked = outputs(inputs)
    assert not checked.right(1, torch.zeros(8))[0]
    assert not checked.right(1, (torch.zeros(16), torch.zeros(16)))[0]
