// What the parts of the CUDA runtime shim share: registered modules, the launch check, and how errors are kept.
//
// Why: every extension links this shim statically and hidden, so nothing can clash with a real libcudart in the process.
// The rule: it holds what one extension registered (its kernels and variables) and no more; memory, the device and
// sticky errors live in libkw_runtime.so, the thread's last error in kw_last_error_slot().
#pragma once
#include "kw_runtime.h"

#include <cuda_runtime_api.h>
#include <driver_functions.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

// Defined by libkw_torch.so, one slot a thread for all extensions; a program without it uses a slot of its own.
extern "C" __attribute__((weak)) int* kw_last_error_slot(void);

namespace kw {

struct Module {
  const void* fatbin;
  uint64_t bytes;
  const char* key = nullptr;  // what kw_callbacks.module_register returned; asked at first use
};

struct Kernel {
  Module* module;
  const void* host;  // address of the host stub
  const char* name;  // mangled
  int32_t attributes[8];
  bool has_attributes = false;
  int32_t dynamic_shared_opt_in = -1;  // cudaFuncAttributeMaxDynamicSharedMemorySize, where set
};

struct Variable {
  Module* module;
  const void* host;
  const char* name;
  uint64_t bytes;
};

struct Parameter { int32_t offset, bytes; };

struct Event {
  std::chrono::steady_clock::time_point at;
  bool recorded, timed = true;
  unsigned long long capture = 0;        // the capture it was recorded in; 0 none
  std::vector<cudaGraphNode_t> after;    // the nodes that it stands for there
};

Kernel* find_kernel(const void* stub_or_handle);
Variable* find_variable(const void* host);
const char* module_key(Module*);
cudaError_t kernel_attributes(Kernel*);
std::vector<Parameter> kernel_parameters(Kernel*);
cudaError_t variable_address(const Variable*, void** address, uint64_t* bytes);

int* last_error();
// `error` as an API function returns it: whatever is not success stays as the last error until it is asked for.
cudaError_t answer(cudaError_t error);
// The same for a function that touches the context: the fault of an earlier kernel wins.
cudaError_t keep(cudaError_t error);
// keep(), and tells the record why: cause id and a sentence with the numbers.
cudaError_t refuse(cudaError_t error, const char* cause, const std::string& sentence, const kw_launch* launch = nullptr);

struct Refusal {
  cudaError_t error = cudaSuccess;
  const char* cause = "";
  std::string sentence;
};
// Whether the device's and the kernel's limits allow the launch.
Refusal check_launch(const kw_launch&, Kernel*, const kw_device_properties&);
// Runs a kernel, or makes it a node where `stream` captures.
cudaError_t launch(const void* which, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream,
                   uint64_t host_pc, bool cooperative);
// A two-dimensional fill with elements of 1, 2 or 4 bytes.
cudaError_t fill_elements(const cudaMemsetParams&);

// ---- stream capture (cudart_capture.cpp)
struct Capture;
Capture* capturing(cudaStream_t);  // nullptr: it does not
// For what cannot be captured: fails, and invalidates the capture, where `stream` captures; `any`: where some stream does.
cudaError_t forbid_in_capture(cudaStream_t stream, bool any = false);
cudaError_t capture_kernel(Capture*, cudaStream_t, const void* function, dim3 grid, dim3 block, void** args, size_t shared,
                           bool cooperative, uint64_t host_pc);
cudaError_t capture_copy(Capture*, cudaStream_t, const cudaMemcpy3DParms&);
cudaError_t capture_fill(Capture*, cudaStream_t, const cudaMemsetParams&);
cudaError_t capture_host(Capture*, cudaStream_t, cudaHostFn_t, void* data);
cudaError_t capture_memory(Capture*, cudaStream_t, void* memory, size_t bytes);  // bytes 0: it is given back
// Memory of a graph keeps its address: giving it back is noted by the next run of the node that takes it.
void graph_took(void* base);
bool graph_owns(const void* base);
cudaError_t capture_graph(Capture*, cudaStream_t, cudaGraph_t child);
void capture_record(Capture*, cudaStream_t, Event*);
bool capture_wait(cudaStream_t, const Event*);

// Blocks of `threads` threads that one multiprocessor holds at once; 0 when not even one fits.
int blocks_per_multiprocessor(const kw_device_properties&, int registers, uint64_t static_shared, int threads,
                              uint64_t dynamic_shared);

}  // namespace kw

#define KW_CALLER reinterpret_cast<uint64_t>(__builtin_return_address(0))
