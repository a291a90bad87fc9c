"""From a return address inside an extension to the candidate's source line.

Why: a launch is refused or faults at run time; the user thinks of the ``<<<>>>`` line. The rule: asked only when a
report is made, each address once; what cannot be resolved is ``None``, never a guess.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
from pathlib import Path

from kernelwright.records import SourceLine


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


@functools.cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def library_of(address: int) -> tuple[Path, int] | None:
    """The loaded file that holds ``address`` and the offset in it; None where no file does."""
    info = _DlInfo()
    if not _process().dladdr(ctypes.c_void_p(address), ctypes.byref(info)) or not info.file:
        return None
    return Path(info.file.decode()), address - int(info.base or 0)


@functools.cache
def source_line(return_address: int) -> SourceLine | None:
    """The line of the call that returns to ``return_address``; the outermost frame where calls were inlined."""
    place = library_of(return_address - 1) if return_address else None
    return None if place is None else line_in(*place)


@functools.cache
def line_in(library: Path, offset: int) -> SourceLine | None:
    """The line of the instruction at ``offset`` in ``library``; the outermost frame of the user's where inlined."""
    tool = shutil.which("addr2line")
    if tool is None:
        return None
    command = [tool, "-e", str(library), "-f", "-C", "-i", hex(offset)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = answer.stdout.splitlines()
    frames = [_frame(function, where) for function, where in zip(lines[::2], lines[1::2], strict=False)]
    known = [frame for frame in frames if frame is not None]
    own = [frame for frame in known if not frame.file.startswith("/usr/")]
    return own[0] if own else None


def _frame(function: str, where: str) -> SourceLine | None:
    file, _, number = where.split(" (")[0].rpartition(":")
    if file in ("", "??") or not number.isdigit() or number == "0":
        return None
    return SourceLine(file=file, line=int(number), text=_text(file, int(number)), function=function)


def _text(file: str, line: int) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").splitlines()[line - 1].strip()
    except (OSError, IndexError):
        return ""
