"""The kernel is right and the result is "an illegal memory access was encountered". The engineer re-derived strides,
alignment, overflow and grid limits for hours. Ask Kernelwright instead."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void gemv_kernel(const float* __restrict__ A, const float* __restrict__ x, float* __restrict__ y, int K) {
    __shared__ float partial[THREADS / 32];
    const float4* row = reinterpret_cast<const float4*>(A + size_t(blockIdx.x) * K);
    const float4* vec = reinterpret_cast<const float4*>(x);
    float sum = 0.f;
    for (int i = threadIdx.x; i < K / 4; i += THREADS) {
        float4 a = row[i], b = vec[i];
        sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.f;
        for (int w = 0; w < THREADS / 32; ++w) total += partial[w];
        y[blockIdx.x] = total;
    }
}

void gemv(const float* A, const float* x, float* y, int M, int K) {
    gemv_kernel<<<M, THREADS>>>(A, x, y, K);
}
"""

extension = load_inline(
    name="example_gemv_faulty",
    cpp_sources="void gemv(const float* A, const float* x, float* y, int M, int K);",
    cuda_sources=CUDA_SOURCE,
    functions=["gemv"],
)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        C = torch.empty(A.shape[0], 1, device=A.device, dtype=A.dtype)
        extension.gemv(A.data_ptr(), B.data_ptr(), C.data_ptr(), A.shape[0], A.shape[1])
        torch.cuda.synchronize()
        return C
