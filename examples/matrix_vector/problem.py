"""Matrix-vector product: C = A @ B with a very wide A. At full size A alone is 8.6 GB."""

import torch
import torch.nn as nn

M = 2048
K = 1_048_576


class Model(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A, B)


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, 1)]


def get_init_inputs():
    return []
