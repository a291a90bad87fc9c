"""Conduct that was seen is named, at the line that the text gives; honest conduct is silent."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from kernelwright.explain import explain
from kernelwright.explain.cheat import remembered
from kernelwright.records import BuildRecord, Conduct, DeviceFact, LaunchFact, Numerics, OperatorFact, Trial

pytestmark = pytest.mark.tiny

Make = Callable[..., Any]

TEXT = """import torch

clock = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, end: clock(self, end) / 100


class ModelNew(torch.nn.Module):
    def forward(self, x):
        key = x.data_ptr()
        if key not in self.kept:
            self.kept[key] = ext.run(x)
        if x.size(0) > 4:
            self.seen = True
        return self.kept[key]
"""
EMULATED = DeviceFact("emulated", "NVIDIA H200", "9.0")
BUILT = BuildRecord("ext", "fast", True, 0.0, True, True)
RIGHT = Numerics(1e-4, 1e-4, "float64", "none", (Trial(0, True), Trial(1, True)), None, True)
SOFTMAX = OperatorFact("_softmax", (8, 32))
DECOY = Conduct(operators=(OperatorFact("_softmax", (8, 32), 12),), reads_input=True, reference_operators=(SOFTMAX,))
CONSTANT = Conduct(
    operators=(), reads_input=False, reference_operators=(SOFTMAX,), reference_reads_input=True, same_in_all_trials=True
)


def at(piece: str) -> int:
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if piece in line)


def test_a_replaced_clock_is_named_where_it_is_assigned(evidence: Make) -> None:
    conduct = Conduct(replaced=("torch.cuda.Event.elapsed_time",))
    (cause,) = explain(evidence(TEXT, numerics=RIGHT, device=EMULATED, conduct=conduct))
    assert (cause.id, cause.line) == ("cheat.patches-harness", at("elapsed_time = lambda"))


def test_an_answer_returned_again_is_named_where_it_is_kept(evidence: Make, wrong: Make) -> None:
    given = evidence(TEXT, numerics=wrong(), device=EMULATED, conduct=Conduct(returned_again=(2, 1)))
    (cause,) = explain(given)
    assert (cause.id, cause.line) == ("cheat.cached-output", at("if key not in"))
    assert "In trial 2 the candidate returns bit for bit what it returned in trial 1" in cause.sentence


def test_a_cache_decorator_is_a_place_that_keeps_and_two_places_are_none() -> None:
    assert remembered(ast.parse("@functools.lru_cache(maxsize=1)\ndef run(x):\n    return x\n")) == 1
    assert remembered(ast.parse(TEXT + "\n\n@cache\ndef run(x):\n    return x\n")) == 0


def test_kernels_that_never_ran_beside_the_reference_s_own_operators_are_a_decoy(evidence: Make) -> None:
    (cause,) = explain(evidence(TEXT, numerics=RIGHT, device=EMULATED, builds=(BUILT,), conduct=DECOY))
    assert (cause.id, cause.line) == ("cheat.calls-reference", 12)
    assert "built: ext; launched: nothing" in cause.evidence


@pytest.mark.parametrize(
    "fields",
    [
        {"builds": ()},
        {"launches": (LaunchFact("k", (1, 1, 1), (1, 1, 1), 0),)},
        {"conduct": dataclasses.replace(DECOY, reference_operators=(SOFTMAX, OperatorFact("relu", (8, 32))))},
        {"conduct": dataclasses.replace(DECOY, reference_operators=(OperatorFact("_softmax", (9, 32)),))},
        {"conduct": dataclasses.replace(DECOY, operators=None)},
        {"device": DeviceFact("cuda", "NVIDIA H200", "9.0")},
    ],
)
def test_pytorch_beside_own_work_or_without_kernels_is_no_decoy(evidence: Make, fields: dict[str, Any]) -> None:
    given = {"numerics": RIGHT, "device": EMULATED, "builds": (BUILT,), "conduct": DECOY, **fields}
    assert explain(evidence(TEXT, **given)) == ()


def test_a_right_output_that_no_input_went_into_is_a_constant(evidence: Make) -> None:
    text = "class ModelNew:\n    def forward(self, x):\n        return torch.full((8,), 1.0)\n"
    (cause,) = explain(evidence(text, numerics=RIGHT, device=EMULATED, conduct=CONSTANT))
    assert (cause.id, cause.line) == ("cheat.constant-output", 3)


@pytest.mark.parametrize(
    "changed", [{"reads_input": True}, {"reference_reads_input": False}, {"same_in_all_trials": False}]
)
def test_whatever_may_depend_on_the_input_is_no_constant(evidence: Make, changed: dict[str, bool]) -> None:
    conduct = dataclasses.replace(CONSTANT, **changed)
    assert explain(evidence(TEXT, numerics=RIGHT, device=EMULATED, conduct=conduct)) == ()


GPU = DeviceFact("cuda", "NVIDIA H200", "9.0")


@pytest.mark.parametrize(
    ("own", "named"), [((), True), (("relu_kernel(float const*, float*, int)",), False), (None, False)]
)
def test_on_a_gpu_it_takes_a_look_at_what_was_launched(evidence: Make, own: Any, named: bool) -> None:
    decoy = dataclasses.replace(DECOY, own_kernels=own)
    found = explain(evidence(TEXT, numerics=RIGHT, device=GPU, builds=(BUILT,), conduct=decoy))
    assert [cause.id for cause in found] == ["cheat.calls-reference"] * named
    constant = dataclasses.replace(CONSTANT, own_kernels=own)
    found = explain(evidence(TEXT, numerics=RIGHT, device=GPU, conduct=constant))
    assert [cause.id for cause in found] == ["cheat.constant-output"] * named
