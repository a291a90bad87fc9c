"""Causes of the family ``warp`` that no access betrays: a warp-wide result is taken for a block-wide one.

Needs: outputs that are wrong, and the code pattern (``Suspicion``) in a kernel that ran. The rule: a pattern without a
wrong result is silent, and a fault of the run itself explains the result better than any pattern.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.explain import access
from kernelwright.explain.case import Case
from kernelwright.records import Cause, Confidence, Stage, Suspicion


def causes(case: Case) -> Iterator[Cause]:
    """Causes of this family that the evidence shows."""
    numerics = case.evidence.numerics
    if numerics is None or case.evidence.findings or all(trial.passed for trial in numerics.trials):
        return
    for suspicion in case.evidence.suspicions:
        if suspicion.cause == "warp.block-broadcast":
            yield block_broadcast(case, suspicion)


def block_broadcast(case: Case, suspicion: Suspicion) -> Cause:
    """A broadcasting shuffle whose value is the block's result in some warps only."""
    frame = case.own_frame(suspicion.frames)
    source = case.own_frame(suspicion.source)
    holders, others = warps(suspicion.holders), warps(suspicion.others)
    evidence = [
        f"in {access.kernel(suspicion.kernel)}, {holders} hold{'s' if len(suspicion.holders) == 1 else ''} the "
        f"combined value; {others} run{'s' if len(suspicion.others) == 1 else ''} the same shuffle and use its result",
        f"the combination is at line {source.line}: {case.text(source.line)}" if source else "",
    ]
    return case.cause(
        "warp.block-broadcast",
        Stage.JUDGE,
        f"This shuffle is used as if it reached the whole block, but it stays within each warp: {holders} of "
        f"{warp_count(suspicion)} broadcast{'s' if len(suspicion.holders) == 1 else ''} the block's result, "
        f"{others} {'its' if len(suspicion.others) == 1 else 'their'} own leftover value.",
        line=frame.line if frame else 0,
        evidence=evidence,
        fix="Let thread 0 store the result in shared memory and read it from there after __syncthreads().",
        confidence=Confidence.LIKELY,
    )


def warps(numbers: tuple[int, ...]) -> str:
    """``warp 0``, ``warps 1-7``, ``warps 1, 3, 5``."""
    if len(numbers) == 1:
        return f"warp {numbers[0]}"
    if numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"warps {numbers[0]}-{numbers[-1]}"
    return f"warps {', '.join(str(number) for number in numbers)}"


def warp_count(suspicion: Suspicion) -> int:
    """How many warps the block has."""
    x, y, z = suspicion.block_size
    return (x * y * z + 31) // 32
