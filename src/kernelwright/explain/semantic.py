"""Causes of the family ``semantic``: it computes something else than the reference does.

Needs: a difference in structure (``OutputFact``), an input or parameter that changed (``Numerics.mutated``), or weights
that an equal seed does not make equal (``Numerics.weights``). The rule: a line is named only where the text has exactly
one place for it, and weights are blamed only where loading the reference's helped, or could not be tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.explain.case import Case
from kernelwright.explain.cpp import stores
from kernelwright.records import Cause, Confidence, OutputFact, Stage

_FIX = {
    "semantic.shape": "Return the shape that the reference returns, kept dimensions included.",
    "semantic.dtype": "Return the dtype and device that the reference returns.",
}


def causes(case: Case) -> Iterator[Cause]:
    """Causes of this family that the evidence shows."""
    for fact in case.evidence.outputs:
        yield structure(case, fact)
    numerics = case.evidence.numerics
    if numerics is None:
        return
    if numerics.mutated:
        yield mutates_input(case, numerics.mutated)
    failed = not all(trial.passed for trial in numerics.trials)
    if failed and numerics.weights == "state_dict":
        yield weights(case, "with the reference's weights, loaded by name, the outputs agree", Confidence.CERTAIN)
    elif failed and numerics.weights == "differ" and numerics.weights_note:
        # Without the note they could be loaded, and loading them did not help: then they are not what is wrong.
        yield weights(case, numerics.weights_note, Confidence.LIKELY)


def structure(case: Case, fact: OutputFact) -> Cause:
    """Shape, dtype, device or nesting of an output differs; the line is where that output is made."""
    return case.cause(
        fact.cause,
        Stage.JUDGE,
        f"{fact.output}: {fact.message}." if fact.output not in fact.message else f"{fact.message}.",
        line=case.output_line,
        fix=_FIX.get(fact.cause, ""),
    )


def mutates_input(case: Case, changed: tuple[str, ...]) -> Cause:
    """The candidate changed what it was given; the line is the one store that can have done it."""
    ran = {fact.kernel for fact in case.evidence.launches if fact.error == 0}
    kernels = [kernel for name in sorted(ran) if (kernel := case.sources.kernel(name)) is not None]
    lines = {line for kernel in kernels for _, line in stores(kernel)} | set(case.tree.in_place)
    return case.cause(
        "semantic.mutates-input",
        Stage.JUDGE,
        f"The candidate changes {', '.join(changed)}: a second call, or whoever uses it next, sees other values.",
        line=lines.pop() if len(lines) == 1 else 0,
        evidence=[f"{name} differs after the forward pass from what it was before" for name in changed],
        fix="Write the result into a tensor of its own.",
    )


def weights(case: Case, note: str, confidence: Confidence) -> Cause:
    """Parameters differ: the first one that the candidate creates in another place or under another name."""
    line, expected = first_other_member(case)
    evidence = ["constructed under the reference's seed, the parameters differ from the reference's", note, expected]
    return case.cause(
        "semantic.weights",
        Stage.JUDGE,
        "The candidate's parameters are not the reference's, so the two compute with different numbers.",
        line=line,
        evidence=evidence,
        fix="Create the same layers, in the same order, under the same names as the reference.",
        confidence=confidence,
    )


def first_other_member(case: Case) -> tuple[int, str]:
    """Where the candidate first creates another member than the reference does, and what; 0 where it does not."""
    theirs = [name for name, _ in case.problem_tree.members("Model")]
    for position, (name, at) in enumerate(case.tree.members("ModelNew")):
        if theirs and (position >= len(theirs) or theirs[position] != name):
            expected = theirs[position] if position < len(theirs) else "nothing more"
            return at, f"the reference creates {', '.join(theirs)}; here comes {name} instead of {expected}"
    return 0, ""
