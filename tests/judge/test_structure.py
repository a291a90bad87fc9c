"""The form of the outputs."""

from __future__ import annotations

import pytest
import torch

from kernelwright.judge.structure import Structure, match

pytestmark = pytest.mark.tiny


def formed(out: object, reference: object, *, devices: list[str] | None = None, expected: str = "cpu") -> Structure:
    return match(out, reference, devices=devices or ["cpu"] * 9, expected_device=expected)


def test_equal_forms_have_no_facts_and_lists_are_tuples() -> None:
    x = torch.rand(3)
    form = formed([x, {"a": x}], (x, {"a": x}))
    assert [leaf.name for leaf in form.leaves] == ["output[0]", "output[1]['a']"]
    assert form.facts == ()


@pytest.mark.parametrize(
    ("out", "cause", "said"),
    [
        (torch.zeros(4, 6), "semantic.shape", "output has shape (4, 6), the reference's (4, 1, 6)"),
        (torch.zeros(4, 1, 6, dtype=torch.float16), "semantic.dtype", "output is float16, the reference's float32"),
        ((torch.zeros(4, 1, 6),), "semantic.shape",
         "the reference returns a tensor of shape (4, 1, 6), the candidate a tuple of 1"),
        (None, "semantic.shape", "the reference returns a tensor of shape (4, 1, 6), the candidate None"),
    ],
)  # fmt: skip
def test_another_form_is_a_fact(out: object, cause: str, said: str) -> None:
    (fact,) = formed(out, torch.zeros(4, 1, 6)).facts
    assert (fact.cause, fact.message) == (cause, said)


def test_an_output_on_the_host_is_a_fact_where_inputs_are_on_the_gpu() -> None:
    (fact,) = formed(torch.zeros(3), torch.zeros(3), devices=["cpu"], expected="cuda:0").facts
    assert fact.message == "output is on cpu, the inputs are on cuda:0"


def test_other_strides_are_a_note_and_values_of_another_shape_are_compared_all_the_same() -> None:
    form = formed(torch.zeros(4, 3).t(), torch.zeros(3, 4))
    assert form.facts == ()
    assert form.notes == ("output has strides (1, 3), the reference's (4, 1)",)
    assert formed(torch.zeros(12), torch.zeros(3, 4)).leaves[0].out.shape == (3, 4)
