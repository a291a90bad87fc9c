"""The sanitize stage of a check on a GPU: which tools run, when the emulated device replays, and what is told.

Why: asked for, all four tools look; after a crash memcheck looks by itself. A GPU tells of a crash no line, and of a
race or a refused launch often nothing at all: what crashed, hung, or failed in a way that nothing explains runs once
more on the emulated device, at its own size where that is small and else at a smaller one. The rule: what was seen at
another size than the failure's counts as likely only, unless a sanitizer saw the same line on the GPU; and what ran to
its end on the GPU is wrong, whatever the emulated device would have stopped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from kernelwright.errors import KernelwrightError
from kernelwright.explain.catalogue import UNEXPLAINED
from kernelwright.problem.smaller import smaller
from kernelwright.records import (
    Cause,
    Confidence,
    ExceptionFact,
    Finding,
    ProcessExit,
    SanitizerFact,
    Verdict,
    VerdictWord,
)
from kernelwright.sanitize import findings as named
from kernelwright.sanitize import tools
from kernelwright.sanitize.tools import Run
from kernelwright.worker.alone import Alone

CRASHED = re.compile(
    r"illegal memory access|misaligned address|unspecified launch failure|device-side assert|illegal instruction"
    r"|invalid program counter|illegal address|hardware stack error|address space operation"
)
"""What CUDA says of a kernel that a GPU stopped (cudaGetErrorString, errors 700 and 710 to 719)."""
SAME_SIZE_BYTES = 128 << 20
"""Of tensors: up to here the emulated device replays at the failure's own size first."""
REPLAY_SECONDS = 60.0
ALL_REPLAYS_SECONDS = 150.0
TOOL_SECONDS = 300.0
_OF_KERNELS = frozenset({"interface", "memory", "sync", "warp"})
"""Families of causes that a device sees: at another size a candidate may well fail by itself in Python."""
_OF_VALUES = frozenset({"launch", "logic", "numeric"})
"""Families that explain what a GPU did not stop, at any size."""
_AT_ITS_SIZE = frozenset({"semantic"})
"""And one that another size may bring about: of a shape that is written into the candidate."""

_ENDED = frozenset({VerdictWord.CORRECT, VerdictWord.WRONG})
"""Of a replay that ran to its end: at the failure's own size it has said what there is to say."""

Replay = Callable[[Mapping[str, str], float], Verdict]
"""A check on the emulated device with these ``--set`` values, ended after so many seconds."""


@dataclass(frozen=True)
class Sanitized:
    """What the stage adds to a check."""

    findings: tuple[Finding, ...] = ()
    observations: tuple[Finding, ...] = ()
    causes: tuple[Cause, ...] = ()
    """Of the replay, where no finding carries them."""
    notes: tuple[str, ...] = ()
    tools: tuple[SanitizerFact, ...] = ()
    """Those that were run."""

    def all_causes(self, explained: tuple[Cause, ...]) -> tuple[Cause, ...]:
        """``explained``, and the replay's causes behind what they do not say; "unexplained" goes where one is known."""
        known = {(cause.id, cause.line) for cause in explained}
        more = tuple(cause for cause in self.causes if (cause.id, cause.line) not in known)
        kept = tuple(cause for cause in explained if not (more and cause.id == UNEXPLAINED))
        return (*kept, *more)


@dataclass(frozen=True)
class Question:
    """One candidate to be looked at."""

    alone: Alone
    constants: Mapping[str, str]
    """Of the problem, after ``--set``."""
    asked: bool
    """``--sanitize``: all tools, whatever the check saw."""
    crashed: bool
    hung: bool
    timeout_s: float
    unexplained: bool = False
    """It failed on the GPU by its output or by an error of CUDA's, and nothing that was seen there says why."""
    replays: bool = True
    """Whether the emulated device may run it."""
    tensor_bytes: int | None = None
    """Of what it was given; None where that is not known."""


def seen_by_the_device_only(exception: ExceptionFact | None, exit: ProcessExit | None, *, wrong: bool) -> bool:
    """Whether a failure may have a cause in its kernels that only a device which watches them sees."""
    if exception is not None:
        return "CUDA" in exception.message
    return wrong if exit is None else bool(exit.signal) and not (exit.out_of_memory or exit.timed_out)


def crashed(exception: ExceptionFact | None, exit: ProcessExit | None) -> bool:
    """Whether a GPU stopped a kernel of the candidate."""
    if exception is not None and "CUDA" in exception.message and CRASHED.search(exception.message):
        return True
    # A destructor may meet the error first, and end the process.
    return exit is not None and bool(exit.signal) and CRASHED.search(exit.stderr) is not None


def sanitize(question: Question, replay: Replay, progress: Callable[[str], None]) -> Sanitized:
    """Run what ``question`` calls for. Raises nothing: a tool or a replay that failed is a note."""
    stopped = question.crashed or question.hung
    if not (question.asked or stopped or question.unexplained):
        return Sanitized()
    runs: list[Run] = []
    notes: list[str] = []
    # A kernel that does not end does not end under a sanitizer either, and much later.
    if question.asked or question.crashed:
        runs, notes = _run_tools(question, progress)
    seen, observations, told = _named(runs, question)
    notes += told
    replayed = Sanitized()
    # What the GPU tolerates, the emulated device may object to.
    if question.replays and (stopped or (question.unexplained and not seen)):
        replayed = _replayed(question, runs, seen, replay, progress)
    return Sanitized(
        findings=named.merged(replayed.findings, seen, question.alone.candidate),
        observations=observations,
        causes=replayed.causes,
        notes=(*notes, *replayed.notes),
        tools=tuple(run.fact() for run in runs),
    )


def _run_tools(question: Question, progress: Callable[[str], None]) -> tuple[list[Run], list[str]]:
    wanted = tools.TOOLS if question.asked else tools.TOOLS[:1]
    program = tools.find()
    if program is None:
        return [], [f"{', '.join(wanted)} (compute-sanitizer was not found)"]
    timeout_s = min(question.timeout_s, TOOL_SECONDS)
    runs = tools.run_all(program, question.alone, tools=wanted, timeout_s=timeout_s, progress=progress)
    # A kernel that crashes does so below each tool: one note for all that say the same.
    reasons: dict[str, list[str]] = {}
    for run in runs:
        if run.why_not:
            reasons.setdefault(run.why_not, []).append(run.tool)
    return runs, [f"{', '.join(names)} ({why})" for why, names in reasons.items()]


def _named(runs: Iterable[Run], question: Question) -> tuple[tuple[Finding, ...], tuple[Finding, ...], list[str]]:
    found: tuple[Finding, ...] = ()
    observations: tuple[Finding, ...] = ()
    notes: list[str] = []
    for run in runs:
        made = named.name(run, candidate_file=question.alone.candidate, candidate_text=question.alone.text)
        found = named.merged(found, made.findings, question.alone.candidate)
        observations = (*observations, *made.observations)
        if made.elsewhere:
            reports = f"{made.elsewhere} report{'s' * (made.elsewhere > 1)}"
            notes.append(f"{reports} of {run.tool} at no line of the candidate: {_first_elsewhere(run)}")
    return found, observations, notes


def _first_elsewhere(run: Run) -> str:
    report = run.log.reports[0]
    where = f" in {report.frames[-1].function}" if report.frames else ""
    return f"{report.text}{where}"[:200]


# ---- the replay ----------------------------------------------------------------------------------------------------
def _replayed(
    question: Question,
    runs: list[Run],
    seen: tuple[Finding, ...],
    replay: Replay,
    progress: Callable[[str], None],
) -> Sanitized:
    """The failure on the emulated device, at the first size at which it says anything."""
    notes: list[str] = []
    started = time.monotonic()
    for sets in _sizes(question, runs):
        where = f"on the emulated device at {_spelled(sets) or 'the same size'}"
        left = ALL_REPLAYS_SECONDS - (time.monotonic() - started)
        if left <= 0:
            notes.append(f"no smaller size was tried: the replays had taken {ALL_REPLAYS_SECONDS:g} s")
            break
        progress(f"replaying {where}")
        try:
            verdict = replay({**question.alone.sets, **sets}, min(REPLAY_SECONDS, left))
        except KernelwrightError as error:
            notes.append(f"the replay {where} did not run: {str(error).splitlines()[0][:200]}")
            continue
        told = _told(verdict, where, seen, question, same_size=not sets)
        if told.findings or told.causes:
            return replace(told, notes=tuple(notes))
        notes.append(f"the replay {where} shows nothing ({_outcome(verdict)})")
        if not sets and verdict.verdict in _ENDED:
            break
    return Sanitized(notes=tuple(notes))


def _sizes(question: Question, runs: list[Run]) -> list[dict[str, str]]:
    """Sizes to try, the failure's own first where it is small."""
    size = runs[0].tensor_bytes if runs and runs[0].tensor_bytes is not None else question.tensor_bytes
    steps = list(smaller(question.constants, question.alone.text))
    same = size is not None and size <= SAME_SIZE_BYTES
    # Without a smaller size its own is all there is to try.
    return [*([{}] if same or not steps else []), *steps]


def _told(verdict: Verdict, where: str, seen: tuple[Finding, ...], question: Question, *, same_size: bool) -> Sanitized:
    """What a replay's verdict says of the failure."""
    found = tuple(replace(finding, witness=where) for finding in verdict.findings)
    stopped = question.crashed or question.hung
    if not stopped:
        sure: tuple[Finding, ...] = ()
    elif same_size:
        sure = found
    else:
        sure = tuple(f for f in found if any(named.same(f, other, question.alone.candidate) for other in seen))
    families = _OF_KERNELS
    if not stopped:
        families |= _OF_VALUES | (_AT_ITS_SIZE if same_size else frozenset())
    # A candidate that stops by itself at another size than its own says nothing of its own size.
    alike = bool(verdict.findings) or (not stopped and verdict.verdict is VerdictWord.WRONG)
    rest = [
        replace(
            cause,
            confidence=cause.confidence if same_size else Confidence.LIKELY,
            evidence=(*cause.evidence, f"seen {where}"),
        )
        for cause in verdict.causes
        if (same_size or alike) and cause.id.partition(".")[0] in families
    ]
    return Sanitized(findings=sure, causes=tuple(rest))


def _outcome(verdict: Verdict) -> str:
    first = f": {verdict.causes[0].id}: {verdict.causes[0].sentence}" if verdict.causes else ""
    return f"it is {verdict.verdict.value} there{first}"[:400]


def _spelled(sets: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sets.items())
