"""Links the objects into a Python module, and finds what nobody defines.

Why: a symbol that is declared and never defined fails at import, with a mangled name and no place. The rule: the linker
is asked for every unresolved reference, with the line that makes it; Python's own symbols, which the process brings,
are left out. The module gets the emulated CUDA runtime (a static library) and never a real one.
"""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.build import cache
from kernelwright.build.extension import Extension, split
from kernelwright.build.nvcc import clean_environment, run_command
from kernelwright.build.toolchain import Toolchain
from kernelwright.emulate.nativebuild import shared_library

_REFERENCE = re.compile(
    r"^(?:(?P<file>[^:\n]+):(?P<line>\d+): |[^\n]*?)(?:warning: |error: )?"
    r"undefined reference to [`'](?P<symbol>[^`'\n]+)'",
    re.M,
)


OF_LIBRARIES = re.compile(r"cu(blas|fft|rand|sparse|solver|dnn)\w+|npp\w+|nvrtc\w+|nvml\w+|nccl\w+|cu[A-Z]\w+")
"""Functions of NVIDIA's libraries beside the runtime; the emulated device serves a part of cuBLAS."""


@dataclass(frozen=True)
class Reference:
    """One use of a symbol that is defined nowhere."""

    symbol: str
    """Mangled, as the loader prints it."""
    name: str
    """Demangled, facade names as torch's own."""
    file: str = ""
    line: int = 0


class Unresolved(Exception):
    """The module would not import."""

    def __init__(self, module: str, references: tuple[Reference, ...]) -> None:
        super().__init__(f"ImportError: {module}: undefined symbol: {references[0].symbol}")
        self.module = module
        self.references = references


def shared(
    extension: Extension,
    toolchain: Toolchain,
    objects: Sequence[Path],
    output: Path,
    *,
    libraries: Sequence[str] | None = None,
    full: bool = False,
    emulated: bool = True,
) -> str:
    """Writes ``output``; what the linker said. ``libraries`` are the emulated device's parts, found here where they are
    not given, or a GPU's libraries, where ``emulated`` is false.

    Raises :class:`Unresolved`, or :class:`kernelwright.build.nvcc.CommandFailed` (two definitions of one symbol).
    """
    parts = native_flags() if libraries is None else list(libraries)
    torch = [
        f"-L{toolchain.torch_lib}",
        "-lc10",
        "-ltorch_cpu",
        "-ltorch",
        "-ltorch_python",
        f"-Wl,-rpath,{toolchain.torch_lib}",
    ]
    # The runtime's own globals must be made before the objects register their kernels: it comes first, and whole.
    archives = [part for part in parts if part.endswith(".a")]
    whole = ["-Wl,--whole-archive", *archives, "-Wl,--no-whole-archive"] if archives else []
    others = [part for part in parts if part not in archives]
    command = [
        *(
            str(toolchain.host),
            "-shared",
            "-o",
            str(output),
            *whole,
            *map(str, objects),
            *_user_flags(extension, emulated=emulated),
            *(_blas(extension, toolchain) if emulated else ()),
            *others,
        ),
        *(torch if full else ()),
        *shared_library(str(toolchain.host)),
        *("-Wl,-z,defs", "-Wl,--warn-unresolved-symbols", "-Wl,--no-demangle"),
    ]
    said = run_command(command, folder=output.parent, environment=clean_environment())
    references = unresolved(said)
    if references:
        raise Unresolved(output.name, references)
    return ""


_RUNTIME = ("-lcudart", "-lcuda", "-lc10_cuda", "-ltorch_cuda")
_LIBRARIES = ("-lcublas", "-lcublasLt")


def _user_flags(extension: Extension, *, emulated: bool) -> list[str]:
    """The user's, without the real CUDA libraries that something stands in for."""
    left_out = (*_RUNTIME, *_LIBRARIES) if emulated else _RUNTIME
    return [flag for flag in split(extension.ldflags) if flag not in left_out]


def _blas(extension: Extension, toolchain: Toolchain) -> tuple[str, ...]:
    """The served part of cuBLAS, for an extension whose text may call it."""
    from kernelwright.emulate.nativeparts import blas

    wanted = any("cublas" in unit.text.lower() for unit in extension.units)
    return (str(blas(toolchain.cuda_include)),) if wanted else ()


def unresolved(said: str) -> tuple[Reference, ...]:
    """The references that the linker could not resolve, Python's own left out, each symbol's uses in order."""
    found: dict[tuple[str, str, int], None] = {}
    for match in _REFERENCE.finditer(said):
        symbol = match["symbol"]
        if re.match(r"_?Py[A-Z_]", symbol):
            continue
        file = Path(match["file"]).name if match["file"] else ""
        found[(symbol, file, int(match["line"] or 0))] = None
    names = demangle([symbol for symbol, _, _ in found])
    return tuple(Reference(_real_symbol(symbol), names[symbol], file, line) for symbol, file, line in found)


def demangle(symbols: Sequence[str]) -> dict[str, str]:
    """C++ names of ``symbols``; facade names as torch's own."""
    tool = shutil.which("c++filt")
    if tool is None or not symbols:
        return {symbol: symbol for symbol in symbols}
    answer = subprocess.run([tool], input="\n".join(symbols), capture_output=True, text=True, check=True)
    names = (without_facade(name) for name in answer.stdout.split("\n"))
    return dict(zip(symbols, names, strict=False))


def _real_symbol(symbol: str) -> str:
    """The mangled name as it would be with torch's own types."""
    return re.sub(r"(N?K?(?:2at|3c10|5torch|8pybind11))2kw", r"\1", symbol)


def without_facade(text: str) -> str:
    """``at::kw::Tensor`` as ``at::Tensor``: the facade's inline namespace is nobody's business."""
    return re.sub(r"\bkw::", "", text)


@functools.cache
def native_flags() -> tuple[str, ...]:
    """How a module is linked with the emulated device's native parts."""
    from kernelwright.emulate.nativeparts import extension_link_flags

    return tuple(extension_link_flags())


@functools.cache
def native_identity() -> str:
    """Changes whenever the native parts do: their folders are named by content."""
    return cache.digest(shlex.join(native_flags()))
