"""What a problem may do: a sentence with an exit status, and nothing is left behind."""

from __future__ import annotations

import pytest
from tests.worker.conftest import CANDIDATE, PROBLEM, Run

from kernelwright.errors import KernelwrightError, MachineError, MissingFile, ProblemError, UsageError
from kernelwright.records import VerdictWord

RIGHT = CANDIDATE.format(body="pass")


@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [
        ("return [torch.randn(32, N)]", "raise ValueError('no luck')", ProblemError,
         r"problem.py, line 18: get_inputs\(\) raises ValueError: no luck"),
        ("return [torch.randn(32, N)]", "return 5", ProblemError, r"get_inputs\(\) returned a int, not a list"),
        ("return [torch.randn(32, N)]", "return [open]", ProblemError, "cannot be handed to a candidate"),
        ("return torch.relu(self.fc(x))", "return torch.relu(self.fc(x.t()))", ProblemError,
         r"line 14: the reference's forward\(\) raises RuntimeError: mat1 and mat2"),
        ("return [N]", "import os; os._exit(3)", ProblemError,
         r"its process ended \(exit status 3\) in get_init_inputs"),
        ("N = 16", "N = 1 / 0", ProblemError, "line 5: the problem file raises ZeroDivisionError"),
        ("return [torch.randn(32, N)]", "while True: pass", ProblemError, r"get_inputs\(\) did not end within 2 s"),
        ("return [torch.randn(32, N)]", "return [torch.ones(250_000_000_000)]", (ProblemError, MachineError), "memory"),
        ("class Model(", "class Modell(", UsageError, "defines no Model"),
    ],
)  # fmt: skip
def test_a_broken_problem_is_a_sentence(
    run: Run, old: str, new: str, error: type[KernelwrightError], said: str
) -> None:
    assert old in PROBLEM
    with pytest.raises(error, match=said):
        run(RIGHT, PROBLEM.replace(old, new), timeout_s=2.0)


def test_a_wrong_set_is_refused_before_anything_runs(run: Run) -> None:
    with pytest.raises(UsageError, match="has no constant M") as caught:
        run(RIGHT, sets={"M": "4"})
    assert caught.value.hint == "its constants: N=16"


def test_set_changes_both_input_and_constructor(run: Run) -> None:
    verdict = run(RIGHT, sets={"N": "5"})
    assert verdict.verdict is VerdictWord.CORRECT


def test_a_missing_candidate_is_named(run: Run, tmp_path: object) -> None:
    from pathlib import Path

    from kernelwright.check import CheckOptions, check

    run(RIGHT)
    here = Path(str(tmp_path))
    with pytest.raises(MissingFile, match=r"candidate .* does not exist"):
        check(here / "problem.py", here / "nowhere.py", options=CheckOptions(device="host"), progress=print)


def test_a_reference_with_dropout_leaves_the_verdict_open(run: Run) -> None:
    problem = PROBLEM.replace("return torch.relu(self.fc(x))", "return torch.dropout(self.fc(x), 0.5, True)")
    verdict = run(RIGHT, problem)
    assert verdict.verdict is VerdictWord.UNSURE
    assert any("draws random numbers" in note for note in verdict.notes)


def test_a_reference_that_changes_its_input_allows_the_candidate_to(run: Run) -> None:
    problem = PROBLEM.replace("return torch.relu(self.fc(x))", "x.mul_(2); return torch.relu(self.fc(x))")
    verdict = run(CANDIDATE.format(body="x.mul_(2)"), problem)
    assert verdict.numerics is not None
    assert verdict.numerics.mutated == ()


def test_nested_outputs_and_mixed_inputs_cross(run: Run) -> None:
    problem = """
    import torch
    class Model(torch.nn.Module):
        def forward(self, xs, scale, flags):
            return {"a": [xs[0] * scale, xs[1] & flags], "b": (xs[0].bfloat16(), 3)}
    def get_inputs():
        return [(torch.randn(4, 6).t(), torch.ones(3, dtype=torch.bool)), 2.5, torch.tensor([True, False, True])]
    def get_init_inputs():
        return []
    """
    verdict = run(problem.replace("class Model(", "class ModelNew("), problem)
    assert verdict.verdict is VerdictWord.CORRECT
    assert verdict.numerics is not None
    names = [output.output for output in verdict.numerics.trials[0].outputs]
    assert names == ["output['a'][0]", "output['a'][1]", "output['b'][0]", "output['b'][1]"]


@pytest.mark.parametrize(
    ("first", "second", "weights", "word"),
    [
        ("self.fc = nn.Linear(n, 8)", "self.other = nn.Linear(8, 8)", "rng", VerdictWord.CORRECT),
        ("self.other = nn.Linear(8, 8)", "self.fc = nn.Linear(n, 8)", "state_dict", VerdictWord.WRONG),
        ("self.bb = nn.Linear(8, 8)", "self.fc = nn.Linear(n, 8)", "differ", VerdictWord.WRONG),
    ],
)
def test_weights_that_other_creation_order_gives_are_found_out(
    run: Run, first: str, second: str, weights: str, word: VerdictWord
) -> None:
    create = "self.fc = nn.Linear(n, 8)"
    problem = PROBLEM.replace(create, f"{create}\n        self.other = nn.Linear(8, 8)")
    candidate = RIGHT.replace(create, f"{first}\n        {second}")
    verdict = run(candidate, problem)
    assert verdict.numerics is not None
    assert (verdict.numerics.weights, verdict.verdict) == (weights, word)
    if weights == "differ":
        assert verdict.numerics.weights_note == (
            "the candidate has no other.weight, other.bias; the reference has no bb.weight, bb.bias"
        )


def test_a_reference_that_raises_where_the_candidate_raises_too_is_the_problem_s_fault(run: Run) -> None:
    """Otherwise a wrong --set would be told as the candidate's failure."""
    with pytest.raises(ProblemError, match=r"the reference's forward\(\) raises RuntimeError: mat1 and mat2"):
        run(
            CANDIDATE.format(body="raise ValueError('no luck')"),
            PROBLEM.replace("return torch.relu(self.fc(x))", "return torch.relu(self.fc(x.t()))"),
        )
