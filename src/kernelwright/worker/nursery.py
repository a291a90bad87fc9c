"""The process that imports torch once and then forks the oracle's and the candidate's processes.

Why: importing torch takes two seconds, forking with it loaded takes ten milliseconds; and the supervisor stays free of
torch and of foreign code. The rule: the nursery itself runs nothing but imports. It never computes with a tensor and
never touches CUDA, since threads and GPU contexts do not survive a fork. It ends, with everything below it, when the
supervisor's socket closes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kernelwright.worker import limits
from kernelwright.worker.wire import Channel, Closed, WireError, close_all

ROLES = {
    "oracle": "kernelwright.worker.oracle",
    "candidate": "kernelwright.worker.candidate",
    "timer": "kernelwright.measure.process",
}
"""Module of each kind of process; its ``main(channel, config)`` runs in the child."""
PRELOADED = ("oracle", "candidate")
"""Roles that every check has."""
CHANNEL, STDOUT, STDERR, TRACE = range(4)
"""Descriptors that come with a request to start a process, in this order."""
STACK_SIGNAL = signal.SIGUSR1
"""Makes a worker write every thread's Python stack to its trace descriptor, even from inside a C call."""


INTERRUPT_SIGNAL = signal.SIGUSR2
"""Asks a candidate's process to end the kernel that it runs; it then says where the kernel was."""


@dataclass(frozen=True)
class _Child:
    pid: int
    role: str
    handle: int
    """pidfd, readable once the process has ended."""


def main(control_fd: int) -> NoReturn:
    """Serve requests on ``control_fd`` until it closes."""
    # Not tied to the supervisor's death by a signal: the closing socket tells, and leaves time to end what is below.
    limits.adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = Channel(socket.socket(fileno=control_fd))
    children: dict[int, _Child] = {}
    try:
        _import_everything()
        control.send({"event": "ready", "pid": os.getpid()})
        with contextlib.suppress(Closed, WireError):
            _serve(control, children)
    except Closed:
        pass
    except BaseException:
        with contextlib.suppress(Closed):
            control.send({"event": "broken", "traceback": traceback.format_exc()})
    finally:
        _end_all()
    os._exit(0)


def _import_everything() -> None:
    """Load what workers need, with one thread: OpenBLAS would start its pool at import and a fork would lose it."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # Huge pages halve the time of filling 1 GB with random numbers (3.4 s to 1.9 s, 2 cores).
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
    torch = importlib.import_module("torch")
    # The allocator reads its variable at its first large allocation.
    torch.empty(4 << 20, dtype=torch.uint8)
    for role in PRELOADED:
        importlib.import_module(ROLES[role])
    del os.environ["OPENBLAS_NUM_THREADS"], os.environ["THP_MEM_ALLOC_ENABLE"]


def _serve(control: Channel, children: dict[int, _Child]) -> None:
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is control:
                    if not control.feed():
                        return
                    while (taken := control.take()) is not None:
                        request, fds = taken
                        child = _start(request, fds, control)
                        children[child.handle] = child
                        ready.register(child.handle, selectors.EVENT_READ)
                        control.send({"event": "started", "role": child.role, "pid": child.pid})
                else:
                    child = children.pop(key.fd)
                    ready.unregister(child.handle)
                    _, status = os.waitpid(child.pid, 0)
                    os.close(child.handle)
                    left = _sweep(child.pid, {other.pid for other in children.values()})
                    control.send(
                        {"event": "exit", "role": child.role, "pid": child.pid, "status": status, "left": left}
                    )


def _start(request: dict[str, Any], fds: list[int], control: Channel) -> _Child:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _become(request, fds)
    close_all(fds)
    return _Child(pid, str(request["role"]), os.pidfd_open(pid))


def _become(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """In the child: cut every tie to the nursery, then run the role. Never returns into the nursery's code."""
    status = 1
    try:
        limits.die_with_parent()
        os.setsid()
        limits.no_core_file()
        limits.first_for_the_oom_killer()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(fds[STDOUT], 1)
        os.dup2(fds[STDERR], 2)
        channel, trace = fds[CHANNEL], fds[TRACE]
        _close_others({0, 1, 2, channel, trace})
        for stream, line_buffering in ((sys.stdout, True), (sys.stderr, True)):
            stream.reconfigure(line_buffering=line_buffering, errors="backslashreplace")  # type: ignore[union-attr]
        faulthandler.enable(file=trace, all_threads=True)
        faulthandler.register(STACK_SIGNAL, file=trace, all_threads=True)
        role: Callable[[Channel, dict[str, Any]], None] = importlib.import_module(ROLES[str(request["role"])]).main
        role(Channel(socket.socket(fileno=channel)), dict(request["config"]))
        status = 0
    except Closed:
        status = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        _leave(status)


_leave = os._exit
"""Kept before any candidate can replace ``os._exit``."""


def _close_others(keep: set[int]) -> None:
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(entry.name))


def _sweep(group: int, keep: set[int]) -> int:
    """End what a finished process left behind, in its group or orphaned to us; how many there were."""
    left = 0
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    while True:
        orphans = [pid for pid in _own_children() if pid not in keep]
        if not orphans:
            return left
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                _, status = os.waitpid(pid, 0)
                left += os.WIFSIGNALED(status)


def _own_children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


def _end_all() -> None:
    for pid in reversed(limits.descendants(os.getpid())):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    _sweep(0x7FFFFFFF, set())
