"""compute-sanitizer's four tools, each over one forward pass in a process of its own.

Why: the tools exclude one another, and each must be there from the process's first instruction. The rule: PyTorch's
caching allocator is off, so that each tensor is an allocation with bounds of its own; a tool that could not run, did
not end in time or broke off says why, and nothing is then said of what it looks for.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelwright.build import toolchain
from kernelwright.errors import KernelwrightError
from kernelwright.records import SanitizerFact
from kernelwright.sanitize.report import Log, read
from kernelwright.worker import alone
from kernelwright.worker import tool as outside

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
BASE_OPTIONS = ("--target-processes", "application-only")
OPTIONS = (
    # The kernel ends, not the context: later reads of the output still tell which tensor had which address.
    "--destroy-on-device-error", "kernel", "--show-backtrace", "device", "--report-api-errors", "no",
    "--print-limit", "400",
)  # fmt: skip
OWN_OPTIONS = {"memcheck": ("--padding", "64")}
"""Between two allocations, so that the first bytes past one are nobody's."""
ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
MOST_BYTES_AT_ONCE = 8 << 30
"""Of the processes' own tensors together, on host and device: above that the tools run one after the other."""


@dataclass(frozen=True)
class Run:
    """What became of one tool."""

    tool: str
    log: Log = field(default_factory=lambda: Log((), False))
    why_not: str = ""
    """Why it checked nothing, or not all; empty where it ran to its end."""
    known: dict[str, Any] = field(default_factory=dict)
    """What the process wrote down: ``tensors``, ``maps``, ``error``."""
    seconds: float = 0.0

    def fact(self) -> SanitizerFact:
        """For the verdict."""
        return SanitizerFact(self.tool, self.log.errors, self.seconds, self.why_not)

    @property
    def tensor_bytes(self) -> int | None:
        """Of the tensors that it knew; None where it came to none."""
        tensors = self.known.get("tensors")
        return sum(int(t["bytes"]) for t in tensors) if tensors else None


def find() -> Path | None:
    """compute-sanitizer: on PATH, or beside the CUDA toolkit's nvcc."""
    found = shutil.which("compute-sanitizer")
    if found:
        return Path(found)
    try:
        root = toolchain.find().nvcc.resolve().parents[1]
    except KernelwrightError:
        return None
    places = (root / "bin" / "compute-sanitizer", root / "compute-sanitizer" / "compute-sanitizer")
    return next((place for place in places if place.is_file()), None)


def run_all(
    program: Path,
    config: alone.Alone,
    *,
    tools: tuple[str, ...],
    timeout_s: float,
    progress: Callable[[str], None],
    patience: outside.Patience,
) -> list[Run]:
    """Run ``tools``, the first of them alone, the others at once where the candidate's tensors are small enough."""

    def one(tool: str) -> Run:
        return run(program, config, tool=tool, timeout_s=timeout_s, patience=patience)

    first, *rest = tools
    progress(f"compute-sanitizer {first}")
    runs = [one(first)]
    if not rest:
        return runs
    progress(f"compute-sanitizer {', '.join(rest)}")
    size = runs[0].tensor_bytes
    at_once = len(rest) if size is not None and size * len(rest) <= MOST_BYTES_AT_ONCE else 1
    with ThreadPoolExecutor(at_once) as pool:
        runs += pool.map(one, rest)
    return runs


def run(
    program: Path, config: alone.Alone, *, tool: str, timeout_s: float, patience: outside.Patience | None = None
) -> Run:
    """Run one tool; without our own options once more where this version does not know one of them."""
    patience = patience or outside.Patience()
    options = (*OPTIONS, *OWN_OPTIONS.get(tool, ()))
    started = time.monotonic()
    made = _run(program, config, tool, options, timeout_s, patience)
    unknown = ("unrecognised option", "unrecognized option", "Unknown option", "invalid option")
    if not made.log.complete and any(word.lower() in made.why_not.lower() for word in unknown):
        made = _run(program, config, tool, (), timeout_s, patience)
    return replace(made, seconds=time.monotonic() - started)


def _run(
    program: Path,
    config: alone.Alone,
    tool: str,
    options: tuple[str, ...],
    timeout_s: float,
    patience: outside.Patience,
) -> Run:
    with tempfile.TemporaryDirectory(prefix="kernelwright-sanitize-") as name:
        folder = Path(name)
        own = replace(config, result=str(folder / "known.json"))
        log = folder / "log.txt"
        command = [str(program), "--tool", tool, *BASE_OPTIONS, *options, "--log-file", str(log)]
        ended = outside.run(
            [*command, *alone.command(own, folder)],
            folder,
            timeout_s=timeout_s,
            environment=ENVIRONMENT,
            patience=patience,
        )
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ended.printed
        known = outside.known(Path(own.result))
    made = judged(tool, text, ended.printed, ended.status, known, timeout_s=timeout_s)
    if ended.status is None and time.monotonic() >= patience.until:
        return replace(made, why_not="it was ended: the emulated device had named the cause meanwhile")
    return made


def judged(tool: str, text: str, printed: str, status: int | None, known: dict[str, Any], *, timeout_s: float) -> Run:
    """The run's record. ``status`` is None where it was ended for taking longer than ``timeout_s``."""
    log = read(text)
    if status is None:
        doing = known.get("during", "its start")
        return Run(tool, log, f"it did not end within {timeout_s:g} s, in {doing}", known)
    if not log.complete:
        said = [*log.complaints, *(line for line in printed.splitlines() if line.strip())]
        return Run(tool, log, said[-1].removeprefix("=========").strip() if said else f"exit status {status}", known)
    if any("not supported" in line or "Internal Sanitizer" in line for line in log.complaints):
        return Run(tool, log, log.complaints[-1], known)
    raised = known.get("error")
    if raised and not log.reports:
        first = (str(raised.get("message", "")).splitlines() or [""])[0]
        return Run(tool, log, f"{raised.get('type')} in {known.get('during')}: {first}"[:300], known)
    return Run(tool, log, "", known)
