"""Compiles a CUDA file and links it with the emulated device's native parts, as the build does."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from kernelwright.emulate.nativeparts import extension_link_flags


def load(source: Path, folder: Path, *flags: str) -> ctypes.CDLL:
    """The loaded library; ``flags`` go to nvcc."""
    made = folder / f"{source.stem}.o"
    library = folder / f"{source.stem}.so"
    compile_flags = ["-arch=sm_80", "-g", "-lineinfo", "-no-compress", "-Xcompiler", "-fPIC", "-w"]
    subprocess.run(["nvcc", *compile_flags, *flags, "-c", str(source), "-o", str(made)], check=True)
    subprocess.run(
        ["g++", "-shared", str(made), "-o", str(library), *extension_link_flags(), "-Wl,-z,defs"], check=True
    )
    return ctypes.CDLL(str(library))
