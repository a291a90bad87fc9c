"""The sanitize stage of a check on a GPU: which tools run, when the emulated device replays, and what is told.

Why: asked for, all four tools look; after a crash memcheck looks by itself. A GPU tells of a crash no line, and of a
race or a refused launch often nothing at all: what crashed, hung, or failed in a way that nothing explains runs once
more on the emulated device (:mod:`kernelwright.sanitize.replay`). The rule: whatever fails here is a note, and the
check goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from kernelwright.records import Finding
from kernelwright.sanitize import findings as named
from kernelwright.sanitize import tools
from kernelwright.sanitize.question import Question, Sanitized
from kernelwright.sanitize.replay import Answer, Replay, replayed
from kernelwright.sanitize.tools import Run
from kernelwright.worker.tool import Patience

TOOL_SECONDS = 300.0
PATIENCE_SECONDS = 15.0
"""How long memcheck may still look once the failure itself was named: it reads 4000 errors a second."""


def sanitize(question: Question, replay: Replay, progress: Callable[[str], None]) -> Sanitized:
    """Run what ``question`` calls for. Raises nothing of a tool's or a replay's: one that failed is a note."""
    stopped = question.crashed or question.hung
    if not (question.asked or stopped or question.unexplained):
        return Sanitized()
    answer: Answer | None = None
    # A kernel that does not end does not end under a sanitizer either, and much later.
    looks = question.asked or question.crashed
    patience = Patience()
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(_run_tools, question, progress, patience) if looks else None
        try:
            # A crash is looked at both ways at once.
            if stopped and question.replays and (question.tensor_bytes is not None or not looks):
                answer = replayed(question, question.tensor_bytes, replay, progress)
                if answer.certain and not question.asked:
                    patience.only(PATIENCE_SECONDS)
            runs, notes = looking.result() if looking is not None else ([], [])
        except BaseException:
            patience.only(0.0)  # or the pool waits for tools that nobody asks any more
            raise
    seen, observations, told = _named(runs, question)
    # What the GPU tolerates, the emulated device may object to.
    if answer is None and question.replays and (stopped or (question.unexplained and not seen)):
        size = runs[0].tensor_bytes if runs and runs[0].tensor_bytes is not None else question.tensor_bytes
        answer = replayed(question, size, replay, progress)
    again = Sanitized() if answer is None else answer.told(seen)
    return Sanitized(
        findings=named.merged(again.findings, seen, question.alone.candidate),
        observations=observations,
        causes=again.causes,
        notes=(*notes, *told, *again.notes),
        tools=tuple(run.fact() for run in runs),
    )


Tools = tuple[list[Run], list[str]]
"""What ran, and what is told of what did not."""


def _run_tools(question: Question, progress: Callable[[str], None], patience: Patience) -> Tools:
    wanted = tools.TOOLS if question.asked else tools.TOOLS[:1]
    program = tools.find()
    if program is None:
        return [], [f"{', '.join(wanted)} (compute-sanitizer was not found)"]
    timeout_s = min(question.timeout_s, TOOL_SECONDS)
    runs = tools.run_all(
        program, question.alone, tools=wanted, timeout_s=timeout_s, progress=progress, patience=patience
    )
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
