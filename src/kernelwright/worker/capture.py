"""What a worker printed: counted, and only its end kept.

Why: a candidate may print gigabytes, and a report needs the last lines. The rule: reading never blocks and memory is
bounded. No torch here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

KEEP_BYTES = 64 << 10
PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


class Capture:
    """The read end of a pipe. ``fileno`` for select; ``drain`` takes what is there."""

    def __init__(self, fd: int, *, keep: int = KEEP_BYTES) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._keep = keep
        self._tail = bytearray()
        self.total = 0
        """Bytes printed so far."""
        self.open = True

    @classmethod
    def pipe(cls, *, keep: int = KEEP_BYTES) -> tuple[Capture, int]:
        """A capture and the write end for the process to be started."""
        read, write = os.pipe2(os.O_CLOEXEC)
        # A full pipe makes each printed line wait for the reader: 64 KB is the default, 1 MB the usual most.
        with contextlib.suppress(OSError):
            fcntl.fcntl(write, _F_SETPIPE_SZ, PIPE_BYTES)
        return cls(read, keep=keep), write

    def fileno(self) -> int:
        return self._fd

    def drain(self, *, limit: int = 1 << 24) -> bool:
        """Read what is there, at most ``limit`` bytes; False once the other end is closed."""
        while self.open and limit > 0:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return True
            except OSError:
                data = b""
            if not data:
                return False
            limit -= len(data)
            self.total += len(data)
            self._tail += data
            if len(self._tail) > 2 * self._keep:
                del self._tail[: -self._keep]
        return self.open

    def text(self) -> str:
        """The tail, after a line that says how much came before it."""
        tail = bytes(self._tail[-self._keep :])
        text = tail.decode("utf-8", "replace")
        left_out = self.total - len(tail)
        return f"[{left_out} bytes before this were left out]\n{text}" if left_out else text

    def close(self) -> None:
        if self.open:
            self.open = False
            with contextlib.suppress(OSError):
                os.close(self._fd)
