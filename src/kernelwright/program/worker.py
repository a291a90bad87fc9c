"""The process that a program runs in: the emulated device without torch, and the program's ``main`` called from here.

Why: a program may crash, spin, exit or print at any time; nothing of it may reach the process that reports. The rule:
whatever is seen goes to the journal before anything else happens; stdin, stdout and stderr belong to the program.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

from kernelwright.device.checks import watches_races
from kernelwright.device.specs import spec
from kernelwright.emulate import device as emulated
from kernelwright.emulate import nativebuild, runtime, sites
from kernelwright.program import journal
from kernelwright.records import Finding, LaunchFact, to_json
from kernelwright.worker import limits

STACK_SIGNAL = signal.SIGUSR1
"""Has the process tell where its host code is."""
INTERRUPT_SIGNAL = signal.SIGUSR2
"""Has it end the running kernel, and every later one, and tell where it was."""
REFUSALS = ("RefusedError", "RefusedInstruction", "RefusedCall", "PtxSyntaxError")
"""What the emulated device raises for what it does not know; anything else is a fault of ours."""
MOST_FINDINGS = 200
"""Findings that are told; a program may launch a faulty kernel for ever."""

_RTLD_NOW = 2
_KEEP: list[Any] = []
"""Callbacks that C holds."""


def main(fd: int, config: dict[str, Any]) -> NoReturn:
    """Runs the program and ends with its exit status."""
    try:
        limits.die_with_parent()
        limits.no_core_file()
        limits.first_for_the_oom_killer()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        teller = _Teller(fd, config)
        teller.install()
    except BaseException:
        journal.write(fd, {"broken": traceback.format_exc()})
        os._exit(3)
    _run(teller, config)


class _Teller:
    """The device's hooks, each of which writes to the journal."""

    def __init__(self, fd: int, config: dict[str, Any]) -> None:
        self.fd = fd
        self.memory: int = config["memory_bytes"]
        self.device = emulated.install(spec(config["presents_as"]), memory_limit_bytes=self.memory, with_torch=False)
        self.device.counted = bool(config["counted"])
        self.device.races = watches_races(config["checks"])
        self.device.provide_ptx(config["key"], Path(config["ptx"]).read_text(encoding="utf-8"))
        self.device.provide_registers({kernel["name"]: kernel["registers"] for kernel in config["kernels"]})
        self.libc = ctypes.CDLL(None)
        self._sent: dict[str, int] = {"findings": 0, "observations": 0}
        self._printed = 0
        self._during = ""
        self._told_fault = False
        self._program = Path(config["module"])

    def install(self) -> None:
        """Puts every hook in its place."""
        self.device.on_launch = self.on_launch
        self.device.on_end = self.on_end
        self.device.on_refusal = self.on_refusal
        native = _native()
        native.kw_watch_crashes(self.fd, int(STACK_SIGNAL))
        self._in_kernel = ctypes.c_int.in_dll(native, "kw_in_kernel")
        _heed_interrupts()
        on_exit = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(self.on_exit)
        _KEEP.append(on_exit)
        # First registered, last called: behind the program's own handlers and the destructors of its globals.
        self.libc.on_exit(on_exit, None)
        limits.limit_data(self.memory)

    def tell(self, **fact: Any) -> None:
        """One line of the journal."""
        journal.write(self.fd, fact)

    def on_launch(self, fact: LaunchFact) -> None:
        """Before a kernel."""
        grid, block = (",".join(map(str, sizes)) for sizes in (fact.grid, fact.block))
        during = f"kernel {fact.kernel}<<<({grid}), ({block})>>>"
        if during != self._during:
            self._during = during
            self.tell(during=during)
        self._in_kernel.value = 1

    def on_end(self, fact: LaunchFact) -> None:
        """After a kernel, or a launch that was refused."""
        self._in_kernel.value = 0
        self._flush()
        if fact.error:
            self.tell(failed=to_json(fact))

    def on_refusal(self, refusal: emulated.Refusal) -> None:
        """Inside an API call that was refused: its caller is on the stack."""
        known = {"cause": refusal.cause, "sentence": refusal.sentence, "error": refusal.error}
        self.tell(refusal=known, stack=self._stack())

    def on_exit(self, status: int, _: Any) -> None:
        """Behind everything of the program's: the rest of the record, and the end."""
        try:
            self._flush()
            self._tell_fault()
            counters = to_json(self.device.counters)
            self.tell(launches=to_json(self.device.launches), device=to_json(self.device.fact()), counters=counters)
        except BaseException:
            self.tell(broken=traceback.format_exc())
        self.libc.fflush(None)
        os._exit(status & 0xFF)

    def _flush(self) -> None:
        printed = self.device.printed[self._printed :]
        if printed:
            self._printed = len(self.device.printed)
            # Through the program's own stdout, so that both come in order.
            self.libc.printf(b"%s", printed.encode())
        for kind in ("findings", "observations"):
            seen: list[Finding] = getattr(self.device, kind)
            fresh = seen[self._sent[kind] : MOST_FINDINGS]
            self._sent[kind] = max(self._sent[kind], min(len(seen), MOST_FINDINGS))
            if fresh:
                self.tell(**{kind: to_json(fresh)})
        if self.device.stopped_at:
            self.tell(stopped_at=to_json(self.device.stopped_at[0]))
        self._tell_fault()

    def _tell_fault(self) -> None:
        fault = self.device.fault
        if fault is not None and not self._told_fault:
            self._told_fault = True
            refused = any(kind.__name__ in REFUSALS for kind in type(fault).__mro__)
            text = "".join(traceback.format_exception(fault))
            self.tell(fault=str(fault), hint=getattr(fault, "hint", ""), refused=refused, traceback=text)

    def _stack(self) -> list[int]:
        """Return addresses inside the program, as offsets in its file; innermost first."""
        frames = (ctypes.c_void_p * 64)()
        count = self.libc.backtrace(frames, 64)
        places = [sites.library_of(int(address) - 1) for address in frames[:count] if address]
        return [place[1] + 1 for place in places if place is not None and place[0] == self._program]


def _native() -> ctypes.CDLL:
    source = Path(__file__).parent / "native" / "crash.c"
    path = nativebuild.build_shared("kw_crash", [source], flags=["-O1", "-g0"], language="c")
    return ctypes.CDLL(str(path))


def _heed_interrupts() -> None:
    """End the running kernel when the supervisor signals that time is up.

    The main thread is inside the program and runs no Python handler, but the interpreter's C handler writes to a pipe.
    """
    heard, told = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(told, False)

    def listen() -> None:
        while word := os.read(heard, 1):
            if word[0] == INTERRUPT_SIGNAL:
                runtime.interrupt()

    signal.signal(INTERRUPT_SIGNAL, lambda number, frame: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=listen, name="kernelwright-interrupt", daemon=True).start()


def _run(teller: _Teller, config: dict[str, Any]) -> NoReturn:
    libc = teller.libc
    libc.dlopen.restype = libc.dlsym.restype = ctypes.c_void_p
    libc.dlerror.restype = ctypes.c_char_p
    libc.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    # Not ctypes' own loading, which holds the interpreter's lock while the program's constructors run.
    handle = libc.dlopen(os.fsencode(config["module"]), _RTLD_NOW)
    address = libc.dlsym(handle, b"main") if handle else None
    if not address:
        teller.tell(broken=f"the program does not load: {(libc.dlerror() or b'no reason given').decode()}")
        os._exit(3)
    place = sites.library_of(address)
    teller.tell(base=address - place[1] if place else 0)
    words = [os.fsencode(word) for word in config["arguments"]]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    environment = ctypes.c_void_p.in_dll(libc, "environ")
    entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(address)
    status = entry(len(words), ctypes.addressof(argv), environment.value)
    libc.exit(status)
    raise AssertionError("exit returned")


if __name__ == "__main__":
    import json

    main(int(sys.argv[1]), json.loads(sys.argv[2]))
