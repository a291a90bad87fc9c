// Memory pools of the CUDA runtime: the stream-ordered allocator's interface over the device's own memory.
//
// The rule: allocations of a pool are ordinary ones, freed when asked, since streams order nothing here; a pool only
// keeps its attributes and counts what is in use.
#include "cudart_state.h"

#include <algorithm>
#include <map>
#include <mutex>

using kw::keep;

namespace {

struct Pool {
  uint64_t threshold = 0, used = 0, used_high = 0;
  int reuse[3] = {1, 1, 1};
};

std::mutex guard;
Pool& standard() {
  static auto* made = new Pool;
  return *made;
}
std::map<void*, std::pair<Pool*, uint64_t>>& owners() {
  static auto* made = new std::map<void*, std::pair<Pool*, uint64_t>>;
  return *made;
}
Pool* current = nullptr;
Pool* of(cudaMemPool_t pool) { return reinterpret_cast<Pool*>(pool); }

uint64_t* amount(Pool* pool, cudaMemPoolAttr attribute) {
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold: return &pool->threshold;
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent: return &pool->used;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh: return &pool->used_high;
    default: return nullptr;
  }
}

int* choice(Pool* pool, cudaMemPoolAttr attribute) {
  switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies: return &pool->reuse[0];
    case cudaMemPoolReuseAllowOpportunistic: return &pool->reuse[1];
    case cudaMemPoolReuseAllowInternalDependencies: return &pool->reuse[2];
    default: return nullptr;
  }
}

}  // namespace

namespace kw {

void pool_took(void* base, uint64_t bytes, cudaMemPool_t which) {
  std::lock_guard<std::mutex> hold(guard);
  Pool* pool = which ? of(which) : current ? current : &standard();
  owners()[base] = {pool, bytes};
  pool->used += bytes;
  pool->used_high = std::max(pool->used_high, pool->used);
}

void pool_gave(void* base) {
  std::lock_guard<std::mutex> hold(guard);
  auto found = owners().find(base);
  if (found == owners().end()) return;
  found->second.first->used -= found->second.second;
  owners().erase(found);
}

}  // namespace kw

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = reinterpret_cast<cudaMemPool_t>(&standard());
  return keep(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  *pool = reinterpret_cast<cudaMemPool_t>(current ? current : &standard());
  return keep(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t pool) { return current = of(pool), keep(cudaSuccess); }
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = reinterpret_cast<cudaMemPool_t>(new Pool);
  return keep(cudaSuccess);
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  if (current == of(pool)) current = nullptr;
  return keep(pool ? cudaSuccess : cudaErrorInvalidValue);  // kept: allocations may outlive it
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return keep(cudaSuccess); }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return keep(cudaSuccess); }
cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t, cudaMemLocation*) {
  return *flags = cudaMemAccessFlagsProtReadWrite, keep(cudaSuccess);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (uint64_t* at = amount(of(pool), attribute)) *at = *static_cast<uint64_t*>(value);
  else if (int* flag = choice(of(pool), attribute)) *flag = *static_cast<int*>(value);
  else return keep(cudaErrorInvalidValue);
  return keep(cudaSuccess);
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (uint64_t* at = amount(of(pool), attribute)) *static_cast<uint64_t*>(value) = *at;
  else if (int* flag = choice(of(pool), attribute)) *static_cast<int*>(value) = *flag;
  else return keep(cudaErrorInvalidValue);
  return keep(cudaSuccess);
}
cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  cudaError_t error = cudaMalloc(out, bytes);
  kw::Capture* capture = kw::capturing(stream);
  if (error == cudaSuccess && capture) return kw::capture_memory(capture, stream, *out, bytes);
  if (error == cudaSuccess && *out) kw::pool_took(*out, bytes, pool);
  return error;
}
cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  return cudaMallocFromPoolAsync(out, bytes, nullptr, stream);
}
cudaError_t cudaFreeAsync(void* base, cudaStream_t stream) {
  if (kw::Capture* capture = kw::capturing(stream)) return kw::capture_memory(capture, stream, base, 0);
  kw::pool_gave(base);
  return cudaFree(base);
}

}  // extern "C"
