"""y = A @ x where A's columns are contiguous; M, K and HALF (bfloat16 operands) may be set."""

import torch
import torch.nn as nn

M = 132
K = 700
HALF = False


class Model(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A, B)


def get_inputs():
    dtype = torch.bfloat16 if HALF else torch.float32
    return [torch.randn(K, M).to(dtype).t(), torch.randn(K, 1).to(dtype)]


def get_init_inputs():
    return []
