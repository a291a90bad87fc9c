// Every PyTorch operator on the emulated cuda:0, by running its CPU kernel on the same bytes.
//
// Why: a candidate's host code and modules expect real CUDA tensors; device memory is host memory here, so a CPU tensor
// that shares a CUDA tensor's bytes is all that a CPU kernel needs. The rule: nothing is copied on the way in; what
// comes back is mapped to the tensors the caller gave (in-place, out=), to views of their storage, or to fresh device
// memory; and what a GPU would refuse (tensors on different devices) is refused in torch's words.
#include "torch_device.h"
#include "kw_runtime.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace kw {

void check_arguments(const c10::OperatorHandle& op, const std::vector<c10::IValue>& args);  // torch_checks.cpp

namespace {

using at::Tensor;
const c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

// A dtype as Python calls it; the C++ name where the table has none.
const char* dtype_name(at::ScalarType dtype) {
  static constexpr struct { at::ScalarType dtype; const char* name; } names[] = {
      {at::kByte, "uint8"}, {at::kChar, "int8"}, {at::kShort, "int16"}, {at::kInt, "int32"}, {at::kLong, "int64"},
      {at::kHalf, "float16"}, {at::kFloat, "float32"}, {at::kDouble, "float64"}, {at::kBool, "bool"},
      {at::kBFloat16, "bfloat16"}, {at::kComplexFloat, "complex64"}, {at::kComplexDouble, "complex128"},
      {at::kFloat8_e5m2, "float8_e5m2"}, {at::kFloat8_e4m3fn, "float8_e4m3fn"}};
  for (const auto& known : names)
    if (known.dtype == dtype) return known.name;
  return c10::toString(dtype);
}

void describe(const at::TensorBase& t) {
  if (t.storage().nbytes() == 0) return;
  kw_describe(const_cast<void*>(t.storage().data()), nullptr, dtype_name(t.scalar_type()), t.sizes().data(),
              int(std::min<int64_t>(t.dim(), 8)));
}

// ---- aliases ---------------------------------------------------------------------------------------------------

// The CPU twins of one call's CUDA tensors. Tensors that share a storage have twins that share one, so that overlap
// checks and views see what they would see on the device.
class Twins {
 public:
  Tensor host(const Tensor& t) {
    for (auto& pair : pairs_)
      if (pair.cuda.is_same(t)) return pair.host;
    Tensor twin = tensor(host_storage(t.storage()), t, c10::DispatchKey::CPU);
    pairs_.push_back({twin, t});
    return twin;
  }
  bool empty() const { return pairs_.empty(); }

  // After the kernel: what it did to sizes and storages of its arguments is done to the CUDA tensors.
  void write_back() {
    for (auto& s : storages_) {
      auto* cuda = s.cuda.unsafeGetStorageImpl();
      const void* now = s.host.unsafeGetStorageImpl()->data();
      if (now == s.data && s.host.nbytes() == cuda->nbytes()) continue;
      adopt_bytes(cuda, now, s.host.nbytes());
    }
    for (auto& pair : pairs_) {
      auto* cuda = pair.cuda.unsafeGetTensorImpl();
      auto* host = pair.host.unsafeGetTensorImpl();
      if (host->storage().unsafeGetStorageImpl() != host_storage(pair.cuda.storage()).unsafeGetStorageImpl())
        cuda->set_storage_keep_dtype(cuda_storage(host->storage()));
      if (!host->sizes().equals(cuda->sizes()) || !host->strides().equals(cuda->strides()) ||
          host->storage_offset() != cuda->storage_offset())
        cuda->set_sizes_and_strides(host->sizes(), host->strides(), host->storage_offset());
    }
  }

  // A result as the caller may see it.
  Tensor result(const Tensor& t) {
    if (!t.defined() || !t.device().is_cpu() || t.layout() != c10::kStrided) return t;
    for (auto& pair : pairs_)
      if (pair.host.is_same(t)) return pair.cuda;
    return tensor(cuda_storage(t.storage()), t, c10::DispatchKey::CUDA);
  }

 private:
  struct Pair { Tensor host, cuda; };
  struct Stores { c10::Storage host, cuda; const void* data; };
  std::vector<Pair> pairs_;
  std::vector<Stores> storages_;

  static Tensor tensor(const c10::Storage& storage, const Tensor& like, c10::DispatchKey key) {
    Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key),
                                                           like.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    if (like.is_conj()) made._set_conj(true);
    if (like.is_neg()) made._set_neg(true);
    if (like.unsafeGetTensorImpl()->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
    return made;
  }

  c10::Storage host_storage(const c10::Storage& cuda) {
    for (auto& s : storages_)
      if (s.cuda.unsafeGetStorageImpl() == cuda.unsafeGetStorageImpl()) return s.host;
    void* data = cuda.unsafeGetStorageImpl()->mutable_data();
    auto* keep = new c10::Storage(cuda);
    c10::DataPtr bytes(data, keep, [](void* k) { delete static_cast<c10::Storage*>(k); },
                       c10::Device(c10::DeviceType::CPU));
    c10::Storage host(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), cuda.nbytes(),
                                                            std::move(bytes), c10::GetCPUAllocator(), true));
    storages_.push_back({host, cuda, data});
    return host;
  }

  // The CUDA storage of a result: a twin's own, or new device memory with the bytes of what the kernel allocated.
  c10::Storage cuda_storage(const c10::Storage& host) {
    for (auto& s : storages_)
      if (s.host.unsafeGetStorageImpl() == host.unsafeGetStorageImpl()) return s.cuda;
    c10::Storage cuda(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                            device_allocator()->allocate(0), device_allocator(), true));
    adopt_bytes(cuda.unsafeGetStorageImpl(), host.unsafeGetStorageImpl()->data(), host.nbytes());
    storages_.push_back({host, cuda, host.unsafeGetStorageImpl()->data()});
    return cuda;
  }

  static void adopt_bytes(c10::StorageImpl* cuda, const void* from, size_t bytes) {
    c10::DataPtr memory = device_allocator()->allocate(bytes);
    if (bytes) std::memcpy(memory.get(), from, bytes);
    cuda->set_data_ptr_noswap(std::move(memory));
    cuda->set_nbytes(bytes);
  }
};

// ---- the operator that every operator falls back to ------------------------------------------------------------------

// Results that stay on the host.
bool stays_on_host(std::string_view name, size_t output) {
  return name == "aten::_pack_padded_sequence" && output == 1;
}

bool takes_generator(const c10::Argument& argument) {
  const auto& type = argument.type();
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  return type->kind() == c10::TypeKind::OptionalType &&
         type->castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  std::string_view name = schema.name();
  TORCH_CHECK_NOT_IMPLEMENTED(name.substr(0, 6) == "aten::" || name.substr(0, 7) == "prims::", "Could not run '",
      op.operator_name(), "' with arguments from the 'CUDA' backend: this operator has no CUDA implementation.");
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), "The emulated device cannot "
      "run '", op.operator_name(), "': PyTorch has it for GPUs only, so there is no CPU kernel to run instead.");
  size_t count = schema.arguments().size();
  std::vector<c10::IValue> args(stack->end() - count, stack->end());
  torch::jit::drop(*stack, count);
  check_arguments(op, args);

  Twins twins;
  bool to_host = false;
  auto twin = [&](const Tensor& t) { return t.defined() && t.is_cuda() ? twins.host(t) : t; };
  for (size_t i = 0; i < count; i++) {
    c10::IValue& arg = args[i];
    if (arg.isTensor()) {
      arg = twin(arg.toTensor());
    } else if (arg.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& t : arg.toTensorVector()) list.push_back(twin(t));
      arg = std::move(list);
    } else if (arg.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& t : arg.toOptionalTensorVector())
        list.push_back(t ? std::optional<Tensor>(twin(*t)) : std::nullopt);
      arg = std::move(list);
    } else if (arg.isDevice()) {
      if (arg.toDevice().is_cuda()) { check_device_index(arg.toDevice().index()); arg = c10::Device(c10::kCPU); }
      else to_host = arg.toDevice().is_cpu();
    } else if (arg.isGenerator()) {
      arg = host_generator(arg.toGenerator());
    } else if (arg.isNone() && takes_generator(schema.arguments()[i])) {
      arg = host_generator(default_generator());
    }
  }
  torch::jit::Stack inner(args.begin(), args.end());
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.callBoxed(inner);
  }
  twins.write_back();
  for (size_t i = 0; i < inner.size(); i++) {
    c10::IValue& out = inner[i];
    if (to_host || stays_on_host(name, i)) {
    } else if (out.isTensor()) {
      Tensor result = twins.result(out.toTensor());
      if (result.defined() && result.is_cuda() && result.layout() == c10::kStrided) describe(result);
      out = std::move(result);
    } else if (out.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& t : out.toTensorVector()) list.push_back(twins.result(t));
      out = std::move(list);
    }
    stack->push_back(std::move(out));
  }
}

// ---- operators that need no CPU kernel ----------------------------------------------------------------------------

void check_factory(std::optional<c10::Device> device, std::optional<c10::Layout> layout, std::optional<bool> pinned) {
  if (device) check_device_index(device->index());
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(c10::kStrided) == c10::kStrided,
                              "The emulated device holds dense tensors only");
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
             std::optional<at::Device> device, std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  check_factory(device, layout, pinned);
  auto made = at::detail::empty_generic(size, device_allocator(), kKeys, c10::dtype_or_default(dtype), format);
  describe(made);
  return made;
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pinned) {
  check_factory(device, layout, pinned);
  auto made = at::detail::empty_strided_generic(size, stride, device_allocator(), kKeys, c10::dtype_or_default(dtype));
  describe(made);
  return made;
}

// Host to device, device to host and on the device: where a fault of an earlier kernel shows, as on a GPU.
Tensor& copy_(Tensor& self, const Tensor& from, bool non_blocking) {
  check_sticky();
  Twins twins;
  Tensor to = self.is_cuda() ? twins.host(self) : self;
  to.copy_(from.is_cuda() ? twins.host(from) : from, non_blocking);
  return self;
}

at::Scalar local_scalar_dense(const Tensor& self) {
  check_sticky();
  Twins twins;
  return twins.host(self).item();
}

void record_stream(Tensor& self, c10::Stream) { TORCH_CHECK(self.is_cuda(), "record_stream needs a CUDA tensor"); }

const Tensor& resize_(const Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(self, size, format);
}

Tensor& set_storage(Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

Tensor& set_storage_whole(Tensor& self, at::Storage source) {
  int64_t count = int64_t(source.nbytes() / self.dtype().itemsize());
  return at::native::set_storage_cpu_(self, std::move(source), 0, {count}, {});
}

Tensor& set_empty(Tensor& self) {
  c10::Storage none(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                          device_allocator()->allocate(0), device_allocator(), true));
  return at::native::set_storage_cpu_(self, std::move(none), 0, {0}, {});
}

// torch asks a per-device table which attention to take: the one made of matmul and softmax.
int64_t attention_choice(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool,
                         std::optional<double>, bool) {
  return 0;  // at::SDPBackend::math
}

// Run whole on the host: composite operators that would choose a GPU-only kernel by the tensor's device, and losses whose
// out= form warns of a resize that their plain form does not make.
const char* const kWhole[] = {"convolution", "_convolution", "convolution_backward", "convolution_overrideable",
                              "convolution_backward_overrideable", "mse_loss", "smooth_l1_loss"};

// Questions whether a library of NVIDIA's would take the operator.
const char* const kAnsweredNo[] = {"_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor", "_use_miopen_ctc_loss",
                                   "_use_miopen_ctc_loss.Tensor"};

// A structured operator on the device: its sizes are worked out first, its results made in device memory, and then its
// out= form falls back. Taken without asking where torch has no CUDA kernel; asked for where it has one.
void run_structured(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional, *stack);
}

void answer_no(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->emplace_back(false);
}

struct Native { const char* name; torch::CppFunction function; };

std::vector<Native> natives() {
  std::vector<Native> list;
  list.push_back({"empty.memory_format", torch::CppFunction(&empty)});
  list.push_back({"empty_strided", torch::CppFunction(&empty_strided)});
  list.push_back({"copy_", torch::CppFunction(&copy_)});
  list.push_back({"_local_scalar_dense", torch::CppFunction(&local_scalar_dense)});
  list.push_back({"record_stream", torch::CppFunction(&record_stream)});
  list.push_back({"resize_", torch::CppFunction(&resize_)});
  list.push_back({"set_.source_Storage_storage_offset", torch::CppFunction(&set_storage)});
  list.push_back({"set_.source_Storage", torch::CppFunction(&set_storage_whole)});
  list.push_back({"set_", torch::CppFunction(&set_empty)});
  list.push_back({"set_.source_Tensor", torch::CppFunction(&at::native::set_tensor_)});
  list.push_back({"as_strided", torch::CppFunction(&at::native::as_strided_tensorimpl)});
  list.push_back({"view", torch::CppFunction(&at::native::view)});
  list.push_back({"_reshape_alias", torch::CppFunction(&at::native::_reshape_alias)});
  return list;
}

}  // namespace

void register_recurrent(torch::Library& aten);  // torch_rnn.cpp

// Registers everything. Where torch was built for CUDA its kernels are registered already: each is overridden, so that
// no operator reaches the CUDA library of a machine that has no GPU.
void register_operators() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  static auto* any = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  static std::vector<c10::RegistrationHandleRAII> overrides;
  auto& dispatcher = c10::Dispatcher::singleton();
  // Overriding is the point here; torch would warn of it once.
  struct Silent final : c10::WarningHandler { void process(const c10::Warning&) override {} } silent;
  c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  any->fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  std::unordered_set<std::string> own = {"aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_lstm_cell_backward_impl",
                                         "aten::_thnn_fused_gru_cell", "aten::_thnn_fused_gru_cell_backward"};
  register_recurrent(*aten);
  for (const char* name : kAnsweredNo) {
    own.insert(std::string("aten::") + name);
    aten->impl(name, torch::CppFunction::makeFromBoxedFunction<&answer_no>());
  }
  for (auto& native : natives()) {
    own.insert(std::string("aten::") + native.name);
    aten->impl(native.name, std::move(native.function));
  }
  auto override_by = [&](const c10::OperatorName& name, c10::KernelFunction kernel) {
    overrides.push_back(dispatcher.registerImpl(name, c10::DispatchKey::CUDA, kernel, std::nullopt, nullptr, "kernelwright"));
  };
  std::unordered_set<std::string> whole(std::begin(kWhole), std::end(kWhole));
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    std::string full = name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
    auto op = dispatcher.findOp(name);
    if (!op || own.count(full)) continue;
    bool registered = op->hasKernelForDispatchKey(c10::DispatchKey::CUDA);
    // Where a composite would do but the host has a kernel of its own, a GPU has one as well.
    bool composite = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
                     op->hasKernelForDispatchKey(c10::DispatchKey::CPU);
    bool structured = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    if (whole.count(name.name.substr(6)) || composite || (registered && !structured))
      override_by(name, c10::KernelFunction::makeFromBoxedFunction<&run_on_host>());
    else if (registered)
      override_by(name, c10::KernelFunction::makeFromBoxedFunction<&run_structured>());
  }
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&attention_choice);
}

// A CUDA tensor over a CPU tensor's memory, without a copy: what the worker's inputs are made of. The memory is known to
// the runtime under `name` for as long as the tensor (or a view of it) lives.
Tensor device_twin(const Tensor& host, const char* name) {
  TORCH_CHECK(host.device().is_cpu() && host.layout() == c10::kStrided, "expected a dense CPU tensor");
  void* data = host.storage().unsafeGetStorageImpl()->mutable_data();
  struct Keep { c10::Storage storage; void* data; };
  auto* keep = new Keep{host.storage(), data};
  c10::DataPtr bytes(data, keep, [](void* context) {
    auto* kept = static_cast<Keep*>(context);
    if (kept->data) kw_forget(kept->data);
    delete kept;
  }, c10::Device(kDevice, 0));
  if (data) {
    kw_forget(data);  // known as host memory until now, where torch allocated it here
    kw_adopt(data, host.storage().nbytes(), KW_GLOBAL, name ? name : "");
  }
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
      host.storage().nbytes(), std::move(bytes), device_allocator(), true));
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kKeys, host.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  describe(made);
  return made;
}

// UntypedStorage.resize_, which a torch without CUDA refuses for a cuda storage.
void resize_storage(const Tensor& of, int64_t bytes) {
  at::native::resize_bytes_cpu(of.storage().unsafeGetStorageImpl(), size_t(bytes));
}

}  // namespace kw

void kw_torch_register(void) {
  static std::once_flag once;
  std::call_once(once, [] { kw::register_operators(); });
}
