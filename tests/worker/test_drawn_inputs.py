"""A check whose processes draw the inputs themselves: the same words as with inputs that were handed over."""

from __future__ import annotations

import pytest
from tests.worker.conftest import CANDIDATE, PROBLEM, Run

from kernelwright.records import VerdictWord


def test_a_right_candidate_is_correct_and_the_verdict_says_where_inputs_came_from(run: Run) -> None:
    for inputs, said in (("drawn", "drawn on the device"), ("handed", "on the CPU"), ("auto", "on the CPU")):
        verdict = run(CANDIDATE.format(body="pass"), inputs=inputs, trials=2)
        assert verdict.verdict is VerdictWord.CORRECT
        assert verdict.numerics is not None
        assert said in verdict.numerics.inputs


@pytest.mark.parametrize("inputs", ["drawn", "handed"])
def test_a_changed_input_is_named(run: Run, inputs: str) -> None:
    verdict = run(CANDIDATE.format(body="y = self.fc(x); x.zero_(); return torch.relu(y)"), inputs=inputs)
    assert verdict.verdict is VerdictWord.WRONG
    assert verdict.numerics is not None
    assert verdict.numerics.mutated == ("input 0",)


def test_a_reference_that_changes_its_input_allows_the_candidate_to(run: Run) -> None:
    problem = PROBLEM.replace("return torch.relu(self.fc(x))", "x.mul_(2); return torch.relu(self.fc(x))")
    verdict = run(CANDIDATE.format(body="x.mul_(2)"), problem, inputs="drawn")
    assert verdict.verdict is VerdictWord.CORRECT


def test_a_wrong_candidate_is_wrong(run: Run) -> None:
    verdict = run(CANDIDATE.format(body="x = x * 1.01"), inputs="drawn")
    assert verdict.verdict is VerdictWord.WRONG


def test_inputs_without_a_recipe_are_handed_over_and_the_verdict_says_why(run: Run) -> None:
    problem = PROBLEM.replace("torch.randn(32, N)", "torch.randn(32, N, generator=torch.Generator())")
    verdict = run(CANDIDATE.format(body="pass"), problem, inputs="drawn", trials=2)
    assert verdict.verdict is VerdictWord.CORRECT
    assert verdict.numerics is not None
    assert "on the CPU" in verdict.numerics.inputs
    assert [note for note in verdict.notes if "Generator" in note] == [
        "inputs are made on the CPU: an operation takes a Generator"
    ]


def test_a_candidate_whose_generator_gives_other_numbers_gets_them_handed_over(run: Run) -> None:
    candidate = CANDIDATE.format(body="pass") + "\ntorch.ops.aten.randn.default = torch.ops.aten.zeros.default\n"
    verdict = run(candidate, inputs="drawn", trials=2)
    assert verdict.verdict is VerdictWord.CORRECT
    assert any("draws others" in note for note in verdict.notes)
    assert verdict.numerics is not None
    assert "on the CPU" in verdict.numerics.inputs


def test_a_get_inputs_that_raises_only_when_drawn_is_no_fault_of_the_problems(run: Run) -> None:
    problem = PROBLEM.replace(
        "    return [torch.randn(32, N)]",
        "    from torch.overrides import _get_current_function_mode\n"
        "    assert _get_current_function_mode() is None, 'not here'\n"
        "    return [torch.randn(32, N)]",
    )
    verdict = run(CANDIDATE.format(body="pass"), problem, inputs="drawn")
    assert verdict.verdict is VerdictWord.CORRECT
    assert any("not here" in note for note in verdict.notes)
