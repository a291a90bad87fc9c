"""The store of everything a build makes, named by content.

Why: a rebuild of unchanged sources must cost milliseconds, and any number of processes may build at once. The rule: an
entry is a folder named by the digest of all that determines it; it appears in one rename, under a lock of its own, and
is never changed afterwards; one that leans on another that is gone is made anew. A killed build leaves only a
``.making-`` folder that nothing reads. Taking an entry sets its time, by which ``eviction`` knows what was not used for
longest.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from kernelwright import eviction, settings


def digest(*parts: str | bytes) -> str:
    """A name for ``parts``: 32 hexadecimal digits, different where any part or the division into parts differs."""
    made = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        made.update(f"{len(raw)}\0".encode())
        made.update(raw)
    return made.hexdigest()[:32]


def placeholder(index: int) -> str:
    """As long as a digest, and none: stands for the PTX of unit ``index`` until it is known."""
    return f"{index:04d}".rjust(32, "k")


def folder_digest(root: Path, suffixes: Iterable[str] = (".h",)) -> str:
    """The digest of all files under ``root`` with one of ``suffixes``."""
    wanted = tuple(suffixes)
    files = sorted(p for p in root.rglob("*") if p.is_file() and p.suffix in wanted)
    return digest(*(part for p in files for part in (str(p.relative_to(root)), p.read_bytes())))


@functools.cache
def code() -> str:
    """The digest of this package's own code: what a finished module or a verdict of the headers also depends on."""
    return folder_digest(Path(__file__).parent, (".py", ".cpp"))


def root() -> Path:
    """The store's folder."""
    return settings.cache_folder() / "build"


def lookup(kind: str, name: str) -> Path | None:
    """The entry ``name`` of ``kind``, or None."""
    entry = root() / kind / name
    return entry if _taken(entry) else None


def obtain(
    kind: str,
    name: str,
    make: Callable[[Path], None],
    *,
    leans_on: Callable[[Path], tuple[str, str] | None] | None = None,
) -> tuple[Path, bool]:
    """The entry ``name`` of ``kind`` and whether it was there already; ``make`` fills an empty folder otherwise.

    Whoever comes second waits for the first. What ``make`` raises leaves no entry. ``leans_on``: kind and name of the
    entry that this one names in its files, if any; the two count as used together.
    """
    entry = root() / kind / name

    def whole() -> bool:
        if not _taken(entry):
            return False
        other = leans_on(entry) if leans_on is not None else None
        return other is None or lookup(*other) is not None

    if whole():
        return entry, True
    entry.parent.mkdir(parents=True, exist_ok=True)
    with (entry.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if whole():
            return entry, True
        eviction.remove(entry)
        scratch = Path(tempfile.mkdtemp(dir=entry.parent, prefix=".making-"))
        try:
            make(scratch)
            scratch.chmod(0o755)
            scratch.rename(entry)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    return entry, False


def _taken(entry: Path) -> bool:
    """Whether ``entry`` is there; if so, it counts as used now."""
    try:
        os.utime(entry)
    except FileNotFoundError:
        return False
    except OSError:  # another user's cache, read-only: its times are not ours to keep
        return entry.is_dir()
    return True
