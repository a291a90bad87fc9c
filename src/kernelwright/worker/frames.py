"""Python exceptions and stack dumps as facts: only the frames that lie in the user's own file.

Why: a report speaks of lines of candidate.py, not of torch's or ours. The rule: a fact is made of plain text and
numbers, and making one never raises, whatever the exception's own methods do. No torch here.
"""

from __future__ import annotations

import linecache
import re
import traceback
from pathlib import Path

from kernelwright.records import ExceptionFact, SourceLine

MESSAGE_CHARS = 16_000
TRACEBACK_CHARS = 32_000


def exception_fact(error: BaseException, file: str) -> ExceptionFact:
    """``error`` with its frames in ``file``, outermost first. A syntax error's own line is its last frame."""
    try:
        message = str(error)
    except Exception as worse:
        message = f"<its message could not be had: {type(worse).__name__}>"
    frames = [
        SourceLine(file, frame.lineno or 0, (frame.line or "").strip(), frame.name)
        for frame in _extract(error)
        if same_file(frame.filename, file)
    ]
    if isinstance(error, SyntaxError) and error.filename and same_file(error.filename, file):
        frames.append(SourceLine(file, error.lineno or 0, (error.text or "").strip(), ""))
        message = error.msg or message
    if isinstance(error, SystemExit) and not message:
        message = "0"
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:
        text = ""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    return ExceptionFact(name, _tail(message, MESSAGE_CHARS), tuple(frames), _tail(text, TRACEBACK_CHARS))


def _extract(error: BaseException) -> list[traceback.FrameSummary]:
    try:
        return list(traceback.extract_tb(error.__traceback__))
    except Exception:
        return []


def same_file(one: str, other: str) -> bool:
    """Whether two names mean one file, as given or resolved."""
    if one == other:
        return True
    try:
        return Path(one).resolve() == Path(other).resolve()
    except (OSError, ValueError):
        return False


_DUMPED = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_THREAD = re.compile(r"^(Current thread|Thread) ")


def dumped_frames(dump: str, file: str) -> tuple[SourceLine, ...]:
    """Frames in ``file`` of a faulthandler dump, innermost first: those of the current thread if it has any.

    A later dump in the text wins: it is the state nearest to the end.
    """
    stacks: list[tuple[bool, list[SourceLine]]] = []
    for line in dump.splitlines():
        if _THREAD.match(line) or line.startswith("Stack (most recent call first)"):
            stacks.append((not line.startswith("Thread "), []))
        elif stacks and (found := _DUMPED.match(line)) and same_file(found["file"], file):
            number = int(found["line"])
            text = linecache.getline(file, number).strip()
            stacks[-1][1].append(SourceLine(file, number, text, found["function"]))
    with_frames = [(current, frames) for current, frames in stacks if frames]
    current = [frames for is_current, frames in with_frames if is_current]
    chosen = current or [frames for _, frames in with_frames]
    return tuple(chosen[-1]) if chosen else ()


def _tail(text: str, limit: int) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= limit:
        return text
    return text[: limit // 4] + f"\n[… {len(text) - limit} characters …]\n" + text[-(limit - limit // 4) :]
