// at::Tensor: one owned reference to a real tensor, with torch's own names for what can be asked of it.
#pragma once
#include <kw_facade/accessor.h>
#include <kw_facade/call.h>

namespace at {
inline namespace kw {
enum Reduction { None_, Mean, Sum };

// What Tensor::type() gives since ATen lost its Type: convertible to no ScalarType, so AT_DISPATCH_* refuses it here too.
class DeprecatedTypeProperties {
 public:
  DeprecatedTypeProperties(Device d, ScalarType t) : device_(d), type_(t) {}
  bool is_cuda() const { return device_.is_cuda(); }
  ScalarType scalarType() const { return type_; }
  DeviceType device_type() const { return device_.type(); }
  bool operator==(const DeprecatedTypeProperties& o) const { return device_.type() == o.device_.type() && type_ == o.type_; }
  bool operator!=(const DeprecatedTypeProperties& o) const { return !(*this == o); }

 private:
  Device device_;
  ScalarType type_;
};

class TensorBase {
 public:
  TensorBase() = default;
  TensorBase(const TensorBase& o) : h_(kw_tensor_new_ref(o.h_)) {}
  TensorBase(TensorBase&& o) noexcept : h_(o.h_) { o.h_ = nullptr; }
  TensorBase& operator=(const TensorBase& o) & {
    kw_tensor fresh = kw_tensor_new_ref(o.h_);
    if (h_) kw_tensor_release(h_);
    h_ = fresh;
    return *this;
  }
  TensorBase& operator=(TensorBase&& o) & noexcept { std::swap(h_, o.h_); return *this; }
  ~TensorBase() { if (h_) kw_tensor_release(h_); }

  kw_tensor kw_handle() const { return h_; }
  bool defined() const { return h_ != nullptr; }
  void reset() { *this = TensorBase(); }
  int64_t dim() const { return kw_tensor_dim(need()); }
  int64_t ndimension() const { return dim(); }
  IntArrayRef sizes() const { return {kw_tensor_sizes(need()), static_cast<size_t>(kw_tensor_dim(h_))}; }
  IntArrayRef strides() const { return {kw_tensor_strides(need()), static_cast<size_t>(kw_tensor_dim(h_))}; }
  int64_t size(int64_t d) const { return sizes()[wrap(d)]; }
  int64_t stride(int64_t d) const { return strides()[wrap(d)]; }
  int64_t numel() const { return kw_tensor_numel(need()); }
  size_t nbytes() const { return static_cast<size_t>(numel() * element_size()); }
  int64_t element_size() const { return kw_tensor_element_size(need()); }
  size_t itemsize() const { return static_cast<size_t>(element_size()); }
  int64_t storage_offset() const { return kw_tensor_storage_offset(need()); }
  ScalarType scalar_type() const { return static_cast<ScalarType>(kw_tensor_dtype(need())); }
  TypeMeta dtype() const { return TypeMeta(scalar_type()); }
  Device device() const {
    kw_device d = kw_tensor_device(need());
    return {static_cast<DeviceType>(d.type), static_cast<DeviceIndex>(d.index)};
  }
  int64_t get_device() const { return kw_tensor_device(need()).index; }
  Layout layout() const { return static_cast<Layout>(kw_tensor_layout(need())); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_meta() const { return device().is_meta(); }
  bool is_sparse() const { return kw_tensor_layout(need()) == 1; }
  bool is_contiguous(MemoryFormat m = MemoryFormat::Contiguous) const {
    return kw_tensor_is_contiguous(need(), static_cast<int>(m));
  }
  bool is_non_overlapping_and_dense() const;
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  bool is_complex() const { return isComplexType(scalar_type()); }
  bool is_same(const TensorBase& o) const { return kw_tensor_is_same(h_, o.h_); }
  bool is_alias_of(const TensorBase& o) const { return kw_tensor_is_alias_of(h_, o.h_); }
  bool is_pinned() const { return kw_tensor_is_pinned(need()); }
  bool requires_grad() const { return kw_tensor_requires_grad(need()); }
  bool is_leaf() const { return kw_tensor_is_leaf(need()); }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()).layout(layout()); }
  MemoryFormat suggest_memory_format() const;
  std::string toString() const;

  void* data_ptr() const { return pointer(-1, 0); }
  void* mutable_data_ptr() const { return pointer(-1, 0); }
  const void* const_data_ptr() const { return pointer(-1, 1); }
  // Declared for every T and defined for torch's element types only, as in libtorch: data_ptr<__half> does not link.
  template <typename T>
  T* data_ptr() const;
  template <typename T>
  T* mutable_data_ptr() const;
  template <typename T, std::enable_if_t<!std::is_const_v<T>, int> = 0>
  const T* const_data_ptr() const;
  template <typename T, std::enable_if_t<std::is_const_v<T>, int> = 0>
  const std::remove_const_t<T>* const_data_ptr() const { return const_data_ptr<std::remove_const_t<T>>(); }

  template <typename T, size_t N>
  TensorAccessor<T, N> accessor() const& {
    check_accessor<T, N>();
    return TensorAccessor<T, N>(data_for<T>(), sizes().data(), strides().data());
  }
  template <typename T, size_t N>
  TensorAccessor<T, N> accessor() && = delete;
  template <typename T, size_t N, template <typename U> class P = DefaultPtrTraits, typename I = int64_t>
  GenericPackedTensorAccessor<T, N, P, I> generic_packed_accessor() const& {
    check_accessor<T, N>();
    return GenericPackedTensorAccessor<T, N, P, I>(data_for<T>(), sizes().data(), strides().data());
  }
  template <typename T, size_t N, template <typename U> class P = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, P> packed_accessor32() const& {
    KW_CHECK(c10::Error, numel() <= static_cast<int64_t>(std::numeric_limits<int32_t>::max()),
             "numel needs to be smaller than int32_t max; otherwise, please use packed_accessor64");
    return generic_packed_accessor<T, N, P, int32_t>();
  }
  template <typename T, size_t N, template <typename U> class P = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, P> packed_accessor32() && = delete;
  template <typename T, size_t N, template <typename U> class P = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, P> packed_accessor64() const& { return generic_packed_accessor<T, N, P, int64_t>(); }
  template <typename T, size_t N, template <typename U> class P = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, P> packed_accessor64() && = delete;

 protected:
  kw_tensor h_ = nullptr;
  kw_tensor need() const {
    if (!h_) kw_undefined();
    return h_;
  }
  [[noreturn]] static void kw_undefined();
  size_t wrap(int64_t d) const;
  void* pointer(int dtype, int is_const) const;
  template <typename T>
  T* data_for() const {
    if constexpr (std::is_const_v<T>) return const_data_ptr<std::remove_const_t<T>>();
    else return mutable_data_ptr<T>();
  }
  template <typename T, size_t N>
  void check_accessor() const {
    static_assert(N > 0, "accessor is used for indexing tensor, for scalars use *data_ptr<T>()");
    if (kw_tensor_check_accessor(need(), -1, static_cast<int>(N))) c10::kw_throw();
  }
};
#define KW_DATA(T, name, number)                                                                                     \
  template <> inline T* TensorBase::data_ptr<T>() const { return static_cast<T*>(pointer(number, 0)); }              \
  template <> inline T* TensorBase::mutable_data_ptr<T>() const { return static_cast<T*>(pointer(number, 0)); }      \
  template <> inline const T* TensorBase::const_data_ptr<T>() const { return static_cast<const T*>(pointer(number, 1)); }
KW_FORALL_REAL(KW_DATA)
#undef KW_DATA

class Tensor : public TensorBase {
 public:
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  explicit Tensor(const TensorBase& b) : TensorBase(b) {}
  // Takes over one reference.
  static Tensor kw_take(kw_tensor h) { Tensor t; t.h_ = h; return t; }
  static void kw_check();  // throws what the last call left behind, if anything
  static Tensor kw_made(kw_tensor h) {
    if (!h) kw_check();
    return kw_take(h);
  }
  Tensor& operator=(const Tensor& o) & { TensorBase::operator=(o); return *this; }
  Tensor& operator=(Tensor&& o) & noexcept { TensorBase::operator=(std::move(o)); return *this; }
  Tensor& operator=(const Tensor& o) && { return copy_(o); }
  Tensor& operator=(const Scalar& v) && { return fill_(v); }

  // In place: the operator works on this very tensor.
#define KW_INPLACE0(name) Tensor& name() const { return done(call("aten::" #name, "", {*this})); }
#define KW_UNARY(name) Tensor name() const { return call("aten::" #name, "", {*this}); } KW_INPLACE0(name##_)
#define KW_BINARY(name)                                                                                    \
  Tensor name(const Tensor& o) const { return call("aten::" #name, "Tensor", {*this, o}); }                \
  Tensor name(const Scalar& o) const { return call("aten::" #name, "Scalar", {*this, o}); }
#define KW_BINARY_(name)                                                                                   \
  Tensor& name(const Tensor& o) const { return done(call("aten::" #name, "Tensor", {*this, o})); }         \
  Tensor& name(const Scalar& o) const { return done(call("aten::" #name, "Scalar", {*this, o})); }
  KW_UNARY(abs) KW_UNARY(neg) KW_UNARY(exp) KW_UNARY(log) KW_UNARY(log2) KW_UNARY(log1p) KW_UNARY(expm1) KW_UNARY(sqrt)
  KW_UNARY(rsqrt) KW_UNARY(sin) KW_UNARY(cos) KW_UNARY(tan) KW_UNARY(tanh) KW_UNARY(sigmoid) KW_UNARY(relu) KW_UNARY(ceil)
  KW_UNARY(floor) KW_UNARY(trunc) KW_UNARY(reciprocal) KW_UNARY(square) KW_UNARY(erf) KW_UNARY(sign)
  KW_UNARY(logical_not) KW_UNARY(bitwise_not)
  KW_BINARY(mul) KW_BINARY(div) KW_BINARY(remainder) KW_BINARY(fmod) KW_BINARY(eq) KW_BINARY(ne) KW_BINARY(lt) KW_BINARY(le)
  KW_BINARY(gt) KW_BINARY(ge) KW_BINARY(bitwise_and) KW_BINARY(bitwise_or) KW_BINARY(bitwise_xor)
  KW_BINARY_(mul_) KW_BINARY_(div_)
  Tensor pow(const Tensor& e) const { return call("aten::pow", "Tensor_Tensor", {*this, e}); }
  Tensor pow(const Scalar& e) const { return call("aten::pow", "Tensor_Scalar", {*this, e}); }
  Tensor add(const Tensor& o, const Scalar& alpha = 1) const { return call("aten::add", "Tensor", {*this, o, Arg(alpha).named("alpha")}); }
  Tensor add(const Scalar& o, const Scalar& alpha = 1) const { return call("aten::add", "Scalar", {*this, o, alpha}); }
  Tensor sub(const Tensor& o, const Scalar& alpha = 1) const { return call("aten::sub", "Tensor", {*this, o, Arg(alpha).named("alpha")}); }
  Tensor sub(const Scalar& o, const Scalar& alpha = 1) const { return call("aten::sub", "Scalar", {*this, o, alpha}); }
  Tensor& add_(const Tensor& o, const Scalar& alpha = 1) const { return done(call("aten::add_", "Tensor", {*this, o, Arg(alpha).named("alpha")})); }
  Tensor& add_(const Scalar& o, const Scalar& alpha = 1) const { return done(call("aten::add_", "Scalar", {*this, o, alpha})); }
  Tensor& sub_(const Tensor& o, const Scalar& alpha = 1) const { return done(call("aten::sub_", "Tensor", {*this, o, Arg(alpha).named("alpha")})); }
  Tensor& sub_(const Scalar& o, const Scalar& alpha = 1) const { return done(call("aten::sub_", "Scalar", {*this, o, alpha})); }
  Tensor maximum(const Tensor& o) const { return call("aten::maximum", "", {*this, o}); }
  Tensor minimum(const Tensor& o) const { return call("aten::minimum", "", {*this, o}); }
  Tensor matmul(const Tensor& o) const { return call("aten::matmul", "", {*this, o}); }
  Tensor mm(const Tensor& o) const { return call("aten::mm", "", {*this, o}); }
  Tensor bmm(const Tensor& o) const { return call("aten::bmm", "", {*this, o}); }
  Tensor mv(const Tensor& o) const { return call("aten::mv", "", {*this, o}); }
  Tensor dot(const Tensor& o) const { return call("aten::dot", "", {*this, o}); }
  Tensor addmm(const Tensor& a, const Tensor& b, const Scalar& beta = 1, const Scalar& alpha = 1) const {
    return call("aten::addmm", "", {*this, a, b, Arg(beta).named("beta"), Arg(alpha).named("alpha")});
  }
  Tensor masked_fill(const Tensor& mask, const Scalar& v) const { return call("aten::masked_fill", "Scalar", {*this, mask, v}); }
  Tensor& masked_fill_(const Tensor& mask, const Scalar& v) const { return done(call("aten::masked_fill_", "Scalar", {*this, mask, v})); }
  Tensor clamp(const std::optional<Scalar>& lo, const std::optional<Scalar>& hi = std::nullopt) const { return call("aten::clamp", "", {*this, lo, hi}); }
  Tensor clamp_min(const Scalar& lo) const { return call("aten::clamp_min", "", {*this, lo}); }
  Tensor clamp_max(const Scalar& hi) const { return call("aten::clamp_max", "", {*this, hi}); }

  // Shapes.
  Tensor view(IntArrayRef s) const { return call("aten::view", "", {*this, s}); }
  Tensor view(ScalarType t) const { return call("aten::view", "dtype", {*this, t}); }
  Tensor view_as(const Tensor& o) const { return call("aten::view_as", "", {*this, o}); }
  Tensor reshape(IntArrayRef s) const { return call("aten::reshape", "", {*this, s}); }
  Tensor reshape_as(const Tensor& o) const { return call("aten::reshape_as", "", {*this, o}); }
  Tensor flatten(int64_t start = 0, int64_t end = -1) const { return call("aten::flatten", "using_ints", {*this, start, end}); }
  Tensor transpose(int64_t a, int64_t b) const { return call("aten::transpose", "int", {*this, a, b}); }
  Tensor t() const { return call("aten::t", "", {*this}); }
  Tensor mT() const { return call("aten::mT", "", {*this}); }
  Tensor permute(IntArrayRef d) const { return call("aten::permute", "", {*this, d}); }
  Tensor unsqueeze(int64_t d) const { return call("aten::unsqueeze", "", {*this, d}); }
  Tensor squeeze() const { return call("aten::squeeze", "", {*this}); }
  Tensor squeeze(int64_t d) const { return call("aten::squeeze", "dim", {*this, d}); }
  Tensor expand(IntArrayRef s, bool implicit = false) const { return call("aten::expand", "", {*this, s, Arg(implicit).named("implicit")}); }
  Tensor expand_as(const Tensor& o) const { return call("aten::expand_as", "", {*this, o}); }
  Tensor repeat(IntArrayRef r) const { return call("aten::repeat", "", {*this, r}); }
  Tensor narrow(int64_t d, int64_t start, int64_t length) const { return call("aten::narrow", "", {*this, d, start, length}); }
  Tensor select(int64_t d, int64_t i) const { return call("aten::select", "int", {*this, d, i}); }
  Tensor slice(int64_t d = 0, std::optional<int64_t> start = std::nullopt, std::optional<int64_t> end = std::nullopt, int64_t step = 1) const {
    return call("aten::slice", "Tensor", {*this, d, start, end, step});
  }
  Tensor operator[](int64_t i) const { return select(0, i); }
  Tensor index_select(int64_t d, const Tensor& i) const { return call("aten::index_select", "", {*this, d, i}); }
  Tensor gather(int64_t d, const Tensor& i, bool sparse_grad = false) const { return call("aten::gather", "", {*this, d, i, Arg(sparse_grad).named("sparse_grad")}); }
  Tensor flip(IntArrayRef d) const { return call("aten::flip", "", {*this, d}); }
  Tensor as_strided(IntArrayRef s, IntArrayRef st, std::optional<int64_t> offset = std::nullopt) const { return call("aten::as_strided", "", {*this, s, st, offset}); }
  Tensor& resize_(IntArrayRef s) const { return done(call("aten::resize_", "", {*this, s})); }
  std::vector<Tensor> split(int64_t size, int64_t d = 0) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t d = 0) const;
  std::vector<Tensor> unbind(int64_t d = 0) const;

  // Copies and kinds.
  Tensor contiguous(MemoryFormat m = MemoryFormat::Contiguous) const {
    return is_contiguous(m) ? *this : call("aten::contiguous", "", {*this, Arg(m).named("memory_format")});
  }
  Tensor clone(std::optional<MemoryFormat> m = std::nullopt) const { return call("aten::clone", "", {*this, Arg(m).named("memory_format")}); }
  Tensor detach() const { return call("aten::detach", "", {*this}); }
  Tensor& detach_() const { return done(call("aten::detach_", "", {*this})); }
  Tensor to(ScalarType t, bool non_blocking = false, bool copy = false, std::optional<MemoryFormat> m = std::nullopt) const {
    return call("aten::to", "dtype", {*this, t, non_blocking, copy, m});
  }
  Tensor to(Device d, ScalarType t, bool non_blocking = false, bool copy = false, std::optional<MemoryFormat> m = std::nullopt) const {
    return call("aten::to", "device", {*this, d, t, non_blocking, copy, m});
  }
  Tensor to(const Tensor& o, bool non_blocking = false, bool copy = false, std::optional<MemoryFormat> m = std::nullopt) const {
    return call("aten::to", "other", {*this, o, non_blocking, copy, m});
  }
  Tensor to(TensorOptions o = {}, bool non_blocking = false, bool copy = false, std::optional<MemoryFormat> m = std::nullopt) const {
    return call("aten::to", "dtype_layout",
                {*this, Arg(o.dtype_opt()).named("dtype"), Arg(o.device_opt()).named("device"),
                 Arg(non_blocking).named("non_blocking"), Arg(copy).named("copy"), Arg(m).named("memory_format")});
  }
  Tensor type_as(const Tensor& o) const { return call("aten::type_as", "", {*this, o}); }
  Tensor toType(ScalarType t) const { return to(t); }
  Tensor cpu() const { return to(TensorOptions().device(kCPU)); }
  Tensor cuda() const { return to(TensorOptions().device(kCUDA)); }
  Tensor& copy_(const Tensor& src, bool non_blocking = false) const { return done(call("aten::copy_", "", {*this, src, non_blocking})); }
  Tensor& fill_(const Scalar& v) const { return done(call("aten::fill_", "Scalar", {*this, v})); }
  Tensor& fill_(const Tensor& v) const { return done(call("aten::fill_", "Tensor", {*this, v})); }
  Tensor& zero_() const { return done(call("aten::zero_", "", {*this})); }
  Tensor& normal_(double mean = 0, double std = 1) const { return done(call("aten::normal_", "", {*this, mean, std})); }
  Tensor& uniform_(double from = 0, double to = 1) const { return done(call("aten::uniform_", "", {*this, from, to})); }
  const Tensor& set_requires_grad(bool on) const {
    if (kw_tensor_set_requires_grad(need(), on)) c10::kw_throw();
    return *this;
  }
  const Tensor& requires_grad_(bool on = true) const { return set_requires_grad(on); }
  [[deprecated("Tensor.type() is deprecated. Instead use Tensor.options()")]] DeprecatedTypeProperties type() const {
    return {device(), scalar_type()};
  }
  Tensor grad() const { return kw_made(kw_tensor_grad(need())); }

  // Reductions.
  Tensor sum(std::optional<ScalarType> t = std::nullopt) const { return call("aten::sum", "", {*this, Arg(t).named("dtype")}); }
  Tensor sum(OptionalIntArrayRef d, bool keep = false, std::optional<ScalarType> t = std::nullopt) const {
    return call("aten::sum", "dim_IntList", {*this, d.kw(), keep, Arg(t).named("dtype")});
  }
  Tensor mean(std::optional<ScalarType> t = std::nullopt) const { return call("aten::mean", "", {*this, Arg(t).named("dtype")}); }
  Tensor mean(OptionalIntArrayRef d, bool keep = false, std::optional<ScalarType> t = std::nullopt) const {
    return call("aten::mean", "dim", {*this, d.kw(), keep, Arg(t).named("dtype")});
  }
  Tensor prod(std::optional<ScalarType> t = std::nullopt) const { return call("aten::prod", "", {*this, Arg(t).named("dtype")}); }
  Tensor max() const { return call("aten::max", "", {*this}); }
  Tensor min() const { return call("aten::min", "", {*this}); }
  std::tuple<Tensor, Tensor> max(int64_t d, bool keep = false) const { return pair("aten::max", "dim", {*this, d, keep}); }
  std::tuple<Tensor, Tensor> min(int64_t d, bool keep = false) const { return pair("aten::min", "dim", {*this, d, keep}); }
  std::tuple<Tensor, Tensor> sort(int64_t d = -1, bool descending = false) const { return pair("aten::sort", "", {*this, d, descending}); }
  std::tuple<Tensor, Tensor> topk(int64_t k, int64_t d = -1, bool largest = true, bool sorted = true) const { return pair("aten::topk", "", {*this, k, d, largest, sorted}); }
  Tensor amax(IntArrayRef d = {}, bool keep = false) const { return call("aten::amax", "", {*this, d, keep}); }
  Tensor amin(IntArrayRef d = {}, bool keep = false) const { return call("aten::amin", "", {*this, d, keep}); }
  Tensor argmax(std::optional<int64_t> d = std::nullopt, bool keep = false) const { return call("aten::argmax", "", {*this, d, keep}); }
  Tensor argmin(std::optional<int64_t> d = std::nullopt, bool keep = false) const { return call("aten::argmin", "", {*this, d, keep}); }
  Tensor cumsum(int64_t d, std::optional<ScalarType> t = std::nullopt) const { return call("aten::cumsum", "", {*this, d, Arg(t).named("dtype")}); }
  Tensor softmax(int64_t d, std::optional<ScalarType> t = std::nullopt) const { return call("aten::softmax", "int", {*this, d, t}); }
  Tensor log_softmax(int64_t d, std::optional<ScalarType> t = std::nullopt) const { return call("aten::log_softmax", "int", {*this, d, t}); }
  Tensor var(bool unbiased) const { return call("aten::var", "", {*this, unbiased}); }
  Tensor var(OptionalIntArrayRef d, bool unbiased, bool keep = false) const { return call("aten::var", "dim", {*this, d.kw(), unbiased, keep}); }
  Tensor norm(const Scalar& p = 2) const { return call("aten::norm", "Scalar", {*this, p}); }
  Tensor all() const { return call("aten::all", "", {*this}); }
  Tensor any() const { return call("aten::any", "", {*this}); }
  Tensor isnan() const { return call("aten::isnan", "", {*this}); }
  Tensor nonzero() const { return call("aten::nonzero", "", {*this}); }
  bool equal(const Tensor& o) const { return Results("aten::equal", "", {*this, o}).values[0].as.boolean; }
  bool allclose(const Tensor& o, double rtol = 1e-05, double atol = 1e-08, bool equal_nan = false) const {
    return Results("aten::allclose", "", {*this, o, rtol, atol, equal_nan}).values[0].as.boolean;
  }
  Scalar item() const;
  template <typename T>
  T item() const;

  Tensor operator-() const { return neg(); }
  Tensor operator~() const { return bitwise_not(); }
  Tensor& operator+=(const Tensor& o) { return add_(o); }
  Tensor& operator+=(const Scalar& o) { return add_(o); }
  Tensor& operator-=(const Tensor& o) { return sub_(o); }
  Tensor& operator-=(const Scalar& o) { return sub_(o); }
  Tensor& operator*=(const Tensor& o) { return mul_(o); }
  Tensor& operator*=(const Scalar& o) { return mul_(o); }
  Tensor& operator/=(const Tensor& o) { return div_(o); }
  Tensor& operator/=(const Scalar& o) { return div_(o); }

 private:
  Tensor& done(const Tensor&) const { return const_cast<Tensor&>(*this); }
  static std::tuple<Tensor, Tensor> pair(const char* name, const char* overload, std::initializer_list<Arg> args);
  static std::vector<Tensor> list(const char* name, const char* overload, std::initializer_list<Arg> args);
  friend struct Lists;
};
static_assert(sizeof(Tensor) == sizeof(kw_tensor), "an array of tensors is an array of handles");

inline Arg::Arg(const Tensor& t) : Arg(Tag{KW_TENSOR}) { as.tensor = t.kw_handle(); }
inline Arg::Arg(TensorList list) : Arg(Tag{KW_TENSORLIST}) {
  count = static_cast<int32_t>(list.size());
  as.tensors = reinterpret_cast<const kw_tensor*>(list.data());
}
struct Lists {
  static std::vector<Tensor> of(const char* name, const char* overload, std::initializer_list<Arg> args) { return Tensor::list(name, overload, args); }
  static std::tuple<Tensor, Tensor> two(const char* name, const char* overload, std::initializer_list<Arg> args) { return Tensor::pair(name, overload, args); }
};
inline std::vector<Tensor> Tensor::split(int64_t size, int64_t d) const { return list("aten::split", "Tensor", {*this, size, d}); }
inline std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t d) const { return list("aten::chunk", "", {*this, chunks, d}); }
inline std::vector<Tensor> Tensor::unbind(int64_t d) const { return list("aten::unbind", "int", {*this, d}); }
#define KW_ITEM(T, name, number) template <> inline T Tensor::item<T>() const { return item().to<T>(); }
KW_FORALL_REAL(KW_ITEM)
#undef KW_ITEM
#undef KW_UNARY
#undef KW_INPLACE0
#undef KW_BINARY
#undef KW_BINARY_

#define KW_OPERATOR(op, method, swapped)                                                                       \
  inline Tensor operator op(const Tensor& a, const Tensor& b) { return a.method(b); }                          \
  inline Tensor operator op(const Tensor& a, const Scalar& b) { return a.method(b); }                          \
  inline Tensor operator op(const Scalar& a, const Tensor& b) { return swapped; }
KW_OPERATOR(+, add, b.add(a))
KW_OPERATOR(*, mul, b.mul(a))
KW_OPERATOR(-, sub, call("aten::rsub", "Scalar", {b, a}))
KW_OPERATOR(/, div, b.reciprocal().mul(a))
KW_OPERATOR(==, eq, b.eq(a))
KW_OPERATOR(!=, ne, b.ne(a))
KW_OPERATOR(<, lt, b.gt(a))
KW_OPERATOR(<=, le, b.ge(a))
KW_OPERATOR(>, gt, b.lt(a))
KW_OPERATOR(>=, ge, b.le(a))
#undef KW_OPERATOR
void kw_append(std::string& out, const Tensor& t);
}  // namespace kw
}  // namespace at
namespace torch {
inline namespace kw {
using Tensor = at::Tensor;
using TensorList = at::TensorList;
}  // namespace kw
}  // namespace torch
