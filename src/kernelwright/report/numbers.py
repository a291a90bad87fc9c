"""What the comparison with the oracle found, in a few lines.

Why: an error alone says little; beside the reference's own error it says whether the candidate is as good as PyTorch.
The rule: the worst trial of each output is shown, and a tolerance that a constant would pass is called out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kernelwright.records import Mismatch, Numerics, OutputNumerics
from kernelwright.report import wording

_WEIGHTS = {
    "rng": "weights from the same random stream",
    "state_dict": "weights loaded by name agree",
    "none": "no weights",
    "differ": "weights DIFFER",
}


def numerics_lines(numerics: Numerics | None) -> Iterator[str]:
    """Lines about ``numerics``; none where nothing was compared."""
    if numerics is None or not numerics.trials:
        return
    passed = sum(trial.passed for trial in numerics.trials)
    yield (
        f"{passed} of {wording.many(len(numerics.trials), 'trial')} passed at atol {numerics.atol:g}, "
        f"rtol {numerics.rtol:g}; oracle: {numerics.oracle}; {_WEIGHTS.get(numerics.weights, numerics.weights)}"
        + (f"; inputs {numerics.inputs}" if numerics.inputs.startswith("drawn") else "")
    )
    for output in _worst(numerics):
        yield _output(output)
        if output.allowed_error is not None:
            yield (
                f"the reference itself misses the tolerance there, so an error up to "
                f"{wording.error(output.allowed_error)}, twice its largest, passes"
            )
        if output.mismatch is not None:
            yield from _mismatch(output.mismatch)
    for trial in numerics.trials:
        if trial.note:
            yield f"seed {trial.seed}: {trial.note}"
    if numerics.weights_note:
        yield f"weights: {numerics.weights_note}"
    if numerics.mutated:
        yield f"changed by the candidate: {', '.join(numerics.mutated)}"
    if numerics.discriminating is True:
        yield "the tolerance tells right from wrong: zeros, a constant and the inputs fail it"
    elif numerics.discriminating is False:
        yield f"the tolerance does NOT tell right from wrong: it also passes {', '.join(numerics.passing_impostors)}"


def _worst(numerics: Numerics) -> list[OutputNumerics]:
    """For each output the trial with the largest error; a failing trial before a passing one, NaN before any number."""
    worst: dict[str, OutputNumerics] = {}
    for trial in numerics.trials:
        for output in trial.outputs:
            held = worst.get(output.output)
            if held is None or _badness(output) > _badness(held):
                worst[output.output] = output
    return list(worst.values())


def _badness(output: OutputNumerics) -> tuple[bool, float]:
    return (not output.within_tolerance, math.inf if math.isnan(output.max_abs_error) else output.max_abs_error)


def _output(output: OutputNumerics) -> str:
    grade = f"; precision {output.precision.value}" if output.precision is not None else ""
    ratio = f", ratio {output.rms_ratio:.3g}" if output.rms_ratio is not None else ""
    what = f"{output.output} {output.dtype} {wording.shape(output.shape)}"
    return (
        f"{what}: max error {wording.error(output.max_abs_error)} "
        f"(the reference's own {wording.error(output.reference_max_abs_error)}), rms {wording.error(output.rms_error)} "
        f"(the reference's own {wording.error(output.reference_rms_error)}{ratio}){grade}"
    )


def _mismatch(mismatch: Mismatch) -> Iterator[str]:
    share = 100 * mismatch.count / mismatch.total if mismatch.total else 0.0
    kinds = [
        f"{count:,} {word}"
        for count, word in (
            (mismatch.nan, "NaN"),
            (mismatch.inf, "inf"),
            (mismatch.unwritten, "never written"),
            (mismatch.tainted, "computed from memory that nobody wrote"),
        )
        if count
    ]
    # The pattern begins with the count where nothing simpler holds.
    where = mismatch.description.removeprefix(f"{mismatch.count} of {mismatch.total} elements ({share:.3g} %) ")
    yield (
        f"wrong: {mismatch.count:,} of {mismatch.total:,} elements ({share:.3g} %)"
        + (f", of them {', '.join(kinds)}" if kinds else "")
        + (f"; {where}" if where else "")
    )
    for word, index, got, expected in (
        ("first", mismatch.first, mismatch.first_got, mismatch.first_expected),
        ("worst", mismatch.worst, mismatch.worst_got, mismatch.worst_expected),
    ):
        if index and not (word == "worst" and index == mismatch.first):
            yield f"{word} at {list(index)}: got {got:.7g}, expected {expected:.7g}"
