"""What the tests of the compiled emulator share: device arrays, launches, and PTX from nvcc."""

from __future__ import annotations

import ctypes
import functools
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelwright.emulate import runtime
from kernelwright.emulate.module import EmulatedModule, LaunchOutcome

Array = np.ndarray[Any, Any]

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")


class DeviceArray:
    """A numpy array's copy in emulated device memory."""

    def __init__(self, content: Array, name: str = "") -> None:
        self._like = content
        self.address: int = runtime.library().kw_alloc(content.nbytes, runtime.GLOBAL, name.encode())
        ctypes.memmove(self.address, content.ctypes.data, content.nbytes)

    def get(self) -> Array:
        """What it holds now."""
        made = np.empty_like(self._like)
        ctypes.memmove(made.ctypes.data, self.address, made.nbytes)
        return made

    def free(self) -> None:
        """Give the memory back."""
        assert runtime.library().kw_free(self.address) == 0


def pack(*values: DeviceArray | int | float) -> bytes:
    """A parameter block: arrays as pointers, ints as s32, floats as f32."""
    made = b""
    for value in values:
        if isinstance(value, DeviceArray):
            made += bytes(-len(made) % 8) + struct.pack("<Q", value.address)
        else:
            made += struct.pack("<f" if isinstance(value, float) else "<i", value)
    return made


def launch(
    module: EmulatedModule,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    *values: DeviceArray | int | float,
    **options: Any,
) -> LaunchOutcome:
    """Launch the kernel whose name is or contains ``kernel``."""
    name = next(known for known in module.kernels if known == kernel or f"{len(kernel)}{kernel}" in known)

    def three(size: int | Sequence[int]) -> tuple[int, int, int]:
        given = (size,) if isinstance(size, int) else tuple(size)
        x, y, z = (*given, 1, 1)[:3]
        return x, y, z

    return module.launch(name, three(grid), three(block), pack(*values), **options)


@functools.cache
def compiled(source: str, arch: str = "sm_80") -> EmulatedModule:
    """CUDA source through nvcc, as a module; its file is called kernel.cu."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cu"
        file.write_text(source)
        made = Path(folder) / "kernel.ptx"
        command = ["nvcc", f"-arch={arch}", "-ptx", "-lineinfo", str(file), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True)
        return EmulatedModule(made.read_text())


def ptx(body: str, *, params: str = ".param .u64 out", registers: str = "", before: str = "") -> EmulatedModule:
    """A module with one kernel ``t``: ``%out`` is its parameter, ``%t`` the thread, ``%at`` out + 4 * thread."""
    return EmulatedModule(
        f""".version 8.0
.target sm_80
.address_size 64
{before}
.visible .entry t({params})
{{
	.reg .b64 %out, %at;
	.reg .b32 %t, %r<16>;
	.reg .b64 %rd<16>;
	.reg .pred %p<8>;
	{registers}
	ld.param.u64 %out, [out];
	cvta.to.global.u64 %out, %out;
	mov.u32 %t, %tid.x;
	mad.wide.u32 %at, %t, 4, %out;
{body}
	ret;
}}
"""
    )
