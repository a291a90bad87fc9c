"""One trial's judgement: structure, comparison with the oracle, precision grade, impostors.

Why: the oracle's process holds the inputs, the reference and the candidate's outputs of one trial at a time; this is
what it does with them. The rule: everything streams over the oracle's pieces, so that no second whole copy exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.judge import precision
from kernelwright.judge.compare import Tally
from kernelwright.judge.oracle import NotRows, Oracle, Reference
from kernelwright.judge.structure import Leaf, Structure, match
from kernelwright.records import OutputFact, OutputNumerics, Precision


@dataclass(frozen=True)
class Judgement:
    """What one trial's outputs are worth."""

    outputs: tuple[OutputNumerics, ...]
    facts: tuple[OutputFact, ...]
    notes: tuple[str, ...]
    impostors: tuple[str, ...] | None
    """Those that pass at every output; None where no output could be asked."""
    passed: bool


Yardsticks = list[list[tuple[Precision, float]]]


def take_yardsticks(oracle: Oracle, reference: Reference) -> Yardsticks | None:
    """Each output's rms error in every format, on some rows of this trial; None where the oracle is not exact."""
    sample = oracle.sample()
    if sample is None:
        return None
    inputs, rows = sample
    exact = oracle.run_sample(inputs)
    like = [leaf[rows] if leaf.dim() else leaf for leaf in reference.leaves]
    return precision.yardsticks(lambda: oracle.run_sample(inputs), exact, like)


def judge(
    out: Any,
    *,
    devices: list[str],
    expected_device: str,
    reference: Reference,
    oracle: Oracle,
    yardsticks: Yardsticks | None,
    atol: float,
    rtol: float,
) -> Judgement:
    """Compare a candidate's outputs (on the CPU; ``devices`` says where they were) with the oracle."""
    form = match(out, reference.outputs, devices=devices, expected_device=expected_device)
    tallies = _tallied(form, reference, oracle, atol=atol, rtol=rtol)
    results: list[OutputNumerics] = []
    for pair, tally in zip(form.leaves, tallies, strict=True):
        grade = None
        if yardsticks is not None and not tally.exact and pair.reference.is_floating_point():
            grade = precision.grade(tally.rms, tally.reference_rms, yardsticks[pair.number], dtype=tally.dtype)
        results.append(tally.result(grade))
    asked = [tally.impostors.passing(tally.allowed) for tally in tallies if not tally.exact]
    impostors = None
    if asked:
        impostors = tuple(name for name in asked[0] if all(name in other for other in asked))
    passed = not form.facts and all(result.within_tolerance for result in results)
    return Judgement(tuple(results), form.facts, form.notes, impostors, passed)


def _tallied(form: Structure, reference: Reference, oracle: Oracle, *, atol: float, rtol: float) -> list[Tally]:
    for attempt in range(2):
        tallies = [Tally(leaf.name, leaf.out, leaf.reference, atol=atol, rtol=rtol) for leaf in form.leaves]
        try:
            _feed(tallies, form.leaves, reference, oracle)
            return tallies
        except NotRows as error:
            if attempt:
                raise
            oracle.give_up_chunks(str(error))
    raise AssertionError("unreachable")


def _feed(tallies: list[Tally], pairs: tuple[Leaf, ...], reference: Reference, oracle: Oracle) -> None:
    alike = [
        {
            number: item.reshape(-1)
            for number, item in enumerate(reference.inputs)
            if isinstance(item, torch.Tensor) and item.is_floating_point() and item.shape == pair.reference.shape
        }
        for pair in pairs
    ]
    for piece in oracle.pieces():
        for tally, pair, inputs in zip(tallies, pairs, alike, strict=True):
            exact = piece.outputs[pair.number].reshape(-1)
            start = 0
            if piece.stop is not None:
                start = piece.start * (exact.numel() // max(1, piece.stop - piece.start))
            tally.add(start, exact, {n: flat[start : start + exact.numel()] for n, flat in inputs.items()})
