"""Messages between the supervisor and its processes: length-prefixed JSON on a Unix socket, file descriptors beside it.

Why: a worker runs code that nobody knows; its stdout is its own, and what arrives here may be cut short or garbage.
The rule: reading never trusts the other side. Anything that is not a message ends the channel with :class:`WireError`,
a fact about the sender, and never crashes the reader.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
import threading
from collections import deque
from typing import Any

HEADER = struct.Struct("!4sII")
"""Magic, length of the JSON text in bytes, number of file descriptors that travel with it."""
MAGIC = b"KWm1"
MAX_BYTES = 64 << 20
"""Longest message: tensors travel through memory files, so only text and numbers are in it."""
MAX_FDS = 4096
FDS_A_PART = 200
"""SCM_MAX_FD is 253 on Linux; more than that needs several sends."""


class WireError(Exception):
    """The other side sent something that is no message, or closed in the middle of one."""


class Closed(Exception):
    """The other side closed the channel between two messages."""


class Channel:
    """One end of a socket pair. ``send`` blocks, ``feed`` reads what is there, ``receive`` waits for a message.

    Several threads may send: a candidate may build its extensions side by side, and each build tells of itself.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._sending = threading.Lock()
        self._bytes = bytearray()
        self._fds: deque[int] = deque()

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Our end, and the raw socket for the process to be started."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), theirs

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: dict[str, Any], fds: list[int] | tuple[int, ...] = ()) -> None:
        """Send ``message`` and duplicates of ``fds``. Raises ``Closed`` where nobody listens any more."""
        body = json.dumps(message, allow_nan=True).encode()
        data = memoryview(HEADER.pack(MAGIC, len(body), len(fds)) + body)
        pending = list(fds)
        with self._sending:
            try:
                while pending or data:
                    part, pending = pending[:FDS_A_PART], pending[FDS_A_PART:]
                    # While descriptors are left over, one byte at a time carries them: they precede the last byte.
                    chunk = data[:1] if pending else data
                    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", part))] if part else []
                    sent = self.socket.sendmsg([chunk], ancillary)
                    data = data[sent:]
            except OSError as error:
                raise Closed(str(error)) from None

    def feed(self) -> bool:
        """Read once what has arrived; False at the end of the stream."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(1 << 20, socket.CMSG_SPACE(4 * 253), socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                self._fds.extend(numbers)
        self._bytes += data
        return bool(data)

    def take(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next whole message that was fed and its descriptors (the caller's to close); None where there is none."""
        if len(self._bytes) < HEADER.size:
            if self._bytes and not MAGIC.startswith(bytes(self._bytes[: len(MAGIC)])):
                raise WireError(f"expected a message, got {bytes(self._bytes[:32])!r}")
            return None
        magic, length, count = HEADER.unpack_from(self._bytes)
        if magic != MAGIC:
            raise WireError(f"expected a message, got {bytes(self._bytes[:32])!r}")
        if length > MAX_BYTES or count > MAX_FDS:
            raise WireError(f"a message of {length} bytes with {count} descriptors is too long")
        if len(self._bytes) < HEADER.size + length:
            return None
        body = bytes(self._bytes[HEADER.size : HEADER.size + length])
        if len(self._fds) < count:
            raise WireError(f"a message promised {count} descriptors and brought {len(self._fds)}")
        del self._bytes[: HEADER.size + length]
        fds = [self._fds.popleft() for _ in range(count)]
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            close_all(fds)
            raise WireError(f"a message is no JSON: {error}") from None
        if not isinstance(message, dict):
            close_all(fds)
            raise WireError(f"a message is a {type(message).__name__}, not an object")
        return message, fds

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """Wait for a message. Raises ``Closed`` at the end of the stream and ``WireError`` for what is no message."""
        while True:
            taken = self.take()
            if taken is not None:
                return taken
            if not self.feed():
                if self._bytes:
                    raise WireError(f"the channel closed {len(self._bytes)} bytes into a message")
                raise Closed("the channel closed")

    @property
    def partial(self) -> int:
        """Bytes of an unfinished message."""
        return len(self._bytes)

    def close(self) -> None:
        close_all(list(self._fds))
        self._fds.clear()
        self.socket.close()


def close_all(fds: list[int]) -> None:
    """Close descriptors, each whether or not another one fails."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
