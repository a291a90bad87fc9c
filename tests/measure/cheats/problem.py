"""Row sums of products: small enough to time often, large enough to leave the L2."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.weight).sum(dim=1)


def get_inputs():
    return [torch.randn(8192, 8192)]


def get_init_inputs():
    return [8192]
