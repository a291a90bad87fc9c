// CUDA graphs, as the parts of the shim that build, capture and run them see one.
//
// The rule: a node holds copies of all that it needs (a kernel's parameters as they were when it was added), so that a
// graph may run long after its caller's variables are gone. A graph runs its nodes one after the other, in an order that
// keeps its edges; a GPU may run them side by side, which no right program can tell.
#pragma once
#include "cudart_state.h"

#include <list>
#include <memory>
#include <vector>

struct CUgraph_st;

namespace kw {

struct KernelWork {
  const void* function;
  dim3 grid, block;
  unsigned shared;
  bool cooperative;
  uint64_t host_pc;
  std::vector<std::vector<char>> values;  // one for each parameter
  std::vector<void*> args;                // into `values`
  void point() {
    args.clear();
    for (auto& value : values) args.push_back(value.data());
  }
};

}  // namespace kw

// The runtime's own names, so that its opaque handles are these.
struct CUgraphNode_st {
  CUgraph_st* graph;
  cudaGraphNodeType type;
  std::vector<CUgraphNode_st*> after;  // what it depends on
  CUgraphNode_st* original = nullptr;  // in the graph that its own was cloned from
  bool enabled = true;
  kw::KernelWork kernel{};
  cudaMemcpy3DParms copy{};
  cudaMemsetParams fill{};
  cudaHostNodeParams host{};
  cudaEvent_t event = nullptr;
  CUgraph_st* child = nullptr;
  void* memory = nullptr;  // of an allocation, or what a free gives back
  size_t bytes = 0;
};

struct CUgraph_st {
  std::list<CUgraphNode_st> nodes;  // in the order in which they were added
  std::vector<std::pair<cudaUserObject_t, unsigned>> objects;
};

struct CUgraphExec_st {
  CUgraph_st* graph;  // a clone, whose nodes' originals are the caller's
  unsigned long long flags;
};

namespace kw {

// Fills in `work` from what a launch was given; refuses what the launch itself would refuse.
cudaError_t take_kernel(KernelWork* work, const void* function, dim3 grid, dim3 block, void** args, size_t shared,
                        bool cooperative, uint64_t host_pc);
CUgraphNode_st* add(CUgraph_st* graph, cudaGraphNodeType type, const cudaGraphNode_t* after, size_t n);
CUgraph_st* clone(const CUgraph_st* graph);
void destroy(CUgraph_st* graph);
CUgraphNode_st* find_in_clone(CUgraph_st* graph, const CUgraphNode_st* original);
cudaError_t run(CUgraph_st* graph);

}  // namespace kw
