"""What is said when no cause is known: the pattern that was seen, exactly, and nothing more.

Needs: nothing. The rule: an exception with its line, a process's end with what it was doing, or which elements differ
and how; never a guess at why.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.explain.case import Case
from kernelwright.explain.catalogue import UNEXPLAINED
from kernelwright.records import Cause, ExceptionFact, Finding, OutputNumerics, ProcessExit, Stage, StageStatus


def causes(case: Case) -> Iterator[Cause]:
    """The failure as it was seen; the first of these that applies."""
    evidence = case.evidence
    if evidence.problem_exception is not None:
        yield raised(case, evidence.problem_exception, whose="The problem's own code")
    elif evidence.findings:
        yield finding(case, evidence.findings[0])
    elif evidence.exit is not None:
        yield ended(case, evidence.exit)
    elif evidence.exception is not None:
        yield raised(case, evidence.exception, whose="The candidate")
    else:
        output = _differing(case)
        if output is not None:
            yield differs(case, output)
        else:
            yield from _failed_stage(case)


def raised(case: Case, exception: ExceptionFact, *, whose: str) -> Cause:
    """A Python exception nobody foresaw."""
    frame = next((f for f in reversed(exception.frames) if case.is_candidate(f.file)), None)
    message = " ".join(exception.message.split())
    if exception.type.startswith("kernelwright.candidate."):
        # One of our own sentences about the candidate ("defines no ModelNew") says it all.
        return case.cause(UNEXPLAINED, _stage(case), f"{message}.")
    if not exception.frames:
        whose = "Something outside the candidate's own lines"  # it may be anybody's: no claim
    where = "" if frame or not exception.frames else f" at {exception.frames[-1].file}:{exception.frames[-1].line}"
    return case.cause(
        UNEXPLAINED,
        _stage(case),
        f"{whose} raised {exception.type}{where}: {message[:400]}",
        line=frame.line if frame else 0,
        evidence=[f"called from line {f.line}: {f.text}" for f in exception.frames[:-1] if case.is_candidate(f.file)],
    )


def ended(case: Case, exit: ProcessExit) -> Cause:
    """The candidate's process ended before it was done."""
    during = f" during {exit.during}" if exit.during else ""
    if exit.timed_out:
        how = f"The candidate was stopped because it took too long{during}."
    elif exit.out_of_memory:
        how = f"The candidate took more memory than it was allowed{during}."
    elif exit.signal:
        how = f"The candidate's process was killed by {exit.signal}{during}."
    else:
        how = f"The candidate's process ended with status {exit.returncode}{during}."
    frame = case.own_frame(exit.frames)
    stack = [f"{f.file}:{f.line} {f.function}".rstrip() for f in exit.frames[:6]]
    said = [f"stderr: {line.strip()}" for line in exit.stderr.splitlines() if line.strip()][-3:]
    return case.cause(UNEXPLAINED, _stage(case), how, line=frame.line if frame else 0, evidence=stack + said)


def finding(case: Case, seen: Finding) -> Cause:
    """Something that the device saw and that no rule names."""
    from kernelwright.explain import access

    frame = case.own_frame(seen.frames)
    what = f"{access.does(seen)} {access.where(seen)}" if seen.bytes else f"stops at {seen.cause.split('.')[-1]}"
    return case.cause(
        UNEXPLAINED,
        Stage.RUN,
        f"{access.who(seen)} {what}: {seen.message or seen.cause}.",
        line=frame.line if frame else 0,
        evidence=access.facts(seen),
    )


def differs(case: Case, output: OutputNumerics) -> Cause:
    """An output that is not the reference's, by its pattern."""
    mismatch = output.mismatch
    if mismatch is None:
        return case.cause(
            UNEXPLAINED,
            Stage.JUDGE,
            f"{output.output} differs from the oracle by up to {output.max_abs_error:.3g}; the reference's own error "
            f"is {output.reference_max_abs_error:.3g}.",
        )
    kinds = [
        f"{count} of them {word}"
        for count, word in (
            (mismatch.nan, "NaN"),
            (mismatch.inf, "infinite"),
            (mismatch.unwritten, "never written"),
            (mismatch.tainted, "computed from memory that nobody had written yet"),
        )
        if count
    ]
    first = f"at {list(mismatch.first)} it is {mismatch.first_got:.7g} and should be {mismatch.first_expected:.7g}"
    worst = f"at {list(mismatch.worst)} it is {mismatch.worst_got:.7g} and should be {mismatch.worst_expected:.7g}"
    return case.cause(
        UNEXPLAINED,
        Stage.JUDGE,
        f"{mismatch.count} of {mismatch.total} elements of {output.output} differ"
        + (f" ({', '.join(kinds)})" if kinds else "")
        + (f": {mismatch.description}." if mismatch.description else "."),
        evidence=[first, worst if mismatch.worst != mismatch.first else ""],
    )


def _differing(case: Case) -> OutputNumerics | None:
    trials = case.evidence.numerics.trials if case.evidence.numerics else ()
    return next((o for trial in trials for o in trial.outputs if not o.within_tolerance), None)


def _failed_stage(case: Case) -> Iterator[Cause]:
    """Only a stage's own note is left to say."""
    for result in case.evidence.stages:
        if result.status is StageStatus.FAILED:
            note = result.note or f"{result.stage.value} failed"
            yield case.cause(UNEXPLAINED, result.stage, note if note.endswith(".") else note + ".")
            return


def _stage(case: Case) -> Stage:
    failed = [result.stage for result in case.evidence.stages if result.status is StageStatus.FAILED]
    return failed[0] if failed else Stage.RUN
