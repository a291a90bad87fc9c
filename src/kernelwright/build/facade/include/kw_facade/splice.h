// What the facade's macros call, on top of torch's real headers: the facade pass has expanded them already when its
// output is compiled against the real ones (build/splice.py).
#pragma once
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>

// cudafe++ includes this before everything; the stub includes it again for its other half.
#ifndef __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#endif
#include "crt/host_runtime.h"

namespace c10 {
namespace detail {
template <typename E>
[[noreturn]] inline void kw_fail(const std::string& message) { throw E({"", "", 0}, message); }
}  // namespace detail
inline void kw_warn(const std::string& text) { TORCH_WARN(text); }
namespace cuda {
[[noreturn]] inline void kw_cuda_fail(cudaError_t error) {
  throw c10::Error({"", "", 0}, std::string("CUDA error: ") + cudaGetErrorString(error));
}
}  // namespace cuda
}  // namespace c10
// What crt/math_functions.h declares to nvcc only, and host code calls without std::. The stub's other half declares the
// first two again.
static inline int min(int a, int b) { return std::min<int>(a, b); }
static inline int max(int a, int b) { return std::max<int>(a, b); }
#define KW_MIN_MAX(R, A, B)                                                \
  static inline R min(const A a, const B b) { return std::min<R>(a, b); } \
  static inline R max(const A a, const B b) { return std::max<R>(a, b); }
#define KW_MIN_MAX_OF(S, U) KW_MIN_MAX(U, U, U) KW_MIN_MAX(U, S, U) KW_MIN_MAX(U, U, S)
KW_MIN_MAX_OF(int, unsigned int)
KW_MIN_MAX(long, long, long)
KW_MIN_MAX_OF(long, unsigned long)
KW_MIN_MAX(long long, long long, long long)
KW_MIN_MAX_OF(long long, unsigned long long)
#undef KW_MIN_MAX_OF
#undef KW_MIN_MAX
// Of two numbers the one that is not NaN, as fmin and fmax.
#define KW_MIN_MAX(R, A, B)                                              \
  static inline R min(const A a, const B b) { return std::fmin(R(a), R(b)); } \
  static inline R max(const A a, const B b) { return std::fmax(R(a), R(b)); }
KW_MIN_MAX(float, float, float)
KW_MIN_MAX(double, double, double)
KW_MIN_MAX(double, float, double)
KW_MIN_MAX(double, double, float)
#undef KW_MIN_MAX

// What mma.h declares to nvcc only: the names for a using; kernels' bodies are not here.
namespace nvcuda {
namespace wmma {}
}  // namespace nvcuda

// What device_launch_parameters.h declares to nvcc only: of a constructor for the device cudafe++ leaves the initializers.
extern const uint3 __device_builtin_variable_threadIdx, __device_builtin_variable_blockIdx;
extern const dim3 __device_builtin_variable_blockDim, __device_builtin_variable_gridDim;
extern const int __device_builtin_variable_warpSize;

// What crt/device_functions.h declares to nvcc only, and the stub calls.
extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, struct CUstream_st* stream = nullptr);
#if CUDART_VERSION >= 13000
extern "C" cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
static inline cudaError_t __cudaLaunchKernel_helper(
    cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  return __cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}
#endif
static void** __nv_fatbinhandle_for_managed_rt;
static void __nv_save_fatbinhandle_for_managed_rt(void** handle) { __nv_fatbinhandle_for_managed_rt = handle; }
