"""A single-file CUDA program becomes a shared object whose ``main`` the emulated device's process calls.

Why: the program must be compiled as nvcc would (its own steps, the real CUDA headers), yet meet the emulated runtime
and not a real one. The rule: what both preprocessors leave names the product, so that an edit in any included file is
seen; the text is compiled under ``#line``, so that every tool speaks of the user's own file and line.
"""

from __future__ import annotations

import functools
import json
import re
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernelwright.build import cache, diagnostics, link, ptxas
from kernelwright.build.nvcc import FATBIN, CommandFailed, Plan, clean_environment, plan, run_command
from kernelwright.build.toolchain import Toolchain
from kernelwright.emulate.nativebuild import shared_library
from kernelwright.emulate.nativeparts import include_folder, program_link_flags
from kernelwright.errors import RefusedError
from kernelwright.records import BuildRecord, Diagnostic, KernelFacts, from_json, to_json

PTX_TARGET = "sm_80"
"""What the emulated device runs; the presented device's own name goes to ptxas only."""

HOST_FLAGS = (
    *("-g1", "-gdwarf-4", "-O2", "-fPIC", "-fno-omit-frame-pointer"),
    *("-fno-ipa-sra", "-fno-optimize-sibling-calls"),
    *("-fsanitize=unreachable", "-fsanitize-undefined-trap-on-error"),
)
"""For g++: lines for crashes and launches, and CPU reference code that does not take minutes.

nvcc alone does not optimise host code, and C that lacks a return statement then works: the sanitizer keeps g++ from
running on into the next function there. Without the two flags before it a load may move into the caller, and a caller
be gone from the stack. DWARF 5's first file is mistaken by binutils 2.40 for the generated one.
"""


SEPARATE = frozenset({"-rdc=true", "--relocatable-device-code=true", "-dc", "--device-c"})
"""Flags of separate compilation: one file needs none, and dynamic parallelism is refused at its line without them."""


@dataclass(frozen=True)
class Source:
    """What is compiled, and how."""

    file: Path
    """As the user gave it."""
    content: bytes
    """In whatever encoding: it is the compiler's business."""
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    """``NAME`` or ``NAME=VALUE``."""
    flags: tuple[str, ...] = ()
    """More flags for nvcc."""

    @property
    def text(self) -> str:
        """As people read it."""
        return self.content.decode("utf-8", "replace")

    def nvcc_flags(self) -> list[str]:
        """nvcc's command line, targets and output aside."""
        # The text is compiled from another folder: files beside the program are found by this.
        places = ("-iquote", str(self.file.parent.absolute()), "-isystem", str(include_folder()))
        beside = [part for word in places for part in ("-Xcompiler", word)]
        host = [part for flag in HOST_FLAGS for part in ("-Xcompiler", flag)]
        folders = [f"-I{folder.absolute()}" for folder in self.include]
        own = [flag for flag in self.flags if flag not in SEPARATE]
        return [*host, *beside, *folders, *(f"-D{define}" for define in self.defines), *own]


@dataclass(frozen=True)
class Program:
    """A compiled program in the store."""

    module: Path
    key: str
    """What its registration names: ``kw-ptx:<key>``."""
    ptx: Path
    record: BuildRecord


def compile(source: Source, toolchain: Toolchain, *, sm: str) -> Program | BuildRecord:
    """The compiled program, or the record of a build that failed. ``sm`` is the presented device's, for ptxas."""
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="kernelwright-program-") as made:
            return _compile(source, toolchain, sm, Path(made), started)
    except (CommandFailed, link.Unresolved) as failure:
        refused = [use.symbol for use in getattr(failure, "references", ()) if link.OF_LIBRARIES.fullmatch(use.symbol)]
        if refused:
            named = ", ".join(dict.fromkeys(refused))
            raise RefusedError(f"refused: {named} is not served", hint="docs/run.md lists what is") from None
        own = (source.file.name,)
        found = diagnostics.of_failure(failure, own=own, text=source.text)
        return _record(source, cached=False, seconds=time.monotonic() - started, ok=False, found=found)


def _compile(source: Source, toolchain: Toolchain, sm: str, work: Path, started: float) -> Program:
    place = work / f"{re.sub(r'[^A-Za-z0-9_]', '_', source.file.stem)}.cu"
    place.write_bytes(f'#line 1 "{source.file.absolute()}"\n'.encode() + source.content)
    steps = plan(toolchain, place, source.nvcc_flags(), arch=PTX_TARGET, salt="program")
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(steps.run, step) for step in (steps.host_preprocess, steps.device_preprocess)]
        said = "".join(job.result() for job in jobs)
    parts = [_preprocessed(work, place.stem, kind) for kind in ("cpp4", "cpp1")]
    commands = [re.sub(re.escape(str(work)), "", c) for c in (steps.lower, steps.compile, steps.host_compile)]
    libraries = tuple(link_flags())
    salt = (toolchain.identity, sm, *commands, *libraries, *HOST_FLAGS)

    def make(folder: Path) -> None:
        # What the compiler is told, the linker must know.
        links = libraries + (("-fopenmp",) if "-fopenmp" in " ".join(source.flags) else ())
        _make(steps, toolchain, sm, folder, links, said)

    entry, cached = cache.obtain("program", cache.digest(*parts, *salt), make)
    facts = json.loads((entry / "facts.json").read_text())
    kernels = tuple(from_json(KernelFacts, fact) for fact in facts["kernels"])
    warnings = diagnostics.read("nvcc", facts["said"], own=(source.file.name,), text=source.text)
    seconds = time.monotonic() - started
    record = _record(source, cached=cached, seconds=seconds, ok=True, found=warnings, kernels=kernels)
    return Program(entry / "program.so", facts["key"], entry / "program.ptx", record)


def _preprocessed(work: Path, stem: str, kind: str) -> str:
    """What the preprocessor left; the scratch folder's name, which differs each time, taken out."""
    return (work / f"{stem}.{kind}.ii").read_text(encoding="utf-8", errors="replace").replace(str(work), "")


def _make(steps: Plan, toolchain: Toolchain, sm: str, folder: Path, libraries: tuple[str, ...], said: str) -> None:
    work = steps.folder

    def device() -> tuple[str, tuple[KernelFacts, ...]]:
        return steps.run(steps.compile), ptxas.facts(steps, sm)

    with ThreadPoolExecutor(2) as pool:
        jobs = pool.submit(steps.run, steps.lower), pool.submit(device)
        said += jobs[0].result()
        more, kernels = jobs[1].result()
    ptx = steps.ptx.read_text(encoding="utf-8").replace(f"{work}/", "")
    key = cache.digest(ptx)
    steps.fatbin.write_text(FATBIN.format(key=key))
    said += more + steps.run(steps.host_compile)
    _link(toolchain, work / "unit.o", folder / "program.so", libraries)
    (folder / "program.ptx").write_text(ptx, encoding="utf-8")
    facts = {"key": key, "kernels": [to_json(fact) for fact in kernels], "said": said}
    (folder / "facts.json").write_text(json.dumps(facts))


def _link(toolchain: Toolchain, unit: Path, output: Path, libraries: tuple[str, ...]) -> None:
    """The shared object. Its own definitions win over those of the process, as an executable's would."""
    archives = [part for part in libraries if part.endswith(".a")]
    others = [part for part in libraries if part not in archives]
    command = [
        *(str(toolchain.host), "-shared", "-Wl,-Bsymbolic", "-o", str(output)),
        # The runtime's own globals must be made before the program registers its kernels: it comes first, and whole.
        *("-Wl,--whole-archive", archives[0], "-Wl,--no-whole-archive"),
        *(str(unit), *archives[1:], *others, "-lpthread", "-ldl", "-lrt", "-lm"),
        *shared_library(str(toolchain.host)),
        *("-Wl,-z,defs", "-Wl,--warn-unresolved-symbols", "-Wl,--no-demangle"),
    ]
    said = run_command(command, folder=unit.parent, environment=clean_environment())
    references = link.unresolved(said)
    if references:
        raise link.Unresolved(output.name, references)


@functools.cache
def link_flags() -> tuple[str, ...]:
    """The native parts; made at the first use."""
    return program_link_flags()


def _record(
    source: Source,
    *,
    cached: bool,
    seconds: float,
    ok: bool,
    found: Sequence[Diagnostic],
    kernels: tuple[KernelFacts, ...] = (),
) -> BuildRecord:
    return BuildRecord(
        name=source.file.name,
        tier="program",
        cached=cached,
        seconds=seconds,
        ok=ok,
        confirmed=None,
        diagnostics=tuple(found),
        kernels=kernels,
        arch=PTX_TARGET,
    )
