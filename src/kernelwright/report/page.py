"""A page of labelled, wrapped paragraphs: the layout that every rendering shares.

Why: a screen reads quickly when labels stand in one column and text hangs beside them at any width. The rule: a line of
prose wraps, a line of source is cut with an ellipsis, and nothing is wider than the console.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

LABEL_COLUMNS = 11

STYLES = {
    "correct": "bold green",
    "wrong": "bold red",
    "failed": "bold red",
    "cheating": "bold magenta",
    "unsure": "bold yellow",
}
"""Of a verdict's word, which is also written in capitals."""


def paragraph(console: Console, text: str | Text, *, indent: int = 0, bullet: str = "") -> None:
    """Wrapped text, ``indent`` columns in; ``bullet`` hangs to its left."""
    if not bullet:
        console.print(Padding(text, (0, 0, 0, indent)))
        return
    grid = Table.grid(padding=0)
    grid.add_column(width=indent + len(bullet) + 1, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(" " * indent + bullet), text)
    console.print(grid)


def labelled(console: Console, label: str, lines: Iterable[str | Text]) -> None:
    """``label`` in its column, and ``lines`` wrapped beside it, one paragraph each. Prints nothing without lines."""
    body = list(lines)
    if not body:
        return
    grid = Table.grid(padding=0)
    grid.add_column(width=LABEL_COLUMNS, no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for number, line in enumerate(body):
        grid.add_row(label if number == 0 else "", line)
    console.print(grid)


def source(console: Console, lines: Iterable[tuple[int, str]], *, marked: int, indent: int = 2) -> None:
    """Numbered source lines, each cut to the console's width; line ``marked`` carries an arrow and is bold."""
    numbered = list(lines)
    if not numbered:
        return
    gutter = len(str(numbered[-1][0]))
    for number, text in numbered:
        here = number == marked
        line = Text(" " * indent + ("> " if here else "  "), style="bold red" if here else "")
        line.append(f"{number:>{gutter}} | ", style="bold" if here else "dim")
        line.append(text.expandtabs(4), style="bold" if here else "dim")
        line.truncate(console.width, overflow="ellipsis")
        console.print(line, no_wrap=True, overflow="ellipsis")
