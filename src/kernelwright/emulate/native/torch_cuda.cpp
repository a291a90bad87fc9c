// The c10::cuda functions that extensions built against torch's real headers call, on the emulated device.
//
// Why: a torch without CUDA has no libc10_cuda, and one with CUDA would reach for a driver. The rule: declared here with
// the names and layouts torch gives them, without CUDA's headers, so that the bridge compiles without a toolkit; what
// the device cannot give (cuBLAS handles, the caching allocator's internals) is refused by name.
#include "cuda_errors.h"
#include "kw_runtime.h"
#include "torch_device.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <optional>
#include <ostream>

#define KW_EXPORT __attribute__((visibility("default")))
typedef struct CUstream_st* cudaStream_t;

namespace kw {

// torch's text (c10/cuda/CUDAException.cpp), so that a search for it finds what it finds on a GPU.
void check_error(int code) {
  if (code == 0) return;
  *kw_last_error_slot() = 0;
  const CudaError& error = cuda_error(code);
  std::string text = std::string("CUDA error: ") + error.sentence + "\nSearch for `" + error.name +
      "' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n"
      "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
      "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
      "Device-side assertion tracking was not enabled by user.\n"
      "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n";
  throw c10::AcceleratorError({__func__, "CUDAException.cpp", 0}, code, std::move(text));
}

namespace {
[[noreturn]] void refuse(const char* what, const char* why) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "The emulated device has no ", what, ": ", why);
  abort();
}
}  // namespace
}  // namespace kw

namespace c10::cuda {

class KW_EXPORT CUDAStream {
 public:
  explicit CUDAStream(c10::Stream s) : stream_(s) {}
  cudaStream_t stream() const;
  bool query() const;
  void synchronize() const;
  c10::Stream stream_;
};
static_assert(sizeof(CUDAStream) == sizeof(c10::Stream), "returned in registers, as torch's own");

namespace {
CUDAStream wrap(uint64_t handle) {
  return CUDAStream(c10::Stream(c10::Stream::UNSAFE, c10::Device(kw::kDevice, 0), c10::StreamId(handle)));
}
constexpr int kInvalidDevice = 101;
int ordinal(int device) { return device == 0 ? 0 : kInvalidDevice; }
}  // namespace

KW_EXPORT cudaStream_t CUDAStream::stream() const { return reinterpret_cast<cudaStream_t>(stream_.id()); }
KW_EXPORT bool CUDAStream::query() const { return true; }
KW_EXPORT void CUDAStream::synchronize() const { kw::check_sticky(); }

KW_EXPORT CUDAStream getCurrentCUDAStream(DeviceIndex) { return wrap(kw::current_stream()); }
KW_EXPORT CUDAStream getDefaultCUDAStream(DeviceIndex) { return wrap(0); }
KW_EXPORT void setCurrentCUDAStream(CUDAStream s) { kw::set_current_stream(uint64_t(s.stream_.id())); }
KW_EXPORT CUDAStream getStreamFromPool(const bool, DeviceIndex) { return wrap(kw::stream_from_pool()); }
KW_EXPORT CUDAStream getStreamFromPool(const int, DeviceIndex) { return wrap(kw::stream_from_pool()); }
KW_EXPORT CUDAStream getStreamFromExternal(cudaStream_t s, DeviceIndex) { return wrap(reinterpret_cast<uint64_t>(s)); }
KW_EXPORT std::ostream& operator<<(std::ostream& out, const CUDAStream& s) { return out << s.stream_; }

KW_EXPORT DeviceIndex device_count() noexcept { return 1; }
KW_EXPORT DeviceIndex device_count_ensure_non_zero() { return 1; }
KW_EXPORT DeviceIndex current_device() { return 0; }
KW_EXPORT void set_device(DeviceIndex device, const bool) { kw::check_device_index(device); }
KW_EXPORT void set_device(DeviceIndex device) { kw::check_device_index(device); }
KW_EXPORT void device_synchronize() { kw::check_sticky(); }
KW_EXPORT void warn_or_error_on_sync() {}
KW_EXPORT int GetDeviceCount(int* count) { return *count = 1, 0; }
KW_EXPORT int GetDevice(DeviceIndex* device) { return *device = 0, 0; }
KW_EXPORT int SetDevice(DeviceIndex device, const bool) { return ordinal(device); }
KW_EXPORT int SetDevice(DeviceIndex device) { return ordinal(device); }
KW_EXPORT int MaybeSetDevice(DeviceIndex device) { return ordinal(device); }
KW_EXPORT DeviceIndex ExchangeDevice(DeviceIndex device) { return kw::check_device_index(device), 0; }
KW_EXPORT DeviceIndex MaybeExchangeDevice(DeviceIndex) { return 0; }
KW_EXPORT void SetTargetDevice() {}
KW_EXPORT bool hasPrimaryContext(DeviceIndex) { return true; }
KW_EXPORT std::optional<DeviceIndex> getDeviceIndexWithPrimaryContext() { return DeviceIndex(0); }

// torch 2.14 passes what it gathered from the driver's log, which there is none of here.
class KW_EXPORT CUDAErrorLogCapture {
 public:
  CUDAErrorLogCapture() noexcept;
  std::string get_error_log_suffix() noexcept;
};
KW_EXPORT CUDAErrorLogCapture::CUDAErrorLogCapture() noexcept {}
KW_EXPORT std::string CUDAErrorLogCapture::get_error_log_suffix() noexcept { return {}; }

// The parameters changed between torch versions; every form is here.
KW_EXPORT void c10_cuda_check_implementation(const int32_t code, const char*, const char*, const uint32_t, const bool,
                                             CUDAErrorLogCapture*) {
  kw::check_error(code);
}
KW_EXPORT void c10_cuda_check_implementation(const int32_t code, const char*, const char*, const uint32_t, const bool) {
  kw::check_error(code);
}
KW_EXPORT void c10_cuda_check_implementation(const int32_t code, const char*, const char*, const int, const bool) {
  kw::check_error(code);
}

namespace CUDACachingAllocator {
namespace {
void no_allocator() { kw::refuse("CUDACachingAllocator", "allocate with torch::empty or cudaMalloc"); }
// An object whose every virtual function refuses: callers go through `allocator.load()->...`.
constexpr size_t kSlots = 96;  // more virtual functions than any torch version's CUDAAllocator has
std::array<void (*)(), kSlots> slots = [] {
  std::array<void (*)(), kSlots> all{};
  all.fill(&no_allocator);
  return all;
}();
struct Refusing { void (**table)(); } refusing{slots.data()};
}  // namespace
KW_EXPORT extern std::atomic<void*> allocator;
std::atomic<void*> allocator{&refusing};
}  // namespace CUDACachingAllocator

}  // namespace c10::cuda

namespace at::cuda {
KW_EXPORT int warp_size() { return 32; }
KW_EXPORT bool canDeviceAccessPeer(c10::DeviceIndex, c10::DeviceIndex) { return false; }
KW_EXPORT c10::Allocator* getCUDADeviceAllocator() { return kw::device_allocator(); }
constexpr const char* kUseTorch = "call the operation through torch (torch::matmul, at::addmm, …)";
KW_EXPORT void* getCurrentCUDABlasHandle(bool) { kw::refuse("cuBLAS", kUseTorch); }
KW_EXPORT void* getCurrentCUDABlasHandle() { kw::refuse("cuBLAS", kUseTorch); }
KW_EXPORT void* getCurrentCUDABlasLtHandle() { kw::refuse("cuBLASLt", kUseTorch); }
KW_EXPORT void* getCurrentCUDASparseHandle() { kw::refuse("cuSPARSE", kUseTorch); }
KW_EXPORT void* getCurrentCUDASolverDnHandle() { kw::refuse("cuSOLVER", kUseTorch); }
}  // namespace at::cuda
