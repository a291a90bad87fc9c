"""Check a candidate again whenever it, or what it is built of, is saved.

Why: the time from a saved edit to a verdict decides how many ideas an engineer tries. The rule: what takes long and
does not depend on the edit is ready before the edit comes (:mod:`kernelwright.warm`); the verdict is the one that
``kernelwright check`` would give, made by the same code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from kernelwright.check import CheckOptions, check
from kernelwright.errors import KernelwrightError
from kernelwright.records import Verdict
from kernelwright.warm import Warm

POLL_SECONDS = 0.05
SETTLE_SECONDS = 0.1
"""An editor writes a file in several steps: a save is over once nothing has changed for this long."""
SOURCES = frozenset({".py", ".cu", ".cuh", ".cpp", ".cc", ".h", ".hpp", ".inl"})
"""Files beside the candidate that its build may read."""
MOST_FILES = 500

Stamp = tuple[tuple[str, int, int, int], ...]


class Session:
    """Checks of one problem and one candidate, one after the other, from warm processes. A context manager."""

    def __init__(self, problem: Path, candidate: Path, *, options: CheckOptions) -> None:
        self.problem, self.candidate, self.options = problem, candidate, options
        self._warm: Warm | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def check(self, progress: Callable[[str], None] = lambda words: None) -> Verdict:
        """One check; raises what :func:`kernelwright.check.check` does, and is warm again afterwards."""
        if self._warm is None:
            self._warm = Warm().__enter__()
        try:
            return check(self.problem, self.candidate, options=self.options, progress=progress, warm=self._warm)
        except BaseException:
            # Whatever was left half-way answers questions of this check: the next one starts afresh.
            self.close()
            raise

    def idle(self, seconds: float) -> None:
        """Let what is getting ready get ready, for about ``seconds``."""
        if self._warm is None:
            time.sleep(seconds)
            return
        until = time.monotonic() + seconds
        try:
            while (left := until - time.monotonic()) > 0:
                self._warm.supervisor.poll(left)
        except KernelwrightError:
            # What died while nobody asked it anything is started again by the next check, which may say why.
            self.close()

    def close(self) -> None:
        """End every process."""
        if self._warm is not None:
            self._warm.__exit__(None, None, None)
            self._warm = None


def saves(problem: Path, candidate: Path, idle: Callable[[float], None]) -> Iterator[Stamp]:
    """Yields once at the start, and then after each save; ``idle`` is called with the seconds to wait between looks."""
    seen: Stamp | None = None
    while True:
        now = stamp(problem, candidate)
        # A file that an editor is replacing is missing for a moment.
        if now != seen and candidate.is_file() and problem.is_file():
            now = _settled(now, problem, candidate, idle)
            seen = now
            yield now
        else:
            idle(POLL_SECONDS)


def _settled(now: Stamp, problem: Path, candidate: Path, idle: Callable[[float], None]) -> Stamp:
    while True:
        idle(SETTLE_SECONDS)
        later = stamp(problem, candidate)
        if later == now:
            return now
        now = later


def stamp(problem: Path, candidate: Path) -> Stamp:
    """What changes when either file, or a source beside the candidate, is saved."""
    beside = sorted(path for path in candidate.parent.glob("*") if path.suffix in SOURCES)[:MOST_FILES]
    found = []
    for path in dict.fromkeys([problem, candidate, *beside]):
        try:
            told = path.stat()
        except OSError:
            continue
        found.append((str(path), told.st_mtime_ns, told.st_size, told.st_ino))
    return tuple(found)
