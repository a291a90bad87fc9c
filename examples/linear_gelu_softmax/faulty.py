"""The checker said "max_difference: inf". Suspects were erf, the seed of the weights, the tolerance and shared memory;
the fault was found after four rewrites. Ask Kernelwright instead."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

constexpr int THREADS = 256;

__device__ __forceinline__ float gelu(float v) { return 0.5f * v * (1.f + erff(v * 0.70710678118654752f)); }

__device__ float block_max(float v) {
    __shared__ float partial[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int offset = 16; offset > 0; offset >>= 1) v = fmaxf(v, __shfl_down_sync(0xffffffffu, v, offset));
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? partial[lane] : -INFINITY;
    if (warp == 0)
        for (int offset = 16; offset > 0; offset >>= 1) v = fmaxf(v, __shfl_down_sync(0xffffffffu, v, offset));
    return __shfl_sync(0xffffffffu, v, 0);
}

__device__ float block_sum(float v) {
    __shared__ float partial[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffffu, v, offset);
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? partial[lane] : 0.f;
    if (warp == 0)
        for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffffu, v, offset);
    return __shfl_sync(0xffffffffu, v, 0);
}

__global__ void bias_gelu_softmax_kernel(const float* __restrict__ z, const float* __restrict__ bias,
                                         float* __restrict__ y, int N) {
    const float* in = z + size_t(blockIdx.x) * N;
    float* out = y + size_t(blockIdx.x) * N;
    float highest = -INFINITY;
    for (int i = threadIdx.x; i < N; i += THREADS) highest = fmaxf(highest, gelu(in[i] + bias[i]));
    highest = block_max(highest);
    float total = 0.f;
    for (int i = threadIdx.x; i < N; i += THREADS) total += expf(gelu(in[i] + bias[i]) - highest);
    total = block_sum(total);
    for (int i = threadIdx.x; i < N; i += THREADS) out[i] = expf(gelu(in[i] + bias[i]) - highest) / total;
}

torch::Tensor bias_gelu_softmax(torch::Tensor z, torch::Tensor bias) {
    auto y = torch::empty_like(z);
    bias_gelu_softmax_kernel<<<z.size(0), THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        z.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(z.size(1)));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="example_bias_gelu_softmax_faulty",
    cpp_sources="torch::Tensor bias_gelu_softmax(torch::Tensor z, torch::Tensor bias);",
    cuda_sources=CUDA_SOURCE,
    functions=["bias_gelu_softmax"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.bias_gelu_softmax(torch.matmul(x, self.linear.weight.t()), self.linear.bias)
