"""The full tier: the extension against torch's real headers, for what the facade does not offer.

The rule: whatever this tier says is what the real ``load_inline`` would say. Host text is spliced (user's part as the
facade pass lowered it, real headers precompiled) where that applies; else nvcc's own steps run on the real headers,
which takes a minute and a half. Either way the result is kept.
"""

from __future__ import annotations

import re
from pathlib import Path

from kernelwright.build import cache, fast, headers, link, splice
from kernelwright.build.extension import Extension, Unit
from kernelwright.build.lowered import Lowered, Source, lower
from kernelwright.build.module import Built, finish, obtain
from kernelwright.build.nvcc import FATBIN, CommandFailed
from kernelwright.build.objects import compile_text
from kernelwright.build.toolchain import Toolchain


def build(extension: Extension, toolchain: Toolchain, *, arch: str, sm: str) -> Built:
    """Builds or finds the module; see :func:`kernelwright.build.fast.build`.

    Raises :class:`CommandFailed` or :class:`kernelwright.build.link.Unresolved`: the real headers' word.
    """

    def make(folder: Path, work: Path) -> None:
        lowered: dict[int, Lowered] = {}

        def unit_object(index: int) -> Path:
            unit = extension.units[index]
            place = work / f"unit{index}"
            place.mkdir()
            if not unit.cuda:
                return host_object(extension, toolchain, unit, place)
            made, lowered[index] = _cuda_object(extension, toolchain, unit, index, arch, sm, place)
            return made

        # One after the other: two compiles of the real headers need 4 GB.
        cheapest_first = sorted(range(len(extension.units)), key=lambda i: extension.units[i].cuda)
        objects = {index: unit_object(index) for index in cheapest_first}
        module = work / f"{extension.name}.so"
        link.shared(extension, toolchain, [objects[i] for i in sorted(objects)], module, full=True)
        finish(folder, module, {i: low.ptx for i, low in lowered.items()}, lowered)

    return obtain("full", extension, toolchain, arch, sm, make)


def host_object(extension: Extension, toolchain: Toolchain, unit: Unit, place: Path, *, optimise: str = "-O0") -> Path:
    """A ``.cpp`` unit: on the lean precompiled headers, and on the whole ones where those may be what it misses."""
    lean = splice.command(extension, toolchain, unit, lean=True, optimise=optimise)
    try:
        return compile_text(unit.text, unit.name, lean, place, salt=_salt(toolchain))
    except CommandFailed as failure:
        if not _misses_a_header(failure.output, extension):
            raise
        whole = splice.command(extension, toolchain, unit, lean=False, optimise=optimise)
        return compile_text(unit.text, unit.name, whole, place, salt=_salt(toolchain))


def _misses_a_header(output: str, extension: Extension) -> bool:
    """Whether an error is about a name that is not declared, and is none of the bound functions."""
    names = re.findall(
        r"error: '([^']+)' (?:was not declared|has not been declared|is not a member|does not name)", output
    )
    return (
        any(name not in extension.functions for name in names)
        or "No such file" in output
        or "incomplete type" in output
    )


def spliced_object(
    extension: Extension, toolchain: Toolchain, unit: Unit, low: Lowered, index: int, place: Path
) -> Path:
    """A ``.cu`` unit's host object on the real headers, from its facade pass.

    Raises :class:`CommandFailed`; that the splice does not apply looks the same, so it is no verdict by itself.
    """
    (place / "fatbin.c").write_text(FATBIN.format(key=cache.placeholder(index)))
    text = splice.spliced(unit, low.rest, toolchain, extension.candidate)
    command = [*splice.command(extension, toolchain, unit, lean=True), "-I."]
    return compile_text(f"// unit {index}\n{text}", "spliced.cpp", command, place, salt=_salt(toolchain))


def _cuda_object(
    extension: Extension, toolchain: Toolchain, unit: Unit, index: int, arch: str, sm: str, place: Path
) -> tuple[Path, Lowered]:
    try:
        low = lower(fast.source(extension, toolchain, unit, arch), sm)
        # A kernel that takes a facade type has another name against the real headers.
        if "2kw" not in low.ptx:
            return spliced_object(extension, toolchain, unit, low, index, place), low
    except CommandFailed:
        pass
    source = Source(extension, toolchain, unit, arch, splice.real_include_flags(toolchain), ())
    low = lower(source, sm)
    return fast.cuda_object(toolchain, low, index, place), low


def _salt(toolchain: Toolchain) -> str:
    return toolchain.identity + headers.facade_digest()
