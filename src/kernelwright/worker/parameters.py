"""What a model's parameters are, without handing them over: names, shapes, and a checksum of the values.

Why: the two processes must find out whether their weights agree, and whether a forward pass changed any. The rule: a
checksum is over the values in logical order, so strides and devices do not matter.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch

from kernelwright.worker.weights import Table


def table(model: Any) -> Table:
    """The parameters and buffers of ``model``; empty where it is no module."""
    if not isinstance(model, torch.nn.Module):
        return []
    named = [*model.named_parameters(), *model.named_buffers()]
    return [[name, list(t.shape), str(t.dtype).removeprefix("torch."), checksum(t)] for name, t in named]


def checksum(tensor: torch.Tensor) -> int:
    """CRC-32 of a tensor's bytes."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if not flat.numel():
        return 0
    return zlib.crc32(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def parameter_names(model: Any) -> set[str]:
    """Names of what a forward pass must not change: buffers, such as running statistics, may."""
    if not isinstance(model, torch.nn.Module):
        return set()
    return {name for name, _ in model.named_parameters()}
