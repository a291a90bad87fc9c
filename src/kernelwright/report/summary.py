"""Several verdicts as one table: a line each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelwright.records import Verdict
from kernelwright.report import wording
from kernelwright.report.page import STYLES


def render_summary(verdicts: Sequence[Verdict], console: Console) -> None:
    """Word, candidate, first cause with its line, and time of each verdict."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("verdict", no_wrap=True)
    table.add_column("candidate", overflow="fold")
    table.add_column("cause", overflow="fold")
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    for verdict in verdicts:
        word = Text(verdict.verdict.value.upper(), style=STYLES[verdict.verdict.value])
        path = Path(verdict.candidate)
        cause = verdict.causes[0] if verdict.causes else None
        table.add_row(
            word,
            f"{path.parent.name}/{path.name}" if path.parent.name else path.name,
            cause.id if cause else "-",
            str(cause.line) if cause and cause.line else "-",
            wording.seconds(verdict.seconds),
        )
    console.print(table)
