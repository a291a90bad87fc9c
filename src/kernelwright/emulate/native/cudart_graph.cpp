// CUDA graphs: made, cloned, ordered, run and taken apart.
//
// What the nodes are is in cudart_graph_nodes.cpp, what a stream records in cudart_capture.cpp. Source: CUDA Runtime API
// 13.0, "Graph Management".
#include "cudart_graph.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

using kw::keep;

namespace kw {

CUgraphNode_st* add(CUgraph_st* graph, cudaGraphNodeType type, const cudaGraphNode_t* after, size_t n) {
  graph->nodes.push_back({graph, type});
  CUgraphNode_st& made = graph->nodes.back();
  made.after.assign(after, after + n);
  return &made;
}

CUgraph_st* clone(const CUgraph_st* graph) {
  auto* made = new CUgraph_st;
  std::map<const CUgraphNode_st*, CUgraphNode_st*> twin;
  for (const CUgraphNode_st& node : graph->nodes) {
    made->nodes.push_back(node);
    CUgraphNode_st& copy = made->nodes.back();
    copy.graph = made;
    copy.original = const_cast<CUgraphNode_st*>(&node);
    copy.kernel.point();
    if (node.child) copy.child = clone(node.child);
    twin[&node] = &copy;
  }
  for (CUgraphNode_st& copy : made->nodes)
    for (auto& before : copy.after) before = twin.count(before) ? twin[before] : before;
  return made;
}

void destroy(CUgraph_st* graph) {
  for (CUgraphNode_st& node : graph->nodes)
    if (node.child) destroy(node.child);
  for (auto& [object, count] : graph->objects) cudaUserObjectRelease(object, count);
  delete graph;
}

CUgraphNode_st* find_in_clone(CUgraph_st* graph, const CUgraphNode_st* original) {
  for (CUgraphNode_st& node : graph->nodes)
    if (node.original == original) return &node;
  return nullptr;
}

// The nodes in an order that keeps the edges; of those that could be next, the one that was added first. Shorter than the
// graph where its edges go in a ring.
static std::vector<CUgraphNode_st*> ordered(CUgraph_st* graph) {
  std::vector<CUgraphNode_st*> made;
  auto is_done = [&](CUgraphNode_st* node) { return std::find(made.begin(), made.end(), node) != made.end(); };
  for (bool more = true; more;) {
    more = false;
    for (CUgraphNode_st& node : graph->nodes) {
      if (is_done(&node) || !std::all_of(node.after.begin(), node.after.end(), is_done)) continue;
      made.push_back(&node);
      more = true;
    }
  }
  return made;
}

static cudaError_t run_node(CUgraphNode_st& node) {
  if (!node.enabled) return cudaSuccess;
  switch (node.type) {
    case cudaGraphNodeTypeKernel: {
      KernelWork& k = node.kernel;
      return launch(k.function, k.grid, k.block, k.args.data(), k.shared, nullptr, k.host_pc, k.cooperative);
    }
    case cudaGraphNodeTypeMemcpy: return cudaMemcpy3D(&node.copy);
    case cudaGraphNodeTypeMemset: return fill_elements(node.fill);
    case cudaGraphNodeTypeHost: return node.host.fn(node.host.userData), cudaSuccess;
    case cudaGraphNodeTypeGraph: return run(node.child);
    case cudaGraphNodeTypeEventRecord: return cudaEventRecord(node.event, nullptr);
    default: return cudaSuccess;  // empty, a wait, and memory that lives as long as its graph
  }
}

cudaError_t run(CUgraph_st* graph) {
  for (CUgraphNode_st* node : ordered(graph)) {
    cudaError_t error = run_node(*node);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// Copies what the caller has room for; *count becomes how many there are.
template <class T>
static cudaError_t list(const std::vector<T>& all, T* out, size_t* count) {
  if (out) std::copy_n(all.begin(), std::min(*count, all.size()), out);
  *count = all.size();
  return keep(cudaSuccess);
}

static cudaError_t instantiate(cudaGraphExec_t* out, CUgraph_st* graph, unsigned long long flags) {
  if (out == nullptr || graph == nullptr) return keep(cudaErrorInvalidValue);
  if (ordered(graph).size() != graph->nodes.size()) return keep(cudaErrorInvalidValue);
  *out = new CUgraphExec_st{clone(graph), flags};
  return keep(cudaSuccess);
}

static cudaError_t relate(const cudaGraphNode_t* from, const cudaGraphNode_t* to, size_t n, bool adds) {
  for (size_t i = 0; i < n; i++) {
    auto& after = to[i]->after;
    auto found = std::find(after.begin(), after.end(), from[i]);
    if (adds == (found != after.end())) return keep(cudaErrorInvalidValue);
    if (adds) after.push_back(from[i]);
    else after.erase(found);
  }
  return keep(cudaSuccess);
}

struct Edges { std::vector<cudaGraphNode_t> from, to; };

static Edges edges(CUgraph_st* graph) {
  Edges made;
  for (CUgraphNode_st& node : graph->nodes)
    for (CUgraphNode_st* before : node.after) {
      made.from.push_back(before);
      made.to.push_back(&node);
    }
  return made;
}

static std::vector<cudaGraphNode_t> dependents(CUgraphNode_st* node) {
  std::vector<cudaGraphNode_t> made;
  for (CUgraphNode_st& other : node->graph->nodes)
    if (std::find(other.after.begin(), other.after.end(), node) != other.after.end()) made.push_back(&other);
  return made;
}

static void no_data(cudaGraphEdgeData* data, const size_t* count) {
  if (data) std::memset(data, 0, *count * sizeof *data);
}

}  // namespace kw

struct CUuserObject_st { void* pointer; cudaHostFn_t destroy; unsigned count; };

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* out, unsigned) { return *out = new CUgraph_st, keep(cudaSuccess); }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return kw::destroy(graph), keep(cudaSuccess); }
cudaError_t cudaGraphClone(cudaGraph_t* out, cudaGraph_t graph) { return *out = kw::clone(graph), keep(cudaSuccess); }
cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* out, cudaGraphNode_t original, cudaGraph_t graph) {
  *out = kw::find_in_clone(graph, original);
  return keep(*out ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) { return *type = node->type, keep(cudaSuccess); }
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  std::vector<cudaGraphNode_t> all;
  for (CUgraphNode_st& node : graph->nodes) all.push_back(&node);
  return kw::list(all, nodes, count);
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  std::vector<cudaGraphNode_t> all;
  for (CUgraphNode_st& node : graph->nodes)
    if (node.after.empty()) all.push_back(&node);
  return kw::list(all, nodes, count);
}
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  CUgraph_st* graph = node->graph;
  for (CUgraphNode_st& other : graph->nodes)
    other.after.erase(std::remove(other.after.begin(), other.after.end(), node), other.after.end());
  if (node->child) kw::destroy(node->child);
  graph->nodes.remove_if([&](const CUgraphNode_st& other) { return &other == node; });
  return keep(cudaSuccess);
}

#if CUDART_VERSION >= 13000
#define KW_EDGE_IN , const cudaGraphEdgeData*
#define KW_EDGE_OUT , cudaGraphEdgeData* data
#define KW_NO_DATA(count) kw::no_data(data, count)
#else
#define KW_EDGE_IN
#define KW_EDGE_OUT
#define KW_NO_DATA(count) (void)0
#endif
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to KW_EDGE_OUT, size_t* count) {
  kw::Edges all = kw::edges(graph);
  size_t room = *count;
  KW_NO_DATA(count);
  kw::list(all.from, from, &room);
  return kw::list(all.to, to, count);
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* out KW_EDGE_OUT, size_t* count) {
  KW_NO_DATA(count);
  return kw::list(node->after, out, count);
}
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* out KW_EDGE_OUT, size_t* count) {
  KW_NO_DATA(count);
  return kw::list(kw::dependents(node), out, count);
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t* from, const cudaGraphNode_t* to KW_EDGE_IN, size_t n) {
  return kw::relate(from, to, n, true);
}
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t, const cudaGraphNode_t* from, const cudaGraphNode_t* to KW_EDGE_IN, size_t n) {
  return kw::relate(from, to, n, false);
}

#if CUDART_VERSION >= 12000
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags) {
  return kw::instantiate(out, graph, flags);
}
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* out, cudaGraph_t graph, cudaGraphInstantiateParams* given) {
  cudaError_t error = kw::instantiate(out, graph, given->flags);
  given->result_out = error == cudaSuccess ? cudaGraphInstantiateSuccess : cudaGraphInstantiateError;
  given->errNode_out = nullptr;
  return error;
}
cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long* flags) {
  return *flags = exec->flags, keep(cudaSuccess);
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  auto mine = kw::ordered(exec->graph), theirs = kw::ordered(graph);
  bool same = mine.size() == theirs.size();
  for (size_t i = 0; same && i < mine.size(); i++)
    same = mine[i]->type == theirs[i]->type && mine[i]->after.size() == theirs[i]->after.size();
  if (info) *info = {same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged, nullptr, nullptr};
  if (!same) return keep(cudaErrorGraphExecUpdateFailure);
  // The handles that the caller knows stay those of the graph it was made from.
  CUgraph_st* fresh = kw::clone(graph);
  auto made = kw::ordered(fresh);
  for (size_t i = 0; i < mine.size(); i++) {
    made[i]->original = mine[i]->original;
    made[i]->enabled = mine[i]->enabled;
  }
  kw::destroy(exec->graph);
  exec->graph = fresh;
  return keep(cudaSuccess);
}
#endif
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags) {
  return kw::instantiate(out, graph, flags);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  kw::destroy(exec->graph);
  delete exec;
  return keep(cudaSuccess);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return keep(cudaSuccess); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (exec == nullptr) return keep(cudaErrorInvalidValue);
  if (kw::Capture* capture = kw::capturing(stream)) return kw::capture_graph(capture, stream, exec->graph);
  return keep(kw::run(exec->graph));
}
cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned enabled) {
  CUgraphNode_st* mine = kw::find_in_clone(exec->graph, node);
  if (mine) mine->enabled = enabled != 0;
  return keep(mine ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned* enabled) {
  CUgraphNode_st* mine = kw::find_in_clone(exec->graph, node);
  if (mine) *enabled = mine->enabled;
  return keep(mine ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  FILE* file = std::fopen(path, "w");
  if (file == nullptr) return keep(cudaErrorOperatingSystem);
  std::fprintf(file, "digraph graph_ {\n");
  std::map<const CUgraphNode_st*, int> number;
  for (CUgraphNode_st& node : graph->nodes) {
    int own = int(number.size());
    number[&node] = own;
    std::fprintf(file, "  n%d [label=\"type %d\"];\n", own, int(node.type));
  }
  kw::Edges all = kw::edges(graph);
  for (size_t i = 0; i < all.to.size(); i++) std::fprintf(file, "  n%d -> n%d;\n", number[all.from[i]], number[all.to[i]]);
  std::fprintf(file, "}\n");
  std::fclose(file);
  return keep(cudaSuccess);
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* out, void* pointer, cudaHostFn_t destroy, unsigned count, unsigned) {
  *out = new CUuserObject_st{pointer, destroy, count};
  return keep(cudaSuccess);
}
cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) { return object->count += count, keep(cudaSuccess); }
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  object->count -= std::min(object->count, count);
  if (object->count) return keep(cudaSuccess);
  object->destroy(object->pointer);
  delete object;
  return keep(cudaSuccess);
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
  if (!(flags & cudaGraphUserObjectMove)) object->count += count;
  graph->objects.push_back({object, count});
  return keep(cudaSuccess);
}
cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
  for (auto& known : graph->objects)
    if (known.first == object) known.second -= std::min(known.second, count);
  return cudaUserObjectRelease(object, count);
}

}  // extern "C"
