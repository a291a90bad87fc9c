"""On a GPU: nvcc's front end on the facade headers, the host code on torch's real ones, machine code for this device.

Why: torch's own build of one small kernel takes a minute, nearly all of it torch's headers in nvcc's front end; with
the facade there and a precompiled form of the real headers in g++ it takes seconds, and an edit inside a kernel two.
The rule: the module that comes out is compiled and linked against the real torch and the real CUDA runtime, its host
code at the level that torch's own build would take from the candidate's flags (-O0 without any), so that a launch costs
what it costs its author; what this way cannot do (relocatable device code, a kernel that takes a type of torch's) or
what it refuses goes to torch's own build, whose word is the verdict.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from kernelwright.build import cache, certain, full, headers, link, splice
from kernelwright.build.context import BuildContext
from kernelwright.build.extension import Extension, optimisation, split
from kernelwright.build.inline import Builder, first_error, said
from kernelwright.build.link import Unresolved
from kernelwright.build.lowered import Lowered, Source, lower
from kernelwright.build.module import Built, obtain
from kernelwright.build.nvcc import CommandFailed, clean_environment, run_command
from kernelwright.build.objects import compile_text
from kernelwright.build.toolchain import Toolchain
from kernelwright.errors import KernelwrightError
from kernelwright.records import BuildRecord, to_json

IMAGE = "unit.fatbin"
"""The fat binary beside a unit's object; the assembler takes it in."""

FATBIN = """#ifndef __SKIP_INTERNAL_FATBINARY_HEADERS
#include "fatbinary_section.h"
#endif
asm(".section .nv_fatbin, \\"a\\"\\n.align 8\\nfatbinData:\\n.incbin \\"%s\\"\\n.align 8\\n.text\\n");
extern "C" {
extern const unsigned long long fatbinData[16];
static const __fatBinC_Wrapper_t __fatDeviceText
    __attribute__ ((aligned (8))) __attribute__ ((section (".nvFatBinSegment"))) = { 0x466243b1, 1, fatbinData, 0 };
}
"""
"""nvcc's ``fatbin.c``, with the images in a file of their own: the host's assembly outlives an edit of a kernel."""

_GIVEN = {"-fPIC", "-m64", *headers.OUTPUT_FLAGS}
"""Flags of the host compile that are no wish of the user's."""

_RELOCATABLE = ("-dc", "--device-c", "-rdc", "--relocatable-device-code", "-dlto", "-dlink", "-code", "-G", "-ewp")
"""Flags of nvcc that ask for what one front-end pass and one assembler run do not give."""


class FallThrough(Exception):
    """This way does not do it; the message says why. Torch's own build is asked."""


class GpuBuilder(Builder):
    """Builds for the device of this process; ``theirs`` are torch's own ``load_inline`` and ``load``.

    ``theirs`` get the very arguments, and why the fast way was left, as ``fell_through``.
    """

    def __init__(self, context: BuildContext, *, theirs: dict[str, Callable[..., Any]]) -> None:
        super().__init__(context)
        self._theirs = theirs

    def load_inline(self, *args: Any, **named: Any) -> ModuleType | str:
        """Torch's ``load_inline``."""
        return self._either("load_inline", super().load_inline, args, named)

    def load(self, *args: Any, **named: Any) -> ModuleType | str:
        """Torch's ``load``."""
        return self._either("load", super().load, args, named)

    def _either(
        self, function: str, ours: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
    ) -> ModuleType | str:
        try:
            made: ModuleType | str = ours(*args, **named)
            return made
        except (FallThrough, KernelwrightError, NotImplementedError, TypeError, OSError) as why:
            made = self._theirs[function](*args, fell_through=str(why) or type(why).__name__, **named)
            return made

    def _capability(self) -> tuple[int, int]:
        digits = self.context.arch.removeprefix("sm_")
        return int(digits[:-1]), int(digits[-1])

    def _hand_over(self, built: Built) -> None:
        """A GPU reads the module itself."""

    def _tiers(
        self, extension: Extension, chain: Toolchain, arch: str, sm: str, record: BuildRecord, start: float
    ) -> tuple[Built, BuildRecord]:
        record = _confirmed(record)
        try:
            return build(extension, chain, arch=arch, sm=sm), record
        except (CommandFailed, Unresolved) as failure:
            told = self._diagnostics(extension, failure)
            if settled := certain.settled(failure, told, extension, chain, arch=arch):
                self._refused(record, settled, failure, start)
            if certain.in_device_code(told, extension):
                self._refused(record, told, failure, start)
            raise FallThrough(first_error(told)) from failure

    def _refused(self, record: BuildRecord, told: Any, failure: Any, start: float) -> NoReturn:
        self._fail(replace(record, diagnostics=told, seconds=time.monotonic() - start), said(failure), cause=failure)


def _confirmed(record: BuildRecord) -> BuildRecord:
    """Only device code, which holds nothing of torch's, was not compiled on the real headers."""
    return replace(record, tier="full", confirmed=True, confirm_note="splice")


def build(extension: Extension, toolchain: Toolchain, *, arch: str, sm: str) -> Built:
    """Builds or finds the module for a GPU of target ``sm`` from PTX of target ``arch``.

    Raises :class:`FallThrough`, :class:`CommandFailed` or :class:`kernelwright.build.link.Unresolved`.
    """
    libraries = _libraries(extension, toolchain)
    if any(flag.split("=")[0] in _RELOCATABLE for flag in split(extension.cuda_cflags)):
        raise FallThrough("a flag asks for relocatable or otherwise special device code")

    def make(folder: Path, work: Path) -> None:
        lowered: dict[int, Lowered] = {}

        def unit(index: int) -> Path:
            place = work / f"unit{index}"
            place.mkdir()
            if not extension.units[index].cuda:
                level = optimisation(split(extension.cflags))
                return full.host_object(extension, toolchain, extension.units[index], place, optimise=level)
            made, lowered[index] = _cuda_object(extension, toolchain, index, place, arch=arch, sm=sm)
            return made

        with ThreadPoolExecutor(len(extension.units)) as pool:
            objects = list(pool.map(unit, range(len(extension.units))))
        module = work / f"{extension.name}.so"
        link.shared(extension, toolchain, objects, module, full=True, libraries=libraries, emulated=False)
        module.rename(folder / module.name)
        facts = {
            "kernels": [to_json(fact) for low in lowered.values() for fact in low.kernels],
            "output": "".join(low.said for low in lowered.values()),
        }
        (folder / "facts.json").write_text(json.dumps(facts))

    return obtain("gpu", extension, toolchain, arch, sm, make, libraries=cache.digest(*libraries))


def _cuda_object(
    extension: Extension, toolchain: Toolchain, index: int, place: Path, *, arch: str, sm: str
) -> tuple[Path, Lowered]:
    unit = extension.units[index]
    include, parts = headers.include_flags(toolchain, cuda=False), headers.parts_of(unit.text)
    low = lower(Source(extension, toolchain, unit, arch, include, parts, image=True), sm)
    if "2kw" in low.ptx:
        raise FallThrough("a kernel takes a type of torch's, so its name depends on the real headers")
    assert low.image is not None
    number = sm.removeprefix("sm_")
    run_command(
        [
            *(str(toolchain.tool("fatbinary")), "-64", f"--create={IMAGE}"),
            f"--image3=kind=elf,sm={number},file={low.image}",
        ],
        folder=place,
        environment=clean_environment(),
    )
    (place / "fatbin.c").write_text(FATBIN % IMAGE)
    text = splice.spliced(unit, low.rest, toolchain, extension.candidate)
    # What nvcc would hand on to the host compiler (-Xcompiler): -fopenmp, -march=native, …
    own = [flag for flag in low.host_flags if flag.startswith(("-f", "-m")) and flag not in _GIVEN]
    command = [*splice.command(extension, toolchain, unit, lean=True, optimise=low.optimise), *own, "-I."]
    salt = cache.digest(toolchain.identity, headers.facade_digest(), FATBIN)
    return compile_text(f"// unit {index}\n{text}", "spliced.cpp", command, place, salt=salt), low


def _libraries(extension: Extension, toolchain: Toolchain) -> tuple[str, ...]:
    """What a module is linked with beside torch's CPU libraries. Raises :class:`FallThrough` where one is missing."""
    runtime = toolchain.cuda_runtime()
    torch = [toolchain.torch_lib / name for name in ("libc10_cuda.so", "libtorch_cuda.so")]
    missing = [path.name for path in torch if not path.exists()]
    if runtime is None or missing:
        raise FallThrough(f"{missing[0] if missing else 'libcudart.so'} was not found")
    driver = [flag for flag in split(extension.ldflags) if flag == "-lcuda"]
    folders = [f"-L{folder}" for folder in (runtime.parent, runtime.parent / "stubs") if folder.is_dir()]
    return (*map(str, torch), str(runtime), *folders, *driver)
