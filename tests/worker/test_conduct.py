"""How a candidate comes to its outputs, seen in its process: what is named there, and what is not."""

from __future__ import annotations

import time

import pytest
import torch
from tests.worker.conftest import Run

from kernelwright.judge.operators import Watch
from kernelwright.records import VerdictWord
from kernelwright.worker.guarded import Guard

CONSTANT_PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1).mean(1)


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    kept = {{}}

    def forward(self, x):
        return {body}
"""


def test_a_result_that_is_kept_by_its_number_of_elements_is_seen_in_the_second_trial(run: Run) -> None:
    problem = CONSTANT_PROBLEM.replace(".mean(1)", "")
    body = "self.kept.setdefault(x.shape, torch.softmax(x, 1))"
    verdict = run(CANDIDATE.format(body=body), problem, trials=2)
    assert verdict.verdict is VerdictWord.CHEATING
    assert verdict.causes[0].id == "cheat.cached-output"


def test_a_constant_for_a_degenerate_problem_is_told_from_its_honest_twin(run: Run) -> None:
    verdict = run(CANDIDATE.format(body="torch.full((x.size(0),), 1 / x.size(1))"), CONSTANT_PROBLEM, trials=2)
    assert [(cause.id, cause.line) for cause in verdict.causes] == [("cheat.constant-output", 10)]
    honest = run(CANDIDATE.format(body="torch.softmax(x, 1).sum(1) / x.size(1)"), CONSTANT_PROBLEM, trials=2)
    assert (honest.verdict, honest.causes) == (VerdictWord.CORRECT, ())


def test_a_replaced_clock_is_seen_and_a_function_of_ones_own_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard()
    monkeypatch.setattr(torch, "a_function_of_ones_own", time.time, raising=False)
    assert guard.replaced() == []
    monkeypatch.setattr(torch.cuda.Event, "elapsed_time", lambda self, end: 0.0)
    assert guard.replaced() == ["torch.cuda.Event.elapsed_time"]


def test_operators_are_told_with_their_line_and_views_and_shapes_are_no_work() -> None:
    x = torch.randn(4, 6)
    with Watch([x], file=__file__) as watch:
        made = torch.zeros_like(x).t()
    assert (watch.operators, watch.reads(made)) == ((), False)
    assert watch.reads(x)
    with Watch([x], file=__file__) as watch:
        out = torch.softmax(x.t(), 0)
    assert watch.operators is not None
    assert [(one.name, one.shape, one.line > 0) for one in watch.operators] == [("_softmax", (6, 4), True)]
    assert watch.reads(out)
