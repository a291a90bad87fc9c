"""Smaller sizes for a problem, chosen by themselves: for a replay on a device that is slower or has less memory.

Why: a candidate that crashed at 2048 x 1,048,576 most often crashes at 1024 x 1024, too, which takes a second. The
rule: only whole numbers that the file binds at its top level change; each keeps its remainder by a power of two, so
that what was ragged or aligned stays so; a number that the candidate's text holds, too, is left as it is, since the
candidate relies on it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

STEPS = (1024, 256, 64)
"""A constant of at least twice the step becomes the step and its remainder by it."""


def smaller(constants: Mapping[str, str], candidate_text: str) -> Iterator[dict[str, str]]:
    """Values for ``--set``, step by step smaller; none where no constant can be made smaller.

    ``constants``: name to source of its value, as :func:`kernelwright.problem.constants.constants` reads them.
    """
    written = {int(word) for word in re.findall(r"(?<![\w.])\d+(?![\w.])", candidate_text.replace("_", ""))}
    sizes = {name: value for name, text in constants.items() if (value := _whole(text)) is not None}
    before: dict[str, str] = {}
    for step in STEPS:
        made = {
            name: str(step + value % step)
            for name, value in sizes.items()
            if value >= 2 * step and value not in written
        }
        if made and made != before:
            before = made
            yield made


def _whole(text: str) -> int | None:
    """``text`` as a whole number; None for every other literal and for expressions, which recompute by themselves."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
