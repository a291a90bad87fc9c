"""Every verdict in one SQLite file, with both sources, raw samples and versions.

Why: "it was faster yesterday" can only be answered by yesterday's samples. The rule: a verdict is written in one
transaction, so a crash in mid-write loses that one at most and nothing that was finished; a row is never changed
afterwards; the JSON in it is the public verdict, so what is read back is what was printed. Columns beside it are copies
for searching.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernelwright.errors import MachineError, UsageError
from kernelwright.records import Verdict, from_json, to_json

VERSION = 1
"""Of the tables, in SQLite's ``user_version``; a file of a later version is refused, not changed."""
PATIENCE_S = 30
"""How long to wait for other processes that write."""

_TABLES = """
CREATE TABLE sources (digest TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE verdicts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    problem TEXT NOT NULL,
    candidate TEXT NOT NULL,
    problem_source TEXT NOT NULL REFERENCES sources (digest),
    candidate_source TEXT NOT NULL REFERENCES sources (digest),
    word TEXT NOT NULL,
    device TEXT NOT NULL,
    device_ms REAL,
    speedup REAL,
    verdict TEXT NOT NULL
);
CREATE INDEX verdicts_by_problem ON verdicts (problem_source, id);
"""


@dataclass(frozen=True)
class Entry:
    """One row, without its verdict's text."""

    id: int
    at: str
    """UTC, ISO 8601."""
    problem: str
    candidate: str
    word: str
    device: str
    device_ms: float | None
    """The candidate's median; None where nothing was timed."""
    speedup: float | None
    """Against eager."""


@dataclass(frozen=True)
class Stored:
    """One row whole."""

    entry: Entry
    verdict: Verdict
    problem_text: str
    candidate_text: str


class History:
    """The store in one file, made on first use."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, verdict: Verdict, *, problem_text: str, candidate_text: str) -> int:
        """Keep a verdict; returns its number. Raises ``MachineError`` where it cannot be written."""
        text = json.dumps(to_json(verdict), ensure_ascii=False, allow_nan=False)
        candidate = (
            next((c for c in verdict.timing.contestants if c.name == "candidate"), None) if verdict.timing else None
        )
        against = (
            next((c for c in verdict.timing.comparisons if c.baseline == "eager"), None) if verdict.timing else None
        )
        with self._open() as base, base:
            digests = []
            for source in (problem_text, candidate_text):
                digest = hashlib.sha256(source.encode()).hexdigest()
                base.execute("INSERT OR IGNORE INTO sources VALUES (?, ?)", (digest, source))
                digests.append(digest)
            cursor = base.execute(
                "INSERT INTO verdicts (at, problem, candidate, problem_source, candidate_source, word, device, "
                "device_ms, speedup, verdict) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    datetime.now(UTC).isoformat(timespec="seconds"),
                    verdict.problem,
                    verdict.candidate,
                    *digests,
                    verdict.verdict.value,
                    verdict.device.name if verdict.device else "",
                    candidate.device.median if candidate else None,
                    against.speedup.median if against else None,
                    text,
                ),
            )
            return int(cursor.lastrowid or 0)

    def entries(self, *, limit: int | None = None) -> list[Entry]:
        """The newest ``limit`` rows, newest first."""
        with self._open() as base:
            rows = base.execute(f"SELECT {_COLUMNS} FROM verdicts ORDER BY id DESC LIMIT ?", (limit or -1,))
            return [Entry(*row) for row in rows]

    def get(self, number: int) -> Stored:
        """Row ``number``; a negative one counts from the newest, -1. Raises ``UsageError`` where there is none."""
        newest = "id = (SELECT id FROM verdicts ORDER BY id DESC LIMIT 1 OFFSET ?)"
        where, value = (newest, -number - 1) if number < 0 else ("id = ?", number)
        with self._open() as base:
            row = base.execute(
                f"SELECT {_COLUMNS}, verdict, p.text, c.text FROM verdicts "
                "JOIN sources p ON p.digest = problem_source JOIN sources c ON c.digest = candidate_source "
                f"WHERE {where}",
                (value,),
            ).fetchone()
        if row is None:
            raise UsageError(f"the history has no verdict {number}", hint="kernelwright history lists them")
        entry = Entry(*row[: len(_NAMES)])
        verdict, problem_text, candidate_text = row[len(_NAMES) :]
        return Stored(entry, from_json(Verdict, json.loads(verdict)), problem_text, candidate_text)

    def export(self) -> Iterator[dict[str, Any]]:
        """Every row as JSON-ready values, oldest first: the entry's columns, both sources and the verdict."""
        for entry in reversed(self.entries()):
            stored = self.get(entry.id)
            yield {
                **to_json(entry),
                "problem_text": stored.problem_text,
                "candidate_text": stored.candidate_text,
                "verdict": to_json(stored.verdict),
            }

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=PATIENCE_S)) as base:
                # A power cut, too, loses nothing that was committed.
                _write_ahead(base)
                base.execute("PRAGMA synchronous = FULL")
                self._prepare(base)
                yield base
        except (sqlite3.Error, OSError) as error:
            raise MachineError(
                f"the history {self.path} cannot be used: {error}", hint="KERNELWRIGHT_HISTORY names another file"
            ) from None

    def _prepare(self, base: sqlite3.Connection) -> None:
        (found,) = base.execute("PRAGMA user_version").fetchone()
        if found == VERSION:
            return
        if found > VERSION:
            raise MachineError(
                f"the history {self.path} was written by a later Kernelwright (version {found} of its tables)",
                hint="KERNELWRIGHT_HISTORY names another file",
            )
        # Two processes may both find a new file; the second waits here and finds it prepared.
        base.execute("BEGIN EXCLUSIVE")
        if base.execute("PRAGMA user_version").fetchone() == (0,):
            for statement in _TABLES.strip().split(";\n"):
                base.execute(statement)
            base.execute(f"PRAGMA user_version = {VERSION}")
        base.commit()


def _write_ahead(base: sqlite3.Connection) -> None:
    """Make the file's journal a write-ahead log. SQLite does not wait for others here, whatever its timeout is: two
    processes that find a new file would fail now and then. Anything but another's lock raises at once."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            base.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


_NAMES = ("id", "at", "problem", "candidate", "word", "device", "device_ms", "speedup")
_COLUMNS = ", ".join(f"verdicts.{name}" for name in _NAMES)
