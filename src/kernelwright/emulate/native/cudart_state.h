// What the parts of the CUDA runtime shim share: registered modules, the launch check, and how errors are kept.
//
// Why: every extension links this shim statically and hidden, so nothing can clash with a real libcudart in the process.
// The rule: it holds what one extension registered (its kernels and variables) and no more; memory, the device and
// sticky errors live in libkw_runtime.so, the thread's last error in kw_last_error_slot().
#pragma once
#include "kw_runtime.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

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

Kernel* find_kernel(const void* stub_or_handle);
Variable* find_variable(const void* host);
const char* module_key(Module*);
cudaError_t kernel_attributes(Kernel*);
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
// Blocks of `threads` threads that one multiprocessor holds at once; 0 when not even one fits.
int blocks_per_multiprocessor(const kw_device_properties&, int registers, uint64_t static_shared, int threads,
                              uint64_t dynamic_shared);

}  // namespace kw
