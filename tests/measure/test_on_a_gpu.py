"""The timing process on a real GPU: honest candidates get their word, cheating ones never a win."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.measure import ceilings
from kernelwright.measure.plan import MeasurePlan
from kernelwright.measure.records import ComparisonWord, Reason, Timing
from kernelwright.measure.run import run
from kernelwright.worker.supervisor import Supervisor

CHEATS = Path(__file__).parent / "cheats"
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


def timed(name: str, *, samples: int = 40) -> Timing:
    candidate = CHEATS / f"{name}.py"
    plan = MeasurePlan(
        problem=CHEATS / "problem.py",
        candidate=candidate,
        text=candidate.read_text(),
        problem_text=(CHEATS / "problem.py").read_text(),
        samples=samples,
    )
    with Supervisor() as supervisor:
        return run(supervisor, plan, lambda words: None)


def test_a_twin_of_the_reference_is_the_same() -> None:
    timing = timed("honest")
    (comparison,) = timing.comparisons
    assert comparison.word is ComparisonWord.SAME, comparison
    candidate = next(c for c in timing.contestants if c.name == "candidate")
    assert candidate.checked == timing.rounds
    assert candidate.wrong == 0
    assert candidate.graph is not None, candidate.graph_note
    assert timing.card.readings > 5
    assert timing.limit is not None
    assert 0.05 < timing.limit.fraction["candidate"] <= 1.02


def test_each_ceiling_is_measured_in_its_unit() -> None:
    found = ceilings.measure().ceilings
    units = {"read": "GB/s", "write": "GB/s", "copy": "GB/s", "l2": "GB/s", "launch": "ms", "int8": "TOP/s"}
    units |= dict.fromkeys(("fp64", "fp32", "tf32", "bf16", "fp16"), "TFLOP/s")
    assert {name: found[name].unit for name in units} == units
    assert all(0 < one.best < float("inf") for one in found.values())


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("side_stream", {Reason.CLOCKS_DISAGREE, Reason.OUTPUT_WRONG}),
        ("remembers", {Reason.OUTPUT_WRONG}),
        ("patches_clock", {Reason.TAMPERED}),
        ("slows_baseline", {Reason.TAMPERED}),
    ],
)
def test_a_cheat_is_never_a_win_and_its_trick_is_named(name: str, reasons: set[Reason]) -> None:
    (comparison,) = timed(name).comparisons
    assert comparison.word is not ComparisonWord.FASTER, comparison
    assert comparison.reason in reasons, comparison
