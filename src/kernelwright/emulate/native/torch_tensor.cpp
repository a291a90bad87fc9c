// kw_torch.h: tensors through a C interface, for the facade headers.
//
// The rule: no exception leaves this file; each function catches what torch throws and keeps its message and Python
// class for kw_error_message() and kw_error_kind().
#include "torch_device.h"
#include "kw_runtime.h"
#include "kw_torch.h"

#include <ATen/AccumulateType.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Formatting.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <sstream>

#include "torch_value.h"

namespace kw {

thread_local std::string t_message;
thread_local const char* t_kind = nullptr;

void clear_error() { t_kind = nullptr; }
void set_error(const char* kind, std::string message) {
  t_kind = kind;
  t_message = std::move(message);
}

void keep_exception() {
  try {
    throw;
  } catch (const c10::IndexError& e) {
    set_error("IndexError", e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    set_error("ValueError", e.what_without_backtrace());
  } catch (const c10::TypeError& e) {
    set_error("TypeError", e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    set_error("NotImplementedError", e.what_without_backtrace());
  } catch (const c10::OutOfMemoryError& e) {
    set_error("OutOfMemoryError", e.what_without_backtrace());
  } catch (const c10::AcceleratorError& e) {
    set_error("AcceleratorError", e.what_without_backtrace());
  } catch (const c10::Error& e) {
    set_error("RuntimeError", e.what_without_backtrace());
  } catch (const std::exception& e) {
    set_error("RuntimeError", e.what());
  } catch (...) {
    set_error("RuntimeError", "unknown C++ exception");
  }
}

namespace {

at::TensorOptions options(int dtype, kw_device device) {
  at::TensorOptions made;
  if (dtype >= 0) made = made.dtype(at::ScalarType(dtype));
  if (device.type >= 0) made = made.device(c10::Device(c10::DeviceType(device.type), c10::DeviceIndex(device.index)));
  return made;
}

std::optional<at::MemoryFormat> format(int code) {
  return code >= 0 ? std::optional<at::MemoryFormat>(at::MemoryFormat(code)) : std::nullopt;
}

void check_dtype(const at::Tensor& t, int dtype) {
  TORCH_CHECK(dtype < 0 || t.scalar_type() == at::ScalarType(dtype), "expected scalar type ",
              c10::toString(at::ScalarType(dtype)), " but found ", c10::toString(t.scalar_type()));
}

struct LikeOp { const char* name; at::Tensor (*make)(const at::Tensor&, at::TensorOptions, std::optional<at::MemoryFormat>); };
const LikeOp kLike[] = {{"empty_like", &at::empty_like}, {"zeros_like", &at::zeros_like}, {"ones_like", &at::ones_like},
                        {"rand_like", [](const at::Tensor& t, at::TensorOptions o, std::optional<at::MemoryFormat> f) {
                           return at::rand_like(t, o, f); }},
                        {"randn_like", [](const at::Tensor& t, at::TensorOptions o, std::optional<at::MemoryFormat> f) {
                           return at::randn_like(t, o, f); }}};

}  // namespace
}  // namespace kw

using kw::get;
using kw::give;
using kw::guarded;
using kw::guarded_status;

const char* kw_error_message(void) { return kw::t_kind ? kw::t_message.c_str() : nullptr; }
const char* kw_error_kind(void) { return kw::t_kind ? kw::t_kind : ""; }
int kw_cuda_check(int code) { return guarded_status([&] { kw::check_error(code); }); }

kw_tensor kw_tensor_new_ref(kw_tensor t) { return t ? give(get(t)) : nullptr; }
void kw_tensor_release(kw_tensor t) { delete reinterpret_cast<at::Tensor*>(t); }
kw_tensor kw_tensor_device_twin(kw_tensor host, const char* name) {
  return guarded([&] { return kw::device_twin(get(host), name); });
}

int kw_tensor_resize_storage(kw_tensor t, int64_t bytes) {
  return guarded_status([&] { kw::resize_storage(get(t), bytes); });
}

int64_t kw_tensor_dim(kw_tensor t) { return get(t).dim(); }
const int64_t* kw_tensor_sizes(kw_tensor t) { return get(t).sizes().data(); }
const int64_t* kw_tensor_strides(kw_tensor t) { return get(t).strides().data(); }
int64_t kw_tensor_numel(kw_tensor t) { return get(t).numel(); }
int64_t kw_tensor_storage_offset(kw_tensor t) { return get(t).storage_offset(); }
int64_t kw_tensor_storage_bytes(kw_tensor t) { return int64_t(get(t).storage().nbytes()); }
int kw_tensor_dtype(kw_tensor t) { return int(get(t).scalar_type()); }
int64_t kw_tensor_element_size(kw_tensor t) { return int64_t(get(t).element_size()); }
kw_device kw_tensor_device(kw_tensor t) { return {int32_t(get(t).device().type()), int32_t(get(t).device().index())}; }
int kw_tensor_layout(kw_tensor t) { return int(get(t).layout()); }
int kw_tensor_is_contiguous(kw_tensor t, int f) { return get(t).is_contiguous(at::MemoryFormat(f)); }
int kw_tensor_is_same(kw_tensor a, kw_tensor b) { return get(a).is_same(get(b)); }
int kw_tensor_is_alias_of(kw_tensor a, kw_tensor b) { return get(a).is_alias_of(get(b)); }
int kw_tensor_requires_grad(kw_tensor t) { return get(t).requires_grad(); }
int kw_tensor_set_requires_grad(kw_tensor t, int on) {
  return guarded_status([&] { get(t).set_requires_grad(on != 0); });
}
kw_tensor kw_tensor_grad(kw_tensor t) { return guarded([&] { return get(t).grad(); }); }
int kw_tensor_is_leaf(kw_tensor t) { return get(t).is_leaf(); }
int kw_tensor_is_pinned(kw_tensor t) {
  int pinned = 0;
  guarded_status([&] { pinned = get(t).is_pinned(); });
  return pinned;
}

void* kw_tensor_data(kw_tensor t, int dtype, int is_const) {
  void* data = nullptr;
  guarded_status([&] {
    kw::check_dtype(get(t), dtype);
    data = is_const ? const_cast<void*>(get(t).const_data_ptr()) : get(t).mutable_data_ptr();
    const at::Tensor& tensor = get(t);
    if (tensor.is_cuda() && tensor.numel() > 0) {
      int64_t first = 0, last = 0;
      for (int64_t d = 0; d < tensor.dim(); d++) {
        int64_t reach = (tensor.size(d) - 1) * tensor.stride(d);
        (reach < 0 ? first : last) += reach;
      }
      int64_t bytes = int64_t(tensor.element_size());
      kw_view(data, uint64_t(-first * bytes), uint64_t((last + 1) * bytes));
    }
  });
  return data;
}

int kw_tensor_check_accessor(kw_tensor t, int dtype, int dims) {
  return guarded_status([&] {
    TORCH_CHECK(get(t).dim() == dims, "TensorAccessor expected ", dims, " dims but tensor has ", get(t).dim());
    kw::check_dtype(get(t), dtype);
  });
}

char* kw_tensor_text(kw_tensor t) {
  std::ostringstream text;
  if (guarded_status([&] { text << get(t); }) != 0) return nullptr;
  return strdup(text.str().c_str());
}

const char* kw_dtype_name(int dtype) { return c10::toString(at::ScalarType(dtype)); }
int64_t kw_dtype_bytes(int dtype) { return int64_t(c10::elementSize(at::ScalarType(dtype))); }
int kw_dtype_promote(int a, int b) { return int(c10::promoteTypes(at::ScalarType(a), at::ScalarType(b))); }
int kw_default_dtype(void) { return int(c10::get_default_dtype_as_scalartype()); }

kw_tensor kw_tensor_empty(const int64_t* sizes, int ndim, int dtype, kw_device device, int memory_format, int pinned) {
  return guarded([&] {
    auto wanted = kw::options(dtype, device);
    if (pinned) wanted = wanted.pinned_memory(true);
    return at::empty(at::IntArrayRef(sizes, size_t(ndim)), wanted, kw::format(memory_format));
  });
}
kw_tensor kw_tensor_empty_strided(const int64_t* sizes, const int64_t* strides, int ndim, int dtype, kw_device device) {
  return guarded([&] {
    return at::empty_strided(at::IntArrayRef(sizes, size_t(ndim)), at::IntArrayRef(strides, size_t(ndim)),
                             kw::options(dtype, device));
  });
}
kw_tensor kw_tensor_zeros(const int64_t* sizes, int ndim, int dtype, kw_device device) {
  return guarded([&] { return at::zeros(at::IntArrayRef(sizes, size_t(ndim)), kw::options(dtype, device)); });
}
kw_tensor kw_tensor_full(const int64_t* sizes, int ndim, double value, int dtype, kw_device device) {
  int wanted = dtype >= 0 ? dtype : kw_default_dtype();
  return guarded([&] { return at::full(at::IntArrayRef(sizes, size_t(ndim)), value, kw::options(wanted, device)); });
}
kw_tensor kw_tensor_like(const char* op, kw_tensor t, int dtype, kw_device device, int memory_format) {
  return guarded([&]() -> at::Tensor {
    for (const auto& like : kw::kLike)
      if (std::strcmp(like.name, op) == 0) return like.make(get(t), kw::options(dtype, device), kw::format(memory_format));
    TORCH_CHECK(false, "no operator ", op);
  });
}
kw_tensor kw_tensor_from_blob(void* data, const int64_t* sizes, const int64_t* strides, int ndim, int dtype,
                              kw_device device, void (*deleter)(void*), void* context) {
  return guarded([&] {
    auto maker = at::for_blob(data, at::IntArrayRef(sizes, size_t(ndim)));
    maker.options(kw::options(dtype, device));
    if (strides) maker.strides(at::IntArrayRef(strides, size_t(ndim)));
    if (deleter) maker.context(context, deleter);
    if (device.type >= 0) maker.target_device(kw::options(dtype, device).device());
    return maker.make_tensor();
  });
}
kw_tensor kw_tensor_from_host(const void* data, int64_t count, int dtype, kw_device device) {
  return guarded([&] {
    at::Tensor made = at::empty({count}, kw::options(dtype, {0, -1}));
    if (count) std::memcpy(made.mutable_data_ptr(), data, size_t(count) * made.element_size());
    return device.type > 0 ? made.to(kw::options(dtype, device)) : made;
  });
}

int kw_grad_mode(void) { return c10::GradMode::is_enabled(); }
void kw_set_grad_mode(int on) { c10::GradMode::set_enabled(on != 0); }
void* kw_below_autograd_enter(void) { return new at::AutoDispatchBelowADInplaceOrView; }
void kw_below_autograd_leave(void* guard) { delete static_cast<at::AutoDispatchBelowADInplaceOrView*>(guard); }
void* kw_inference_mode_enter(int on) { return new c10::InferenceMode(on != 0); }
void kw_inference_mode_leave(void* guard) { delete static_cast<c10::InferenceMode*>(guard); }

int kw_device_count(void) { return 1; }
int kw_current_device(void) { return 0; }
int kw_set_current_device(int index) { return guarded_status([&] { kw::check_device_index(index); }); }
void* kw_current_stream(int) { return reinterpret_cast<void*>(kw::current_stream()); }
void kw_set_current_stream(int, void* stream) { kw::set_current_stream(reinterpret_cast<uint64_t>(stream)); }
void* kw_stream_from_pool(int, int) { return reinterpret_cast<void*>(kw::stream_from_pool()); }
