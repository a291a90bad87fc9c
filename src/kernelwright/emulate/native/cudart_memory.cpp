// cudaMalloc, cudaMemcpy, cudaMemset and their families, on memory that libkw_runtime.so keeps.
//
// The rule: a device pointer must lie in a known allocation and the bytes asked for must end inside it, as a real driver
// demands; copies are done when the call returns.
#include "cudart_state.h"

#include <cstdlib>
#include <cstring>
#include <sstream>

using kw::keep;

namespace {

constexpr size_t kPitch = 512;  // bytes, as recent devices align rows

cudaError_t allocate(void** out, size_t bytes, int kind) {
  if (out == nullptr) return keep(cudaErrorInvalidValue);
  *out = nullptr;
  if (kw_sticky_error() != 0) return keep(cudaSuccess);
  if (bytes == 0) return cudaSuccess;
  *out = kw_alloc(bytes, kind, kind == KW_GLOBAL ? "cudaMalloc" : "");
  return keep(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

bool on_device(int kind) { return kind == KW_GLOBAL || kind == KW_MANAGED || kind == KW_CONST; }

bool is_pinned(void* base) {
  kw_allocation found;
  return kw_find(reinterpret_cast<uint64_t>(base), &found) == 1 && found.kind == KW_PINNED;
}

cudaError_t release(void* base, bool pinned) {
  if (base == nullptr || kw_sticky_error() != 0 || kw::graph_owns(base)) return keep(cudaSuccess);
  kw_allocation found;
  bool known = kw_find(reinterpret_cast<uint64_t>(base), &found) == 1 && found.base == reinterpret_cast<uint64_t>(base);
  bool fits = known && (pinned ? found.kind == KW_PINNED : on_device(found.kind));
  return keep(fits && kw_free(base) == 0 ? cudaSuccess : cudaErrorInvalidValue);
}

// Whether `bytes` from `address` are device memory; refuses with the numbers where not.
cudaError_t check_device(const char* function, const char* which, const void* address, size_t bytes) {
  kw_allocation found;
  int near = kw_find(reinterpret_cast<uint64_t>(address), &found);
  std::ostringstream text;
  text << function << ": the " << which << " pointer ";
  if (near != 1) text << "is no device memory";
  else if (found.kind == KW_FREED) text << "is freed memory";
  else if (!on_device(found.kind) && found.kind != KW_PINNED) text << "is host memory";
  else {
    uint64_t offset = reinterpret_cast<uint64_t>(address) - found.base;
    if (bytes <= found.bytes - offset) return cudaSuccess;
    text << "is " << offset << " bytes into an allocation of " << found.bytes << " bytes, which " << bytes << " bytes overrun";
    return kw::refuse(cudaErrorInvalidValue, "memory.out-of-bounds", text.str());
  }
  const char* cause = near == 1 && found.kind == KW_FREED ? "memory.use-after-free" : "interface.host-memory";
  return kw::refuse(cudaErrorInvalidValue, cause, text.str());
}

cudaError_t check_host(const char* function, const char* which, const void* address) {
  kw_allocation found;
  bool device = kw_find(reinterpret_cast<uint64_t>(address), &found) == 1 && (found.kind == KW_GLOBAL || found.kind == KW_CONST);
  if (!device) return cudaSuccess;
  return kw::refuse(cudaErrorInvalidValue, "unexplained",
                    std::string(function) + ": the " + which + " pointer is device memory, the direction says host memory");
}

bool reads_device(cudaMemcpyKind kind) { return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice; }
bool writes_device(cudaMemcpyKind kind) { return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice; }

cudaError_t copy(const char* function, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (kw_sticky_error() != 0) return keep(cudaSuccess);
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return keep(cudaErrorInvalidMemcpyDirection);
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return keep(cudaErrorInvalidValue);
  cudaError_t error = cudaSuccess;
  if (kind != cudaMemcpyDefault) {
    error = writes_device(kind) ? check_device(function, "destination", to, bytes) : check_host(function, "destination", to);
    if (error == cudaSuccess)
      error = reads_device(kind) ? check_device(function, "source", from, bytes) : check_host(function, "source", from);
  }
  if (error == cudaSuccess) std::memmove(to, from, bytes);
  return error;
}

cudaError_t copy_rows(const char* function, void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                      size_t height, cudaMemcpyKind kind) {
  if (width > to_pitch || width > from_pitch) return keep(cudaErrorInvalidPitchValue);
  for (size_t row = 0; row < height; row++) {
    cudaError_t error = copy(function, static_cast<char*>(to) + row * to_pitch,
                             static_cast<const char*>(from) + row * from_pitch, width, kind);
    if (error != cudaSuccess) return error;
  }
  return kw_sticky_error() ? keep(cudaSuccess) : cudaSuccess;
}

cudaError_t fill(const char* function, void* to, int value, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (kw_sticky_error() != 0) return keep(cudaSuccess);
  cudaError_t error = check_device(function, "destination", to, bytes);
  if (error == cudaSuccess) std::memset(to, value, bytes);
  return error;
}

cudaMemcpy3DParms rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                       cudaMemcpyKind kind) {
  cudaMemcpy3DParms made{};
  made.srcPtr = make_cudaPitchedPtr(const_cast<void*>(from), from_pitch, width, height);
  made.dstPtr = make_cudaPitchedPtr(to, to_pitch, width, height);
  made.extent = make_cudaExtent(width, height, 1);
  made.kind = kind;
  return made;
}

// Address of `bytes` bytes at `offset` in a __device__ or __constant__ variable.
cudaError_t in_symbol(const void* symbol, size_t bytes, size_t offset, char** out) {
  void* address = nullptr;
  uint64_t size = 0;
  cudaError_t error = kw::variable_address(kw::find_variable(symbol), &address, &size);
  if (error != cudaSuccess) return keep(error);
  *out = static_cast<char*>(address) + offset;
  if (offset + bytes <= size) return cudaSuccess;
  std::ostringstream text;
  text << "a copy of " << bytes << " bytes at offset " << offset << " of a variable of " << size << " bytes";
  return kw::refuse(cudaErrorInvalidValue, "memory.out-of-bounds", text.str());
}

// What a copy in `stream` does: it is made, or becomes a node.
cudaError_t copy_in(cudaStream_t stream, const char* function, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  kw::Capture* capture = kw::capturing(stream);
  if (capture) return kw::capture_copy(capture, stream, rows(to, bytes, from, bytes, bytes, 1, kind));
  return copy(function, to, from, bytes, kind);
}

cudaError_t to_symbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaStream_t stream = nullptr) {
  char* to = nullptr;
  cudaError_t error = in_symbol(symbol, bytes, offset, &to);
  if (error != cudaSuccess) return error;
  return copy_in(stream, "cudaMemcpyToSymbol", to, from, bytes, cudaMemcpyDefault);
}

cudaError_t from_symbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaStream_t stream = nullptr) {
  char* from = nullptr;
  cudaError_t error = in_symbol(symbol, bytes, offset, &from);
  if (error != cudaSuccess) return error;
  return copy_in(stream, "cudaMemcpyFromSymbol", to, from, bytes, cudaMemcpyDefault);
}

}  // namespace

namespace kw {

cudaError_t fill_elements(const cudaMemsetParams& p) {
  if (p.elementSize == 1 || p.value == 0) return cudaMemset2D(p.dst, p.pitch, int(p.value), p.width * p.elementSize, p.height);
  for (size_t row = 0; row < p.height; row++) {
    char* start = static_cast<char*>(p.dst) + row * p.pitch;
    cudaError_t error = check_device("cudaMemset", "destination", start, p.width * p.elementSize);
    if (error != cudaSuccess) return error;
    for (size_t i = 0; i < p.width; i++) std::memcpy(start + i * p.elementSize, &p.value, p.elementSize);
  }
  return cudaSuccess;
}

}  // namespace kw

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) { return allocate(out, bytes, KW_GLOBAL); }
cudaError_t cudaMallocManaged(void** out, size_t bytes, unsigned) { return allocate(out, bytes, KW_MANAGED); }
cudaError_t cudaMallocHost(void** out, size_t bytes) { return allocate(out, bytes, KW_PINNED); }
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) { return allocate(out, bytes, KW_PINNED); }
cudaError_t cudaFree(void* base) { return release(base, false); }
cudaError_t cudaFreeHost(void* base) { return release(base, true); }

cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  return allocate(out, *pitch * height, KW_GLOBAL);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent) {
  *out = {nullptr, (extent.width + kPitch - 1) / kPitch * kPitch, extent.width, extent.height};
  return allocate(&out->ptr, out->pitch * extent.height * extent.depth, KW_GLOBAL);
}

cudaError_t cudaHostRegister(void* base, size_t bytes, unsigned) {
  if (base == nullptr || bytes == 0) return keep(cudaErrorInvalidValue);
  if (is_pinned(base)) return keep(cudaErrorHostMemoryAlreadyRegistered);
  return kw_adopt(base, bytes, KW_PINNED, ""), keep(cudaSuccess);
}
cudaError_t cudaHostUnregister(void* base) {
  if (!is_pinned(base)) return keep(cudaErrorHostMemoryNotRegistered);
  return kw_forget(base), keep(cudaSuccess);
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) { return *device = host, cudaSuccess; }
cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  *flags = cudaHostAllocMapped;
  return keep(is_pinned(host) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (cudaError_t error = kw::forbid_in_capture(nullptr, true)) return error;
  return copy("cudaMemcpy", to, from, bytes, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_in(stream, "cudaMemcpyAsync", to, from, bytes, kind);
}
cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return copy("cudaMemcpyPeer", to, from, bytes, cudaMemcpyDeviceToDevice);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return copy_in(stream, "cudaMemcpyPeerAsync", to, from, bytes, cudaMemcpyDeviceToDevice);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
  return copy_rows("cudaMemcpy2D", to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (kw::Capture* capture = kw::capturing(stream))
    return kw::capture_copy(capture, stream, rows(to, to_pitch, from, from_pitch, width, height, kind));
  return copy_rows("cudaMemcpy2DAsync", to, to_pitch, from, from_pitch, width, height, kind);
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) { return fill("cudaMemset", to, value, bytes); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (kw::Capture* capture = kw::capturing(stream))
    return kw::capture_fill(capture, stream, {to, bytes, unsigned(value) & 255, 1, bytes, 1});
  return fill("cudaMemsetAsync", to, value, bytes);
}
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  cudaError_t error = cudaSuccess;
  for (size_t row = 0; row < height && error == cudaSuccess; row++)
    error = fill("cudaMemset2D", static_cast<char*>(to) + row * pitch, value, width);
  return error;
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  if (kw::Capture* capture = kw::capturing(stream))
    return kw::capture_fill(capture, stream, {to, pitch, unsigned(value) & 255, 1, width, height});
  return cudaMemset2D(to, pitch, value, width, height);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind) {
  return to_symbol(symbol, from, bytes, offset);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind,
                                    cudaStream_t stream) {
  return to_symbol(symbol, from, bytes, offset, stream);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind) {
  return from_symbol(to, symbol, bytes, offset);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind,
                                      cudaStream_t stream) {
  return from_symbol(to, symbol, bytes, offset, stream);
}
cudaError_t cudaGetSymbolAddress(void** out, const void* symbol) {
  char* address = nullptr;
  cudaError_t error = in_symbol(symbol, 0, 0, &address);
  *out = address;
  return error;
}
cudaError_t cudaGetSymbolSize(size_t* out, const void* symbol) {
  kw::Variable* variable = kw::find_variable(symbol);
  if (variable == nullptr) return keep(cudaErrorInvalidSymbol);
  *out = variable->bytes;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  size_t used = kw_bytes_in_use();
  *total = kw_get_device()->total_memory;
  *free_bytes = *total > used ? *total - used : 0;
  return keep(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* address) {
  kw_allocation found;
  bool known = kw_find(reinterpret_cast<uint64_t>(address), &found) == 1;
  void* pointer = const_cast<void*>(address);
  *out = {};
  out->device = -2;  // cudaInvalidDeviceId, as for memory CUDA knows nothing of
  out->type = cudaMemoryTypeUnregistered;
  out->hostPointer = pointer;
  if (known && (on_device(found.kind) || found.kind == KW_PINNED)) {
    out->device = 0;
    out->devicePointer = pointer;
    out->type = found.kind == KW_PINNED ? cudaMemoryTypeHost : found.kind == KW_MANAGED ? cudaMemoryTypeManaged : cudaMemoryTypeDevice;
    if (found.kind != KW_PINNED && found.kind != KW_MANAGED) out->hostPointer = nullptr;
  }
  return keep(cudaSuccess);
}

// Hints to a memory system; their last parameters changed between CUDA 12 and 13.
#if CUDART_VERSION >= 13000
cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) { return cudaSuccess; }
#else
cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, int) { return cudaSuccess; }
#endif

}  // extern "C"
