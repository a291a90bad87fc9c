"""One extension to be built, as data: its translation units and the flags that PyTorch would compile them with.

Why: the candidate's process, the confirmation in the supervisor and the cache must all speak of the same thing. The
rule: flags and their order are those of the installed torch's ``cpp_extension``, read from its file, so that what the
real ``load_inline`` refuses (half operators, for one) is refused here.
"""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.build.cache import digest
from kernelwright.build.toolchain import Toolchain


@dataclass(frozen=True)
class Unit:
    """One translation unit."""

    name: str
    """``main.cpp``, ``cuda.cu``, or the base name of a file given to ``load``."""
    text: str
    """The source, with ``#line`` markers."""
    cuda: bool
    folder: str = ""
    """The folder of a source file, searched for its quoted includes; empty for generated files."""


@dataclass(frozen=True)
class Extension:
    """What ``load_inline`` or ``load`` was asked for."""

    name: str
    units: tuple[Unit, ...]
    cflags: tuple[str, ...] = ()
    """The user's, as given (``extra_cflags``)."""
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    with_cuda: bool = True
    arch_list: str = ""
    """TORCH_CUDA_ARCH_LIST at the call; empty when unset."""
    functions: tuple[str, ...] = ()
    """Names for which bindings were generated."""
    call_line: int = 0
    """Line in the candidate of the call."""
    candidate: str = "candidate.py"
    """Base name of the candidate's file, as line markers carry it."""

    def common_flags(self) -> list[str]:
        """What both compilers get first: the name, and the user's include folders."""
        return [
            f"-DTORCH_EXTENSION_NAME={self.name}",
            "-DTORCH_API_INCLUDE_EXTENSION_H",
            *(f"-I{Path(folder).absolute()}" for folder in self.include_paths),
        ]

    def host_flags(self, toolchain: Toolchain) -> list[str]:
        """g++'s flags for the ``.cpp`` units, without include folders of the system."""
        return [*self.common_flags(), "-fPIC", torch_flags(toolchain).standard, *split(self.cflags)]

    def nvcc_flags(self, toolchain: Toolchain) -> list[str]:
        """nvcc's flags for the ``.cu`` units, without targets and include folders of the system."""
        torch = torch_flags(toolchain)
        user = without_targets(split(self.cuda_cflags))
        made = [*self.common_flags(), *torch.nvcc, "--compiler-options", "-fPIC", *user]
        if not any(flag.startswith("-std=") for flag in made):
            made.append(torch.standard)
        return made

    def folders(self) -> list[str]:
        """The user's folders that units may include files from."""
        wanted = [*(unit.folder for unit in self.units), *self.include_paths]
        return [folder for folder in dict.fromkeys(wanted) if folder and Path(folder).is_dir()]

    def identity(self, toolchain: Toolchain) -> str:
        """The digest of everything that determines the built module, save the architecture it is built for."""
        parts = [self.name, *self.host_flags(toolchain), "|", *self.nvcc_flags(toolchain), "|", *self.ldflags]
        for unit in self.units:
            parts += [unit.name, unit.text, str(unit.cuda), unit.folder]
        return digest(*parts, toolchain.identity)


@dataclass(frozen=True)
class TorchFlags:
    """What the installed torch adds by itself."""

    nvcc: tuple[str, ...]
    standard: str


@functools.cache
def torch_flags(toolchain: Toolchain) -> TorchFlags:
    """COMMON_NVCC_FLAGS and the C++ standard, from the source of the installed ``torch.utils.cpp_extension``."""
    text = (toolchain.torch_include.parent / "utils" / "cpp_extension.py").read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "COMMON_NVCC_FLAGS":
            common = tuple(str(flag) for flag in ast.literal_eval(node.value))
            break
    else:
        raise ValueError("torch.utils.cpp_extension has no COMMON_NVCC_FLAGS")
    standard = re.search(r"'-fPIC', '(-std=c\+\+\d+)'\] \+ extra_cflags", text)
    return TorchFlags(nvcc=common, standard=standard[1] if standard else "-std=c++17")


def split(flags: tuple[str, ...]) -> list[str]:
    """Flags as a shell would split them: torch pastes them into a command line of ninja's."""
    return [part for flag in flags for part in shlex.split(flag)]


def optimisation(flags: Sequence[str]) -> str:
    """The level that g++ takes from ``flags``: the last ``-O…``; ``-O0`` where there is none, as in torch's build."""
    return next((flag for flag in reversed(flags) if re.fullmatch(r"-O(\d|s|z|g|fast)?", flag)), "-O0")


_TARGET = re.compile(r"^(-gencode|--generate-code|-arch|--gpu-architecture|-code|--gpu-code)(=.*)?$")
_THREADS = re.compile(r"^(-t|--threads)(=.*)?$")


def without_targets(flags: list[str]) -> list[str]:
    """``flags`` without those that choose GPUs, and how many are compiled for at once: here it is one at a time.

    (With ``--threads`` nvcc's steps write their words to files of its own, in commands that end otherwise.)
    """
    kept: list[str] = []
    skip = False
    for flag in flags:
        if skip:
            skip = False
        elif found := _TARGET.match(flag) or _THREADS.match(flag):
            skip = not found[2]
        else:
            kept.append(flag)
    return kept


def targets(flags: list[str]) -> list[str]:
    """The values of the flags that choose a GPU: ``arch=compute_90,code=sm_90``, ``sm_80``, …"""
    found: list[str] = []
    for i, flag in enumerate(flags):
        if match := _TARGET.match(flag):
            found.append(match[2][1:] if match[2] else flags[i + 1] if i + 1 < len(flags) else "")
    return found
