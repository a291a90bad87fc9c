// C10_CUDA_CHECK and its family: inline, so that a refused launch becomes the RuntimeError that torch raises.
#pragma once
#include <cuda_runtime_api.h>
#include <kw_facade/exception.h>

namespace c10::cuda {
inline namespace kw {
[[noreturn]] void kw_cuda_fail(int error, const char* name, const char* text);
[[noreturn]] inline void kw_cuda_fail(cudaError_t error) {
  kw_cuda_fail(static_cast<int>(error), cudaGetErrorName(error), cudaGetErrorString(error));
}
}  // namespace kw
}  // namespace c10::cuda

#define C10_CUDA_CHECK(EXPR)                                             \
  do {                                                                   \
    const cudaError_t kw_error_ = EXPR;                                  \
    if (kw_error_ != cudaSuccess) {                                      \
      (void)cudaGetLastError();                                          \
      ::c10::cuda::kw_cuda_fail(kw_error_);                              \
    }                                                                    \
  } while (0)
#define C10_CUDA_CHECK_WARN(EXPR)                                        \
  do {                                                                   \
    const cudaError_t kw_error_ = EXPR;                                  \
    if (kw_error_ != cudaSuccess) {                                      \
      (void)cudaGetLastError();                                          \
      TORCH_WARN("CUDA warning: ", cudaGetErrorString(kw_error_));       \
    }                                                                    \
  } while (0)
#define C10_CUDA_IGNORE_ERROR(EXPR) do { if ((EXPR) != cudaSuccess) (void)cudaGetLastError(); } while (0)
#define C10_CUDA_CLEAR_ERROR() (void)cudaGetLastError()
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
