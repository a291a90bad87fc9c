"""Causes of the family ``memory``: an address is wrong.

Needs: the emulated device's findings (certain), or elements of the output that still hold the poison their memory
started with, or a NaN made from it (``Mismatch.unwritten``, ``Mismatch.tainted``). The rule: the line is the innermost
one in the candidate's own file, headers skipped; where an inlined function was called from stands in the evidence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from kernelwright.explain import access, sync
from kernelwright.explain.case import Case
from kernelwright.explain.cpp import Allocation, Function, allocations, local_arrays
from kernelwright.records import Cause, Confidence, Finding, LaunchFact, Mismatch, OutputNumerics, Stage


def causes(case: Case) -> Iterator[Cause]:
    """Causes of this family that the evidence shows."""
    for finding in case.evidence.findings:
        rule = _RULES.get(finding.cause)
        if rule is not None:
            yield rule(case, finding)
    if not case.evidence.findings and any(output.mismatch is not None for output in _outputs(case)):
        for seen in case.evidence.observations:
            if seen.cause == "memory.out-of-bounds":
                yield out_of_bounds(case, seen, stage=Stage.JUDGE, confidence=Confidence.LIKELY)
    for output in _outputs(case):
        if output.mismatch is not None and output.mismatch.unwritten:
            yield unwritten(case, output, output.mismatch)
        if output.mismatch is not None and output.mismatch.tainted:
            left = sync.left_unwritten(case)
            if left is not None:
                yield left
            elif _early_reads(case) or not _keeps_private_memory(case):
                yield tainted(case, output, output.mismatch)


def out_of_bounds(
    case: Case, finding: Finding, *, stage: Stage = Stage.RUN, confidence: Confidence = Confidence.CERTAIN
) -> Cause:
    """An access outside its allocation or, as an observation, outside the view that was passed."""
    frame = case.own_frame(finding.frames)
    line = frame.line if frame else 0
    loose = re.search(r"\b(\w+)\s*<=\s*(\w+)", case.text(line))
    fix = "Compare the index with the number of elements before the access."
    if loose and finding.allocation is not None and finding.offset == finding.allocation.bytes:
        fix = f"{loose[0]} lets one index too many through: write {loose[1]} < {loose[2]}."
    elif finding.offset is not None and finding.offset < 0:
        fix = "The index is negative here: check its lower bound, and whether 32-bit arithmetic wrapped."
    return case.cause(
        "memory.out-of-bounds",
        stage,
        f"{access.who(finding)} {access.does(finding)} {access.where(finding)}.",
        line=line,
        evidence=access.facts(finding),
        fix=fix,
        confidence=confidence,
    )


def misaligned(case: Case, finding: Finding) -> Cause:
    """A vector access at an address that is no multiple of its size."""
    frame = case.own_frame(finding.frames)
    line = frame.line if frame else 0
    evidence = access.facts(finding)
    remainder = finding.address % finding.bytes if finding.bytes else 0
    evidence.insert(0, f"the address is {remainder} bytes past a multiple of {finding.bytes}")
    fix = "Use the vector path only when the pointer and the row length are multiples of its size, else a scalar one."
    sliced = case.tree.sliced_arguments
    # The very first thread adds no index of its own, so the base pointer is what is misaligned: a view's offset.
    first = not any(finding.thread) and not any(finding.block)
    if first and finding.offset is not None and finding.offset > 0 and len(sliced) == 1:
        line = sliced[0]
        evidence.append(
            f"the first thread of the first block is already off: the tensor that is passed starts "
            f"{finding.offset} bytes into its memory"
        )
        fix = (
            f"A slice keeps its parent's memory. When the pointer is not {finding.bytes}-byte aligned, use scalar "
            f"accesses or copy the view into fresh memory first (.clone())."
        )
    return case.cause(
        "memory.misaligned",
        Stage.RUN,
        f"{access.who(finding)} {access.does(finding)} {access.where(finding)}, but such an access must be "
        f"{finding.bytes}-byte aligned.",
        line=line,
        evidence=evidence,
        fix=fix,
    )


def local_overrun(case: Case, finding: Finding) -> Cause:
    """A per-thread array is indexed past its end. The line is the array's declaration, whose size is wrong."""
    frame = case.own_frame(finding.frames)
    line = frame.line if frame else 0
    function = case.sources.at(line)
    evidence = access.facts(finding)
    if function is not None:
        used = [at for name, at in local_arrays(function).items() if re.search(rf"\b{name}\s*\[", case.text(line))]
        if used:
            evidence.append(f"the access is at line {line}: {case.text(line)}")
            line = used[0]
    return case.cause(
        "memory.local-overrun",
        Stage.RUN,
        f"{access.who(finding)} {access.does(finding)} {access.where(finding)}.",
        line=line,
        evidence=evidence,
        fix="Make the array as large as the largest index that the loop reaches, or bound the index.",
    )


def use_after_free(case: Case, finding: Finding) -> Cause:
    """Memory is used after its owner released it."""
    frame = case.own_frame(finding.frames)
    return case.cause(
        "memory.use-after-free",
        Stage.RUN,
        f"{access.who(finding)} {access.does(finding)} {access.where(finding)}: that memory was already released.",
        line=frame.line if frame else 0,
        evidence=access.facts(finding),
        fix="Keep the tensor alive in a named variable until the kernel has run.",
    )


def stale_read(case: Case, finding: Finding) -> Cause:
    """A load through the read-only cache of what the same launch wrote; the line is the load's."""
    frame, written = case.own_frame(finding.frames), case.own_frame(finding.other)
    evidence = access.facts(finding)
    if written is not None:
        evidence.append(f"it is written at line {written.line}: {case.text(written.line)}")
    return case.cause(
        "memory.stale-read",
        Stage.RUN,
        f"{access.who(finding)} {access.does(finding)} {access.where(finding)} through the read-only cache, which does "
        f"not see what this launch wrote there.",
        line=frame.line if frame else 0,
        evidence=evidence,
        fix="Take __ldg() away, or const and __restrict__ from the pointer: another one writes the same memory.",
    )


def uninitialised(case: Case, finding: Finding) -> Cause:
    """A value is read that nobody wrote; the line is where that memory was made, if that is known."""
    frame = case.own_frame(finding.frames)
    line = frame.line if frame else 0
    evidence = access.facts(finding)
    made = _made_at(case, finding)
    if made:
        evidence.append(f"it is read at line {line}: {case.text(line)}")
        line = made
    return case.cause(
        "memory.uninitialised",
        Stage.RUN,
        f"{access.who(finding)} {access.does(finding)} {access.where(finding)}: nobody wrote there before.",
        line=line,
        evidence=evidence,
        fix=_WRITE_FIRST,
    )


def _made_at(case: Case, finding: Finding) -> int:
    """The line that made the memory which nobody wrote, where it is known or only one can be meant; else 0."""
    memory = finding.allocation
    if memory is None or memory.kind != "global":
        return 0
    if memory.site is not None and case.is_candidate(memory.site.file):
        return memory.site.line
    made = _left_empty(case)
    return made[0].line if len(made) == 1 else 0


def _left_empty(case: Case) -> list[Allocation]:
    """What the candidate's host code allocates without a value."""
    made = [a for function in case.sources.functions if not function.is_kernel for a in allocations(function)]
    return [allocation for allocation in made if allocation.call.endswith(("empty", "empty_like"))]


def unwritten(case: Case, output: OutputNumerics, mismatch: Mismatch) -> Cause:
    """Part of the output is never written: the grid does not reach it, or the kernel maps it to the wrong axes."""
    ran = [fact for fact in case.evidence.launches if fact.error == 0]
    line, evidence, fix = 0, [], "Make sure that every element of the output is written by some thread."
    kernels = {fact.kernel for fact in ran}
    if not ran:
        line = case.output_line
        evidence.append("no kernel was launched")
        fix = "Launch the kernel that fills the output before returning it."
    elif len(kernels) == 1:
        fact = ran[-1]
        threads = math.prod(fact.grid) * math.prod(fact.block)
        evidence.append(
            f"{access.kernel(fact.kernel)} ran with grid {_sizes(fact.grid)} and block {_sizes(fact.block)}: "
            f"{threads} threads"
        )
        kernel = case.sources.kernel(fact.kernel)
        if threads < math.prod(output.shape):
            line = _launch_line(case, fact)
            fix = (
                "Check that grid, block and the work of a thread reach every element: round the grid up, "
                "(n + block - 1) / block, and let the kernel test the index."
            )
        elif kernel is not None and _covers(fact, output.shape):
            line = _index_line(kernel)
            evidence.append("the grid covers the output in both axes, so the kernel maps threads to the wrong axes")
            fix = "Take the column from x and the row from y, as the launch sizes them, or size the grid the other way."
        else:
            line = _launch_line(case, fact)
    pattern = f" ({mismatch.description})" if mismatch.description else ""
    return case.cause(
        "memory.unwritten-output",
        Stage.JUDGE,
        f"{mismatch.unwritten} of {mismatch.total} elements of {output.output} are never written{pattern}: "
        f"they still hold what the memory held before.",
        line=line,
        evidence=evidence,
        fix=fix,
    )


def tainted(case: Case, output: OutputNumerics, mismatch: Mismatch) -> Cause:
    """A NaN in the output was computed from memory that nobody wrote."""
    line, evidence = 0, ["device memory starts filled with a NaN whose bits arithmetic preserves; the output holds it"]
    made = _left_empty(case)
    reads = _early_reads(case)
    if reads:
        frame = case.own_frame(reads[0].frames)
        line = _made_at(case, reads[0]) or (frame.line if frame else 0)
        evidence += [
            f"{access.who(read)} {access.does(read)} {access.where(read)}, which nobody wrote before, at line "
            f"{place.line}: {case.text(place.line)}"
            for read in reads[:3]
            if (place := case.own_frame(read.frames)) is not None
        ]
    elif len(made) == 1:
        line = made[0].line
        evidence.append("it is the only memory that the candidate leaves uninitialised")
    return case.cause(
        "memory.uninitialised",
        Stage.JUDGE,
        f"{mismatch.tainted} of {mismatch.total} elements of {output.output} were computed from memory that nobody "
        f"wrote.",
        line=line,
        evidence=evidence,
        fix=_WRITE_FIRST,
        confidence=Confidence.LIKELY,
    )


def _early_reads(case: Case) -> list[Finding]:
    """Reads of memory that nobody had written, at a line of the candidate, as the device saw them."""
    return [o for o in case.evidence.observations if o.cause == "memory.uninitialised" and case.own_frame(o.frames)]


def _keeps_private_memory(case: Case) -> bool:
    """Whether kernels have shared or local memory: read too early there, the fault may as well be a missing barrier."""
    text = " ".join(function.body for function in case.sources.functions)
    return "__shared__" in text or any(local_arrays(f) for f in case.sources.functions)


_WRITE_FIRST = "Write it first: torch::zeros for an accumulator, an initial store and a barrier for shared memory."

_RULES = {
    "memory.out-of-bounds": out_of_bounds,
    "memory.misaligned": misaligned,
    "memory.stale-read": stale_read,
    "memory.local-overrun": local_overrun,
    "memory.use-after-free": use_after_free,
    "memory.uninitialised": uninitialised,
}


def _outputs(case: Case) -> list[OutputNumerics]:
    """The outputs of the first trial that failed."""
    trials = case.evidence.numerics.trials if case.evidence.numerics else ()
    return next((list(trial.outputs) for trial in trials if not trial.passed), [])


def _covers(fact: LaunchFact, shape: tuple[int, ...]) -> bool:
    """Whether the launch has at least one thread for each column along x and for each row along y."""
    if len(shape) < 2 or fact.grid[1] * fact.block[1] == 1:
        return False
    columns, rows = shape[-1], math.prod(shape[:-1])
    return fact.grid[0] * fact.block[0] >= columns and fact.grid[1] * fact.block[1] >= rows


def _index_line(kernel: Function) -> int:
    """The kernel's first use of its block index."""
    found = re.search(r"\bblockIdx\b", kernel.body)
    return kernel.line_at(found.start()) if found else kernel.line


def _launch_line(case: Case, fact: LaunchFact) -> int:
    if fact.site is not None and case.is_candidate(fact.site.file):
        return fact.site.line
    written = case.sources.launches_of(fact.kernel)
    return written[0].line if len(written) == 1 else 0


def _sizes(sizes: tuple[int, int, int]) -> str:
    return f"({','.join(str(n) for n in sizes)})"
