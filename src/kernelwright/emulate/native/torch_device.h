// What the parts of the torch bridge share: the device's allocators, generators, current stream and CUDA errors.
//
// Why: the bridge is compiled in several units at once. The rule: state is defined in torch_device.cpp alone.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/Stream.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <cstdint>
#include <string>

namespace kw {

constexpr c10::DeviceType kDevice = c10::DeviceType::CUDA;

// Memory of cuda:0; allocate() raises OutOfMemoryError in torch's words.
c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();

// A cuda generator is a CPU generator that answers "cuda:0" when asked for its device.
const at::Generator& default_generator();
at::Generator new_generator();
// The CPU generator inside, which the CPU kernels draw from; any other generator is returned as it is.
at::Generator host_generator(const at::Generator&);

// cudaStream_t handles; 0 is the default stream. A c10::Stream's id is the handle.
uint64_t current_stream();
void set_current_stream(uint64_t handle);
uint64_t stream_from_pool();

// Raises torch.AcceleratorError as c10_cuda_check_implementation does; nothing for 0.
void check_error(int cuda_error);
// Raises the context's sticky error, if a kernel left one: what every synchronising call does.
void check_sticky();
void check_device_index(int index);

// A cuda:0 tensor over a CPU tensor's memory (torch_bridge.cpp).
at::Tensor device_twin(const at::Tensor& host, const char* name);
void resize_storage(const at::Tensor& of, int64_t bytes);

}  // namespace kw

extern "C" {
// The calling thread's last CUDA error, shared by every extension's CUDA runtime shim.
__attribute__((visibility("default"))) int* kw_last_error_slot(void);
// Every allocation torch makes on the host is made known to the runtime from now on (once).
__attribute__((visibility("default"))) void kw_watch_host_memory(void);
// Takes the CUDA backend over: guard, hooks, allocator, generators (once; after `import torch`).
__attribute__((visibility("default"))) void kw_torch_install(void);
// Registers the operators (torch_bridge.cpp).
__attribute__((visibility("default"))) void kw_torch_register(void);
// cuda:0's default generator as a Python object (torch_python.cpp; a new reference; GIL).
__attribute__((visibility("default"))) void* kw_default_generator(void);
}
