"""A place in a source file: what findings, causes, launches and counters all point at.

The rule: this file imports nothing, so that every record may hold one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceLine:
    """A place in a source file, as a person would open it."""

    file: str
    """Path as the user gave it (``candidate.py``), or a header's path."""
    line: int
    """1-based."""
    text: str = ""
    """The line itself, stripped; empty where the file could not be read."""
    function: str = ""
    """Enclosing function, demangled; empty where unknown."""
