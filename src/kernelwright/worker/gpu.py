"""The oracle's part of a GPU: how much of it the reference and its float64 twin may take, and giving it back.

Why: the candidate runs on the same device and must not fail because the judge took its memory. The rule: a third of the
device at most, and between trials nothing; what does not fit is computed on the CPU, as without a GPU.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.errors import MachineError

SHARE = 1 / 3
"""Of the device's memory: inputs of 8.6 GB with their float64 copy fit into a third of an H200's."""

KEPT_BYTES = 2 << 30
"""What a warm oracle may keep of trials for the next check."""


INSTEAD = "--device emulated needs none"
"""What to do without a GPU: the hint of both errors."""


def open(place: str) -> None:
    """Make the context, with the limit set, and the reference's products in full precision.

    Raises ``MachineError`` where there is no GPU, or it cannot be used.
    """
    cuda: Any = torch.cuda
    if not cuda.is_available():
        raise MachineError("no GPU that this torch can use", hint=INSTEAD)
    try:
        cuda.set_per_process_memory_fraction(SHARE, torch.device(place))
        torch.zeros(1, device=place)
    except RuntimeError as error:
        raise MachineError(f"the GPU cannot be used: {str(error).splitlines()[0]}", hint=INSTEAD) from None
    # PyTorch lets cuDNN round convolutions to TF32: then the reference would be its own worst excuse.
    torch.backends.cudnn.allow_tf32 = False


def budget_bytes(place: str) -> int:
    """What the float64 oracle may take at once: beside it lie the inputs and the pieces of a comparison."""
    total: int = torch.cuda.get_device_properties(place).total_memory
    free = torch.cuda.mem_get_info(place)[0]
    return int(min(free, total * SHARE) // 2)


def release() -> None:
    """Give back what PyTorch keeps for later."""
    torch.cuda.empty_cache()
