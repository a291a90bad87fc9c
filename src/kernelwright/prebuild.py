"""The candidate's extensions, compiled while PyTorch is being imported.

Why: importing PyTorch takes two seconds of one core, a kernel's edit one second of compilers; side by side they cost
the longer of the two. The rule: a process of its own, in a group that ends with the check; it fills the store and
answers nothing, so a wrong guess costs a little time and changes no verdict.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from kernelwright.candidate.loads import loads
from kernelwright.device.cuda import capability
from kernelwright.device.specs import spec


class Prebuild:
    """Compiles ahead from entry to exit. Does nothing where the text asks for no extension."""

    def __init__(self, candidate: Path, text: str, *, device: str, presents_as: str, enabled: bool = True) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if not enabled or device not in ("cuda", "emulated") or not loads(text):
            return
        package = str(Path(__file__).parents[1])
        program = f"import sys; sys.path.append({package!r}); from kernelwright.prebuild import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", program, str(candidate.absolute()), str(candidate), device, presents_as],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Prebuild:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def main() -> None:
    """In the process: candidate's path, its name as given, ``emulated`` or ``cuda``, the data sheet."""
    from kernelwright.build.ahead import Ahead

    path, name, device, presents_as = sys.argv[1:]
    text = Path(path).read_text(encoding="utf-8")
    os.chdir(Path(path).parent)
    if device == "cuda":
        major, minor = capability()
        ahead = Ahead(name, text, arch=f"sm_{major}{minor}", capability=(major, minor), real=True)
    else:
        ahead = Ahead(name, text, arch="sm_80", capability=spec(presents_as).compute_capability)
    for load in loads(text):
        ahead.run(load.function, load.positional, load.keywords)
