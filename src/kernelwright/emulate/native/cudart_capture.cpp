// Stream capture: what is asked of a stream becomes nodes of a graph instead of work.
//
// The rule: a stream that captures knows the nodes that its next one comes after; an event carries them to other streams,
// which thereby capture into the same graph. Source: CUDA C++ Programming Guide, "Creating a Graph Using Stream Capture";
// what may not be captured fails there with these errors, and invalidates the capture.
#include "cudart_graph.h"

#include <algorithm>
#include <map>
#include <mutex>

using kw::keep;

namespace kw {

struct Capture {
  CUgraph_st* graph;
  unsigned long long id;
  cudaStream_t origin;
  cudaStreamCaptureMode mode;
  bool invalid = false, owned = true;
  std::map<cudaStream_t, std::vector<cudaGraphNode_t>> last;  // of each stream that takes part
};

namespace {

std::mutex guard;
std::vector<Capture*>& open() {
  static auto* made = new std::vector<Capture*>;
  return *made;
}

CUgraphNode_st* append(Capture* capture, cudaStream_t stream, cudaGraphNodeType type) {
  auto& last = capture->last[stream];
  CUgraphNode_st* made = add(capture->graph, type, last.data(), last.size());
  last = {made};
  return made;
}

Capture* of_event(const Event* event) {
  for (Capture* capture : open())
    if (capture->id == event->capture) return capture;
  return nullptr;
}

cudaError_t begin(cudaStream_t stream, CUgraph_st* graph, bool owned, const cudaGraphNode_t* after, size_t n,
                  cudaStreamCaptureMode mode) {
  static unsigned long long ids = 0;
  if (stream == nullptr || stream == cudaStreamLegacy) return keep(cudaErrorStreamCaptureUnsupported);
  if (capturing(stream)) return keep(cudaErrorIllegalState);
  std::lock_guard<std::mutex> hold(guard);
  auto* made = new Capture{graph, ++ids, stream, mode};
  made->owned = owned;
  made->last[stream].assign(after, after + n);
  open().push_back(made);
  return keep(cudaSuccess);
}

}  // namespace

Capture* capturing(cudaStream_t stream) {
  std::lock_guard<std::mutex> hold(guard);
  for (Capture* capture : open())
    if (capture->last.count(stream)) return capture;
  return nullptr;
}

cudaError_t forbid_in_capture(cudaStream_t stream, bool any) {
  std::lock_guard<std::mutex> hold(guard);
  for (Capture* capture : open()) {
    if (!any && !capture->last.count(stream)) continue;
    if (any && capture->mode == cudaStreamCaptureModeRelaxed) continue;
    capture->invalid = true;
    return answer(any ? cudaErrorStreamCaptureImplicit : cudaErrorStreamCaptureUnsupported);
  }
  return cudaSuccess;
}

cudaError_t capture_kernel(Capture* capture, cudaStream_t stream, const void* function, dim3 grid, dim3 block, void** args,
                           size_t shared, bool cooperative, uint64_t host_pc) {
  KernelWork work{};
  cudaError_t error = take_kernel(&work, function, grid, block, args, shared, cooperative, host_pc);
  if (error != cudaSuccess) return capture->invalid = true, keep(error);
  CUgraphNode_st* node = append(capture, stream, cudaGraphNodeTypeKernel);
  node->kernel = std::move(work);
  node->kernel.point();
  return cudaSuccess;
}

cudaError_t capture_copy(Capture* capture, cudaStream_t stream, const cudaMemcpy3DParms& copy) {
  append(capture, stream, cudaGraphNodeTypeMemcpy)->copy = copy;
  return cudaSuccess;
}

cudaError_t capture_fill(Capture* capture, cudaStream_t stream, const cudaMemsetParams& fill) {
  append(capture, stream, cudaGraphNodeTypeMemset)->fill = fill;
  return cudaSuccess;
}

cudaError_t capture_host(Capture* capture, cudaStream_t stream, cudaHostFn_t call, void* data) {
  append(capture, stream, cudaGraphNodeTypeHost)->host = {call, data};
  return cudaSuccess;
}

cudaError_t capture_memory(Capture* capture, cudaStream_t stream, void* memory, size_t bytes) {
  CUgraphNode_st* node = append(capture, stream, bytes ? cudaGraphNodeTypeMemAlloc : cudaGraphNodeTypeMemFree);
  node->memory = memory;
  node->bytes = bytes;
  if (bytes) graph_took(memory);
  return cudaSuccess;
}

cudaError_t capture_graph(Capture* capture, cudaStream_t stream, CUgraph_st* child) {
  append(capture, stream, cudaGraphNodeTypeGraph)->child = clone(child);
  return cudaSuccess;
}

void capture_record(Capture* capture, cudaStream_t stream, Event* event) {
  event->capture = capture->id;
  event->after = capture->last[stream];
}

// A wait for a captured event brings its stream into that capture.
bool capture_wait(cudaStream_t stream, const Event* event) {
  std::lock_guard<std::mutex> hold(guard);
  Capture* capture = event->capture ? of_event(event) : nullptr;
  if (capture == nullptr) return false;
  auto& last = capture->last[stream];
  for (cudaGraphNode_t node : event->after)
    if (std::find(last.begin(), last.end(), node) == last.end()) last.push_back(node);
  return true;
}

}  // namespace kw

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  auto* graph = new CUgraph_st;
  cudaError_t error = kw::begin(stream, graph, true, nullptr, 0, mode);
  if (error != cudaSuccess) delete graph;
  return error;
}
#if CUDART_VERSION >= 12030
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* after,
                                          const cudaGraphEdgeData*, size_t n, cudaStreamCaptureMode mode) {
  return kw::begin(stream, graph, false, after, n, mode);
}
#endif
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  kw::Capture* capture = kw::capturing(stream);
  *out = nullptr;
  if (capture == nullptr) return keep(cudaErrorIllegalState);
  if (capture->origin != stream) return keep(cudaErrorStreamCaptureUnmatched);
  // Nodes of other streams must lead to this one's last.
  std::vector<cudaGraphNode_t> reached = capture->last[stream];
  for (size_t i = 0; i < reached.size(); i++)
    for (cudaGraphNode_t before : reached[i]->after)
      if (std::find(reached.begin(), reached.end(), before) == reached.end()) reached.push_back(before);
  bool joined = true;
  for (auto& [other, last] : capture->last)
    for (cudaGraphNode_t node : last) joined &= std::find(reached.begin(), reached.end(), node) != reached.end();
  {
    std::lock_guard<std::mutex> hold(kw::guard);
    kw::open().erase(std::remove(kw::open().begin(), kw::open().end(), capture), kw::open().end());
  }
  cudaError_t error = capture->invalid ? cudaErrorStreamCaptureInvalidated : joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
  if (error == cudaSuccess) *out = capture->graph;
  else if (capture->owned) kw::destroy(capture->graph);
  delete capture;
  return keep(error);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  kw::Capture* capture = kw::capturing(stream);
  *status = !capture ? cudaStreamCaptureStatusNone
            : capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  return keep(cudaSuccess);
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** after, const cudaGraphEdgeData** data,
                                     size_t* n) {
  if (data) *data = nullptr;
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                        cudaGraph_t* graph, const cudaGraphNode_t** after, size_t* n) {
#endif
  cudaStreamIsCapturing(stream, status);
  kw::Capture* capture = kw::capturing(stream);
  if (capture == nullptr) return keep(cudaSuccess);
  if (id) *id = capture->id;
  if (graph) *graph = capture->graph;
  if (after) *after = capture->last[stream].data();
  if (n) *n = capture->last[stream].size();
  return keep(cudaSuccess);
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* after, const cudaGraphEdgeData*, size_t n,
                                                unsigned flags) {
#else
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* after, size_t n, unsigned flags) {
#endif
  kw::Capture* capture = kw::capturing(stream);
  if (capture == nullptr) return keep(cudaErrorIllegalState);
  auto& last = capture->last[stream];
  if (flags == cudaStreamSetCaptureDependencies) last.clear();
  last.insert(last.end(), after, after + n);
  return keep(cudaSuccess);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static thread_local cudaStreamCaptureMode own = cudaStreamCaptureModeGlobal;
  std::swap(*mode, own);
  return keep(cudaSuccess);
}

}  // extern "C"
