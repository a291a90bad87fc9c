"""A page of labelled, wrapped paragraphs: the layout that every rendering shares.

Why: a screen reads quickly when labels stand in one column and text hangs beside them at any width. The rule: prose
and the line at fault wrap, the source around it is cut with an ellipsis, and nothing is wider than the console.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

LABEL_COLUMNS = 13

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
    hang(console, Text(" " * indent + (bullet + " " if bullet else "")), text)


def labelled(console: Console, label: str, lines: Iterable[str | Text]) -> None:
    """``label`` in its column, and ``lines`` wrapped beside it, one paragraph each. Prints nothing without lines."""
    for number, line in enumerate(lines):
        hang(console, Text((label if number == 0 else "").ljust(LABEL_COLUMNS), style="bold"), line)


def hang(console: Console, lead: Text, text: str | Text) -> None:
    """``text`` wrapped to the right of ``lead``, without trailing blanks."""
    body = Text(text) if isinstance(text, str) else text
    width = max(20, console.width - lead.cell_len)
    blank = Text(" " * lead.cell_len)
    for number, line in enumerate(body.wrap(console, width)):
        line.rstrip()
        console.print(Text.assemble(lead if number == 0 else blank, line), no_wrap=True, overflow="ignore", crop=False)


def source(console: Console, lines: Iterable[tuple[int, str]], *, marked: int, indent: int = 2) -> None:
    """Numbered source lines; line ``marked`` carries an arrow, is bold and wraps, the others are cut to the width."""
    numbered = list(lines)
    if not numbered:
        return
    gutter = len(str(numbered[-1][0]))
    for number, code in numbered:
        here = number == marked
        lead = Text(
            " " * indent + ("> " if here else "  ") + f"{number:>{gutter}} | ", style="bold red" if here else "dim"
        )
        text = Text(code.expandtabs(4), style="bold" if here else "dim")
        if here:
            hang(console, lead, text)
            continue
        text.truncate(max(1, console.width - lead.cell_len), overflow="ellipsis")
        line = Text.assemble(lead, text)
        line.rstrip()
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
