"""One forked process, as the supervisor sees it: what it said, what it may use, and how it ended.

The rule: this is the supervisor's own memory of a process, which stays true after the process is gone.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable
from typing import Any

from kernelwright.records import ProcessExit
from kernelwright.worker.capture import Capture
from kernelwright.worker.frames import dumped_frames
from kernelwright.worker.wire import Channel

Message = tuple[dict[str, Any], list[int]]
"""What a worker replied, and the files it handed over."""


class WorkerEnded(Exception):
    """A worker ended before it answered; ``exit`` says how."""

    def __init__(self, role: str, exit: ProcessExit) -> None:
        super().__init__(f"the {role} process ended during {exit.during or 'its start'}")
        self.role = role
        self.exit = exit


class Worker:
    """One forked process, as the supervisor sees it."""

    def __init__(self, role: str, file: str, channel: Channel, pipes: tuple[Capture, Capture, Capture]) -> None:
        self.role = role
        self.file = file
        """The source file whose frames are told."""
        self.channel = channel
        self.stdout, self.stderr, self.trace = pipes
        self.pid = 0
        self.during = ""
        """What it is doing, as it last said."""
        self.replies: deque[Message] = deque()
        self.outstanding = 0
        """Requests whose replies nobody has taken yet."""
        self.on_event: Callable[[dict[str, Any]], None] = lambda event: None
        """Called with each message that is no reply: builds, launches, findings."""
        self.memory_bytes: int | None = None
        """Private memory it may have, its start included; None for no limit."""
        self.peak_bytes = 0
        self.waited_s = 0.0
        """How long replies were waited for so far."""
        self.status: int | None = None
        """Wait status once it ended."""
        self.left_behind = 0
        """Processes of its own that were still there at its end."""
        self.protocol_error = ""
        self.timed_out = False
        self.out_of_memory = False
        self.channel_open = True

    @property
    def ended(self) -> bool:
        """Whether it is gone and its wait status known."""
        return self.status is not None

    def exit_fact(self) -> ProcessExit:
        """How it ended, in facts."""
        status = self.status
        killed = status is not None and os.WIFSIGNALED(status)
        ours = self.timed_out or self.out_of_memory or bool(self.protocol_error)
        name = ""
        if killed and status is not None and not ours:
            number = os.WTERMSIG(status)
            name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        during = self.during
        if self.protocol_error:
            during = f"{during} ({self.protocol_error})".strip()
        return ProcessExit(
            returncode=os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            signal=name,
            timed_out=self.timed_out,
            out_of_memory=self.out_of_memory,
            during=during,
            frames=dumped_frames(self.trace.text(), self.file),
            stdout=self.stdout.text(),
            stderr=self.stderr.text(),
        )
