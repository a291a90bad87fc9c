// Streams and events of the CUDA runtime API.
//
// The rule: work is done when a launch returns, so streams order nothing and events only remember the time; what a program
// sets and may ask for again is kept. Streams that another library made are known by nothing but their handle.
#include "cudart_state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

using kw::keep;

namespace kw {
namespace {

constexpr int kGreatestPriority = -5;

struct Stream { unsigned flags; int priority; };

std::mutex guard;
std::map<cudaStream_t, Stream>& streams() {
  static auto* made = new std::map<cudaStream_t, Stream>;
  return *made;
}

Stream known(cudaStream_t stream) {
  std::lock_guard<std::mutex> hold(guard);
  auto found = streams().find(stream);
  return found == streams().end() ? Stream{0, 0} : found->second;
}

}  // namespace
}  // namespace kw

extern "C" {

// ---- streams
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (stream == nullptr || flags > cudaStreamNonBlocking) return keep(cudaErrorInvalidValue);
  std::lock_guard<std::mutex> hold(kw::guard);
  *stream = static_cast<cudaStream_t>(std::malloc(16));
  kw::streams()[*stream] = {flags, std::max(kw::kGreatestPriority, std::min(priority, 0))};
  return keep(cudaSuccess);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard<std::mutex> hold(kw::guard);
  if (kw::streams().erase(stream)) std::free(stream);
  return keep(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  cudaError_t error = kw::forbid_in_capture(stream);
  return error ? error : keep(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  kw::capture_wait(stream, reinterpret_cast<kw::Event*>(event));
  return keep(cudaSuccess);
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return *priority = kw::known(stream).priority, keep(cudaSuccess);
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return *flags = kw::known(stream).flags, keep(cudaSuccess);
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int* index) { return *index = 0, keep(cudaSuccess); }
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return *id = reinterpret_cast<uintptr_t>(stream), keep(cudaSuccess);
}
// What a stream may be told of caches, priorities and memory that is attached to it has no effect here.
cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t, unsigned) { return keep(cudaSuccess); }
cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaLaunchAttributeID, const cudaLaunchAttributeValue*) { return keep(cudaSuccess); }
cudaError_t cudaStreamGetAttribute(cudaStream_t, cudaLaunchAttributeID, cudaLaunchAttributeValue* value) {
  return std::memset(value, 0, sizeof *value), keep(cudaSuccess);
}
cudaError_t cudaStreamCopyAttributes(cudaStream_t, cudaStream_t) { return keep(cudaSuccess); }
cudaError_t cudaCtxResetPersistingL2Cache(void) { return keep(cudaSuccess); }
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void* data, unsigned) {
  return call(stream, cudaError_t(kw_sticky_error()), data), keep(cudaSuccess);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void* data) {
  if (kw::Capture* capture = kw::capturing(stream)) return kw::capture_host(capture, stream, call, data);
  return call(data), keep(cudaSuccess);
}

// ---- events
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = reinterpret_cast<cudaEvent_t>(new kw::Event{{}, false, (flags & cudaEventDisableTiming) == 0});
  return keep(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete reinterpret_cast<kw::Event*>(event), keep(cudaSuccess); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  auto* own = reinterpret_cast<kw::Event*>(event);
  if (kw::Capture* capture = kw::capturing(stream)) return kw::capture_record(capture, stream, own), keep(cudaSuccess);
  *own = {std::chrono::steady_clock::now(), true, own->timed};
  return keep(cudaSuccess);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) { return cudaEventRecord(event, stream); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return keep(cudaSuccess); }
cudaError_t cudaEventQuery(cudaEvent_t) { return keep(cudaSuccess); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  const auto *a = reinterpret_cast<kw::Event*>(from), *b = reinterpret_cast<kw::Event*>(to);
  if (!a->recorded || !b->recorded || !a->timed || !b->timed) return keep(cudaErrorInvalidResourceHandle);
  *ms = std::chrono::duration<float, std::milli>(b->at - a->at).count();
  return keep(cudaSuccess);
}

}  // extern "C"
