"""A program's run, told after its own output: what was found at which line, and one line about what ran.

The rule: a run without findings takes one line, so that the program's output stays what is read.
"""

from __future__ import annotations

from rich.console import Console

from kernelwright.program import ProgramReport
from kernelwright.records import Verdict, VerdictWord
from kernelwright.report import wording
from kernelwright.report.cause import also_seen, cause_block
from kernelwright.report.counters import advice_lines, render_counters
from kernelwright.report.page import labelled

MOST_LAUNCHES = 4


def render_program(report: ProgramReport, console: Console) -> None:
    """Print ``report`` on ``console``."""
    if report.causes:
        console.print()
        cause_block(report.causes[0], _as_verdict(report), console)
        also_seen(report.causes[1:], console)
        console.print()
        labelled(console, "launches", _launches(report))
    if report.counters:
        console.print()
        render_counters(report.counters, console)
        labelled(console, "advice", advice_lines(report.advice))
        console.print()
    labelled(console, "not served", report.unserved)
    labelled(console, "not checked", report.not_checked)
    console.print(_summary(report), style="dim", soft_wrap=True)


def _launches(report: ProgramReport) -> list[str]:
    ordered = sorted(report.launches, key=lambda fact: fact.error == 0)
    lines = []
    for fact in ordered[:MOST_LAUNCHES]:
        times = f", {wording.many(fact.count, 'time')}" if fact.count > 1 else ""
        said = f", {fact.error_name or f'error {fact.error}'}: {fact.message}".rstrip(": ") if fact.error else ""
        lines.append(wording.launch(fact) + times + said)
    if len(ordered) > MOST_LAUNCHES:
        lines.append(f"and {wording.many(len(ordered) - MOST_LAUNCHES, 'more launch', 'more launches')}")
    return lines


def _summary(report: ProgramReport) -> str:
    if report.build is not None and not report.build.ok:
        return f"kernelwright: {report.program} does not compile"
    count = sum(fact.count for fact in report.launches)
    work = sum(fact.thread_instructions or 0 for fact in report.launches)
    device = f" on the emulated device as {report.device.name}" if report.device else ""
    how = (
        "it was stopped because it took too long"
        if report.timed_out
        else f"ended by {report.signal}"
        if report.signal
        else f"exit status {report.returncode}"
    )
    found = wording.many(len(report.causes), "cause") + " found" if report.causes else "nothing found"
    ran = f"{wording.many(count, 'launch', 'launches')}, {wording.scaled(work)} thread instructions{device}; "
    return f"kernelwright: {ran if report.device else ''}{how}; {found}; {wording.seconds(report.seconds)}"


def _as_verdict(report: ProgramReport) -> Verdict:
    """What the parts that show a cause read its source from."""
    return Verdict(VerdictWord.FAILED, problem="", candidate=report.program, stages=())
