"""Keep the cache folder under its limit: what was not used for longest goes first.

Why: a precompiled header is 100 MB, a checked candidate a few, and every edit makes new ones; a folder that only grows
fills a disk within weeks. The rule: only what can be made again goes, in one rename, and never what was used within the
last hour, since another process may be reading it: so the limit may be exceeded for that long.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelwright import settings

SPARED_S = 3600.0
"""An entry used more recently than this stays: longer than any check may take."""
PAUSE_S = 600.0
"""Between two looks at the folder: one costs some ten milliseconds for each thousand entries."""
TARGET = 0.8
"""The share of the limit that is left filled, so that not every check has something to evict."""
LEAVING = ".leaving-"
SCRATCH = (".making-", LEAVING)
"""What a killed process may leave behind; nothing reads it."""
DEPTHS = {"build": 2, "native": 1, "kernels": 2}
"""How far below each folder its entries lie. Measured ceilings are no build, take a kilobyte, and stay."""


@dataclass(frozen=True)
class Entry:
    """One thing that the cache holds."""

    path: Path
    size: int
    """Bytes on disk."""
    used: float
    """When it was made or last taken, in seconds since the epoch."""


@dataclass(frozen=True)
class Evicted:
    """What one look at the cache did."""

    held: int
    """Bytes that the entries took before."""
    freed: int
    """Bytes that were removed."""
    entries: int
    """How many entries were removed."""


def evict(*, limit: int | None = None, now: float | None = None) -> Evicted:
    """Remove the entries used longest ago until the cache is below ``TARGET`` of ``limit`` bytes, if it is above it.

    ``limit``: the ``CACHE_LIMIT`` setting where None. What cannot be removed is left; nothing is raised for it.
    """
    root = settings.cache_folder()
    moment = time.time() if now is None else now
    most: int = settings.get("CACHE_LIMIT") if limit is None else limit
    entries = sorted(_entries(root), key=lambda entry: entry.used)
    held = sum(entry.size for entry in entries)
    freed = count = 0
    for entry in entries:
        abandoned = entry.path.name.startswith(SCRATCH)
        enough = held <= most or held - freed <= most * TARGET
        if moment - entry.used < SPARED_S or (enough and not abandoned):
            continue
        if remove(entry.path):
            freed += entry.size
            count += 1
    return Evicted(held, freed, count)


def evict_sometimes() -> None:
    """``evict``, unless it was done within ``PAUSE_S``."""
    stamp = settings.cache_folder() / ".evicted"
    try:
        if time.time() - stamp.stat().st_mtime < PAUSE_S:
            return
    except FileNotFoundError:
        pass
    try:
        stamp.touch()
    except OSError:  # a cache that cannot be written does not grow either
        return
    evict()


def _entries(root: Path) -> Iterator[Entry]:
    for name, depth in DEPTHS.items():
        folders = [root / name]
        for _ in range(depth - 1):
            folders = [Path(child.path) for folder in folders for child in _children(folder) if child.is_dir()]
        for folder in folders:
            for child in _children(folder):
                # A lock stays: whoever removes it lets two processes hold it at once.
                if not child.name.endswith(".lock"):
                    entry = _entry(Path(child.path))
                    if entry is not None:
                        yield entry


def _children(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as children:
            return list(children)
    except FileNotFoundError:
        return []


def _entry(path: Path) -> Entry | None:
    """None where another process removed it meanwhile."""
    try:
        status = path.lstat()
        files = [p.lstat() for p in path.rglob("*")] if path.is_dir() and not path.is_symlink() else []
    except FileNotFoundError:
        return None
    return Entry(path, sum(512 * part.st_blocks for part in (status, *files)), status.st_mtime)


def remove(path: Path) -> bool:
    """Take ``path`` away in one rename; whether it was there and could be."""
    leaving = path.with_name(f"{LEAVING}{os.getpid()}-{path.name}")
    try:
        path.rename(leaving)
    except OSError:
        return False
    if leaving.is_dir():
        shutil.rmtree(leaving, ignore_errors=True)
    else:
        leaving.unlink(missing_ok=True)
    return True
