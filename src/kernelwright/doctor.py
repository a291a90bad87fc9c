"""What this machine has for Kernelwright, what is missing, and how to get it.

Why: a check that fails for want of a compiler must not look like a candidate's fault, and finding out must not cost a
GPU initialisation or an import of torch. The rule: everything is read from files, package metadata and short commands;
what could not be found out says so.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernelwright import __version__, settings
from kernelwright.errors import KernelwrightError

NEEDED = "needed"
"""Without it nothing is checked, neither emulated nor on a GPU."""
FOR_GPU = "gpu"
"""Only for running on a real GPU."""
OPTIONAL = "optional"
"""Adds facts to a verdict."""
INFORMATION = "information"

_COMMAND_TIMEOUT_S = 10.0
HEALTH_SCHEMA = "kernelwright.doctor/1"


@dataclass(frozen=True)
class Item:
    """One thing that was looked for."""

    name: str
    need: str
    """``needed`` | ``gpu`` | ``optional`` | ``information``."""
    found: bool
    value: str
    """What was found, with its version and where; or why it does not count."""
    get: str = ""
    """How to get it; empty when found."""


@dataclass(frozen=True)
class Health:
    """What the doctor found."""

    emulated_device_works: bool
    """Everything that the emulated device needs is here."""
    gpu_works: bool
    """A GPU, its driver and a CUDA build of PyTorch are here, too."""
    items: tuple[Item, ...]
    version: str = __version__
    schema: str = HEALTH_SCHEMA


@dataclass(frozen=True)
class Gpu:
    """One GPU as ``nvidia-smi`` reports it."""

    name: str
    driver: str
    memory_mib: int
    compute_capability: str


def examine() -> Health:
    """Look for everything. Starts a few short commands; imports nothing heavy."""
    items = tuple(look() for look in _LOOKS)
    by_name = {item.name: item for item in items}
    emulated = all(item.found for item in items if item.need == NEEDED)
    gpu = emulated and all(item.found for item in items if item.need == FOR_GPU) and by_name["GPU"].found
    return Health(emulated_device_works=emulated, gpu_works=gpu, items=items)


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that ``nvidia-smi`` sees; none where there is no ``nvidia-smi``. Initialises no CUDA context."""
    fields = "name,driver_version,memory.total,compute_cap"
    text = _output(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[2].isdigit():
            found.append(Gpu(parts[0], parts[1], int(parts[2]), parts[3]))
    return tuple(found)


def _nvcc() -> Item:
    from kernelwright.build import toolchain

    try:
        found = toolchain.find()
    except KernelwrightError as error:
        return Item("nvcc", NEEDED, False, str(error), error.hint)
    chosen: Path | None = settings.get("NVCC")
    if chosen is not None and not chosen.is_file():
        return Item("nvcc", NEEDED, False, f"KERNELWRIGHT_NVCC names {chosen}, which is not there", toolchain.ADVICE)
    return Item("nvcc", NEEDED, True, f"{found.version} at {found.nvcc}")


def _ptxas() -> Item:
    from kernelwright.build import toolchain

    try:
        return Item("ptxas", OPTIONAL, True, str(toolchain.find().tool("ptxas")))
    except KernelwrightError:
        return Item("ptxas", OPTIONAL, False, "not found: registers and spills are not reported", "it comes with nvcc")


def _host_compiler() -> Item:
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    if path is None:
        return Item(
            "host compiler", NEEDED, False, f"{name} not found", "install g++, for example the package build-essential"
        )
    version = _output([path, "-dumpfullversion", "-dumpversion"]).strip()
    return Item("host compiler", NEEDED, True, f"{Path(path).name} {version} at {path}")


def _package(name: str, need: str, get: str, *, more: Callable[[], str] = lambda: "") -> Item:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Item(name, need, False, "not installed", get)
    return Item(name, need, True, version + more())


def torch_cuda() -> str:
    """The CUDA version that the installed PyTorch was built for, e.g. ``13.0``; empty for a CPU build or none."""
    place = importlib.util.find_spec("torch")
    if place is None or place.origin is None:
        return ""
    version_file = Path(place.origin).with_name("version.py")
    if not version_file.is_file():
        return ""
    found = re.search(r"^cuda[^=\n]*=\s*['\"]([\d.]+)['\"]", version_file.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def _torch() -> Item:
    def build() -> str:
        cuda = torch_cuda()
        return f" (built for CUDA {cuda})" if cuda else " (CPU build: enough for the emulated device)"

    return _package("torch", NEEDED, "pip install 'torch>=2.9'", more=build)


def _torch_for_gpu() -> Item:
    cuda = torch_cuda()
    if cuda:
        return Item("PyTorch with CUDA", FOR_GPU, True, f"CUDA {cuda}")
    return Item("PyTorch with CUDA", FOR_GPU, False, "not installed", "install a CUDA build of PyTorch")


def _gpu() -> Item:
    found = gpus()
    if found:
        first = found[0]
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        value = f"{first.name}, {first.memory_mib} MiB, capability {first.compute_capability}, driver {first.driver}"
        return Item("GPU", FOR_GPU, True, value + more)
    if shutil.which("nvidia-smi"):
        return Item("GPU", FOR_GPU, False, "nvidia-smi is here, but sees no GPU", "check the driver: run nvidia-smi")
    return Item("GPU", FOR_GPU, False, "none: candidates run on the emulated device", "not needed")


def _program(name: str, adds: str) -> Item:
    from kernelwright.build import toolchain

    try:
        beside = toolchain.find().nvcc.resolve().parent / name
    except KernelwrightError:
        beside = Path(name)
    path = shutil.which(name) or (str(beside) if beside.is_file() else None)
    if path:
        return Item(name, OPTIONAL, True, path)
    return Item(name, OPTIONAL, False, f"not found: {adds}", "it comes with the CUDA toolkit")


def _cache() -> Item:
    folder = settings.cache_folder()
    held = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK)
    value = f"{folder}, {held / 2**20:.0f} MiB held, {free / 2**30:.0f} GiB free" + (
        "" if writable else ", not writable"
    )
    return Item("cache folder", NEEDED, writable, value, "" if writable else "set KERNELWRIGHT_CACHE to another folder")


def _memory() -> Item:
    text = Path("/proc/meminfo").read_text(encoding="ascii") if Path("/proc/meminfo").is_file() else ""
    sizes = {name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
    if "MemAvailable" not in sizes:
        return Item("memory", INFORMATION, False, "could not be found out")
    return Item(
        "memory",
        INFORMATION,
        True,
        f"{sizes['MemAvailable'] / 2**30:.1f} of {sizes['MemTotal'] / 2**30:.1f} GiB available",
    )


def _cores() -> Item:
    return Item("cores", INFORMATION, True, f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}")


def _python() -> Item:
    return Item("Python", INFORMATION, True, f"{sys.version.split()[0]} at {sys.executable}")


_LOOKS: tuple[Callable[[], Item], ...] = (
    _python,
    _torch,
    lambda: _package("llvmlite", NEEDED, "pip install llvmlite"),
    lambda: _package("numpy", NEEDED, "pip install numpy"),
    _nvcc,
    _host_compiler,
    _cache,
    _ptxas,
    _gpu,
    _torch_for_gpu,
    lambda: _program("compute-sanitizer", "memory checks on a real GPU are not run"),
    lambda: _program("ncu", "hardware counters of a real GPU are not read"),
    _memory,
    _cores,
)


def _output(command: list[str]) -> str:
    """Standard output of a short command; empty where it is missing, fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
