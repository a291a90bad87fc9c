"""An NVIDIA GPU behind the worker's protocol: plain ``torch.cuda``.

The rule: it sees what a GPU lets one see, which is neither launches nor wrong accesses; those are empty, not passed.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from kernelwright.errors import MachineError
from kernelwright.records import DeviceFact, Finding, LaunchFact

if TYPE_CHECKING:
    import torch


_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h."""


def capability() -> tuple[int, int]:
    """Compute capability of device 0, asked of the driver without PyTorch and without a context.

    Raises ``MachineError`` where there is no driver or no device.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise MachineError("no NVIDIA driver", hint="--device emulated needs none") from None
    device, number = ctypes.c_int(), ctypes.c_int()
    found: list[int] = []
    status = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0)
    for attribute in (_MAJOR, _MINOR):
        status = status or driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        found.append(number.value)
    if status:
        raise MachineError(f"the NVIDIA driver shows no GPU (error {status})", hint="--device emulated needs none")
    return found[0], found[1]


class Cuda:
    """``cuda:0`` of this machine."""

    def prepare(self) -> None:
        """Initialises CUDA in this process."""
        import torch

        if not torch.cuda.is_available():
            raise MachineError("no GPU that this torch can use", hint="--device emulated needs none")
        torch.zeros(1, device="cuda")

    def to_device(self, tensor: torch.Tensor, *, name: str) -> torch.Tensor:
        """Copies; keeps the strides."""
        import torch

        made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cuda")
        return made.copy_(tensor)

    def synchronize(self) -> None:
        """Waits; raises torch's error where a kernel failed."""
        import torch

        torch.cuda.synchronize()

    def launches(self) -> tuple[LaunchFact, ...]:
        """A GPU does not tell."""
        return ()

    def findings(self) -> tuple[Finding, ...]:
        """A GPU does not look."""
        return ()

    def printed(self) -> str:
        """Kernels print to standard output."""
        return ""

    def fault(self) -> Exception | None:
        """A GPU runs every instruction it has."""
        return None

    def fact(self) -> DeviceFact:
        """Name and compute capability as the driver reports them."""
        import torch

        major, minor = torch.cuda.get_device_capability()
        return DeviceFact("cuda", torch.cuda.get_device_name(), f"{major}.{minor}")
