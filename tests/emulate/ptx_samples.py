"""The sample kernels of ``kernels/``, as nvcc turns them into PTX (once a test session)."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent / "kernels"
NAMES = sorted(path.stem for path in FOLDER.glob("*.cu"))


@functools.cache
def _scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="kw-ptx-samples-"))


def available() -> bool:
    """Whether there is an nvcc."""
    return shutil.which("nvcc") is not None


@functools.cache
def ptx_of(name: str, arch: str = "sm_80") -> str:
    """The PTX of ``kernels/NAME.cu``."""
    output = _scratch() / f"{name}.{arch}.ptx"
    command = ["nvcc", "-ptx", "-lineinfo", f"-arch={arch}", str(FOLDER / f"{name}.cu"), "-o", str(output)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return output.read_text()
