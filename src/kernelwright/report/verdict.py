"""A verdict on one screen: the word, the cause at its line, and the facts it rests on.

Why: whoever reads it wants, in this order, the answer, the line to change, what to do, and then everything that was
seen. The rule: each part is one function, they are called in the order in which they stand on the screen, and a part
that has nothing to say prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from kernelwright.explain.access import kernel as short
from kernelwright.explain.access import who
from kernelwright.records import BuildRecord, Stage, StageStatus, Verdict
from kernelwright.report import wording
from kernelwright.report.cause import also_seen, cause_block
from kernelwright.report.counters import advice_lines, render_counters
from kernelwright.report.numbers import numerics_lines
from kernelwright.report.page import STYLES, hang, labelled
from kernelwright.report.timing import timing_lines

MOST_LAUNCHES = 4
MOST_KERNELS = 6
MOST_FINDINGS = 3
MOST_PRINTED_LINES = 5
MOST_PRINTED_COLUMNS = 160


def render(verdict: Verdict, console: Console) -> None:
    """Print ``verdict`` on ``console``, in its width."""
    _headline(verdict, console)
    if verdict.causes:
        console.print()
        cause_block(verdict.causes[0], verdict, console)
        also_seen(verdict.causes[1:], console)
    console.print()
    labelled(console, "stages", _stages(verdict))
    labelled(console, "numerics", numerics_lines(verdict.numerics))
    labelled(console, "timing", timing_lines(verdict.timing))
    labelled(console, "advice", advice_lines(verdict.advice))
    labelled(console, "build", [line for record in verdict.build for line in _build(record)])
    labelled(console, "launches", _launches(verdict))
    render_counters(verdict.counters, console)
    labelled(console, "findings", _findings(verdict))
    labelled(console, "sanitizers", _sanitizers(verdict))
    labelled(console, "fidelity", _fidelity(verdict))
    labelled(console, "printed", _printed(verdict))
    labelled(console, "not checked", not_checked(verdict))


def _headline(verdict: Verdict, console: Console) -> None:
    word = Text(verdict.verdict.value.upper(), style=STYLES[verdict.verdict.value])
    hang(console, Text.assemble(word, "  "), Text(verdict.candidate, style="bold"))
    where = ""
    if verdict.device is not None:
        device = verdict.device
        name = f"the emulated device as {device.name}" if device.kind == "emulated" else device.name
        where = f" on {name}, compute capability {device.compute_capability}"
    lead = Text(" " * (word.cell_len + 2))
    sizes = "".join(f", {name}={value}" for name, value in verdict.sets.items())
    text = f"against {verdict.problem}{sizes}{where}; {wording.seconds(verdict.seconds)}"
    hang(console, lead, Text(text, style="dim"))


_STAGE_WORDS = {StageStatus.PASSED: "passed", StageStatus.FAILED: "FAILED", StageStatus.NOT_RUN: "not run"}


def _stages(verdict: Verdict) -> Iterator[str]:
    parts = []
    for result in verdict.stages:
        took = f" {wording.seconds(result.seconds)}" if result.status is not StageStatus.NOT_RUN else ""
        parts.append(f"{result.stage.value} {_STAGE_WORDS[result.status]}{took}")
    if parts:
        yield ", ".join(parts)
    for result in verdict.stages:
        if result.note and result.status is StageStatus.FAILED:
            yield f"{result.stage.value}: {result.note}"


def _build(record: BuildRecord) -> Iterator[str]:
    headers = {"fast": "fast headers", "full": "real torch headers", "torch": "PyTorch's own build"}
    parts = [f"{record.name}: {headers.get(record.tier, record.tier)}", record.arch]
    parts.append("from the cache" if record.cached else wording.seconds(record.seconds))
    if not record.ok:
        parts.append("FAILED")
    elif record.tier == "fast":
        parts.append(
            {
                True: "confirmed with the real headers",
                False: "REFUSED by the real headers",
                None: "not confirmed with the real headers",
            }[record.confirmed]
            + (f" ({record.confirm_note})" if record.confirm_note else "")
        )
    warnings = sum(diagnostic.severity == "warning" for diagnostic in record.diagnostics)
    if warnings:
        parts.append(wording.many(warnings, "warning"))
    yield ", ".join(parts)
    if record.fell_through:
        yield f"fast headers did not do: {record.fell_through}"
    for kernel in record.kernels[:MOST_KERNELS]:
        spills = kernel.spill_store_bytes + kernel.spill_load_bytes
        spilled = (
            f"spills {wording.bytes_of(kernel.spill_store_bytes)} out, {wording.bytes_of(kernel.spill_load_bytes)} in"
            if spills
            else "no spills"
        )
        stack = f", {wording.bytes_of(kernel.stack_bytes)} stack" if kernel.stack_bytes else ""
        yield (
            f"{short(kernel.name)}: {wording.many(kernel.registers, 'register')}, "
            f"{wording.bytes_of(kernel.static_shared_bytes)} shared, {spilled}{stack}"
        )
    if len(record.kernels) > MOST_KERNELS:
        yield f"and {wording.many(len(record.kernels) - MOST_KERNELS, 'more kernel')}"


def _launches(verdict: Verdict) -> Iterator[str]:
    # Refused launches first: they are what a reader looks for.
    ordered = sorted(verdict.launches, key=lambda fact: fact.error == 0)
    for fact in ordered[:MOST_LAUNCHES]:
        times = f", {wording.many(fact.count, 'time')}" if fact.count > 1 else ""
        work = (
            f", {wording.scaled(fact.thread_instructions)} thread instructions"
            if fact.thread_instructions is not None
            else ""
        )
        refused = f", {fact.error_name or f'error {fact.error}'}: {fact.message}" if fact.error else ""
        yield wording.launch(fact) + times + work + refused.rstrip(": ")
    if len(ordered) > MOST_LAUNCHES:
        yield f"and {wording.many(len(ordered) - MOST_LAUNCHES, 'more launch', 'more launches')}"


def _fidelity(verdict: Verdict) -> Iterator[str]:
    """What ran exactly is counted, what ran approximately is named: that is what a reader must weigh."""
    for line in verdict.device.fidelity if verdict.device else ():
        word, _, names = line.partition(": ")
        if word == "exact":
            yield f"{wording.many(names.count(',') + 1, 'kind')} of instruction ran exactly"
        else:
            yield line


def _findings(verdict: Verdict) -> Iterator[str]:
    told = {cause.id for cause in verdict.causes}
    # The causes have told of the others, each at its line.
    others = [finding for finding in verdict.findings if finding.cause not in told]
    for finding in others[:MOST_FINDINGS]:
        line = finding.frames[-1] if finding.frames else None
        place = f"{line.file}:{line.line}" if line else "a line that is not known"
        yield (f"{finding.cause} at {place}, first in {who(finding)}, {wording.many(finding.count, 'time')}")
    if len(others) > MOST_FINDINGS:
        yield f"and {wording.many(len(others) - MOST_FINDINGS, 'more finding')}"


def _sanitizers(verdict: Verdict) -> Iterator[str]:
    """Each tool that ran to its end; the others are told under "not checked"."""
    ran = [fact for fact in verdict.sanitizers if not fact.not_checked]
    words = [
        f"{fact.tool} {wording.many(fact.errors, 'error') if fact.errors else 'clean'} "
        f"in {wording.seconds(fact.seconds)}"
        for fact in ran
    ]
    if words:
        yield f"{', '.join(words)}" + ("; all but the first at once" if len(words) > 2 else "")


def _printed(verdict: Verdict) -> Iterator[str]:
    for stream, text in (("stdout", verdict.candidate_stdout), ("stderr", verdict.candidate_stderr)):
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        for line in lines[-MOST_PRINTED_LINES:]:
            rest = f"… ({len(line)} characters)" if len(line) > MOST_PRINTED_COLUMNS else ""
            yield f"{stream}: {line[:MOST_PRINTED_COLUMNS]}{rest}"


def not_checked(verdict: Verdict) -> list[str]:
    """What the verdict says nothing about, and why: never left to be guessed."""
    lines = list(verdict.notes)
    emulated = verdict.device is not None and verdict.device.kind == "emulated"
    if verdict.timing is None and not any(note.lower().startswith("timing") for note in lines):
        note = next((s.note for s in verdict.stages if s.stage is Stage.MEASURE), "")
        why = "the emulated device has none" if emulated else note
        lines.append(f"timing ({why})" if why else "timing")
    if verdict.numerics is None and not any("numeric" in note.lower() for note in lines):
        lines.append("numerics (there is no output to compare)")
    elif verdict.numerics is not None and verdict.numerics.discriminating is None:
        lines.append("whether the tolerance can tell right from wrong")
    return lines
