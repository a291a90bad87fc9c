"""cuBLAS for the product; bias, GELU and softmax in one kernel that reads each row once and keeps it in registers."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

__device__ __forceinline__ float gelu(float v) { return 0.5f * v * (1.f + erff(v * 0.70710678118654752f)); }

struct Max { static __device__ float of(float a, float b) { return fmaxf(a, b); } };
struct Sum { static __device__ float of(float a, float b) { return a + b; } };

// Every thread gets the reduction of all threads' values. The butterfly leaves each warp's result in all its lanes;
// shared memory carries it between warps, because a shuffle never leaves its warp.
template <typename Op>
__device__ float block_reduce(float v, float identity) {
    __shared__ float partial[WARPS];
    for (int offset = 16; offset > 0; offset >>= 1) v = Op::of(v, __shfl_xor_sync(0xffffffffu, v, offset));
    __syncthreads();  // a previous reduction may still be reading `partial`
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    v = identity;
    for (int warp = 0; warp < WARPS; ++warp) v = Op::of(v, partial[warp]);
    return v;
}

// One block a row of N = 4 * THREADS * VECTORS elements at most; VECTORS float4 a thread stay in registers.
template <int VECTORS>
__global__ void bias_gelu_softmax_kernel(const float* __restrict__ z, const float* __restrict__ bias,
                                         float* __restrict__ y, int N) {
    const float4* in = reinterpret_cast<const float4*>(z + size_t(blockIdx.x) * N);
    const float4* b = reinterpret_cast<const float4*>(bias);
    float4* out = reinterpret_cast<float4*>(y + size_t(blockIdx.x) * N);
    float4 row[VECTORS];

    float highest = -INFINITY;
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        int i = threadIdx.x + k * THREADS;
        row[k] = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
        if (i < N / 4) {
            float4 v = in[i], c = b[i];
            row[k] = make_float4(gelu(v.x + c.x), gelu(v.y + c.y), gelu(v.z + c.z), gelu(v.w + c.w));
        }
        highest = fmaxf(highest, fmaxf(fmaxf(row[k].x, row[k].y), fmaxf(row[k].z, row[k].w)));
    }
    highest = block_reduce<Max>(highest, -INFINITY);

    float total = 0.f;
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        row[k] = make_float4(expf(row[k].x - highest), expf(row[k].y - highest),
                             expf(row[k].z - highest), expf(row[k].w - highest));
        total += (row[k].x + row[k].y) + (row[k].z + row[k].w);
    }
    total = block_reduce<Sum>(total, 0.f);

    float scale = 1.f / total;
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        int i = threadIdx.x + k * THREADS;
        if (i < N / 4) out[i] = make_float4(row[k].x * scale, row[k].y * scale, row[k].z * scale, row[k].w * scale);
    }
}

template <int VECTORS>
void launch(const torch::Tensor& z, const torch::Tensor& bias, torch::Tensor& y) {
    bias_gelu_softmax_kernel<VECTORS><<<z.size(0), THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        z.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(z.size(1)));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

torch::Tensor bias_gelu_softmax(torch::Tensor z, torch::Tensor bias) {
    TORCH_CHECK(z.is_cuda() && z.dim() == 2 && z.is_contiguous(), "z must be a contiguous matrix on the GPU");
    TORCH_CHECK(z.scalar_type() == torch::kFloat32 && bias.scalar_type() == torch::kFloat32, "float32 only");
    TORCH_CHECK(bias.numel() == z.size(1) && bias.is_contiguous(), "one bias a column");
    const int64_t N = z.size(1);
    TORCH_CHECK(N % 4 == 0 && N <= 16 * 4 * THREADS, "columns: a multiple of 4, at most ", 16 * 4 * THREADS);
    auto y = torch::empty_like(z);
    if (N <= 4 * THREADS) launch<1>(z, bias, y);
    else if (N <= 2 * 4 * THREADS) launch<2>(z, bias, y);
    else if (N <= 4 * 4 * THREADS) launch<4>(z, bias, y);
    else if (N <= 8 * 4 * THREADS) launch<8>(z, bias, y);
    else launch<16>(z, bias, y);
    return y;
}
"""

extension = load_inline(
    name="example_bias_gelu_softmax",
    cpp_sources="torch::Tensor bias_gelu_softmax(torch::Tensor z, torch::Tensor bias);",
    cuda_sources=CUDA_SOURCE,
    functions=["bias_gelu_softmax"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.bias_gelu_softmax(torch.matmul(x, self.linear.weight.t()), self.linear.bias)
