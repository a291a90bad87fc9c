"""What a program's process tells while it runs: lines of JSON in a memory file that survives any death.

Why: the program may end at any instruction, by any means, and its stdout is its own. The rule: one line a fact, written
at once; a line cut short by the death is left out.
"""

from __future__ import annotations

import json
import os
from typing import Any


def create() -> int:
    """The descriptor of an empty journal, to be given to the process."""
    return os.memfd_create("kernelwright-journal", os.MFD_CLOEXEC)


def write(fd: int, fact: dict[str, Any]) -> None:
    """Adds one fact."""
    data = (json.dumps(fact) + "\n").encode()
    while data:
        data = data[os.write(fd, data) :]


def read(fd: int) -> list[dict[str, Any]]:
    """Every whole fact, in order."""
    text = os.pread(fd, os.fstat(fd).st_size, 0).decode("utf-8", "replace")
    facts = []
    for line in text.split("\n"):
        try:
            fact = json.loads(line)
        except ValueError:
            continue
        if isinstance(fact, dict):
            facts.append(fact)
    return facts
