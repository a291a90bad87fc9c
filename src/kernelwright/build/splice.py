"""The user's part of a unit, as the facade pass lowered it, on top of torch's real headers.

Why: cudafe++ needs 30 s for torch's headers, g++ with a precompiled form of them three. The rule: only text from the
user's own files is taken over, with the facade's inline namespaces struck out; every header it includes is included
again, for real, in the user's order. What g++ then says of the user's lines is the real headers' word; that the splice
itself does not apply (a header that only nvcc reads) is never a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kernelwright.build import cache, headers
from kernelwright.build.extension import Extension, Unit
from kernelwright.build.link import without_facade
from kernelwright.build.nvcc import clean_environment, run_command
from kernelwright.build.placed import MARKER
from kernelwright.build.toolchain import Toolchain
from kernelwright.emulate.nativebuild import NATIVE

_LEAN_EXTENSION = """#pragma once
#include <torch/types.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
"""
"""torch/extension.h without the C++ frontend (torch::nn, optim, data, jit), which wrappers hardly ever name: 35 s and
530 MB instead of 58 s and 794 MB precompiled. What fails with it is tried with the whole one."""

_MATH = """#include <features.h>
#if __GNUC_PREREQ(2, 41) && (__GLIBC_USE_ISOC23 || defined(__STDC_WANT_IEC_60559_FUNCS_EXT__)) && !__GLIBC_PREREQ(2, 41)
extern "C" {
double sinpi(double) noexcept;
double cospi(double) noexcept;
float sinpif(float) noexcept;
float cospif(float) noexcept;
}
#endif
"""
"""CUDA 13.0's math_functions.h asks for gcc 2.41 where it means glibc 2.41, so with glibc 2.38 to 2.40 it leaves these
four to a libc that lacks them; nvcc's own host compile has them declared in the text that is not taken over here.
Remove when: a toolkit asks ``__GLIBC_PREREQ`` (crt/math_functions.h, ``__NV_GLIBC_PROVIDES_IEC_60559_FUNCS``)."""

_PREFIX = "#include <torch/extension.h>\n"


def real_include_flags(toolchain: Toolchain) -> list[str]:
    """Torch's own headers, with those put before them that a CPU build of torch lacks."""
    from kernelwright.emulate.nativeparts import include_folder

    folders = [
        *([] if _complete(toolchain) else [include_folder()]),
        toolchain.torch_include,
        toolchain.torch_include / "torch" / "csrc" / "api" / "include",
        toolchain.python_include,
        toolchain.cuda_include,
        toolchain.cuda_include / "cccl",
    ]
    return [part for folder in folders for part in ("-isystem", str(folder))]


def _complete(toolchain: Toolchain) -> bool:
    """Whether torch's CUDA headers and those of NVIDIA's libraries that they include are all there."""
    return toolchain.torch_has_cuda and (toolchain.cuda_include / "cublas_v2.h").exists()


def prefix(toolchain: Toolchain, std: str, optimise: str = "-O0") -> Path:
    """A folder with ``prefix.h`` (the lean extension header), its precompiled form, and ``lean/torch/extension.h``.

    One for each level of optimisation: g++ takes a precompiled form at its own only.
    """
    flags = host_flags(std, optimise)
    own = ["complete"] if _complete(toolchain) else []
    name = cache.digest("real", *flags, _LEAN_EXTENSION, _PREFIX, toolchain.identity, *own)

    def make(folder: Path) -> None:
        (folder / "lean" / "torch").mkdir(parents=True)
        (folder / "lean" / "torch" / "extension.h").write_text(_LEAN_EXTENSION)
        (folder / "prefix.h").write_text(_PREFIX)
        command = [str(toolchain.host), "-x", "c++-header", *flags, "-isystem", "lean", *real_include_flags(toolchain)]
        run_command([*command, "prefix.h", "-o", "prefix.h.gch"], folder=folder, environment=clean_environment())

    return cache.obtain("prefix", name, make)[0]


def host_flags(std: str, optimise: str) -> list[str]:
    """What every compile on the real prefix must agree on."""
    return [std, "-fPIC", "-w", optimise, "-g1"]


def own_part(rest: str, own: Sequence[str], system: Sequence[Path]) -> str:
    """The lines of ``rest`` (cudafe++'s output behind the prefix) that come from the user's own files.

    ``own`` are base names; a file in none of the ``system`` folders is the user's, too.
    """
    kept: list[str] = []
    file = ""
    taken = True
    for line in rest.split("\n"):
        marker = MARKER.match(line)
        if marker and marker[2] is not None:
            file = marker[2]
            taken = Path(file).name in own or not (
                file.startswith("/") and any(file.startswith(str(s)) for s in system)
            )
        if taken:
            kept.append(line)
    return without_facade("\n".join(kept))


def includes(text: str) -> str:
    """The include lines of a source, in order."""
    return "\n".join(re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"][^>"\n]+[>"]', text, re.M)) + "\n"


def runtime_templates(toolchain: Toolchain) -> str:
    """The parts of ``cuda_runtime.h`` that only nvcc sees although they are for the host: ``cudaFuncSetAttribute`` of a
    function instead of a pointer to void, ``cudaMemcpyToSymbol``, occupancy, …; taken from the toolkit's own text."""
    text = (toolchain.cuda_include / "cuda_runtime.h").read_text(encoding="utf-8", errors="replace")
    parts = "\n".join(part for part in nvcc_alone(text) if "template" in part)
    return f"#define __CUDA_DEPRECATED\n{parts}\n#undef __CUDA_DEPRECATED"  # the header's own is gone at its end


def nvcc_alone(text: str) -> list[str]:
    """What stands under ``#if defined(__CUDACC__)`` in a header, without comments; up to an ``#else`` of its own."""
    parts: list[list[str]] = []
    depth = within = 0
    for line in re.sub(r"/\*.*?\*/", "", text, flags=re.S).split("\n"):
        word = re.match(r"[ \t]*#[ \t]*(if|ifdef|ifndef|else|elif|endif)\b(.*)", line)
        kind = word[1] if word else ""
        if kind.startswith("if"):
            depth += 1
            if not within and word and re.fullmatch(r"defined\s*\(?\s*__CUDACC__\s*\)?", word[2].strip()):
                within = depth
                parts.append([])
                continue
        if within == depth and kind in ("else", "elif", "endif"):
            within = 0
        if kind == "endif":
            depth -= 1
        if within and line.strip():
            parts[-1].append(line)
    return ["\n".join(part) for part in parts]


def spliced(unit: Unit, rest: str, toolchain: Toolchain, candidate: str) -> str:
    """``unit`` as host C++ against the real headers; its own place in the prefix is the caller's to include."""
    system = [
        headers.FACADE,
        NATIVE,
        toolchain.home,
        toolchain.torch_include,
        toolchain.python_include,
        Path("/usr"),
        cache.root(),
    ]
    own = own_part(rest, [candidate, unit.name, f"{Path(unit.name).stem}.cudafe1.stub.c"], system)
    head = f"#include <cuda_runtime.h>\n{includes(unit.text)}{_MATH}#include <kw_facade/splice.h>\n"
    head += f"{runtime_templates(toolchain)}\n"
    return head + headers.standard_includes(unit.text, torch=True) + own


def standard(extension: Extension, toolchain: Toolchain) -> str:
    """The C++ standard that the extension's host units are compiled as: the last one given."""
    return next(f for f in reversed(extension.host_flags(toolchain)) if f.startswith("-std="))


def command(extension: Extension, toolchain: Toolchain, unit: Unit, *, lean: bool, optimise: str = "-O0") -> list[str]:
    """g++ for ``unit`` on the real headers: precompiled and lean, or whole."""
    std = standard(extension, toolchain)
    made = [str(toolchain.host), *host_flags(std, optimise), *extension.common_flags()]
    if not unit.cuda:
        made += [f for f in extension.host_flags(toolchain) if f.startswith(("-D", "-U", "-f", "-m"))]
    if lean:
        place = prefix(toolchain, std, optimise)
        made += ["-include", str(place / "prefix.h"), "-isystem", str(place / "lean")]
    if unit.folder:
        made.append(f"-I{unit.folder}")
    return [*made, *real_include_flags(toolchain), "-isystem", str(headers.FACADE)]
