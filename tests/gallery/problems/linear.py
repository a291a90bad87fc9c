"""gelu(linear(x)) with ragged sizes; M, N, K and UNEVEN may be set."""

import torch
import torch.nn as nn
import torch.nn.functional as F

M = 33
N = 70
K = 203
UNEVEN = False
"""Whether an element of one row of x stands out and another row is tiny."""


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x))


def get_inputs():
    x = torch.randn(M, K)
    if UNEVEN:
        x[M // 2, 3] = 3e4
        x[1] *= 1e-30
    return [x]


def get_init_inputs():
    return [K, N]
