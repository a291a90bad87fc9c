"""The supervisor's side: start the nursery and the workers, wait for answers, and end everything, whatever happens.

Why: the process that gives the verdict must survive every candidate. It imports no torch, runs no foreign code, and
waits on descriptors only. The rule: whatever a worker does (answers, garbage, silence, a crash) comes back as a reply
or as a :class:`WorkerEnded` with facts; leaving the ``with`` block leaves no process, file or memory file behind.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from kernelwright.errors import InternalError, MachineError
from kernelwright.worker import limits
from kernelwright.worker.capture import Capture
from kernelwright.worker.wire import Channel, Closed, WireError, close_all
from kernelwright.worker.worker import Message, Worker, WorkerEnded

START_SECONDS = 120.0
"""Importing torch takes 2 s warm and up to a minute from a cold network disk."""
GRACE_SECONDS = 1.0
"""How long a stopped worker may take to write its stack."""
QUIET_SECONDS = 0.1
MEMORY_EVERY_SECONDS = 0.05


class Supervisor:
    """A nursery and its workers. Use as a context manager: its end ends them all."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        self._nursery: subprocess.Popen[bytes] | None = None
        self._control: Channel | None = None
        self._ready = False
        self._next_memory_check = 0.0
        self._nursery_output: tuple[Capture, ...] = ()

    def __enter__(self) -> Supervisor:
        self._start_nursery()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- starting --------------------------------------------------------------------------------------------------
    def _start_nursery(self) -> None:
        self._control, theirs = Channel.pair()
        output, write = Capture.pipe()
        package = str(Path(__file__).parents[2])
        program = (
            f"import sys; sys.path.append({package!r}); from kernelwright.worker.nursery import main; "
            f"main({theirs.fileno()})"
        )
        # -P: neither the working folder nor a candidate's folder may shadow torch or the standard library.
        command = [sys.executable, "-P", "-c", program]
        try:
            self._nursery = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            raise MachineError(f"the worker process did not start: {error}") from None
        finally:
            theirs.close()
            os.close(write)
        self._nursery_output = (output,)
        self._selector.register(self._control, selectors.EVENT_READ, ("control", None))
        self._selector.register(output, selectors.EVENT_READ, ("capture", output))

    def start(self, role: str, config: dict[str, Any], *, file: str) -> Worker:
        """Ask for a worker; returns at once, the process appears when the nursery is ready."""
        channel, theirs = Channel.pair()
        captures: list[Capture] = []
        writes: list[int] = []
        for keep in (1, 1, 4):
            capture, write = Capture.pipe(keep=keep * (64 << 10))
            captures.append(capture)
            writes.append(write)
        worker = Worker(role, file, channel, (captures[0], captures[1], captures[2]))
        assert self._control is not None
        try:
            self._control.send({"role": role, "config": config}, [theirs.fileno(), *writes])
        except Closed:
            raise self._nursery_died() from None
        finally:
            theirs.close()
            close_all(writes)
        self.workers.append(worker)
        self._selector.register(channel, selectors.EVENT_READ, ("channel", worker))
        for capture in captures:
            self._selector.register(capture, selectors.EVENT_READ, ("capture", capture))
        return worker

    # ---- talking ---------------------------------------------------------------------------------------------------
    def post(self, worker: Worker, message: dict[str, Any], fds: list[int] | tuple[int, ...] = ()) -> None:
        """Send a request without waiting. A worker that is gone tells so when its reply is asked for."""
        worker.outstanding += 1
        with contextlib.suppress(Closed):
            worker.channel.send(message, list(fds))

    def reply(self, worker: Worker, *, timeout_s: float | None = None) -> Message:
        """Wait for ``worker``'s next reply.

        ``timeout_s`` bounds the time waited for this worker in all, from when its process started.
        Raises ``WorkerEnded`` where it ends, sends garbage, runs out of time or past its memory.
        """
        self._await_start(worker)
        started = time.monotonic()
        try:
            return self._reply(worker, None if timeout_s is None else started + timeout_s - worker.waited_s)
        finally:
            worker.waited_s += time.monotonic() - started

    def _await_start(self, worker: Worker) -> None:
        """Wait until the nursery has imported torch and started ``worker``."""
        deadline = time.monotonic() + START_SECONDS
        while not worker.pid:
            if time.monotonic() > deadline:
                raise MachineError(f"importing PyTorch took more than {START_SECONDS:g} s")
            self._pump(0.5)

    def _reply(self, worker: Worker, deadline: float | None) -> Message:
        while not worker.replies:
            if worker.ended:
                raise WorkerEnded(worker.role, worker.exit_fact())
            if worker.protocol_error or (deadline is not None and time.monotonic() >= deadline):
                worker.timed_out = not worker.protocol_error
                self.stop(worker)
                raise WorkerEnded(worker.role, worker.exit_fact())
            self._pump(0.5 if deadline is None else max(0.0, min(0.5, deadline - time.monotonic())))
        worker.outstanding -= 1
        return worker.replies.popleft()

    def poll(self, seconds: float) -> None:
        """Let events happen for about ``seconds``."""
        self._pump(seconds)

    # ---- ending ----------------------------------------------------------------------------------------------------
    def finish(self, worker: Worker) -> None:
        """Let a worker leave by itself, and learn what it leaves behind; end it where it does not."""
        if worker.channel_open:
            with contextlib.suppress(OSError):
                worker.channel.socket.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + GRACE_SECONDS
        while not worker.ended and time.monotonic() < deadline:
            self._pump(0.02)
        self.stop(worker)

    def stop(self, worker: Worker) -> None:
        """Ask for its stack, then end it and everything that it started."""
        if not worker.ended and worker.pid:
            self._ask_for_stack(worker)
            if worker.timed_out and worker.role == "candidate":
                self._ask_to_stop(worker)
            self._kill(worker)
        deadline = time.monotonic() + 10
        while not worker.ended and time.monotonic() < deadline:
            self._pump(0.1)

    def _ask_for_stack(self, worker: Worker) -> None:
        before = worker.trace.total
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGUSR1)
        deadline = time.monotonic() + GRACE_SECONDS
        while not worker.ended and time.monotonic() < deadline:
            seen = worker.trace.total
            self._pump(QUIET_SECONDS)
            # A dump comes in many small writes: it is complete when no more comes.
            if worker.trace.total == seen > before:
                break

    def _ask_to_stop(self, worker: Worker) -> None:
        """Have a running kernel interrupted, so that it says at which line it was."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGUSR2)
        deadline = time.monotonic() + GRACE_SECONDS
        while not worker.ended and not worker.replies and time.monotonic() < deadline:
            self._pump(0.05)

    def _kill(self, worker: Worker) -> None:
        for pid in (*reversed(limits.descendants(worker.pid)), worker.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def drop(self, worker: Worker) -> None:
        """Forget a worker that ended, with its descriptors."""
        ends = (worker.channel, worker.stdout, worker.stderr, worker.trace)
        # By identity: the number of an end that was closed may be another worker's by now.
        for key in [key for key in self._selector.get_map().values() if any(key.fileobj is end for end in ends)]:
            self._selector.unregister(key.fileobj)
        for end in ends:
            end.close()
        for _, fds in worker.replies:
            close_all(fds)
        worker.replies.clear()
        self.workers.remove(worker)

    def close(self) -> None:
        """End all processes and close all descriptors. Safe to call twice."""
        if self._nursery is not None and self._nursery.poll() is None:
            if self._control is not None:
                self._control.close()
            # The nursery ends what is below it when its socket closes; it cannot hang, as it runs nothing foreign.
            # While it still imports torch nobody is below it.
            if not self._ready:
                self._nursery.kill()
            try:
                self._nursery.wait(timeout=5)
            except subprocess.TimeoutExpired:
                for pid in (*reversed(limits.descendants(self._nursery.pid)), self._nursery.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self._nursery.wait()
        self._selector.close()
        for worker in self.workers:
            for _, fds in worker.replies:
                close_all(fds)
            worker.replies.clear()
            worker.channel.close()
            for capture in (worker.stdout, worker.stderr, worker.trace):
                capture.close()
        for capture in self._nursery_output:
            capture.close()
        if self._control is not None:
            self._control.close()

    # ---- events ----------------------------------------------------------------------------------------------------
    def _pump(self, seconds: float) -> None:
        watching = any(w.memory_bytes is not None and not w.ended for w in self.workers)
        for key, _ in self._selector.select(min(seconds, MEMORY_EVERY_SECONDS) if watching else seconds):
            what, whom = key.data
            if what == "control":
                self._on_control()
            elif what == "capture":
                if not whom.drain():
                    self._selector.unregister(whom)
                    whom.close()
            elif what == "channel":
                self._on_channel(whom)
        if watching and time.monotonic() >= self._next_memory_check:
            self._check_memory()
            self._next_memory_check = time.monotonic() + MEMORY_EVERY_SECONDS

    def _on_control(self) -> None:
        assert self._control is not None
        alive = self._control.feed()
        while (taken := self._control.take()) is not None:
            event, fds = taken
            close_all(fds)
            if event["event"] == "ready":
                self._ready = True
            elif event["event"] == "started":
                worker = next(w for w in self.workers if w.role == event["role"] and not w.pid)
                worker.pid = int(event["pid"])
            elif event["event"] == "exit":
                worker = next(w for w in self.workers if w.pid == event["pid"])
                self._drain(worker)
                worker.status = int(event["status"])
                worker.left_behind = int(event["left"])
            elif event["event"] == "broken":
                raise InternalError(f"the worker process could not start:\n{event['traceback']}")
        if not alive:
            raise self._nursery_died()

    def _nursery_died(self) -> InternalError | MachineError:
        for capture in self._nursery_output:
            capture.drain()
        text = "".join(capture.text() for capture in self._nursery_output).strip()
        if "No module named 'torch'" in text:
            return MachineError("PyTorch is not installed", hint="pip install torch")
        return InternalError(f"the worker process ended: {text or 'without a word'}")

    def _drain(self, worker: Worker) -> None:
        """Take what an ended worker sent and printed last."""
        if worker.channel_open:
            self._on_channel(worker, to_the_end=True)
        for capture in (worker.stdout, worker.stderr, worker.trace):
            capture.drain()

    def _on_channel(self, worker: Worker, *, to_the_end: bool = False) -> None:
        if to_the_end:
            worker.channel.socket.setblocking(False)
        try:
            while True:
                before = worker.channel.partial
                alive = worker.channel.feed()
                moved = worker.channel.partial != before
                while (taken := worker.channel.take()) is not None:
                    moved = True
                    self._on_message(worker, *taken)
                if not alive or not to_the_end or not moved:
                    break
            if not alive and worker.channel.partial:
                raise WireError(f"it closed the channel {worker.channel.partial} bytes into a message")
        except WireError as error:
            worker.protocol_error = worker.protocol_error or str(error)
            alive = False
        if not alive and worker.channel_open:
            worker.channel_open = False
            self._selector.unregister(worker.channel)

    def _on_message(self, worker: Worker, message: dict[str, Any], fds: list[int]) -> None:
        if "reply" in message:
            worker.replies.append((message, fds))
            return
        close_all(fds)
        if "during" in message:
            worker.during = str(message["during"])
        else:
            worker.on_event(message)

    def _check_memory(self) -> None:
        for worker in self.workers:
            if worker.memory_bytes is None or worker.ended or not worker.pid:
                continue
            used = limits.private_bytes(worker.pid)
            worker.peak_bytes = max(worker.peak_bytes, used)
            if used > worker.memory_bytes and not worker.out_of_memory:
                worker.out_of_memory = True
                self._ask_for_stack(worker)
                self._kill(worker)
