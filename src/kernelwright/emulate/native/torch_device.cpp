// The emulated cuda:0 as torch's core sees it: allocators, generators, device guard and CUDA hooks.
//
// Why: torch asks these four for everything that is not an operator (is there a device, which stream is current, what
// memory is pinned, may the autograd engine start a thread for it). The rule: they replace whatever is registered, so
// that a torch built for CUDA on a machine without a GPU and a torch built without CUDA behave alike.
#include "torch_device.h"
#include "kw_runtime.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <sstream>

namespace kw {
namespace {

std::string human(double bytes) {
  static const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) bytes /= 1024, unit++;
  std::ostringstream text;
  text.precision(2);
  text << std::fixed << bytes << " " << units[unit];
  return text.str();
}

class Memory final : public c10::Allocator {
 public:
  Memory(int kind, c10::Device device) : kind_(kind), device_(device) {}
  static void free_memory(void* base) { kw_free(base); }
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_memory, device_};
    void* base = kw_alloc(bytes, kind_, "");
    if (base == nullptr) out_of_memory(bytes);
    return {base, base, &free_memory, device_};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
  [[noreturn]] void out_of_memory(size_t bytes) {
    const kw_device_properties* device = kw_get_device();
    double total = device ? double(device->total_memory) : 0, used = double(kw_bytes_in_use());
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", human(double(bytes)),
                     ". GPU 0 has a total capacity of ", human(total), " of which ",
                     human(total > used ? total - used : 0), " is free. Of the allocated memory ", human(used),
                     " is allocated by PyTorch. (The emulated device holds at most what this process may take.)");
    abort();
  }
  int kind_;
  c10::Device device_;
};

// The host allocator that torch had, with every allocation told to the runtime, so that a kernel that is handed a CPU
// tensor's memory is told whose it is. Relies on the wrapped allocator using the data pointer as its context, which
// raw_deleter() != nullptr promises.
class WatchedHost final : public c10::Allocator {
 public:
  static inline c10::Allocator* inner = nullptr;
  static inline c10::DeleterFnPtr inner_free = nullptr;
  static void free_memory(void* base) {
    if (base == nullptr) return;
    kw_forget(base);
    inner_free(base);
  }
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = inner->allocate(bytes);
    void* base = memory.get();
    if (bytes == 0 || base == nullptr || memory.get_context() != base) return memory;
    memory.release_context();
    kw_adopt(base, bytes, KW_HOST, "");
    return {base, base, &free_memory, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override { inner->copy_data(to, from, bytes); }
};

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(at::Generator inner)
      : c10::GeneratorImpl(c10::Device(kDevice, 0), c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        inner(std::move(inner)) {}
  at::Generator inner;
  void set_current_seed(uint64_t seed) override { inner.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return inner.current_seed(); }
  uint64_t seed() override { return const_cast<at::Generator&>(inner).seed(); }
  void set_state(const c10::TensorImpl& state) override { impl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return impl()->get_state(); }

 private:
  c10::GeneratorImpl* impl() const { return inner.unsafeGetGeneratorImpl(); }
  Generator* clone_impl() const override { return new Generator(inner.clone()); }
  uint64_t offset_ = 0;
};

thread_local uint64_t t_stream = 0;
std::atomic<uint64_t> g_pool{0};
constexpr uint64_t kPoolBase = 0x4b570000;  // "KW": recognisable, never dereferenced
constexpr uint64_t kPoolSize = 32;          // as torch's own pool: handles come round again

struct Event {
  std::chrono::steady_clock::time_point at;
};

// Work is done when a launch returns, so events need only remember the time, and waiting waits for nothing.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device d) const override {
    check_device_index(d.index());
    return {kDevice, 0};
  }
  c10::Device getDevice() const override { return {kDevice, 0}; }
  void setDevice(c10::Device d) const override { check_device_index(d.index()); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override { return stream(t_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(stream_from_pool()); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(stream_from_pool()); }
  c10::Stream exchangeStream(c10::Stream next) const noexcept override {
    c10::Stream before = stream(t_stream);
    t_stream = uint64_t(next.id());
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream s) const { return reinterpret_cast<void*>(s.id()); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->at = std::chrono::steady_clock::now();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { check_sticky(); }
  void synchronizeEvent(void*) const override { check_sticky(); }
  void synchronizeDevice(const c10::DeviceIndex) const { check_sticky(); }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    TORCH_CHECK(from && to, "Both events must be recorded before calculating elapsed time.");
    std::chrono::duration<double, std::milli> passed = static_cast<Event*>(to)->at - static_cast<Event*>(from)->at;
    return passed.count();
  }

 private:
  static c10::Stream stream(uint64_t handle) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, 0), c10::StreamId(handle));
  }
};

// No cuDNN, MAGMA or cuBLASLt: what torch would give those is run by the CPU kernels instead. Members of hooks that
// only some torch versions have are written without `override`.
struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return new_generator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    kw_allocation found;
    bool ours = kw_find(reinterpret_cast<uint64_t>(data), &found) == 1 && found.kind != KW_HOST;
    TORCH_CHECK(ours, "The specified pointer resides on host memory and is not registered with any CUDA device.");
    return {kDevice, 0};
  }
  bool isPinnedPtr(const void* data) const override {
    kw_allocation found;
    return data && kw_find(reinterpret_cast<uint64_t>(data), &found) == 1 && found.kind == KW_PINNED;
  }
  bool isBuilt() const { return true; }
  bool isAvailable() const { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const { return 1; }
  void setCurrentDevice(c10::DeviceIndex index) const { check_device_index(index); }
  c10::DeviceIndex getCurrentDevice() const { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const {
    check_device_index(index);
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const { return 0; }
  c10::DeviceIndex current_device() const { return 0; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Allocator* getCUDADeviceAllocator() const { return device_allocator(); }
  long versionCUDART() const { return 13000; }
  std::string showConfig() const { return "  - CUDA Runtime 13.0 (Kernelwright's emulated device)\n"; }
  int getNumGPUs() const override { return 1; }
  void deviceSynchronize(c10::DeviceIndex) const { check_sticky(); }
};

}  // namespace

c10::Allocator* device_allocator() {
  static auto* memory = new Memory(KW_GLOBAL, c10::Device(kDevice, 0));
  return memory;
}

c10::Allocator* pinned_allocator() {
  static auto* memory = new Memory(KW_PINNED, c10::Device(c10::DeviceType::CPU));
  return memory;
}

at::Generator new_generator() { return at::make_generator<Generator>(at::detail::createCPUGenerator()); }

const at::Generator& default_generator() {
  static auto* generator = new at::Generator(new_generator());
  return *generator;
}

at::Generator host_generator(const at::Generator& generator) {
  auto* ours = dynamic_cast<Generator*>(generator.unsafeGetGeneratorImpl());
  return ours ? ours->inner : generator;
}

uint64_t current_stream() { return t_stream; }
void set_current_stream(uint64_t handle) { t_stream = handle; }
uint64_t stream_from_pool() { return kPoolBase + 16 * (1 + g_pool++ % kPoolSize); }

void check_sticky() { check_error(kw_sticky_error()); }
void check_device_index(int index) {
  constexpr int invalid_device = 101;  // cudaErrorInvalidDevice
  check_error(index == 0 || index == -1 ? 0 : invalid_device);
}

}  // namespace kw

int* kw_last_error_slot(void) {
  static thread_local int last = 0;
  return &last;
}

void kw_watch_host_memory(void) {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::Allocator* inner = c10::GetAllocator(c10::DeviceType::CPU);
    if (inner->raw_deleter() == nullptr) return;
    kw::WatchedHost::inner = inner;
    kw::WatchedHost::inner_free = inner->raw_deleter();
    c10::SetAllocator(c10::DeviceType::CPU, new kw::WatchedHost, 255);
  });
}

void kw_torch_install(void) {
  static std::once_flag once;
  std::call_once(once, [] {
    static_assert(sizeof(kw::Hooks) == sizeof(at::CUDAHooksInterface), "the hooks are replaced in place");
    // torch made its hooks object while it was imported, and hands out references to it: ours takes its place.
    auto& hooks = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
    new (static_cast<void*>(&hooks)) kw::Hooks(at::CUDAHooksArgs{});
    static c10::impl::DeviceGuardImplRegistrar guard(kw::kDevice, new kw::Guard);
    c10::SetAllocator(kw::kDevice, kw::device_allocator(), 255);
  });
}
