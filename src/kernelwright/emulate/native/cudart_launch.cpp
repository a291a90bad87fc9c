// Registration of an extension's kernels and variables, and their launches.
//
// Why: nvcc's host stubs call exactly these functions (nvcc 13: __cudaGetKernel and __cudaLaunchKernel; nvcc 12:
// cudaLaunchKernel). The rule: a module is handed to the emulator at its first use, and a launch that the limits forbid
// never reaches it.
#include "cudart_state.h"

#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace kw {
namespace {

struct ManagedVariable { Variable* variable; void** pointer; };

struct Registry {
  std::mutex lock;
  std::deque<Module> modules;  // deques: addresses stay valid
  std::deque<Kernel> kernels;
  std::deque<Variable> variables;
  std::deque<ManagedVariable> managed;
  std::unordered_map<const void*, Kernel*> by_stub;
  std::unordered_map<const void*, Variable*> by_variable;
};

// Made at its first use: an extension registers from static constructors that run before this file's own.
Registry& registry() {
  static auto* made = new Registry;
  return *made;
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  uint64_t host_pc;
};
// Never destroyed: exit() destroys a thread's own objects first, and handlers that it calls then still launch.
std::vector<Configuration>& configurations() {
  static thread_local auto* made = new std::vector<Configuration>;
  return *made;
}
thread_local uint64_t t_host_pc = 0;  // of the launch whose stub is running

// The wrapper nvcc embeds beside the fat binary (fatbinary_section.h).
struct FatbinWrapper { int32_t magic, version; const void* data; void* more; };
constexpr uint32_t kFatbinMagic = 0xBA55ED50;
struct FatbinHeader { uint32_t magic; uint16_t version, header_bytes; uint64_t bytes; };

uint64_t fatbin_bytes(const void* data) {
  const auto* header = static_cast<const FatbinHeader*>(data);
  if (header->magic == kFatbinMagic) return header->header_bytes + header->bytes;
  return std::char_traits<char>::length(static_cast<const char*>(data)) + 1;  // the text kw-ptx:<key>
}

}  // namespace

Kernel* find_kernel(const void* which) {
  Registry& r = registry();
  std::lock_guard<std::mutex> hold(r.lock);
  auto found = r.by_stub.find(which);
  if (found != r.by_stub.end()) return found->second;
  for (Kernel& kernel : r.kernels)
    if (&kernel == which) return &kernel;
  return nullptr;
}

Variable* find_variable(const void* host) {
  Registry& r = registry();
  std::lock_guard<std::mutex> hold(r.lock);
  auto found = r.by_variable.find(host);
  return found == r.by_variable.end() ? nullptr : found->second;
}

const char* module_key(Module* module) {
  const kw_callbacks* callbacks = kw_get_callbacks();
  if (module->key == nullptr && callbacks && callbacks->module_register)
    module->key = callbacks->module_register(module->fatbin, module->bytes);
  return module->key;
}

cudaError_t kernel_attributes(Kernel* kernel) {
  if (kernel->has_attributes) return cudaSuccess;
  const char* key = module_key(kernel->module);
  if (key == nullptr) return cudaErrorNoKernelImageForDevice;
  int error = kw_get_callbacks()->attributes(key, kernel->name, kernel->attributes);
  kernel->has_attributes = error == 0;
  return cudaError_t(error);
}

std::vector<Parameter> kernel_parameters(Kernel* kernel) {
  constexpr int kMost = 4096;  // bytes of parameters that a kernel may have, and so parameters
  std::vector<Parameter> made(kMost);
  const char* key = module_key(kernel->module);
  int count = key ? kw_get_callbacks()->parameters(key, kernel->name, &made[0].offset, kMost) : 0;
  made.resize(count > 0 ? size_t(count) : 0);
  return made;
}

cudaError_t variable_address(const Variable* variable, void** address, uint64_t* bytes) {
  if (variable == nullptr) return cudaErrorInvalidSymbol;
  const char* key = module_key(variable->module);
  if (key == nullptr) return cudaErrorNoKernelImageForDevice;
  return cudaError_t(kw_get_callbacks()->symbol(key, variable->name, address, bytes));
}

cudaError_t launch(const void* which, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream,
                          uint64_t host_pc, bool cooperative) {
  if (kw_sticky_error() != 0) return keep(cudaError_t(kw_sticky_error()));
  if (Capture* capture = capturing(stream))
    return capture_kernel(capture, stream, which, grid, block, args, shared, cooperative, host_pc);
  kw_launch made{};
  made.grid = {grid.x, grid.y, grid.z};
  made.block = {block.x, block.y, block.z};
  made.args = args;
  made.dynamic_shared = shared;
  made.stream = reinterpret_cast<uint64_t>(stream);
  made.host_pc = host_pc;
  made.cooperative = cooperative;
  made.kernel = made.module_key = "";
  Kernel* kernel = find_kernel(which);
  if (kernel == nullptr)
    return refuse(cudaErrorInvalidResourceHandle, "unexplained", "the launched function is no kernel of this module", &made);
  made.kernel = kernel->name;
  const char* key = module_key(kernel->module);
  made.module_key = key ? key : "";
  cudaError_t known = kernel_attributes(kernel);
  if (known != cudaSuccess)
    return refuse(known, "build.wrong-architecture", "the module holds no code for this kernel that the device can run", &made);
  Refusal refusal = check_launch(made, kernel, *kw_get_device());
  if (refusal.error != cudaSuccess) return refuse(refusal.error, refusal.cause, refusal.sentence, &made);
  return keep(cudaError_t(kw_get_callbacks()->launch(&made)));
}

}  // namespace kw

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  const auto* given = static_cast<const kw::FatbinWrapper*>(wrapper);
  kw::Registry& r = kw::registry();
  std::lock_guard<std::mutex> hold(r.lock);
  r.modules.push_back({given->data, kw::fatbin_bytes(given->data)});
  return reinterpret_cast<void**>(&r.modules.back());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** module, const char* stub, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  kw::Registry& r = kw::registry();
  std::lock_guard<std::mutex> hold(r.lock);
  r.kernels.push_back({reinterpret_cast<kw::Module*>(module), stub, name, {}});
  r.by_stub[stub] = &r.kernels.back();
}

void __cudaRegisterVar(void** module, char* host, char*, const char* name, int, size_t bytes, int, int) {
  kw::Registry& r = kw::registry();
  std::lock_guard<std::mutex> hold(r.lock);
  r.variables.push_back({reinterpret_cast<kw::Module*>(module), host, name, bytes});
  r.by_variable[host] = &r.variables.back();
}

void __cudaRegisterManagedVar(void** module, void** pointer, char*, const char* name, int, size_t bytes, int, int) {
  kw::Registry& r = kw::registry();
  std::lock_guard<std::mutex> hold(r.lock);
  r.variables.push_back({reinterpret_cast<kw::Module*>(module), pointer, name, bytes});
  r.by_variable[pointer] = &r.variables.back();
  r.managed.push_back({&r.variables.back(), pointer});
}

// Called before the host touches a __managed__ variable: its pointer must lead to the module's memory by then.
char __cudaInitModule(void** module) {
  for (auto& managed : kw::registry().managed) {
    void* address = nullptr;
    uint64_t bytes = 0;
    if (managed.variable->module != reinterpret_cast<kw::Module*>(module) || *managed.pointer != nullptr) continue;
    if (kw::variable_address(managed.variable, &address, &bytes) == cudaSuccess) *managed.pointer = address;
  }
  return 1;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  kw::configurations().push_back({grid, block, shared, stream, KW_CALLER});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (kw::configurations().empty()) return kw::keep(cudaErrorMissingConfiguration);
  const kw::Configuration& top = kw::configurations().back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  kw::t_host_pc = top.host_pc;
  kw::configurations().pop_back();
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* stub) {
  kw::Kernel* kernel = kw::find_kernel(stub);
  *handle = reinterpret_cast<cudaKernel_t>(kernel);
  return kernel ? cudaSuccess : kw::keep(cudaErrorInvalidResourceHandle);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  return kw::launch(kernel, grid, block, args, shared, stream, kw::t_host_pc, false);
}
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  return kw::launch(kernel, grid, block, args, shared, stream, kw::t_host_pc, false);
}

cudaError_t cudaGetKernel(cudaKernel_t* handle, const void* stub) { return __cudaGetKernel(handle, stub); }

cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  uint64_t from_stub = kw::t_host_pc;  // nvcc 12's stubs come through here after popping the configuration
  kw::t_host_pc = 0;
  return kw::launch(stub, grid, block, args, shared, stream, from_stub ? from_stub : KW_CALLER, false);
}

cudaError_t cudaLaunchCooperativeKernel(const void* stub, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  return kw::launch(stub, grid, block, args, shared, stream, KW_CALLER, true);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* stub, void** args) {
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; i++) {
    const cudaLaunchAttribute& a = config->attrs[i];
    if (a.id == cudaLaunchAttributeCooperative) cooperative = a.val.cooperative != 0;
    bool cluster = a.id == cudaLaunchAttributeClusterDimension &&
                   uint64_t(a.val.clusterDim.x) * a.val.clusterDim.y * a.val.clusterDim.z > 1;
    if (cluster)
      return kw::refuse(cudaErrorNotSupported, "unexplained", "the emulated device has no thread block clusters yet");
  }
  return kw::launch(stub, config->gridDim, config->blockDim, args, config->dynamicSmemBytes, config->stream, KW_CALLER, cooperative);
}

}  // extern "C"
