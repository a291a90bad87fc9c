"""What the command line writes on stdout: JSON, or a rendering in the terminal's width and colours.

Why: ``NO_COLOR``, a pipe and a narrow terminal must each be respected in one place. The rule: rich is imported only
when something is rendered; JSON is strict (no NaN) and ends in a newline.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, TextIO

from kernelwright.records import to_json

if TYPE_CHECKING:
    from rich.console import Console

PIPED_COLUMNS = 100
"""Width of what is rendered into a pipe or a file, where no terminal says one."""


def write_json(record: Any) -> None:
    """``record`` (a dataclass, or JSON-ready values) as indented JSON on stdout."""
    sys.stdout.write(json.dumps(to_json(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def console() -> Console:
    """A console on stdout. rich itself honours ``NO_COLOR``, ``COLUMNS`` and whether it is a terminal."""
    return _console(sys.stdout)


def error_console() -> Console:
    """The same on stderr, for what stands beside a program's own output."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    import os

    from rich.console import Console

    fixed = None if stream.isatty() or "COLUMNS" in os.environ else PIPED_COLUMNS
    return Console(file=stream, highlight=False, emoji=False, markup=False, width=fixed, soft_wrap=False)
