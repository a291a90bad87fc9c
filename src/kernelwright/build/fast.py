"""The fast tier: the extension against the facade headers, in two seconds, and in less where only a kernel changed.

Why: the real headers cost 90 s under nvcc. The rule: this tier may refuse what the real headers accept (the build then
falls through to them), and what it refuses is never the verdict; what it builds calls real torch operators.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelwright.build import cache, headers, link
from kernelwright.build.extension import Extension, Unit
from kernelwright.build.lowered import Lowered, Source, lower
from kernelwright.build.module import Built, finish, obtain
from kernelwright.build.nvcc import FATBIN
from kernelwright.build.objects import compile_text
from kernelwright.build.sources import parameter_names
from kernelwright.build.toolchain import Toolchain


def build(extension: Extension, toolchain: Toolchain, *, arch: str, sm: str) -> Built:
    """Builds or finds the module. ``arch`` is the PTX target, ``sm`` what ptxas reports registers for.

    Raises :class:`kernelwright.build.nvcc.CommandFailed` with the first compiler that refused, or
    :class:`kernelwright.build.link.Unresolved`.
    """

    def make(folder: Path, work: Path) -> None:
        lowered: dict[int, Lowered] = {}
        with ThreadPoolExecutor(max_workers=2 * len(extension.units) + 1) as pool:
            support = pool.submit(headers.support, toolchain)
            jobs = [
                pool.submit(_object(extension, toolchain, i, arch, sm, lowered, work))
                for i in range(len(extension.units))
            ]
            objects = [job.result() for job in jobs]
            objects += support.result()
        module = work / f"{extension.name}.so"
        link.shared(extension, toolchain, objects, module)
        finish(folder, module, {i: low.ptx for i, low in lowered.items()}, lowered)

    return obtain("fast", extension, toolchain, arch, sm, make)


def source(extension: Extension, toolchain: Toolchain, unit: Unit, arch: str) -> Source:
    """``unit`` with the facade headers it asks for."""
    return Source(
        extension, toolchain, unit, arch, headers.include_flags(toolchain, cuda=False), headers.parts_of(unit.text)
    )


def _object(
    extension: Extension, toolchain: Toolchain, index: int, arch: str, sm: str, lowered: dict[int, Lowered], work: Path
) -> Callable[[], Path]:
    unit = extension.units[index]
    place = work / f"unit{index}"
    place.mkdir()

    def cuda() -> Path:
        low = lowered[index] = lower(source(extension, toolchain, unit, arch), sm)
        return cuda_object(toolchain, low, index, place)

    def host() -> Path:
        return _host_object(extension, toolchain, unit, place)

    return cuda if unit.cuda else host


def cuda_object(toolchain: Toolchain, low: Lowered, index: int, place: Path) -> Path:
    """The host object of a lowered unit, with the index of its PTX where the images would be."""
    (place / "fatbin.c").write_text(FATBIN.format(key=cache.placeholder(index)))
    include = ["-include", str(low.prefix / "prefix.h")] if low.prefix else []
    command = [str(toolchain.host), *low.host_flags, *include, "-I.", "-isystem", str(toolchain.cuda_include)]
    return compile_text(f"// unit {index}\n{low.head}{low.rest}", "host.cpp", command, place, salt=toolchain.identity)


def _host_object(extension: Extension, toolchain: Toolchain, unit: Unit, place: Path) -> Path:
    flags = [f for f in extension.host_flags(toolchain) if not f.startswith(("-O", "-g"))]
    parts = headers.parts_of(unit.text)
    text = headers.standard_includes(unit.text, torch=bool(parts)) + f'#line 1 "{unit.name}"\n{unit.text}'
    names = parameter_names(extension.units, extension.functions)
    if "binding" in parts and names:  # behind the user's text, so that no line of it moves
        text += '#line 1 "kw_names"\n' + "".join(
            f'static ::pybind11::detail::written kw_written_{i}("{name}", {{{_quoted(words)}}});\n'
            for i, (name, words) in enumerate(names.items())
        )
    command = [str(toolchain.host), *flags, *headers.OUTPUT_FLAGS]
    if parts:
        own = [f for f in flags if not f.startswith(("-D", "-I"))]
        prefix = headers.host_prefix(toolchain, parts, [*own, *headers.OUTPUT_FLAGS], cuda=extension.with_cuda)
        command += ["-include", str(prefix / "prefix.h")]
    command += [f"-I{unit.folder}"] if unit.folder else []
    command += headers.include_flags(toolchain, cuda=extension.with_cuda)
    return compile_text(text, unit.name, command, place, salt=toolchain.identity + headers.facade_digest())


def _quoted(words: list[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
