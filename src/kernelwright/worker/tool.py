"""One run of a tool that starts the candidate itself: ncu, compute-sanitizer.

Why: such a tool may hang with its program, and its program may leave processes behind. The rule: it is ended at its
time with everything below it, and what it printed is kept; nothing of it reaches our own stdout.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.worker import limits


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    printed: str
    """stdout and stderr together."""
    status: int | None
    """Exit status; None where it was ended for its time."""


def run(command: list[str], folder: Path, *, timeout_s: float, environment: Mapping[str, str] | None = None) -> Ended:
    """Run ``command`` with ``environment`` on top of ours; ``folder`` takes its output."""
    file = folder / "printed.txt"
    with file.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
    return Ended(file.read_text(encoding="utf-8", errors="replace"), status)


def known(file: Path) -> dict[str, Any]:
    """What the candidate's process wrote down (``Alone.result``); empty where it came to nothing."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and all that it started."""
    for pid in (*reversed(limits.descendants(process.pid)), process.pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
