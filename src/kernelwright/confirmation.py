"""Builds that the fast headers accepted, compiled against the real torch headers beside the emulated run.

Why: the fast headers accept in two seconds what the real ones take a minute for, but PyTorch has the last word on what
compiles. The rule: a confirmation runs in threads of the supervisor (each only waits for a compiler), never delays the
run, and one that did not end in time is "not checked".
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from dataclasses import replace
from types import TracebackType
from typing import Any

from kernelwright.records import BuildRecord, Diagnostic, from_json

Answer = tuple[bool, tuple[Diagnostic, ...]]


class Confirmation:
    """Collects requests as they come and answers for each build by its name. A context manager."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="confirm")
        self._answers: dict[str, Future[Answer]] = {}
        self.notes: list[str] = []
        """Builds that were not confirmed, and why."""

    def __enter__(self) -> Confirmation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def add(self, request: dict[str, Any]) -> None:
        """Start to confirm a build; ``request`` is a ``ConfirmRequest`` in JSON."""
        if self._enabled:
            from kernelwright import build

            known = from_json(build.ConfirmRequest, request)
            self._answers[known.name] = self._pool.submit(build.confirm, known)

    def confirmed(self, records: Sequence[BuildRecord], *, timeout_s: float) -> tuple[BuildRecord, ...]:
        """``records`` with what the real headers said, waiting at most ``timeout_s`` for it."""
        deadline = time.monotonic() + max(0.0, timeout_s)
        return tuple(self._one(record, deadline) for record in records)

    def _one(self, record: BuildRecord, deadline: float) -> BuildRecord:
        answer = self._answers.get(record.name)
        if answer is None:
            return record
        try:
            accepted, diagnostics = answer.result(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            self.notes.append(f"{record.name}: the real torch headers were not asked in time")
            return record
        if accepted:
            return replace(record, confirmed=True)
        return replace(record, ok=False, confirmed=False, diagnostics=(*record.diagnostics, *diagnostics))
