// Copies and fills of volumes in linear memory (cudaMemcpy3D, cudaMemset3D), row by row through the two-dimensional ones.
//
// The rule: arrays are not served: a copy that names one is refused by name.
#include "cudart_state.h"

using kw::keep;

namespace {

char* row(const cudaPitchedPtr& memory, const cudaPos& at, size_t slice) {
  return static_cast<char*>(memory.ptr) + (at.z + slice) * memory.pitch * memory.ysize + at.y * memory.pitch + at.x;
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) {
  if (p->srcArray || p->dstArray) return kw::refuse(cudaErrorNotSupported, "unexplained", "the emulated device has no CUDA arrays, which cudaMemcpy3D names");
  for (size_t slice = 0; slice < p->extent.depth; slice++) {
    cudaError_t error = cudaMemcpy2D(row(p->dstPtr, p->dstPos, slice), p->dstPtr.pitch, row(p->srcPtr, p->srcPos, slice),
                                     p->srcPtr.pitch, p->extent.width, p->extent.height, p->kind);
    if (error != cudaSuccess) return error;
  }
  return keep(cudaSuccess);
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  if (kw::Capture* capture = kw::capturing(stream)) return kw::capture_copy(capture, stream, *p);
  return cudaMemcpy3D(p);
}
cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
  for (size_t slice = 0; slice < extent.depth; slice++) {
    cudaError_t error = cudaMemset2D(row(to, {}, slice), to.pitch, value, extent.width, extent.height);
    if (error != cudaSuccess) return error;
  }
  return keep(cudaSuccess);
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t) {
  return cudaMemset3D(to, value, extent);
}

}  // extern "C"
