"""Finds nvcc and what must stand beside it, and says what to install where something is missing.

Why: CUDA's compiler comes as a system toolkit, a conda package or a set of Python wheels, each laid out differently,
and half a toolkit fails later with a message that names neither. The rule: a :class:`Toolchain` is complete or it is
not made; every path in it was seen on disk.

The wheels (checked 2026-11 with 13.0): ``nvidia-cuda-nvcc`` (nvcc, cudafe++, ptxas, fatbinary), ``nvidia-nvvm`` (cicc,
libdevice), ``nvidia-cuda-crt`` and ``nvidia-cuda-runtime`` (headers), ``nvidia-cuda-cccl`` (cub, thrust, libcu++). They
unpack into one folder ``nvidia/cu13`` that works as a toolkit. nvcc's wheel does not pin the version of nvvm: a newer
cicc writes PTX that an older ptxas refuses, so all five must have one version.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from kernelwright import settings
from kernelwright.emulate import torchfiles
from kernelwright.emulate.nativebuild import compiler
from kernelwright.errors import MissingTool

WHEELS = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
"""The Python packages that make a toolkit, all of one CUDA version."""

ADVICE = (
    "install a CUDA toolkit, or its wheels: pip install 'kernelwright[nvcc]'; KERNELWRIGHT_NVCC names an nvcc directly"
)

_WHEEL_FOLDERS = ("nvidia/cu13", "nvidia/cuda_nvcc")


@dataclass(frozen=True)
class Toolchain:
    """What a build is made with."""

    nvcc: Path
    home: Path
    """The toolkit's folder: ``bin``, ``include`` and ``nvvm`` below it (or linked from it)."""
    version: str
    """nvcc's, e.g. ``13.0.88``."""
    host: Path
    """The C++ host compiler (g++)."""
    host_version: str
    """Its version line."""
    python_include: Path
    torch_include: Path
    torch_lib: Path
    torch_version: str

    @property
    def cuda_include(self) -> Path:
        """Where ``cuda_runtime.h`` lies."""
        return self.home / "include"

    def tool(self, name: str) -> Path:
        """``ptxas``, ``cudafe++``, … of this toolkit. Raises :class:`MissingTool`."""
        found = self.nvcc.resolve().parent / name
        if not found.exists() and (elsewhere := self.home / "bin" / name).exists():
            found = elsewhere
        if not found.exists():
            raise MissingTool(tool=name, searched=f"beside {self.nvcc}", hint=ADVICE)
        return found

    @property
    def torch_has_cuda(self) -> bool:
        """Whether the installed torch was built for NVIDIA GPUs."""
        return (self.torch_lib / "libc10_cuda.so").exists()

    def cuda_runtime(self) -> Path | None:
        """The shared libcudart of this toolkit, or the one that torch brought; None where there is neither."""
        wheels = self.torch_lib.parents[1] / "nvidia"
        folders = [
            self.home / "lib64",
            self.home / "lib",
            *(wheels / part / "lib" for part in ("cu13", "cuda_runtime")),
        ]
        major = self.version.split(".")[0]
        found = (folder / name for folder in folders for name in (f"libcudart.so.{major}", "libcudart.so"))
        return next((path for path in found if path.exists()), None)

    @property
    def identity(self) -> str:
        """Whatever changes the products of a build, for cache keys."""
        return "\0".join(
            [self.version, str(self.home), str(self.host), self.host_version, self.torch_version, sys.version]
        )


def find(*, environment: dict[str, str] | None = None) -> Toolchain:
    """The toolchain that this machine has. ``environment`` stands in for ``os.environ`` (a candidate may change it).

    Raises :class:`MissingTool`, with the places that were searched and what to install.
    """
    env = dict(os.environ) if environment is None else environment
    return _find(
        env.get("KERNELWRIGHT_NVCC", ""), env.get("PATH", ""), env.get("CUDA_HOME") or env.get("CUDA_PATH") or ""
    )


@functools.lru_cache(maxsize=8)
def _find(setting: str, path: str, cuda_home: str) -> Toolchain:
    searched: list[str] = []
    nvcc = None
    for place, where in _places(setting or str(settings.get("NVCC") or ""), path, cuda_home):
        searched.append(where)
        if place is not None and place.exists() and os.access(place, os.X_OK):
            nvcc = place
            break
    if nvcc is None:
        raise MissingTool(tool="nvcc", searched="searched " + ", ".join(searched), hint=ADVICE)
    home = _home(nvcc)
    host, host_version = compiler("c++")
    torch = torchfiles.folder()
    return Toolchain(
        nvcc=nvcc,
        home=home,
        version=_version(nvcc),
        host=Path(host),
        host_version=host_version,
        python_include=Path(sysconfig.get_path("include")),
        torch_include=torch / "include",
        torch_lib=torch / "lib",
        torch_version=torchfiles.version(),
    )


def _places(setting: str, path: str, cuda_home: str) -> list[tuple[Path | None, str]]:
    on_path = shutil.which("nvcc", path=path)
    places: list[tuple[Path | None, str]] = []
    if setting:
        places.append((Path(setting), f"KERNELWRIGHT_NVCC={setting}"))
    if cuda_home:
        places.append((Path(cuda_home) / "bin" / "nvcc", f"CUDA_HOME={cuda_home}"))
    places.append((Path(on_path) if on_path else None, "PATH"))
    for root in _site_folders():
        places += [(root / folder / "bin" / "nvcc", f"{root / folder}") for folder in _WHEEL_FOLDERS]
    places.append((Path("/usr/local/cuda/bin/nvcc"), "/usr/local/cuda"))
    return places


def _site_folders() -> list[Path]:
    return [Path(p) for p in dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])]


def _home(nvcc: Path) -> Path:
    """The toolkit that ``nvcc`` itself uses (it may be a link or a wrapper script on PATH), by asking it."""
    answer = subprocess.run(
        [str(nvcc), "--dryrun", "-E", "-x", "cu", os.devnull], capture_output=True, text=True, check=False
    )
    top = re.search(r"^#\$ TOP=(.+)$", answer.stderr, re.M)
    home = Path(top[1]) if top else nvcc.resolve().parent.parent
    home = home.resolve()
    for needed, package in (
        ("include/cuda_runtime.h", "nvidia-cuda-runtime"),
        ("include/crt/host_config.h", "nvidia-cuda-crt"),
        ("nvvm/bin/cicc", "nvidia-nvvm"),
    ):
        if not (home / needed).exists():
            raise MissingTool(
                tool=needed,
                searched=f"{nvcc} has no {needed} in {home}",
                hint=f"the toolkit is incomplete; the wheel {package} of nvcc's own version has it",
            )
    return home


@functools.cache
def _version(nvcc: Path) -> str:
    answer = subprocess.run([str(nvcc), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"V(\d+\.\d+\.\d+)", answer.stdout)
    if not found:
        raise MissingTool(tool="nvcc", searched=f"{nvcc} --version says {answer.stderr.strip()[:200]!r}", hint=ADVICE)
    return found[1]
