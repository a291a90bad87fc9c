"""softmax(gelu(x @ W.T + b)), float32: the tensor-core linear layer with GELU in its epilogue, then one in-place row
softmax.

The product and its method are those of linear.py, the softmax that of softmax.py; read there about accuracy,
prepared weights, special values and limits. z is written once by the product and read once by the softmax, which
overwrites it: two passes over the output, no other. (A softmax row spans all of N, which no block of the product
owns; keeping it on chip would need every register of the device.) ``kernelwright export linear_gelu_softmax`` writes
one stand-alone file.

Measured: docs/gallery.md.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from kernelwright.gallery.kernels import linear as linear_kernel
from kernelwright.gallery.kernels import softmax as softmax_kernel


def linear_gelu_softmax(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(gelu(x @ weight.T + bias)) over the last dimension; x [..., K], weight [N, K], bias [N], all float32.

    Raises ``RuntimeError`` for a wrong dtype, device or shape.
    """
    z = linear_kernel.linear(x, weight, bias, activation="gelu")
    return softmax_kernel.softmax(z, in_place=True)


class ModelNew(nn.Module):
    """Replaces ``F.softmax(F.gelu(nn.Linear(in_features, out_features)(x)), dim=1)``."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        # Side by side: each keeps a compiler busy for half a minute, once.
        with ThreadPoolExecutor(2) as pool:
            for built in [pool.submit(linear_kernel.extension), pool.submit(softmax_kernel.extension)]:
                built.result()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear_gelu_softmax(x, self.linear.weight, self.linear.bias)
