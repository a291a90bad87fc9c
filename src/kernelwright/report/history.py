"""Verdicts of the past as a table, and two of them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kernelwright.report.page import labelled
from kernelwright.store.compare import Between
from kernelwright.store.history import Entry


def render_history(entries: Sequence[Entry], console: Console) -> None:
    """One line a verdict; of a path the file and its folder."""
    if not entries:
        console.print("no verdict is kept yet")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("no.", justify="right", no_wrap=True)
    for name in ("time (UTC)", "word", "candidate", "device"):
        table.add_column(name, overflow="fold")
    for name in ("ms", "speed-up"):
        table.add_column(name, justify="right", no_wrap=True)
    for entry in entries:
        table.add_row(
            str(entry.id),
            entry.at.removesuffix("+00:00").replace("T", " "),
            entry.word,
            "/".join(Path(entry.candidate).parts[-2:]),
            entry.device,
            f"{entry.device_ms:.4g}" if entry.device_ms is not None else "-",
            f"{entry.speedup:.4g}" if entry.speedup is not None else "-",
        )
    console.print(table)


def render_comparison(found: Between, console: Console) -> None:
    """The word and what it rests on."""
    words = f"verdict {found.first} is {found.words[0]}, verdict {found.second} is {found.words[1]}"
    if found.comparison is None:
        labelled(console, "not compared", [found.note, words])
        return
    one = found.comparison
    said = f"verdict {found.second} against verdict {found.first}: {one.sentence}"
    labelled(console, one.word.value, [said, words])
