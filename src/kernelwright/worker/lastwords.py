"""What a candidate's process still does when it is about to end: stops its kernel when told to, says that it exits.

Why: a kernel that never ends and ``os._exit`` both leave no Python behind that could tell where they were. The rule:
nothing here waits for the candidate.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from kernelwright.worker.nursery import INTERRUPT_SIGNAL


def heed_interrupts(interrupt: Callable[[], None]) -> None:
    """Call ``interrupt`` when the supervisor signals that time is up.

    The main thread is inside the kernel and runs no Python handler, but the interpreter's C handler writes to a pipe.
    """
    heard, told = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(told, False)

    def listen() -> None:
        while word := os.read(heard, 1):
            if word[0] == INTERRUPT_SIGNAL:
                interrupt()

    signal.signal(INTERRUPT_SIGNAL, lambda number, frame: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=listen, name="kernelwright-interrupt", daemon=True).start()


def tell_exits(tell: Callable[[str, list[types.FrameType]], None]) -> None:
    """``os._exit`` and ``os.abort`` leave no traceback: ``tell`` which is called, and from where, innermost first."""
    process = os.getpid()

    def telling(leave: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any) -> Any:
            if os.getpid() != process:
                return leave(*arguments)
            tell(leave.__name__, _stack())
            return leave(*arguments)

        return wrapper

    os._exit = telling(os._exit)
    os.abort = telling(os.abort)


def _stack() -> list[types.FrameType]:
    """Python frames from the caller's caller outwards."""
    frames: list[types.FrameType] = []
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames
