"""What a model's parameters are, without handing them over: names, shapes, and a checksum of the values.

Why: the two processes must find out whether their weights agree, whether they drew the same inputs, and whether a
forward pass changed any. The rule: a checksum is over the values in logical order, so strides and devices do not
matter; it is computed where the tensor is, because 8 GB cross no bus for it.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch

from kernelwright.worker.weights import Table

HOST_PIECE, DEVICE_PIECE = 1 << 16, 1 << 24
"""Elements summed at once: what a core's cache holds as 64-bit integers, and what keeps a GPU busy."""
_FACTOR = 0x9E3779B97F4A7C15
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def table(model: Any) -> Table:
    """The parameters and buffers of ``model``; empty where it is no module."""
    if not isinstance(model, torch.nn.Module):
        return []
    named = [*model.named_parameters(), *model.named_buffers()]
    return [[name, list(t.shape), str(t.dtype).removeprefix("torch."), checksum(t)] for name, t in named]


def parameter_bytes(model: Any) -> int:
    """What :func:`table` lists, in bytes."""
    if not isinstance(model, torch.nn.Module):
        return 0
    return sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))


def checksum(tensor: torch.Tensor) -> int:
    """A number of 64 bits: the sum of each element's bits times an odd number of its own, modulo 2^64.

    Any change of one element changes it for certain, as odd factors can be divided by; so does nearly every other.
    """
    flat = tensor.detach()
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj())
    flat = flat.contiguous().reshape(-1)
    if not flat.numel():
        return 0
    bits = flat.view(_INTEGERS[flat.element_size()])
    total = _on_the_gpu(bits) if bits.is_cuda and torch.version.cuda else _on_the_host(bits.cpu().numpy())
    return total * _FACTOR % 2**64


def _on_the_host(bits: Any) -> int:
    odd = numpy.arange(1, 2 * HOST_PIECE, 2, dtype=numpy.int64)
    wide = numpy.empty(HOST_PIECE, dtype=numpy.int64)
    total = 0
    for start in range(0, bits.size, HOST_PIECE):
        piece = wide[: min(HOST_PIECE, bits.size - start)]
        numpy.copyto(piece, bits[start : start + piece.size])
        total += int(numpy.dot(piece, odd[: piece.size])) + 2 * start * int(piece.sum())
    return total


def _on_the_gpu(bits: torch.Tensor) -> int:
    odd = torch.arange(1, 2 * min(DEVICE_PIECE, bits.numel()), 2, device=bits.device, dtype=torch.int64)
    total = torch.zeros((), device=bits.device, dtype=torch.int64)
    for start in range(0, bits.numel(), DEVICE_PIECE):
        piece = bits[start : start + DEVICE_PIECE].to(torch.int64)
        total += (piece * odd[: piece.numel()]).sum() + 2 * start * piece.sum()
    return int(total)


def parameter_names(model: Any) -> set[str]:
    """Names of what a forward pass must not change: buffers, such as running statistics, may."""
    if not isinstance(model, torch.nn.Module):
        return set()
    return {name for name, _ in model.named_parameters()}
