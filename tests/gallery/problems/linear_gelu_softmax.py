"""softmax(gelu(linear(x))) with ragged sizes; M, N and K may be set."""

import torch
import torch.nn as nn
import torch.nn.functional as F

M = 33
N = 70
K = 203


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(F.gelu(self.linear(x)), dim=1)


def get_inputs():
    return [torch.randn(M, K)]


def get_init_inputs():
    return [K, N]
