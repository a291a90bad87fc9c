"""One run of a tool that starts the candidate itself: ncu, compute-sanitizer.

Why: such a tool may hang with its program, and its program may leave processes behind. The rule: it is ended at its
time with everything below it, and what it printed is kept; nothing of it reaches our own stdout.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.worker import limits

LOOK_SECONDS = 0.2
"""How often a run is looked at."""


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    printed: str
    """stdout and stderr together."""
    status: int | None
    """Exit status; None where it was ended for its time."""


class Patience:
    """How long runs may still take, beside their time-outs; another thread may shorten it."""

    def __init__(self) -> None:
        self.until = math.inf
        """``time.monotonic`` at which it ends."""

    def only(self, seconds: float) -> None:
        """Have it end after ``seconds`` from now, if it does not before."""
        self.until = min(self.until, time.monotonic() + seconds)


def run(
    command: list[str],
    folder: Path,
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    patience: Patience | None = None,
) -> Ended:
    """Run ``command`` with ``environment`` on top of ours; ``folder`` takes its output."""
    patience = patience or Patience()
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
        deadline = time.monotonic() + timeout_s
        status: int | None = None
        try:
            while status is None and (left := min(deadline, patience.until) - time.monotonic()) > 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(timeout=min(left, LOOK_SECONDS))
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
