// c10::cuda and at::cuda: streams and guards.
#pragma once
#include <kw_facade/cuda_check.h>
#include <kw_facade/tensor.h>

namespace c10::cuda {
inline namespace kw {
using CaptureId_t = unsigned long long;

class CUDAStream {
 public:
  CUDAStream(void* stream, DeviceIndex device) : stream_(stream), device_(device) {}
  operator cudaStream_t() const { return stream(); }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_); }
  DeviceIndex device_index() const { return device_; }
  Device device() const { return {kCUDA, device_}; }
  bool operator==(const CUDAStream& o) const { return stream_ == o.stream_ && device_ == o.device_; }
  bool operator!=(const CUDAStream& o) const { return !(*this == o); }
  bool query() const {
    cudaError_t e = cudaStreamQuery(stream());
    if (e == cudaSuccess) return true;
    if (e != cudaErrorNotReady) kw_cuda_fail(e);
    (void)cudaGetLastError();
    return false;
  }
  void synchronize() const { if (cudaError_t e = cudaStreamSynchronize(stream())) kw_cuda_fail(e); }

 private:
  void* stream_;
  DeviceIndex device_;
};
inline DeviceIndex kw_device_or_current(DeviceIndex d) { return d == -1 ? static_cast<DeviceIndex>(kw_current_device()) : d; }
inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
  auto d = kw_device_or_current(device);
  return {kw_current_stream(d), d};
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex device = -1) { return {nullptr, kw_device_or_current(device)}; }
inline CUDAStream getStreamFromPool(const bool high_priority = false, DeviceIndex device = -1) {
  auto d = kw_device_or_current(device);
  return {kw_stream_from_pool(high_priority, d), d};
}
inline void setCurrentCUDAStream(CUDAStream s) { kw_set_current_stream(s.device_index(), s.stream()); }
inline DeviceIndex device_count() noexcept { return static_cast<DeviceIndex>(kw_device_count()); }
inline DeviceIndex current_device() { return static_cast<DeviceIndex>(kw_current_device()); }
inline void set_device(DeviceIndex d) { if (kw_set_current_device(d)) c10::kw_throw(); }
inline void device_synchronize() { if (cudaError_t e = cudaDeviceSynchronize()) kw_cuda_fail(e); }

class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex d) : before_(current_device()) { set_index(d); }
  explicit CUDAGuard(Device d) : before_(current_device()) { set_device(d); }
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() { kw_set_current_device(before_); }
  void set_device(Device d) {
    TORCH_CHECK(d.is_cuda(), "Expected a CUDA device, but got ", d);
    if (d.has_index()) set_index(d.index());
  }
  void set_index(DeviceIndex d) { cuda::set_device(d); }
  Device original_device() const { return {kCUDA, before_}; }
  Device current_device_() const { return {kCUDA, static_cast<DeviceIndex>(kw_current_device())}; }

 private:
  static DeviceIndex current_device() { return static_cast<DeviceIndex>(kw_current_device()); }
  DeviceIndex before_;
};
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> d) { if (d) guard_.emplace(*d); }
  void set_device(Device d) { guard_.emplace(d); }
  void reset() { guard_.reset(); }

 private:
  std::optional<CUDAGuard> guard_;
};
class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(CUDAStream s) : before_(getCurrentCUDAStream(s.device_index())), current_(s) { setCurrentCUDAStream(s); }
  ~CUDAStreamGuard() { setCurrentCUDAStream(before_); }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  CUDAStream current_stream() const { return current_; }

 private:
  CUDAStream before_, current_;
};
}  // namespace kw
}  // namespace c10::cuda

// cuBLAS's handle, by the name that its own header gives the type; the served part of cuBLAS has one.
struct cublasContext;
extern "C" cublasContext* kw_blas_handle(cudaStream_t stream);

namespace at::cuda {
inline namespace kw {
inline cublasContext* getCurrentCUDABlasHandle() { return kw_blas_handle(c10::cuda::getCurrentCUDAStream()); }
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::current_device;
using c10::cuda::device_count;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromPool;
using c10::cuda::OptionalCUDAGuard;
using c10::cuda::set_device;
using c10::cuda::setCurrentCUDAStream;
inline bool is_available() { return device_count() > 0; }
inline cudaDeviceProp* getDeviceProperties(DeviceIndex d) {
  static cudaDeviceProp properties;
  if (cudaError_t e = cudaGetDeviceProperties(&properties, d)) c10::cuda::kw_cuda_fail(e);
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(current_device()); }
}  // namespace kw
}  // namespace at::cuda
namespace at {
using c10::cuda::CUDAGuard;
using c10::cuda::OptionalCUDAGuard;
inline namespace kw {
inline DeviceIndex device_of_index(const Tensor& t) { return static_cast<DeviceIndex>(t.get_device()); }
inline std::optional<Device> device_of(const Tensor& t) { return t.defined() ? std::optional<Device>(t.device()) : std::nullopt; }
// at::DeviceGuard and c10::DeviceGuard: the same on a machine with one kind of device.
struct DeviceGuard {
  explicit DeviceGuard(Device d) { if (d.is_cuda()) guard_.emplace(d); }
  std::optional<c10::cuda::CUDAGuard> guard_;
};
}  // namespace kw
}  // namespace at
