"""What the command line says on stderr: errors, hints and progress.

Why: stdout is data and must stay parseable. The rule: on a terminal progress is one line that rewrites itself; off a
terminal it is plain lines, one a step, with no control characters.
"""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import TextIO


def say_error(message: str, *, hint: str = "") -> None:
    """``error: …`` and, on its own line, ``hint: …``."""
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def say_note(message: str) -> None:
    """``note: …``: something the reader may want to know, which changes no result."""
    print(f"note: {message}", file=sys.stderr)


class Progress:
    """Says what a check is doing. Used as a context manager: the terminal's line is cleared at the end."""

    def __init__(self, stream: TextIO | None = None, *, prefix: str = "") -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._prefix = prefix
        self._last = ""

    def __call__(self, step: str) -> None:
        """Say ``step``; a step said twice in a row is said once."""
        text = self._prefix + " ".join(step.split())
        if text == self._last:
            return
        self._last = text
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write("\r\x1b[K" + text[:width])
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live and self._last:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
