// Devices, functions and errors of the CUDA runtime API.
//
// The rule: one device, cuda:0, whose figures come from kw_get_device(). What an H200 answered to wrong calls (driver 580, CUDA 13.0, 2026-11)
// is kept in tests/device/programs/api_probe.txt.
#include "cuda_errors.h"
#include "cudart_state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

namespace kw {

int* last_error() {
  static thread_local int own = 0;
  return kw_last_error_slot ? kw_last_error_slot() : &own;
}

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) *last_error() = error;
  return error;
}

cudaError_t keep(cudaError_t error) {
  return answer(kw_sticky_error() != 0 ? cudaError_t(kw_sticky_error()) : error);
}

cudaError_t refuse(cudaError_t error, const char* cause, const std::string& sentence, const kw_launch* launch) {
  const kw_callbacks* callbacks = kw_get_callbacks();
  if (callbacks && callbacks->refusal) callbacks->refusal(launch, error, cause, sentence.c_str());
  return keep(error);
}

namespace {

const kw_device_properties& device() { return *kw_get_device(); }
cudaError_t ordinal(int index) { return answer(index == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

struct Attribute { cudaDeviceAttr id; int64_t (*value)(const kw_device_properties&); };
#define KW_ATTRIBUTE(id, expression) {id, [](const kw_device_properties& d) -> int64_t { (void)d; return int64_t(expression); }}
const Attribute kAttributes[] = {
    KW_ATTRIBUTE(cudaDevAttrMaxThreadsPerBlock, d.max_threads_per_block),
    KW_ATTRIBUTE(cudaDevAttrMaxBlockDimX, d.max_block[0]),
    KW_ATTRIBUTE(cudaDevAttrMaxBlockDimY, d.max_block[1]),
    KW_ATTRIBUTE(cudaDevAttrMaxBlockDimZ, d.max_block[2]),
    KW_ATTRIBUTE(cudaDevAttrMaxGridDimX, d.max_grid[0]),
    KW_ATTRIBUTE(cudaDevAttrMaxGridDimY, d.max_grid[1]),
    KW_ATTRIBUTE(cudaDevAttrMaxGridDimZ, d.max_grid[2]),
    KW_ATTRIBUTE(cudaDevAttrMaxSharedMemoryPerBlock, d.shared_per_block),
    KW_ATTRIBUTE(cudaDevAttrMaxSharedMemoryPerBlockOptin, d.shared_per_block_optin),
    KW_ATTRIBUTE(cudaDevAttrMaxSharedMemoryPerMultiprocessor, d.shared_per_sm),
    KW_ATTRIBUTE(cudaDevAttrReservedSharedMemoryPerBlock, d.reserved_shared_per_block),
    KW_ATTRIBUTE(cudaDevAttrTotalConstantMemory, 65536),
    KW_ATTRIBUTE(cudaDevAttrWarpSize, d.warp_size),
    KW_ATTRIBUTE(cudaDevAttrMaxPitch, 2147483647),
    KW_ATTRIBUTE(cudaDevAttrMaxRegistersPerBlock, d.registers_per_block),
    KW_ATTRIBUTE(cudaDevAttrMaxRegistersPerMultiprocessor, d.registers_per_sm),
    KW_ATTRIBUTE(cudaDevAttrClockRate, d.clock_khz),
    KW_ATTRIBUTE(cudaDevAttrMemoryClockRate, d.memory_clock_khz),
    KW_ATTRIBUTE(cudaDevAttrGlobalMemoryBusWidth, d.memory_bus_bits),
    KW_ATTRIBUTE(cudaDevAttrL2CacheSize, d.l2_bytes),
    KW_ATTRIBUTE(cudaDevAttrMultiProcessorCount, d.multiprocessors),
    KW_ATTRIBUTE(cudaDevAttrMaxThreadsPerMultiProcessor, d.max_threads_per_sm),
    KW_ATTRIBUTE(cudaDevAttrMaxBlocksPerMultiprocessor, d.max_blocks_per_sm),
    KW_ATTRIBUTE(cudaDevAttrComputeCapabilityMajor, d.major),
    KW_ATTRIBUTE(cudaDevAttrComputeCapabilityMinor, d.minor),
    KW_ATTRIBUTE(cudaDevAttrTextureAlignment, 512),
    KW_ATTRIBUTE(cudaDevAttrConcurrentKernels, 1),
    KW_ATTRIBUTE(cudaDevAttrCooperativeLaunch, 1),
    KW_ATTRIBUTE(cudaDevAttrManagedMemory, 1),
    KW_ATTRIBUTE(cudaDevAttrConcurrentManagedAccess, 1),
    KW_ATTRIBUTE(cudaDevAttrUnifiedAddressing, 1),
    KW_ATTRIBUTE(cudaDevAttrCanMapHostMemory, 1),
    KW_ATTRIBUTE(cudaDevAttrStreamPrioritiesSupported, 1),
    KW_ATTRIBUTE(cudaDevAttrGlobalL1CacheSupported, 1),
    KW_ATTRIBUTE(cudaDevAttrLocalL1CacheSupported, 1),
    KW_ATTRIBUTE(cudaDevAttrMemoryPoolsSupported, 1),
    KW_ATTRIBUTE(cudaDevAttrAsyncEngineCount, 3),
    KW_ATTRIBUTE(cudaDevAttrClusterLaunch, 0),
    KW_ATTRIBUTE(cudaDevAttrGpuOverlap, 1),
    KW_ATTRIBUTE(cudaDevAttrSurfaceAlignment, 512),
    KW_ATTRIBUTE(cudaDevAttrTexturePitchAlignment, 32),
    KW_ATTRIBUTE(cudaDevAttrComputePreemptionSupported, 1),
    KW_ATTRIBUTE(cudaDevAttrCanUseHostPointerForRegisteredMem, 1),
    KW_ATTRIBUTE(cudaDevAttrHostRegisterSupported, 1),
    // Persisting L2 is a hint here; an H200 sets three quarters aside.
    KW_ATTRIBUTE(cudaDevAttrMaxPersistingL2CacheSize, d.major >= 8 ? int64_t(d.l2_bytes) / 4 * 3 : 0),
    KW_ATTRIBUTE(cudaDevAttrMaxAccessPolicyWindowSize, d.major >= 8 ? 128 << 20 : 0),
};

cudaDeviceProp properties() {
  const kw_device_properties& d = device();
  cudaDeviceProp p;
  std::memset(&p, 0, sizeof p);
  std::strncpy(p.name, d.name, sizeof p.name - 1);
  p.totalGlobalMem = d.total_memory;
  p.sharedMemPerBlock = d.shared_per_block;
  p.sharedMemPerBlockOptin = d.shared_per_block_optin;
  p.sharedMemPerMultiprocessor = d.shared_per_sm;
  p.reservedSharedMemPerBlock = d.reserved_shared_per_block;
  p.regsPerBlock = d.registers_per_block;
  p.regsPerMultiprocessor = d.registers_per_sm;
  p.warpSize = d.warp_size;
  p.memPitch = 2147483647;
  p.maxThreadsPerBlock = d.max_threads_per_block;
  p.maxThreadsPerMultiProcessor = d.max_threads_per_sm;
  p.maxBlocksPerMultiProcessor = d.max_blocks_per_sm;
  std::memcpy(p.maxThreadsDim, d.max_block, sizeof p.maxThreadsDim);
  std::memcpy(p.maxGridSize, d.max_grid, sizeof p.maxGridSize);
  p.totalConstMem = 65536;
  p.major = d.major;
  p.minor = d.minor;
  p.multiProcessorCount = d.multiprocessors;
  p.memoryBusWidth = d.memory_bus_bits;
  p.l2CacheSize = d.l2_bytes;
  p.textureAlignment = 512;
  p.concurrentKernels = p.canMapHostMemory = p.unifiedAddressing = p.managedMemory = p.concurrentManagedAccess = 1;
  p.cooperativeLaunch = p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.memoryPoolsSupported = 1;
  p.asyncEngineCount = 3;
  p.surfaceAlignment = 512;
  p.texturePitchAlignment = 32;
  p.hostRegisterSupported = p.canUseHostPointerForRegisteredMem = p.computePreemptionSupported = 1;
  p.persistingL2CacheMaxSize = d.major >= 8 ? d.l2_bytes / 4 * 3 : 0;
  p.accessPolicyMaxWindowSize = d.major >= 8 ? 128 << 20 : 0;
#if CUDART_VERSION < 13000
  p.clockRate = d.clock_khz;
  p.memoryClockRate = d.memory_clock_khz;
#endif
  return p;
}

// What a program sets and may ask for again; nothing here depends on it.
std::map<cudaLimit, size_t>& limits() {
  static auto* made = new std::map<cudaLimit, size_t>{
      {cudaLimitStackSize, 1024}, {cudaLimitPrintfFifoSize, 1 << 20}, {cudaLimitMallocHeapSize, 8 << 20}};
  return *made;
}
cudaFuncCache cache_config = cudaFuncCachePreferNone;
unsigned device_flags = cudaDeviceMapHost;

int occupancy(const void* function, int threads, size_t shared, cudaError_t* error) {
  kw::Kernel* kernel = find_kernel(function);
  *error = kernel ? kernel_attributes(kernel) : cudaErrorInvalidResourceHandle;
  if (threads <= 0) *error = cudaErrorInvalidValue;
  if (*error != cudaSuccess) return -1;
  uint64_t fixed = uint64_t(kernel->attributes[1]), most = device().shared_per_block;
  if (kernel->dynamic_shared_opt_in >= 0) most = std::max(most, fixed + uint64_t(kernel->dynamic_shared_opt_in));
  if (fixed + shared > most) return 0;
  return blocks_per_multiprocessor(device(), kernel->attributes[0], fixed, threads, shared);
}

}  // namespace
}  // namespace kw

using kw::keep;

extern "C" {

// ---- errors
cudaError_t cudaGetLastError(void) {
  cudaError_t error = cudaError_t(*kw::last_error());
  *kw::last_error() = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError(void) { return cudaError_t(*kw::last_error()); }
const char* cudaGetErrorName(cudaError_t error) { return kw::cuda_error(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return kw::cuda_error(error).sentence; }

// ---- device
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* index) { return *index = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int index) { return kw::ordinal(index); }
cudaError_t cudaInitDevice(int index, unsigned, unsigned) { return kw::ordinal(index); }
cudaError_t cudaDeviceSynchronize(void) {
  cudaError_t error = kw::forbid_in_capture(nullptr, true);
  return error ? cudaErrorStreamCaptureUnsupported : keep(cudaSuccess);
}
cudaError_t cudaDeviceReset(void) { return keep(cudaSuccess); }
cudaError_t cudaSetDeviceFlags(unsigned flags) { return kw::device_flags = flags | cudaDeviceMapHost, keep(cudaSuccess); }
cudaError_t cudaGetDeviceFlags(unsigned* flags) { return *flags = kw::device_flags, keep(cudaSuccess); }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int index) {
  if (index == 0) *out = kw::properties();
  return kw::ordinal(index);
}
cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr id, int index) {
  if (index != 0) return kw::ordinal(index);
  *out = 0;  // a feature that the device has not
  for (const auto& attribute : kw::kAttributes)
    if (attribute.id == id) *out = int(attribute.value(kw::device()));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  *value = kw::limits().count(limit) ? kw::limits()[limit] : 0;
  return keep(cudaSuccess);
}
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) { return kw::limits()[limit] = value, keep(cudaSuccess); }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) { return kw::cache_config = config, keep(cudaSuccess); }
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) { return *config = kw::cache_config, keep(cudaSuccess); }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, keep(cudaSuccess); }
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return keep(peer == 0 ? cudaErrorPeerAccessUnsupported : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceDisablePeerAccess(int) { return keep(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceGetP2PAttribute(int*, cudaDeviceP2PAttr, int, int) { return keep(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int index) {
  std::strncpy(id, "0000:00:00.0", size_t(length));
  return kw::ordinal(index);
}
cudaError_t cudaDeviceGetByPCIBusId(int* index, const char*) { return *index = 0, keep(cudaSuccess); }
cudaError_t cudaChooseDevice(int* index, const cudaDeviceProp*) { return *index = 0, keep(cudaSuccess); }
cudaError_t cudaSetValidDevices(int*, int) { return keep(cudaSuccess); }
// A structure that no call fills in; arrays themselves are not served.
cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return keep(cudaSuccess);
}

// ---- functions
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
  kw::Kernel* kernel = kw::find_kernel(function);
  cudaError_t error = kernel ? kw::kernel_attributes(kernel) : cudaErrorInvalidResourceHandle;
  if (error != cudaSuccess) return keep(error);
  const int32_t* a = kernel->attributes;
  std::memset(out, 0, sizeof *out);
  out->numRegs = a[0];
  out->sharedSizeBytes = size_t(a[1]);
  out->localSizeBytes = size_t(a[2]);
  out->constSizeBytes = size_t(a[3]);
  out->maxThreadsPerBlock = a[4] ? a[4] : kw::device().max_threads_per_block;
  out->ptxVersion = a[5];
  out->binaryVersion = a[6];
  int32_t left = int32_t(kw::device().shared_per_block) - a[1];
  out->maxDynamicSharedSizeBytes = kernel->dynamic_shared_opt_in >= 0 ? kernel->dynamic_shared_opt_in : left;
  out->preferredShmemCarveout = -1;
  return keep(cudaSuccess);
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  kw::Kernel* kernel = kw::find_kernel(function);
  cudaError_t error = kernel ? kw::kernel_attributes(kernel) : cudaErrorInvalidResourceHandle;
  if (error != cudaSuccess) return keep(error);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return keep(cudaSuccess);
  int64_t most = int64_t(kw::device().shared_per_block_optin) - kernel->attributes[1];
  if (value < 0 || value > most)
    return kw::refuse(cudaErrorInvalidValue, "launch.shared-memory",
                      std::string("cudaFuncSetAttribute asks for ") + std::to_string(value) +
                          " bytes of dynamic shared memory; this kernel may have at most " + std::to_string(most));
  kernel->dynamic_shared_opt_in = value;
  return keep(cudaSuccess);
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return keep(cudaSuccess); }
cudaError_t cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* bytes) {
  kw::Kernel* kernel = kw::find_kernel(function);
  if (kernel == nullptr) return keep(cudaErrorInvalidDeviceFunction);
  auto all = kw::kernel_parameters(kernel);
  if (index >= all.size()) return keep(cudaErrorInvalidValue);
  *offset = size_t(all[index].offset);
  if (bytes) *bytes = size_t(all[index].bytes);
  return keep(cudaSuccess);
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* out, const void* function) {
  kw::Kernel* kernel = kw::find_kernel(function);
  *out = reinterpret_cast<cudaFunction_t>(kernel);
  return keep(kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaFuncGetName(const char** name, const void* function) {
  kw::Kernel* kernel = kw::find_kernel(function);
  if (kernel) *name = kernel->name;
  return keep(kernel ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads, size_t shared) {
  cudaError_t error;
  int fit = kw::occupancy(function, threads, shared, &error);
  if (error == cudaSuccess) *blocks = fit;
  return keep(error);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                   size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* out, const void* function, int blocks, int threads) {
  cudaError_t error = cudaSuccess;
  const auto& d = kw::device();
  for (*out = d.shared_per_block_optin; *out > 0; *out -= 128)
    if (kw::occupancy(function, threads, *out, &error) >= blocks || error != cudaSuccess) break;
  return keep(error);
}

// ---- profiler marks
cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

}  // extern "C"

// What ATen/cuda/CUDAContext.h gives extensions; here because the structure's layout is the toolkit's.
namespace at::cuda {
cudaDeviceProp* getDeviceProperties(signed char index) {
  static cudaDeviceProp made = kw::properties();
  return index <= 0 ? &made : nullptr;
}
cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
}  // namespace at::cuda
