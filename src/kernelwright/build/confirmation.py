"""Do the real torch headers accept what the fast tier accepted? Asked beside the emulation, told before the verdict.

The rule: "no" is said only on the real headers' own word, at a line of the user's; a check that cannot run says so, and
nothing is known then. ``.cpp`` units compile whole; of ``.cu`` units the host text is spliced (device code has no torch
in it), and where the splice fails, nvcc's own front end on the real headers decides.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelwright.build import cache, diagnostics, fast, full, link, placed, splice, toolchain
from kernelwright.build.context import ConfirmRequest, ConfirmResult
from kernelwright.build.extension import Unit
from kernelwright.build.link import Unresolved
from kernelwright.build.lowered import SOURCES, Source, lower
from kernelwright.build.nvcc import CommandFailed
from kernelwright.errors import KernelwrightError


def run(request: ConfirmRequest) -> ConfirmResult:
    """Checks every unit, then the link. Cached by content through the objects it makes."""
    start = time.monotonic()
    try:
        chain = toolchain.find()
        name = cache.digest("confirmed", cache.code(), _host_identity(request, chain), *request.libraries)
        if cache.lookup("confirmed", name):
            return ConfirmResult(True, seconds=time.monotonic() - start, how="cached")
        with tempfile.TemporaryDirectory(prefix="kernelwright-confirm-") as work:
            how = _check(request, chain, Path(work))
        cache.obtain("confirmed", name, lambda folder: None)
        return ConfirmResult(True, seconds=time.monotonic() - start, how=how)
    except (CommandFailed, Unresolved) as failure:
        own = [request.extension.candidate, *(unit.name for unit in request.extension.units)]
        told = diagnostics.of_failure(failure, own=own, text="")
        return ConfirmResult(False, told, time.monotonic() - start, how="real headers")
    except (KernelwrightError, OSError) as error:
        return ConfirmResult(True, (), time.monotonic() - start, how=str(error), checked=False)


def _host_identity(request: ConfirmRequest, chain: toolchain.Toolchain) -> str:
    """The digest of what the real headers are asked about: the host text, wherever it stands, without device bodies.

    An edit inside a kernel, or one that only moves lines, leaves it as it was.
    """
    extension = request.extension
    parts = [extension.name, *extension.host_flags(chain), "|", *extension.nvcc_flags(chain), "|", *extension.ldflags]
    for unit in extension.units:
        if unit.cuda:
            low = lower(fast.source(extension, chain, unit, request.arch), request.sm)
            parts += [unit.name, placed.separate(low.head)[0], placed.separate(low.rest)[0]]
        else:
            parts += [unit.name, placed.separate(unit.text)[0]]
    own = [cache.folder_digest(Path(folder), SOURCES) for folder in extension.folders()]
    return cache.digest(*parts, *own, chain.identity)


def _check(request: ConfirmRequest, chain: toolchain.Toolchain, work: Path) -> str:
    extension = request.extension
    hows: set[str] = set()

    def one(index: int) -> Path:
        place = work / f"unit{index}"
        place.mkdir()
        unit = extension.units[index]
        if not unit.cuda:
            return full.host_object(extension, chain, unit, place)
        made, how = _cuda(request, chain, unit, index, place)
        hows.add(how)
        return made

    splice.prefix(chain, splice.standard(extension, chain))  # once, before two threads ask for it
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(one, range(len(extension.units))))
    link.shared(extension, chain, objects, work / f"{extension.name}.so", full=True, libraries=request.libraries)
    return " and ".join(sorted(hows)) or "host compile"


def _cuda(request: ConfirmRequest, chain: toolchain.Toolchain, unit: Unit, index: int, place: Path) -> tuple[Path, str]:
    extension, arch, sm = request.extension, request.arch, request.sm
    low = lower(fast.source(extension, chain, unit, arch), sm)
    try:
        return full.spliced_object(extension, chain, unit, low, index, place), "splice"
    except CommandFailed:
        pass
    source = Source(extension, chain, unit, arch, splice.real_include_flags(chain), ())
    return fast.cuda_object(chain, lower(source, sm), index, place), "nvcc"
