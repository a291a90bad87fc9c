"""The facade headers as a precompiled prefix, for g++ and for what cudafe++ makes of them.

Why: the headers are the same for every candidate and cost a second in each host compile. The rule: what is precompiled
is exactly the text that would stand there otherwise; where it is not (an odd flag, another prefix), g++ compiles the
text itself and nothing changes but the time.
"""

from __future__ import annotations

import functools
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from kernelwright.build import cache
from kernelwright.build.nvcc import Plan, clean_environment, plan, run_command
from kernelwright.build.toolchain import Toolchain
from kernelwright.emulate.nativebuild import NATIVE
from kernelwright.emulate.nativeparts import include_folder

FACADE = Path(__file__).parent / "facade" / "include"

_BASE = ("tensor", "factories", "dispatch")
_EXTRA = ("cuda_check", "cuda", "binding")
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


@functools.cache
def facade_digest() -> str:
    """Changes whenever a facade header or the interface below it changes."""
    served = [(NATIVE / name).read_bytes() for name in ("kw_torch.h", "cublas.cpp")]
    return cache.digest(cache.folder_digest(FACADE), cache.folder_digest(include_folder()), *served)


def include_flags(toolchain: Toolchain, *, cuda: bool) -> list[str]:
    """Where the facade, the one torch folder it builds on, Python and CUDA lie."""
    thin = _headeronly(toolchain)
    folders = [FACADE, NATIVE, thin, toolchain.python_include]
    if cuda:
        folders += [toolchain.cuda_include, toolchain.cuda_include / "cccl"]
    folders.append(include_folder())
    return [part for folder in folders for part in ("-isystem", str(folder))]


def _headeronly(toolchain: Toolchain) -> Path:
    """A folder that shows torch/headeronly and nothing else of torch, so that a missing header is missing at once.

    Half and BFloat16 lose ``<ostream>`` (0.3 s in each of nvcc's passes); streams.h defines their printing.
    """
    real = toolchain.torch_include / "torch" / "headeronly"

    def make(folder: Path) -> None:
        copy = folder / "torch" / "headeronly"
        shutil.copytree(real, copy)
        for name in ("Half.h", "BFloat16.h"):
            file = copy / "util" / name
            text = file.read_text(encoding="utf-8").replace("#include <ostream>", "#include <iosfwd>")
            file.write_text(_PRINTER.sub(r"\1;\n", text), encoding="utf-8")

    return cache.obtain("headeronly", cache.digest(str(real), toolchain.torch_version, _PRINTER.pattern), make)[0]


_PRINTER = re.compile(r"(inline std::ostream& operator<<\(std::ostream& out, const \w+& value\)) \{.*?\n\}\n", re.S)


def parts_of(text: str) -> tuple[str, ...]:
    """The facade parts that a unit's own include lines ask for; empty where it includes none of torch."""
    wanted: set[str] = set()
    for name in _INCLUDE.findall(text):
        file = FACADE / name
        if file.is_file():
            wanted.update(re.findall(r"kw_facade/(\w+)\.h", file.read_text(encoding="utf-8")))
    if not wanted:
        return ()
    return (*_BASE, *(part for part in _EXTRA if part in wanted))


_STANDARD: tuple[tuple[str, str], ...] = (
    (r"std::(function|bind|invoke|hash|less|greater|plus|multiplies|reference_wrapper)\b", "functional"),
    (r"std::(unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)\b", "memory"),
    (r"std::(unordered_map)\b", "unordered_map"),
    (r"std::(unordered_set)\b", "unordered_set"),
    (r"std::(map|multimap)\b", "map"),
    (r"std::(set|multiset)\b", "set"),
    (r"std::(deque)\b", "deque"),
    (r"std::(accumulate|iota|inner_product|gcd|lcm)\b", "numeric"),
    (r"std::(mutex|lock_guard|unique_lock|once_flag|call_once)\b", "mutex"),
    (r"std::atomic", "atomic"),
    (r"std::complex\b", "complex"),
    (r"std::chrono\b", "chrono"),
    (r"\b(printf|fprintf|snprintf|puts)\b", "cstdio"),
    (r"\b(malloc|free|abs|exit|abort|getenv)\b", "cstdlib"),
    (r"\bassert\b", "cassert"),
    (r"\b(FLT|DBL|LDBL)_[A-Z]", "cfloat"),
    (r"\b(S?CHAR|U?CHAR|U?SHRT|U?INT|U?LONG|U?LLONG)_(MAX|MIN)\b", "climits"),
    (r"\b(INFINITY|NAN|M_PI|M_E|M_SQRT2|M_SQRT1_2|M_2_SQRTPI|M_LN2|M_LN10)\b", "cmath"),
    (
        r"std::(cout|cerr|clog|endl|\w*stringstream|ostream|setw|setprecision)\b|<(iostream|sstream|ostream)>",
        "kw_facade/streams.h",
    ),
)
"""What a source uses of the standard library without including it, because torch's own headers include it for them."""


def standard_includes(text: str, *, torch: bool) -> str:
    """Include lines for what ``text`` uses of the standard library and the facade does not bring by itself."""
    found = [header for pattern, header in _STANDARD if re.search(pattern, text)]
    return "".join(f"#include <{header}>\n" for header in found) if torch else ""


def support(toolchain: Toolchain) -> list[Path]:
    """The objects of the facade's bodies, compiled once."""
    sources = sorted(FACADE.parent.glob("*.cpp"))
    name = cache.digest("support", *(source.read_text() for source in sources), toolchain.identity, facade_digest())

    def make(folder: Path) -> None:
        for source in sources:
            flags = ["-std=c++17", "-fPIC", "-O1", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]
            command = [str(toolchain.host), *flags, *include_flags(toolchain, cuda=False), "-c", str(source)]
            run_command([*command, "-o", f"{source.stem}.o"], folder=folder, environment=clean_environment())

    folder, _ = cache.obtain("support", name, make)
    return [folder / f"{source.stem}.o" for source in sources]


def prefix_text(parts: Sequence[str]) -> str:
    """The include lines of ``parts``, on one line each."""
    return "".join(f"#include <kw_facade/{part}.h>\n" for part in parts)


def host_prefix(toolchain: Toolchain, parts: Sequence[str], flags: Sequence[str], *, cuda: bool) -> Path:
    """A folder with ``prefix.h`` and its precompiled form, for ``.cpp`` units compiled with ``flags``."""
    name = cache.digest("host", *parts, *flags, str(cuda), toolchain.identity, facade_digest())

    def make(folder: Path) -> None:
        (folder / "prefix.h").write_text(prefix_text(parts))
        _precompile(toolchain, folder, [*flags, *include_flags(toolchain, cuda=cuda)])

    return cache.obtain("prefix", name, make)[0]


def lowered_prefix(
    toolchain: Toolchain,
    parts: Sequence[str],
    *,
    unit: str,
    nvcc_flags: Sequence[str],
    host_flags: Sequence[str],
    arch: str,
) -> Path:
    """A folder with ``prefix.h``, the facade as cudafe++ lowers it in a unit of that name, and its precompiled form."""
    name = cache.digest(
        "lowered", unit, arch, *parts, "|", *nvcc_flags, "|", *host_flags, toolchain.identity, facade_digest()
    )

    def make(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        source = work / unit
        source.write_text(prefix_text(parts) + HEAD_MARKER)
        steps = plan(toolchain, source, nvcc_flags, arch=arch, salt="prefix")
        steps.run(steps.host_preprocess, steps.lower)
        head, _ = cut(steps.lowered.read_text())
        (folder / "prefix.h").write_text(head)
        shutil.rmtree(work)
        _precompile(toolchain, folder, [*host_flags, "-isystem", str(toolchain.cuda_include)])

    return cache.obtain("prefix", name, make)[0]


HEAD_MARKER = '#line 1 "kw_head"\nstruct kw_head;\n'
"""Stands between the prefix and the unit's own text, and survives cudafe++."""


def cut(lowered: str) -> tuple[str, str]:
    """What cudafe++ wrote before :data:`HEAD_MARKER`, and the rest from it on."""
    found = re.search(r'^# \d+ "kw_head"', lowered, re.M)
    return (lowered[: found.start()], lowered[found.start() :]) if found else (lowered, "")


def lowered_host_flags(steps: Plan, toolchain: Toolchain) -> list[str]:
    """The flags of nvcc's own host compile that still matter once the text is preprocessed."""
    kept: list[str] = []
    words = shlex.split(steps.host_compile)[1:]
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("-o", "-x", "-I", "-isystem", "-D", "-U", "-include"):
            skip = True
        elif word == "-c" or word.startswith(("-D", "-I", "-U", "-O")) or word.endswith((".cudafe1.cpp", ".o")):
            continue
        else:
            kept.append(word)
    return [*kept, "-w", *OUTPUT_FLAGS]


OUTPUT_FLAGS = ("-g1", "-fvisibility=hidden", "-fvisibility-inlines-hidden")
"""Line tables for launch sites; nothing exported but the module's entry."""


def _precompile(toolchain: Toolchain, folder: Path, flags: Sequence[str]) -> None:
    command = [str(toolchain.host), "-x", "c++-header", *flags, "prefix.h", "-o", "prefix.h.gch"]
    run_command(command, folder=folder, environment=clean_environment())
