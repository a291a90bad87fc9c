"""An NVIDIA GPU behind the worker's protocol: plain ``torch.cuda``.

The rule: it sees what a GPU lets one see, which is neither launches nor wrong accesses; those are empty, not passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.errors import MachineError
from kernelwright.records import DeviceFact, Finding, LaunchFact

if TYPE_CHECKING:
    import torch


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
