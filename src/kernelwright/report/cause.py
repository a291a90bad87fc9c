"""A cause as it is shown: its id, the source around its line, the sentence, the evidence and the fix.

Why: the line is what the reader opens next, so it is shown in its surroundings. The rule: the excerpt is read from the
file that the verdict names; where that cannot be read, the cause's own text stands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kernelwright.explain import UNEXPLAINED
from kernelwright.records import Cause, Verdict
from kernelwright.report.page import paragraph, source

CONTEXT_LINES = 2
MOST_OTHERS = 4


def cause_block(cause: Cause, verdict: Verdict, console: Console) -> None:
    """The first cause, in full."""
    known = cause.id != UNEXPLAINED
    title = Text(cause.id, style="bold")
    how = cause.confidence.value if known else "no cause is known; this is what was seen"
    title.append(f"  {how}, in {cause.stage.value}", style="dim")
    console.print(title)
    if cause.line:
        console.print(Text(f"{cause.file}:{cause.line}", style="underline"))
        source(console, excerpt(cause, verdict), marked=cause.line)
    elif cause.file:
        console.print(Text(cause.file, style="underline"))
    console.print()
    paragraph(console, cause.sentence, indent=2)
    for fact in cause.evidence:
        paragraph(console, fact, indent=2, bullet="-")
    if cause.fix:
        paragraph(console, Text(cause.fix, style="bold"), indent=2, bullet="fix:")


def also_seen(causes: Sequence[Cause], console: Console) -> None:
    """The other causes, a sentence each."""
    if not causes:
        return
    console.print()
    paragraph(console, "also:")
    for cause in causes[:MOST_OTHERS]:
        place = f" {cause.file}:{cause.line}" if cause.line else ""
        text = Text(cause.id, style="bold")
        text.append(f"{place} ({cause.confidence.value}): {cause.sentence}")
        paragraph(console, text, indent=2, bullet="-")
    if len(causes) > MOST_OTHERS:
        paragraph(console, f"and {len(causes) - MOST_OTHERS} more (--json lists them)", indent=2, bullet="-")


def excerpt(cause: Cause, verdict: Verdict) -> list[tuple[int, str]]:
    """Numbered lines around the cause's, trimmed of blank edges; the cause's own text where the file cannot be read."""
    lines = _read(cause.file, verdict)
    if not 1 <= cause.line <= len(lines):
        return [(cause.line, cause.text)] if cause.text else []
    first = max(1, cause.line - CONTEXT_LINES)
    last = min(len(lines), cause.line + CONTEXT_LINES)
    while first < cause.line and not lines[first - 1].strip():
        first += 1
    while last > cause.line and not lines[last - 1].strip():
        last -= 1
    return [(number, lines[number - 1]) for number in range(first, last + 1)]


def _read(file: str, verdict: Verdict) -> list[str]:
    if not file:
        return []
    named = [path for path in (verdict.candidate, verdict.problem) if path == file or Path(path).name == file]
    for path in [*named, file]:
        try:
            return Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
    return []
