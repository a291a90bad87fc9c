"""Causes of the families ``sync`` and ``warp``: threads do not wait for one another, or a warp is taken for a block.

Needs: the emulated device's findings; or, beside a wrong result, its observations: what hardware tolerates, such as a
barrier that exited threads never reach. The rule: the finding's own line in the candidate, except that a race is named
by its earlier access, behind which a barrier is missing, and that a barrier which some threads never reach is explained
by the early return that takes them away, where there is exactly one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelwright.explain import access
from kernelwright.explain.case import Case
from kernelwright.records import Cause, Confidence, Finding, Stage

_MEANS = {
    "sync.shared-race": "another thread of the block touches the same word of shared memory with no barrier between",
    "sync.global-race": "another thread touches the same word and nothing orders the two",
    "sync.divergent-barrier": "other threads of the block wait at a barrier that this one never reaches",
    "sync.deadlock": "it waits for what cannot happen",
    "warp.block-broadcast": "a shuffle reaches the 32 lanes of its own warp only",
    "warp.partial-result": "the value that it uses is defined in the named lanes only",
    "warp.mask": "the lanes that take part are not the lanes that the mask names",
}

_FIX = {
    "sync.shared-race": "Put __syncthreads() between the two accesses.",
    "sync.global-race": "Give each element one writer, use an atomic, or split the kernel where blocks must wait.",
    "sync.divergent-barrier": "Let every thread of the block reach the barrier: replace the early return by a test "
    "around the work.",
    "sync.deadlock": "Wait only for threads that are certain to run.",
    "warp.block-broadcast": "Pass the value through shared memory, with a barrier, to reach the whole block.",
    "warp.partial-result": "Broadcast the result to every lane that uses it.",
    "warp.mask": "Name exactly the lanes that reach the call.",
}


def causes(case: Case) -> Iterator[Cause]:
    """Causes of these families that the evidence shows."""
    for finding in case.evidence.findings:
        if finding.cause in _MEANS:
            yield seen(case, finding)
    numerics = case.evidence.numerics
    if numerics is None or case.evidence.findings or all(trial.passed for trial in numerics.trials):
        return
    for observation in case.evidence.observations:
        # Of global memory only what changes no value is observed: equal stores, lanes in step, volatile flags.
        if observation.cause in _MEANS and observation.cause != "sync.global-race":
            yield seen(case, observation, stage=Stage.JUDGE, confidence=Confidence.LIKELY)


def seen(
    case: Case, finding: Finding, *, stage: Stage = Stage.RUN, confidence: Confidence = Confidence.CERTAIN
) -> Cause:
    """What the device saw, at its line."""
    frame = case.own_frame(finding.frames)
    line = frame.line if frame else 0
    evidence = access.facts(finding)
    fix = _FIX[finding.cause]
    earlier = case.own_frame(finding.other)
    if earlier is not None:
        if earlier.line != line:
            evidence.append(f"the later access is at line {line}: {case.text(line)}")
            later = f"line {line}" if line > earlier.line else f"line {line} of the next round"
            # A barrier reaches one block only, and none makes a copy end.
            if finding.message.endswith("waited for that copy"):
                fix = (
                    "Wait for the copy (__pipeline_wait_prior, cp.async.wait_group, consumer_wait), and let each "
                    f"thread that reads what another copied pass __syncthreads() behind that, before {later}."
                )
            elif finding.cause == "sync.shared-race" or finding.message.endswith("no barrier between"):
                fix = f"Put __syncthreads() between line {earlier.line} and {later}, where every thread reaches it."
        line = earlier.line
    if finding.cause == "sync.divergent-barrier":
        left = _early_return(case, line)
        if left:
            evidence.append(f"the barrier is at line {line}: {case.text(line)}")
            line = left
    at = f" {access.does(finding)} {access.where(finding)}" if finding.bytes else ""
    return case.cause(
        finding.cause,
        stage,
        f"{access.who(finding)}{at}: {_MEANS[finding.cause]}.",
        line=line,
        evidence=evidence,
        fix=fix,
        confidence=confidence,
    )


def left_unwritten(case: Case) -> Cause | None:
    """Shared memory that nobody wrote is read in a kernel some of whose threads had left before a barrier of it.

    Hardware lets the others pass that barrier, so each fact alone is tolerated; together they are one mistake.
    """
    seen_there = case.evidence.observations
    unwritten = {o.kernel for o in seen_there if o.cause == "memory.uninitialised" and o.space == "shared"}
    for barrier in seen_there:
        frame = case.own_frame(barrier.frames)
        left = _early_return(case, frame.line) if frame else 0
        if barrier.cause != "sync.divergent-barrier" or barrier.kernel not in unwritten or not left or not frame:
            continue
        read = next(o for o in seen_there if o.cause == "memory.uninitialised" and o.kernel == barrier.kernel)
        return case.cause(
            "sync.divergent-barrier",
            Stage.JUDGE,
            f"Threads of {access.kernel(barrier.kernel)} return here before a barrier that the rest of the block waits "
            f"at, and leave shared memory unwritten that the rest then reads.",
            line=left,
            evidence=[
                f"the barrier is at line {frame.line}: {case.text(frame.line)}",
                f"{access.who(read)} {access.does(read)} {access.where(read)}, which nobody wrote",
            ],
            fix=_FIX["sync.divergent-barrier"],
            confidence=Confidence.LIKELY,
        )
    return None


def _early_return(case: Case, barrier_line: int) -> int:
    """The only line with a ``return`` before the barrier in its function; 0 if there is not exactly one."""
    function = case.sources.at(barrier_line)
    if function is None:
        return 0
    lines = {function.line_at(match.start()) for match in re.finditer(r"\breturn\b", function.body)}
    before = {line for line in lines if line < barrier_line}
    return before.pop() if len(before) == 1 else 0
