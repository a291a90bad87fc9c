// Kernels and launches as people write them; see corpus.py.
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <ATen/cuda/CUDAContext.h>
__global__ void scale_kernel(torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> x,
                             torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> y, float s) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c < x.size(1)) for (int r = 0; r < x.size(0); ++r) y[r][c] = x[r][c] * s;
}
torch::Tensor scale_packed(torch::Tensor x, double s) {
  const c10::cuda::OptionalCUDAGuard guard(x.device());
  auto y = torch::empty_like(x);
  scale_kernel<<<1, 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.packed_accessor32<float, 2, torch::RestrictPtrTraits>(), y.packed_accessor32<float, 2, torch::RestrictPtrTraits>(), s);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
template <typename T>
__global__ void negate_kernel(const T* x, T* y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = static_cast<T>(-static_cast<float>(x[i]));
}
torch::Tensor negate_any(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "negate_any", [&] {
    negate_kernel<scalar_t><<<(x.numel() + 63) / 64, 64, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  });
  C10_CUDA_CHECK(cudaGetLastError());
  return y;
}
