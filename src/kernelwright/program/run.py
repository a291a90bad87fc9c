"""Compile a program, run it in a process of its own, and say what was seen.

Why: the process that reports must survive every program. The rule: nothing of the program runs here; what is told comes
from its journal, and from how its process ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import kernelwright
from kernelwright.build import sass, toolchain
from kernelwright.device.checks import LEFT_OUT
from kernelwright.device.specs import spec
from kernelwright.errors import EXIT_FAULT, EXIT_NO, InternalError
from kernelwright.explain import advice
from kernelwright.explain.refused import REFUSED
from kernelwright.program import compile as compiler
from kernelwright.program import evidence, journal
from kernelwright.program.report import ProgramReport
from kernelwright.program.worker import INTERRUPT_SIGNAL, STACK_SIGNAL
from kernelwright.records import BuildRecord, to_json
from kernelwright.worker import limits

GRACE_SECONDS = 5.0
"""How long a program whose kernel was interrupted may take to end by itself."""
START_SECONDS = 120.0
"""How long the emulated device may take to be there; 0.5 s where its native parts are in the cache."""
POLL_SECONDS = 0.02
KEPT_BYTES = 1 << 20
"""The most that a report holds of what a program printed."""


@dataclass(frozen=True)
class RunOptions:
    """How to run; every field has the default of its flag."""

    presents_as: str = "h200"
    """The data sheet that the emulated device presents."""
    timeout_s: float = 300.0
    """The longest that the program may take, its compilation aside."""
    memory_bytes: int | None = None
    """Most memory, the device's included; None: three quarters of what is available."""
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """More flags for nvcc."""
    arguments: tuple[str, ...] = ()
    """The program's own."""
    counted: bool = False
    """Count what each kernel does."""
    checks: str = "all"
    """``all``, or ``memory``, which leaves out races."""
    captured: bool = False
    """Keep what it prints for the report instead of passing it through."""


def run(program: Path, *, options: RunOptions, progress: Callable[[str], None]) -> ProgramReport:
    """Run ``program`` and report.

    Raises ``UsageError`` or ``MachineError`` for what cannot be asked, ``RefusedError`` where the program needs a
    library that is not served, ``InternalError`` where Kernelwright itself failed.
    """
    started = time.monotonic()
    content = program.read_bytes()
    text = content.decode("utf-8", "replace")
    presented = spec(options.presents_as)
    source = compiler.Source(program, content, options.include, options.defines, options.flags)
    progress(f"compiling {program.name}")
    major, minor = presented.compute_capability
    built = compiler.compile(source, toolchain.find(), sm=f"sm_{major}{minor}")
    if isinstance(built, BuildRecord):
        ended, seen = evidence.Ended(), evidence.Seen()
        record = built
    else:
        progress(f"running {program.name}")
        ended, facts = _process(program, built, options)
        seen = evidence.read(facts, module=built.module, program=program)
        record = built.record
        _faults(seen, ended)
        registers = {fact.name: fact.registers for fact in record.kernels}
        modules = [built.ptx.read_text(encoding="utf-8")] if seen.counters else []
        sm = presented.architecture
        seen.counters = sass.attached(seen.counters, modules, toolchain.find(), sm=sm, registers=registers)
    case = evidence.evidence(program, text, record, ended, seen)
    case = replace(case, counters=tuple(seen.counters) if options.counted else None)
    return ProgramReport(
        program=str(program),
        arguments=options.arguments,
        returncode=ended.returncode,
        signal=ended.signal,
        timed_out=ended.timed_out,
        causes=evidence.causes(case, seen),
        advice=advice(case),
        build=record,
        launches=case.launches,
        findings=case.findings,
        observations=case.observations,
        unserved=seen.unserved,
        not_checked=tuple(filter(None, [LEFT_OUT[options.checks]])),
        device=case.device,
        counters=case.counters,
        stdout=ended.stdout,
        stderr=ended.stderr,
        seconds=time.monotonic() - started,
        versions={
            "kernelwright": kernelwright.__version__,
            "python": platform.python_version(),
            "llvmlite": importlib.metadata.version("llvmlite"),
        },
    )


def exit_status(report: ProgramReport) -> int:
    """The program's own; 1 where something was found, it did not compile or did not end; 3 where it lacked an
    instruction, or a part of the API and failed; 128 and the signal's number where one ended it, as shells say it.
    """
    if report.signal and not report.findings:
        return 128 + signal.Signals[report.signal].value
    if report.causes and all(cause.id == REFUSED for cause in report.causes):
        return EXIT_FAULT
    if report.causes or report.timed_out or report.returncode is None:
        return EXIT_NO
    return EXIT_FAULT if report.unserved and report.returncode != 0 else report.returncode


def _process(
    program: Path, built: compiler.Program, options: RunOptions
) -> tuple[evidence.Ended, list[dict[str, object]]]:
    """Runs the compiled program; how it ended, and its journal."""
    fd = journal.create()
    package = str(Path(__file__).parents[2])
    # -P: neither the working folder nor the program's may shadow the standard library.
    code = (
        f"import sys; sys.path.append({package!r}); import json; from kernelwright.program.worker import main; "
        f"main({fd}, json.loads(sys.argv[1]))"
    )
    config = {
        "presents_as": options.presents_as,
        "memory_bytes": options.memory_bytes or limits.default_memory_bytes(),
        "module": str(built.module.resolve()),
        "key": built.key,
        "counted": options.counted,
        "checks": options.checks,
        "ptx": str(built.ptx),
        "kernels": [to_json(kernel) for kernel in built.record.kernels],
        # As if it had been compiled beside its source: programs look for their files from here.
        "arguments": [str(program.with_suffix("")), *options.arguments],
    }
    command = [sys.executable, "-P", "-c", code, json.dumps(config)]
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, fd)
        streams: list[IO[bytes] | None] = [None, None]
        if options.captured:
            streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in streams]
        else:
            sys.stdout.flush()
            sys.stderr.flush()
        process = subprocess.Popen(command, stdout=streams[0], stderr=streams[1], pass_fds=(fd,))
        stack.callback(_kill, process)
        _await_start(process, fd)
        timed_out = not _wait(process, options.timeout_s)
        if timed_out:
            _stop(process)
        code_or_signal = process.returncode
        ended = evidence.Ended(
            returncode=code_or_signal if code_or_signal >= 0 and not timed_out else None,
            signal="" if code_or_signal >= 0 or timed_out else signal.Signals(-code_or_signal).name,
            timed_out=timed_out,
            stdout=_tail(streams[0]),
            stderr=_tail(streams[1]),
        )
        return ended, journal.read(fd)


def _await_start(process: subprocess.Popen[bytes], fd: int) -> None:
    """Returns when the program is loaded, or its process has ended: its time begins here."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if any("base" in fact for fact in journal.read(fd)):
            return
        time.sleep(POLL_SECONDS)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ended in time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask where it is, end its kernel, and then itself."""
    for number in (STACK_SIGNAL, INTERRUPT_SIGNAL):
        # To its main thread, which runs the program.
        if process.poll() is None:
            ctypes.CDLL(None).tgkill(process.pid, process.pid, int(number))
    _wait(process, GRACE_SECONDS)
    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        for pid in (*reversed(limits.descendants(process.pid)), process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def _tail(stream: IO[bytes] | None) -> str:
    if stream is None:
        return ""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - KEPT_BYTES))
    return stream.read().decode("utf-8", "replace")


def _faults(seen: evidence.Seen, ended: evidence.Ended) -> None:
    """Raises what was no fault of the program's."""
    if seen.broken:
        raise InternalError(f"the program's process could not start or end:\n{seen.broken}")
    if seen.fault is not None and not seen.fault.refused:
        raise InternalError(f"the emulated device failed: {seen.fault.message}", hint=seen.fault.hint)
    if seen.in_kernel and ended.signal:
        raise InternalError(f"the emulated device itself was ended by {ended.signal} during {seen.during}")
