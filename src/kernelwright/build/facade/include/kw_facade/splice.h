// What the facade's macros call, on top of torch's real headers: the facade pass has expanded them already when its
// output is compiled against the real ones (build/splice.py).
#pragma once
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

namespace c10 {
namespace detail {
template <typename E>
[[noreturn]] inline void kw_fail(const std::string& message) { throw E({"", "", 0}, message); }
}  // namespace detail
inline void kw_warn(const std::string& text) { TORCH_WARN(text); }
namespace cuda {
[[noreturn]] inline void kw_cuda_fail(cudaError_t error) { throw c10::Error({"", "", 0}, std::string("CUDA error: ") + cudaGetErrorString(error)); }
}  // namespace cuda
}  // namespace c10
extern "C" {
extern unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem = 0, struct CUstream_st* stream = 0);
}
