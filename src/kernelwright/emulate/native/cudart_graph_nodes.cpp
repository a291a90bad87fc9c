// The nodes of CUDA graphs: how each kind is added, read and changed, in a graph and in an executable one.
//
// The rule: a change in an executable graph is found through the node that the caller knows, of which it holds a clone.
#include "cudart_graph.h"

#include <algorithm>
#include <cstring>

using kw::keep;

namespace kw {

cudaError_t take_kernel(KernelWork* work, const void* function, dim3 grid, dim3 block, void** args, size_t shared,
                        bool cooperative, uint64_t host_pc) {
  Kernel* kernel = find_kernel(function);
  if (kernel == nullptr) return keep(cudaErrorInvalidDeviceFunction);
  cudaError_t error = kernel_attributes(kernel);
  if (error != cudaSuccess) return keep(error);
  kw_launch asked{};
  asked.grid = {grid.x, grid.y, grid.z};
  asked.block = {block.x, block.y, block.z};
  asked.dynamic_shared = shared;
  asked.host_pc = host_pc;
  asked.cooperative = cooperative;
  asked.kernel = kernel->name;
  asked.module_key = module_key(kernel->module);
  Refusal refusal = check_launch(asked, kernel, *kw_get_device());
  if (refusal.error != cudaSuccess) return refuse(refusal.error, refusal.cause, refusal.sentence, &asked);
  std::vector<Parameter> parameters = kernel_parameters(kernel);
  *work = {function, grid, block, unsigned(shared), cooperative, host_pc};
  for (size_t i = 0; i < parameters.size(); i++) {
    const char* value = static_cast<const char*>(args[i]);
    work->values.emplace_back(value, value + parameters[i].bytes);
  }
  work->point();
  return cudaSuccess;
}

static std::vector<const void*>& graph_memory() {
  static auto* made = new std::vector<const void*>;
  return *made;
}
void graph_took(void* base) { graph_memory().push_back(base); }
bool graph_owns(const void* base) {
  return std::find(graph_memory().begin(), graph_memory().end(), base) != graph_memory().end();
}

namespace {

cudaError_t take(KernelWork* work, const cudaKernelNodeParams* p, uint64_t host_pc) {
  if (p->kernelParams == nullptr && p->extra != nullptr)
    return refuse(cudaErrorNotSupported, "unexplained", "the emulated device takes no packed kernel parameters (extra)");
  return take_kernel(work, p->func, p->gridDim, p->blockDim, p->kernelParams, p->sharedMemBytes, false, host_pc);
}

cudaMemcpy3DParms line(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpy3DParms made{};
  made.srcPtr = make_cudaPitchedPtr(const_cast<void*>(from), bytes, bytes, 1);
  made.dstPtr = make_cudaPitchedPtr(to, bytes, bytes, 1);
  made.extent = make_cudaExtent(bytes, 1, 1);
  made.kind = kind;
  return made;
}

// Adds a node of `type` that `fill` completes; nothing is added where it fails.
template <class Fill>
cudaError_t added(cudaGraphNode_t* out, cudaGraph_t graph, cudaGraphNodeType type, const cudaGraphNode_t* after, size_t n,
                  Fill fill) {
  if (graph == nullptr) return keep(cudaErrorInvalidValue);
  CUgraphNode_st* made = add(graph, type, after, n);
  cudaError_t error = fill(*made);
  if (error != cudaSuccess) graph->nodes.pop_back();
  else *out = made;
  return keep(error);
}

template <class Fill>
cudaError_t changed(cudaGraphNode_t node, cudaGraphNodeType type, Fill fill) {
  if (node == nullptr || node->type != type) return keep(cudaErrorInvalidValue);
  return keep(fill(*node));
}

template <class Fill>
cudaError_t changed_in(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraphNodeType type, Fill fill) {
  return changed(exec ? find_in_clone(exec->graph, node) : nullptr, type, fill);
}

cudaError_t symbol_line(cudaMemcpy3DParms* made, const void* symbol, void* to, const void* from, size_t bytes, size_t offset,
                        cudaMemcpyKind kind) {
  void* address = nullptr;
  cudaError_t error = cudaGetSymbolAddress(&address, symbol);
  char* place = static_cast<char*>(address) + offset;
  *made = to ? line(to, place, bytes, kind) : line(place, from, bytes, kind);
  return error;
}

#define KW_KERNEL(p) [&](CUgraphNode_st& node) { return kw::take(&node.kernel, p, KW_CALLER); }
#define KW_SET(field, value) [&](CUgraphNode_st& node) { return node.field = (value), cudaSuccess; }

}  // namespace
}  // namespace kw

#define KW_WHERE cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *after, size_t n

extern "C" {

// ---- kernels
cudaError_t cudaGraphAddKernelNode(KW_WHERE, const cudaKernelNodeParams* p) {
  return kw::added(out, graph, cudaGraphNodeTypeKernel, after, n, KW_KERNEL(p));
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* p) {
  return kw::changed(node, cudaGraphNodeTypeKernel, [&](CUgraphNode_st& known) {
    kw::KernelWork& k = known.kernel;
    *p = {};
    p->func = const_cast<void*>(k.function);
    p->gridDim = k.grid;
    p->blockDim = k.block;
    p->sharedMemBytes = k.shared;
    p->kernelParams = k.args.data();
    return cudaSuccess;
  });
}
cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* p) {
  return kw::changed(node, cudaGraphNodeTypeKernel, KW_KERNEL(p));
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaKernelNodeParams* p) {
  return kw::changed_in(exec, node, cudaGraphNodeTypeKernel, KW_KERNEL(p));
}
// Attributes concern caches and priorities, which have no effect here.
cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t, cudaLaunchAttributeID, const cudaLaunchAttributeValue*) {
  return keep(cudaSuccess);
}
cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t, cudaLaunchAttributeID, cudaLaunchAttributeValue* value) {
  return std::memset(value, 0, sizeof *value), keep(cudaSuccess);
}
cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t, cudaGraphNode_t) { return keep(cudaSuccess); }

// ---- copies
cudaError_t cudaGraphAddMemcpyNode(KW_WHERE, const cudaMemcpy3DParms* p) {
  return kw::added(out, graph, cudaGraphNodeTypeMemcpy, after, n, KW_SET(copy, *p));
}
cudaError_t cudaGraphAddMemcpyNode1D(KW_WHERE, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return kw::added(out, graph, cudaGraphNodeTypeMemcpy, after, n, KW_SET(copy, kw::line(to, from, bytes, kind)));
}
cudaError_t cudaGraphAddMemcpyNodeToSymbol(KW_WHERE, const void* symbol, const void* from, size_t bytes, size_t offset,
                                           cudaMemcpyKind kind) {
  return kw::added(out, graph, cudaGraphNodeTypeMemcpy, after, n, [&](CUgraphNode_st& node) {
    return kw::symbol_line(&node.copy, symbol, nullptr, from, bytes, offset, kind);
  });
}
cudaError_t cudaGraphAddMemcpyNodeFromSymbol(KW_WHERE, void* to, const void* symbol, size_t bytes, size_t offset,
                                             cudaMemcpyKind kind) {
  return kw::added(out, graph, cudaGraphNodeTypeMemcpy, after, n, [&](CUgraphNode_st& node) {
    return kw::symbol_line(&node.copy, symbol, to, nullptr, bytes, offset, kind);
  });
}
cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* p) {
  return kw::changed(node, cudaGraphNodeTypeMemcpy, [&](CUgraphNode_st& known) { return *p = known.copy, cudaSuccess; });
}
cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* p) {
  return kw::changed(node, cudaGraphNodeTypeMemcpy, KW_SET(copy, *p));
}
cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return kw::changed(node, cudaGraphNodeTypeMemcpy, KW_SET(copy, kw::line(to, from, bytes, kind)));
}
cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaMemcpy3DParms* p) {
  return kw::changed_in(exec, node, cudaGraphNodeTypeMemcpy, KW_SET(copy, *p));
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void* to, const void* from,
                                               size_t bytes, cudaMemcpyKind kind) {
  return kw::changed_in(exec, node, cudaGraphNodeTypeMemcpy, KW_SET(copy, kw::line(to, from, bytes, kind)));
}

// ---- fills
cudaError_t cudaGraphAddMemsetNode(KW_WHERE, const cudaMemsetParams* p) {
  return kw::added(out, graph, cudaGraphNodeTypeMemset, after, n, KW_SET(fill, *p));
}
cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* p) {
  return kw::changed(node, cudaGraphNodeTypeMemset, [&](CUgraphNode_st& known) { return *p = known.fill, cudaSuccess; });
}
cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* p) {
  return kw::changed(node, cudaGraphNodeTypeMemset, KW_SET(fill, *p));
}
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaMemsetParams* p) {
  return kw::changed_in(exec, node, cudaGraphNodeTypeMemset, KW_SET(fill, *p));
}

// ---- host functions, events, graphs in graphs, and nothing
cudaError_t cudaGraphAddHostNode(KW_WHERE, const cudaHostNodeParams* p) {
  return kw::added(out, graph, cudaGraphNodeTypeHost, after, n, KW_SET(host, *p));
}
cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams* p) {
  return kw::changed(node, cudaGraphNodeTypeHost, [&](CUgraphNode_st& known) { return *p = known.host, cudaSuccess; });
}
cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* p) {
  return kw::changed(node, cudaGraphNodeTypeHost, KW_SET(host, *p));
}
cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaHostNodeParams* p) {
  return kw::changed_in(exec, node, cudaGraphNodeTypeHost, KW_SET(host, *p));
}
cudaError_t cudaGraphAddEventRecordNode(KW_WHERE, cudaEvent_t event) {
  return kw::added(out, graph, cudaGraphNodeTypeEventRecord, after, n, KW_SET(event, event));
}
cudaError_t cudaGraphAddEventWaitNode(KW_WHERE, cudaEvent_t event) {
  return kw::added(out, graph, cudaGraphNodeTypeWaitEvent, after, n, KW_SET(event, event));
}
cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return *event = node->event, keep(cudaSuccess);
}
cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return *event = node->event, keep(cudaSuccess);
}
cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return kw::changed(node, cudaGraphNodeTypeEventRecord, KW_SET(event, event));
}
cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event) {
  return kw::changed_in(exec, node, cudaGraphNodeTypeEventRecord, KW_SET(event, event));
}
cudaError_t cudaGraphAddChildGraphNode(KW_WHERE, cudaGraph_t child) {
  return kw::added(out, graph, cudaGraphNodeTypeGraph, after, n, KW_SET(child, kw::clone(child)));
}
cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* child) {
  return kw::changed(node, cudaGraphNodeTypeGraph, [&](CUgraphNode_st& known) { return *child = known.child, cudaSuccess; });
}
cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child) {
  return kw::changed_in(exec, node, cudaGraphNodeTypeGraph, [&](CUgraphNode_st& known) {
    kw::destroy(known.child);
    return known.child = kw::clone(child), cudaSuccess;
  });
}
cudaError_t cudaGraphAddEmptyNode(KW_WHERE) {
  return kw::added(out, graph, cudaGraphNodeTypeEmpty, after, n, [](CUgraphNode_st&) { return cudaSuccess; });
}

// ---- memory: there from the moment its node is added, for as long as the process; a GPU gives it back at the free node
cudaError_t cudaGraphAddMemAllocNode(KW_WHERE, cudaMemAllocNodeParams* p) {
  return kw::added(out, graph, cudaGraphNodeTypeMemAlloc, after, n, [&](CUgraphNode_st& node) {
    node.bytes = p->bytesize;
    cudaError_t error = cudaMalloc(&node.memory, p->bytesize);
    kw::graph_took(node.memory);
    p->dptr = node.memory;
    return error;
  });
}
cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams* p) {
  return kw::changed(node, cudaGraphNodeTypeMemAlloc, [&](CUgraphNode_st& known) {
    *p = {};
    p->dptr = known.memory;
    p->bytesize = known.bytes;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphAddMemFreeNode(KW_WHERE, void* memory) {
  return kw::added(out, graph, cudaGraphNodeTypeMemFree, after, n, KW_SET(memory, memory));
}
cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* memory) {
  return *static_cast<void**>(memory) = node->memory, keep(cudaSuccess);
}
cudaError_t cudaDeviceGraphMemTrim(int) { return keep(cudaSuccess); }
cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* value) {
  return *static_cast<uint64_t*>(value) = 0, keep(cudaSuccess);
}
cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) { return keep(cudaSuccess); }

#if CUDART_VERSION >= 12030
// ---- one function for all kinds
#if CUDART_VERSION >= 13000
cudaError_t cudaGraphAddNode(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* after, const cudaGraphEdgeData*,
                             size_t n, cudaGraphNodeParams* p) {
#else
cudaError_t cudaGraphAddNode(KW_WHERE, cudaGraphNodeParams* p) {
#endif
  switch (p->type) {
    case cudaGraphNodeTypeKernel: {
      const auto& k = p->kernel;
      return kw::added(out, graph, p->type, after, n, [&](CUgraphNode_st& node) {
        return kw::take_kernel(&node.kernel, k.func, k.gridDim, k.blockDim, k.kernelParams, k.sharedMemBytes, false, KW_CALLER);
      });
    }
    case cudaGraphNodeTypeMemcpy: return cudaGraphAddMemcpyNode(out, graph, after, n, &p->memcpy.copyParams);
    case cudaGraphNodeTypeMemset: {
      const auto& m = p->memset;
      cudaMemsetParams plain{m.dst, m.pitch, m.value, m.elementSize, m.width, m.height};
      return cudaGraphAddMemsetNode(out, graph, after, n, &plain);
    }
    case cudaGraphNodeTypeHost: {
      cudaHostNodeParams plain{p->host.fn, p->host.userData};
      return cudaGraphAddHostNode(out, graph, after, n, &plain);
    }
    case cudaGraphNodeTypeGraph: return cudaGraphAddChildGraphNode(out, graph, after, n, p->graph.graph);
    case cudaGraphNodeTypeEmpty: return cudaGraphAddEmptyNode(out, graph, after, n);
    case cudaGraphNodeTypeEventRecord: return cudaGraphAddEventRecordNode(out, graph, after, n, p->eventRecord.event);
    case cudaGraphNodeTypeWaitEvent: return cudaGraphAddEventWaitNode(out, graph, after, n, p->eventWait.event);
    case cudaGraphNodeTypeMemFree: return cudaGraphAddMemFreeNode(out, graph, after, n, p->free.dptr);
    default:
      return kw::refuse(cudaErrorNotSupported, "unexplained", "the emulated device has no graph node of this type (conditional, semaphore)");
  }
}
#endif

}  // extern "C"
