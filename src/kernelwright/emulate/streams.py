"""``torch.cuda.Stream`` and ``torch.cuda.Event`` for the emulated device.

Why: a torch without CUDA has placeholders there that refuse to be made. The rule: torch's own device-neutral classes do
the work (through the device guard); these add only the names that CUDA's have.
"""

from __future__ import annotations

import time
from typing import Any

import torch


class Stream(torch.Stream):
    """As ``torch.cuda.Stream``. Work is done when a launch returns, so streams order nothing."""

    def __new__(cls, device: Any = None, priority: int = 0, **known: Any) -> Stream:
        if known:
            return super().__new__(cls, **known)
        return super().__new__(cls, device="cuda", priority=priority)

    @property
    def cuda_stream(self) -> int:
        """The ``cudaStream_t``; 0 is the default stream."""
        return int(self.stream_id)

    @property
    def priority(self) -> int:
        """Every stream has the same."""
        return 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Least and greatest priority."""
        return 0, -3

    def record_event(self, event: Any = None) -> Any:
        """Records ``event``, or a new one."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Work is done already."""

    def wait_stream(self, stream: Any) -> None:
        """Work is done already."""

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """As ``torch.cuda.ExternalStream``: a stream that somebody else made."""

    def __new__(cls, stream_ptr: int, device: Any = None, **known: Any) -> ExternalStream:
        return super().__new__(cls, stream_id=stream_ptr, device_index=0, device_type=1)  # type: ignore[return-value]


class Event(torch.Event):
    """As ``torch.cuda.Event``. Times are the emulation's, never a GPU's."""

    _timed: bool
    _recorded_ns: int | None

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        event = super().__new__(cls, device="cuda", enable_timing=enable_timing, blocking=blocking)
        event._timed, event._recorded_ns = enable_timing, None
        return event

    def record(self, stream: Any = None) -> None:
        """Marks this moment."""
        super().record(torch.accelerator.current_stream() if stream is None else stream)
        self._recorded_ns = time.perf_counter_ns()

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to ``end_event``. Raises ``ValueError`` in CUDA's words."""
        # torch's own refuses an instance of any subclass, this one included.
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._recorded_ns is None or end_event._recorded_ns is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float(end_event._recorded_ns - self._recorded_ns) / 1e6

    def wait(self, stream: Any = None) -> None:
        """Work is done already."""

    @property
    def cuda_event(self) -> int:
        """The ``cudaEvent_t``."""
        return int(self.event_id)


def current_stream(device: Any = None) -> Stream:
    """The calling thread's current stream."""
    stream = torch.accelerator.current_stream()
    return Stream(stream_id=stream.stream_id, device_index=0, device_type=1)


def default_stream(device: Any = None) -> Stream:
    """Stream 0."""
    return Stream(stream_id=0, device_index=0, device_type=1)


def set_stream(stream: Any) -> None:
    """Makes ``stream`` the calling thread's current one; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)
