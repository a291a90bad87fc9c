"""Builds that the fast headers accepted, compiled against the real torch headers beside the emulated run.

Why: the fast headers accept in two seconds what the real ones take longer for, but PyTorch has the last word on what
compiles. The rule: each confirmation is a process of its own at low priority, so that it never delays the run and can
be ended with its compilers; one that did not end in time is "not checked".
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from kernelwright import build
from kernelwright.records import BuildRecord, from_json, to_json

NICE = 5
"""Below the emulated run, which shares the cores."""


@dataclass
class _Asked:
    """One confirmation under way."""

    process: subprocess.Popen[bytes]
    answer: IO[bytes]
    """A file without a name: the answer may be longer than a pipe holds, and nobody reads while the run goes on."""
    errors: IO[bytes]


class Confirmation:
    """Collects requests as they come and answers for each build by its name. A context manager."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._asked: dict[str, _Asked] = {}
        self.notes: list[str] = []
        """Builds that were not confirmed, and why."""

    def __enter__(self) -> Confirmation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for asked in self._asked.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(asked.process.pid, signal.SIGKILL)
            asked.process.wait()
            asked.answer.close()
            asked.errors.close()
        self._asked.clear()

    def add(self, request: dict[str, Any]) -> None:
        """Start to confirm a build; ``request`` is a ``ConfirmRequest`` in JSON. Raises ``TypeError`` for none."""
        known = from_json(build.ConfirmRequest, request)
        if not self._enabled or known.extension.name in self._asked:
            return
        package = str(Path(__file__).parents[1])
        program = f"import sys; sys.path.append({package!r}); from kernelwright.confirmation import main; main()"
        answer, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        with tempfile.TemporaryFile() as asked:
            asked.write(json.dumps(to_json(known)).encode())
            asked.seek(0)
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", program], stdin=asked, stdout=answer, stderr=errors, start_new_session=True
            )
        self._asked[known.extension.name] = _Asked(process, answer, errors)

    def confirmed(self, records: Sequence[BuildRecord], *, timeout_s: float) -> tuple[BuildRecord, ...]:
        """``records`` with what the real headers said, waiting at most ``timeout_s`` for all of them."""
        deadline = time.monotonic() + max(0.0, timeout_s)
        return tuple(self._one(record, deadline) for record in records)

    def _one(self, record: BuildRecord, deadline: float) -> BuildRecord:
        asked = self._asked.get(record.name)
        if asked is None:
            return record
        try:
            asked.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return self._unknown(record, "not asked long enough")
        result = _read(asked)
        if not result.checked:
            return self._unknown(record, result.how)
        if result.ok:
            return replace(record, confirmed=True, confirm_note=result.how)
        diagnostics = (*record.diagnostics, *result.diagnostics)
        return replace(record, ok=False, confirmed=False, confirm_note=result.how, diagnostics=diagnostics)

    def _unknown(self, record: BuildRecord, why: str) -> BuildRecord:
        self.notes.append(f"{record.name}: not confirmed by the real torch headers: {why}")
        return replace(record, confirm_note=why)


def _read(asked: _Asked) -> build.ConfirmResult:
    """The answer of a process that ended."""
    asked.answer.seek(0)
    asked.errors.seek(0)
    try:
        return from_json(build.ConfirmResult, json.loads(asked.answer.read()))
    except (ValueError, TypeError):
        words = asked.errors.read().decode("utf-8", "replace").strip().splitlines()
        return build.ConfirmResult(ok=False, checked=False, how=words[-1] if words else "it ended without an answer")


def main() -> None:
    """In the confirming process: one request on stdin, one answer on stdout."""
    os.nice(NICE)
    request = from_json(build.ConfirmRequest, json.loads(sys.stdin.buffer.read()))
    sys.stdout.write(json.dumps(to_json(build.confirm(request))))
