// torch:: and at:: functions: factories, and the free forms of the operators that wrappers use.
#pragma once
#include <kw_facade/tensor.h>

namespace at {
inline namespace kw {
inline Tensor with_grad(Tensor t, const TensorOptions& o) {
  if (o.requires_grad()) t.set_requires_grad(true);
  return t;
}
inline int format_number(const std::optional<MemoryFormat>& m) { return m ? static_cast<int>(*m) : -1; }
inline void need_strided(const TensorOptions& o) {
  TORCH_CHECK_NOT_IMPLEMENTED(o.kw_strided(), "the fast headers make strided tensors only");
}
inline int count(IntArrayRef s) { return static_cast<int>(s.size()); }

inline Tensor empty(IntArrayRef s, TensorOptions o = {}, std::optional<MemoryFormat> m = std::nullopt) {
  need_strided(o);
  auto format = m ? m : o.memory_format_opt();
  return with_grad(Tensor::kw_made(kw_tensor_empty(s.data(), count(s), o.kw_dtype(), o.kw_device_or(0), format_number(format), o.pinned_memory())), o);
}
inline Tensor empty_strided(IntArrayRef s, IntArrayRef st, TensorOptions o = {}) {
  need_strided(o);
  return with_grad(Tensor::kw_made(kw_tensor_empty_strided(s.data(), st.data(), count(s), o.kw_dtype(), o.kw_device_or(0))), o);
}
inline Tensor zeros(IntArrayRef s, TensorOptions o = {}) {
  need_strided(o);
  return with_grad(Tensor::kw_made(kw_tensor_zeros(s.data(), count(s), o.kw_dtype(), o.kw_device_or(0))), o);
}
#define KW_OPTIONS(o) Arg((o).dtype_opt()).named("dtype"), Arg((o).device_opt()).named("device")
inline Tensor ones(IntArrayRef s, TensorOptions o = {}) { need_strided(o); return with_grad(call("aten::ones", "", {s, KW_OPTIONS(o)}), o); }
inline Tensor full(IntArrayRef s, const Scalar& v, TensorOptions o = {}) { need_strided(o); return with_grad(call("aten::full", "", {s, v, KW_OPTIONS(o)}), o); }
inline Tensor rand(IntArrayRef s, TensorOptions o = {}) { need_strided(o); return with_grad(call("aten::rand", "", {s, KW_OPTIONS(o)}), o); }
inline Tensor randn(IntArrayRef s, TensorOptions o = {}) { need_strided(o); return with_grad(call("aten::randn", "", {s, KW_OPTIONS(o)}), o); }
inline Tensor eye(int64_t n, TensorOptions o = {}) { return with_grad(call("aten::eye", "", {n, KW_OPTIONS(o)}), o); }
inline Tensor arange(const Scalar& end, TensorOptions o = {}) { return with_grad(call("aten::arange", "", {end, KW_OPTIONS(o)}), o); }
inline Tensor arange(const Scalar& start, const Scalar& end, TensorOptions o = {}) { return with_grad(call("aten::arange", "start", {start, end, KW_OPTIONS(o)}), o); }
inline Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, TensorOptions o = {}) { return with_grad(call("aten::arange", "start_step", {start, end, step, KW_OPTIONS(o)}), o); }
inline Tensor like(const char* op, const Tensor& t, const TensorOptions& o, std::optional<MemoryFormat> m) {
  if (!t.defined()) throw c10::Error(std::string(op) + "(): argument 'input' must be a defined tensor");
  auto format = m ? m : o.memory_format_opt();
  return with_grad(Tensor::kw_made(kw_tensor_like(op, t.kw_handle(), o.kw_dtype(), o.kw_device_or(-1), format_number(format))), o);
}
#define KW_LIKE(name)                                                                                                \
  inline Tensor name(const Tensor& t, TensorOptions o = {}, std::optional<MemoryFormat> m = std::nullopt) { return like(#name, t, o, m); }
KW_LIKE(empty_like) KW_LIKE(zeros_like) KW_LIKE(ones_like) KW_LIKE(rand_like) KW_LIKE(randn_like)
#undef KW_LIKE
inline Tensor full_like(const Tensor& t, const Scalar& v, TensorOptions o = {}) { return with_grad(call("aten::full_like", "", {t, v, KW_OPTIONS(o)}), o); }
#undef KW_OPTIONS
inline Tensor scalar_tensor(const Scalar& v, TensorOptions o = {}) { return full(IntArrayRef(), v, o.has_dtype() ? o : o.dtype(static_cast<ScalarType>(kw_default_dtype()))); }

template <typename D>
struct BlobDeleter {
  D deleter;
  void* data;
  static void run(void* self) {
    auto* d = static_cast<BlobDeleter*>(self);
    d->deleter(d->data);
    delete d;
  }
};
inline Tensor from_blob(void* data, IntArrayRef s, TensorOptions o = {}) {
  return Tensor::kw_made(kw_tensor_from_blob(data, s.data(), nullptr, count(s), o.kw_dtype(), o.kw_device_or(0), nullptr, nullptr));
}
inline Tensor from_blob(void* data, IntArrayRef s, IntArrayRef st, TensorOptions o = {}) {
  return Tensor::kw_made(kw_tensor_from_blob(data, s.data(), st.data(), count(s), o.kw_dtype(), o.kw_device_or(0), nullptr, nullptr));
}
template <typename D, std::enable_if_t<std::is_invocable_v<D, void*>, int> = 0>
Tensor from_blob(void* data, IntArrayRef s, D deleter, TensorOptions o = {}) {
  using B = BlobDeleter<D>;
  return Tensor::kw_made(kw_tensor_from_blob(data, s.data(), nullptr, count(s), o.kw_dtype(), o.kw_device_or(0), &B::run, new B{deleter, data}));
}

#define KW_F1(name) inline Tensor name(const Tensor& a) { return a.name(); }
KW_F1(abs) KW_F1(neg) KW_F1(exp) KW_F1(log) KW_F1(sqrt) KW_F1(rsqrt) KW_F1(sin) KW_F1(cos) KW_F1(tanh) KW_F1(sigmoid) KW_F1(relu)
KW_F1(square) KW_F1(erf) KW_F1(sign) KW_F1(isnan) KW_F1(max) KW_F1(min) KW_F1(floor) KW_F1(ceil) KW_F1(reciprocal) KW_F1(clone)
#undef KW_F1
#define KW_F2(name) inline Tensor name(const Tensor& a, const Tensor& b) { return a.name(b); }
KW_F2(matmul) KW_F2(mm) KW_F2(bmm) KW_F2(mv) KW_F2(dot) KW_F2(maximum) KW_F2(minimum) KW_F2(mul) KW_F2(div) KW_F2(pow)
#undef KW_F2
inline Tensor add(const Tensor& a, const Tensor& b, const Scalar& alpha = 1) { return a.add(b, alpha); }
inline Tensor add(const Tensor& a, const Scalar& b, const Scalar& alpha = 1) { return a.add(b, alpha); }
inline Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha = 1) { return a.sub(b, alpha); }
inline Tensor mul(const Tensor& a, const Scalar& b) { return a.mul(b); }
inline Tensor div(const Tensor& a, const Scalar& b) { return a.div(b); }
inline Tensor pow(const Tensor& a, const Scalar& b) { return a.pow(b); }
inline Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta = 1, const Scalar& alpha = 1) { return c.addmm(a, b, beta, alpha); }
inline Tensor sum(const Tensor& a, std::optional<ScalarType> t = std::nullopt) { return a.sum(t); }
inline Tensor sum(const Tensor& a, OptionalIntArrayRef d, bool keep = false, std::optional<ScalarType> t = std::nullopt) { return a.sum(d, keep, t); }
inline Tensor mean(const Tensor& a, std::optional<ScalarType> t = std::nullopt) { return a.mean(t); }
inline Tensor mean(const Tensor& a, OptionalIntArrayRef d, bool keep = false, std::optional<ScalarType> t = std::nullopt) { return a.mean(d, keep, t); }
inline std::tuple<Tensor, Tensor> max(const Tensor& a, int64_t d, bool keep = false) { return a.max(d, keep); }
inline std::tuple<Tensor, Tensor> min(const Tensor& a, int64_t d, bool keep = false) { return a.min(d, keep); }
inline Tensor amax(const Tensor& a, IntArrayRef d = {}, bool keep = false) { return a.amax(d, keep); }
inline Tensor softmax(const Tensor& a, int64_t d, std::optional<ScalarType> t = std::nullopt) { return a.softmax(d, t); }
inline Tensor clamp(const Tensor& a, const std::optional<Scalar>& lo, const std::optional<Scalar>& hi = std::nullopt) { return a.clamp(lo, hi); }
inline Tensor where(const Tensor& c, const Tensor& a, const Tensor& b) { return call("aten::where", "self", {c, a, b}); }
inline Tensor cat(TensorList l, int64_t d = 0) { return call("aten::cat", "", {l, d}); }
inline Tensor stack(TensorList l, int64_t d = 0) { return call("aten::stack", "", {l, d}); }
inline Tensor linear(const Tensor& x, const Tensor& w, const std::optional<Tensor>& b = {}) { return call("aten::linear", "", {x, w, b}); }
inline Tensor gelu(const Tensor& x, std::string_view approximate = "none") { return call("aten::gelu", "", {x, Arg(approximate).named("approximate")}); }
inline Tensor silu(const Tensor& x) { return call("aten::silu", "", {x}); }
inline Tensor cumsum(const Tensor& x, int64_t d, std::optional<ScalarType> t = std::nullopt) { return x.cumsum(d, t); }
inline Tensor transpose(const Tensor& x, int64_t a, int64_t b) { return x.transpose(a, b); }
inline Tensor reshape(const Tensor& x, IntArrayRef s) { return x.reshape(s); }
inline Tensor unsqueeze(const Tensor& x, int64_t d) { return x.unsqueeze(d); }
inline Tensor flatten(const Tensor& x, int64_t a = 0, int64_t b = -1) { return x.flatten(a, b); }
inline Tensor& add_out(Tensor& out, const Tensor& a, const Tensor& b, const Scalar& alpha = 1) { call("aten::add", "out", {a, b, Arg(alpha).named("alpha"), Arg(out).named("out")}); return out; }
inline Tensor& mm_out(Tensor& out, const Tensor& a, const Tensor& b) { call("aten::mm", "out", {a, b, Arg(out).named("out")}); return out; }
inline Tensor& matmul_out(Tensor& out, const Tensor& a, const Tensor& b) { call("aten::matmul", "out", {a, b, Arg(out).named("out")}); return out; }
inline bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-05, double atol = 1e-08, bool equal_nan = false) { return a.allclose(b, rtol, atol, equal_nan); }
inline bool equal(const Tensor& a, const Tensor& b) { return a.equal(b); }
inline ScalarType result_type(const Tensor& a, const Tensor& b) { return static_cast<ScalarType>(Results("aten::result_type", "Tensor", {a, b}).values[0].as.integer); }

struct GradMode {
  static bool is_enabled() { return kw_grad_mode(); }
  static void set_enabled(bool on) { kw_set_grad_mode(on); }
};
struct AutoGradMode {
  explicit AutoGradMode(bool on) : before(kw_grad_mode()) { kw_set_grad_mode(on); }
  ~AutoGradMode() { kw_set_grad_mode(before); }
  bool before;
};
struct NoGradGuard : AutoGradMode {
  NoGradGuard() : AutoGradMode(false) {}
};
struct AutoDispatchBelowADInplaceOrView {
  AutoDispatchBelowADInplaceOrView() : token(kw_below_autograd_enter()) {}
  ~AutoDispatchBelowADInplaceOrView() { kw_below_autograd_leave(token); }
  void* token;
};
}  // namespace kw
}  // namespace at
namespace c10 {
inline namespace kw {
struct InferenceMode {
  explicit InferenceMode(bool on = true) : token(kw_inference_mode_enter(on)) {}
  ~InferenceMode() { kw_inference_mode_leave(token); }
  void* token;
};
}  // namespace kw
}  // namespace c10
namespace torch {
inline namespace kw {
using at::AutoGradMode;
using at::GradMode;
using at::NoGradGuard;
// torch::tensor(1.5f), torch::tensor({1, 2, 3}): element type from C++, floating ones take the default dtype.
template <typename T>
at::Tensor kw_tensor_of(const T* data, size_t n, at::TensorOptions o) {
  auto made = at::Tensor::kw_made(::kw_tensor_from_host(data, static_cast<int64_t>(n), static_cast<int>(c10::CppTypeToScalarType<T>::value), ::kw_device{0, -1}));
  auto want = o.has_dtype() ? o : std::is_floating_point_v<T> ? o.dtype(static_cast<at::ScalarType>(kw_default_dtype())) : std::is_same_v<T, bool> ? o : o.dtype(at::kLong);
  auto result = made.to(want);
  if (o.requires_grad()) result.set_requires_grad(true);
  return result;
}
template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
at::Tensor tensor(T v, at::TensorOptions o = {}) { return kw_tensor_of(&v, 1, o).reshape({}); }
template <typename T>
at::Tensor tensor(std::initializer_list<T> l, at::TensorOptions o = {}) { return kw_tensor_of(l.begin(), l.size(), o); }
template <typename T>
at::Tensor tensor(at::ArrayRef<T> l, at::TensorOptions o = {}) { return kw_tensor_of(l.data(), l.size(), o); }
template <typename T>
at::Tensor tensor(const std::vector<T>& l, at::TensorOptions o = {}) { return kw_tensor_of(l.data(), l.size(), o); }
}  // namespace kw
}  // namespace torch
