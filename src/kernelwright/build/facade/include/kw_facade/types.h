// Element types, devices, layouts and array views, as c10 has them.
//
// Why: torch's own headers cost 30-90 s under nvcc; these cost a fraction of a second. The rule for every facade header:
// what it offers behaves like the real thing, what it does not offer does not compile (and the real headers are used
// then). Everything lives in inline namespaces `kw`, compiled with hidden visibility, so that no symbol can meet a real
// one of the same name in one process. Half and BFloat16 are torch's own (torch/headeronly, without <ostream>, which costs
// 0.3 s in each of nvcc's passes; streams.h brings it where a source uses streams). Bodies that need no template stand in
// ../support.cpp, compiled once.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <kw_torch.h>

#define AT_CUDA_API

namespace at {
using namespace c10;
}
namespace at::cuda {}
namespace c10::cuda {}
namespace torch {
using namespace at;
}

// Every element type that tensors have: C++ type, name, number.
#define KW_FORALL_REAL(_)      \
  _(uint8_t, Byte, 0)          \
  _(int8_t, Char, 1)           \
  _(int16_t, Short, 2)         \
  _(int, Int, 3)               \
  _(int64_t, Long, 4)          \
  _(at::Half, Half, 5)         \
  _(float, Float, 6)           \
  _(double, Double, 7)         \
  _(bool, Bool, 11)            \
  _(at::BFloat16, BFloat16, 15) \
  _(uint16_t, UInt16, 27)      \
  _(uint32_t, UInt32, 28)      \
  _(uint64_t, UInt64, 29)

namespace c10 {
template <typename T>
struct complex;  // named by nobody who stays with the facade
inline namespace kw {

enum class ScalarType : int8_t {
  Byte = 0, Char = 1, Short = 2, Int = 3, Long = 4, Half = 5, Float = 6, Double = 7, ComplexHalf = 8, ComplexFloat = 9,
  ComplexDouble = 10, Bool = 11, QInt8 = 12, QUInt8 = 13, QInt32 = 14, BFloat16 = 15, Float8_e5m2 = 23,
  Float8_e4m3fn = 24, Float8_e5m2fnuz = 25, Float8_e4m3fnuz = 26, UInt16 = 27, UInt32 = 28, UInt64 = 29, Undefined = 45
};
#define KW_NAME(T, name, number) constexpr ScalarType k##name = ScalarType::name;
KW_FORALL_REAL(KW_NAME)
#undef KW_NAME
constexpr ScalarType kComplexHalf = ScalarType::ComplexHalf;
constexpr ScalarType kComplexFloat = ScalarType::ComplexFloat;
constexpr ScalarType kComplexDouble = ScalarType::ComplexDouble;
constexpr ScalarType kFloat8_e5m2 = ScalarType::Float8_e5m2;
constexpr ScalarType kFloat8_e4m3fn = ScalarType::Float8_e4m3fn;

inline const char* toString(ScalarType t) { return kw_dtype_name(static_cast<int>(t)); }
inline size_t elementSize(ScalarType t) { return static_cast<size_t>(kw_dtype_bytes(static_cast<int>(t))); }
inline ScalarType promoteTypes(ScalarType a, ScalarType b) {
  return static_cast<ScalarType>(kw_dtype_promote(static_cast<int>(a), static_cast<int>(b)));
}
bool isFloatingType(ScalarType t);
bool isReducedFloatingType(ScalarType t);
bool isComplexType(ScalarType t);
bool isIntegralType(ScalarType t, bool include_bool);

template <typename T>
struct CppTypeToScalarType;
template <ScalarType>
struct ScalarTypeToCPPType;
#define KW_MAP(T, name, number)                                                            \
  template <>                                                                              \
  struct CppTypeToScalarType<T> : std::integral_constant<ScalarType, ScalarType::name> {}; \
  template <>                                                                              \
  struct ScalarTypeToCPPType<ScalarType::name> {                                           \
    using type = T;                                                                        \
  };
KW_FORALL_REAL(KW_MAP)
#undef KW_MAP
namespace impl {
template <ScalarType N>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<N>::type;
}  // namespace impl

// What Tensor::dtype() gives: compares with a ScalarType but is none, as caffe2::TypeMeta.
class TypeMeta {
 public:
  explicit TypeMeta(ScalarType t) : type_(t) {}
  ScalarType toScalarType() const { return type_; }
  size_t itemsize() const { return elementSize(type_); }
  std::string_view name() const;
  friend bool operator==(const TypeMeta& a, const TypeMeta& b) { return a.type_ == b.type_; }
  friend bool operator==(const TypeMeta& a, ScalarType b) { return a.type_ == b; }

 private:
  ScalarType type_;
};
inline ScalarType typeMetaToScalarType(TypeMeta t) { return t.toScalarType(); }

enum class DeviceType : int8_t { CPU = 0, CUDA = 1, MPS = 13, Meta = 14 };
constexpr DeviceType kCPU = DeviceType::CPU;
constexpr DeviceType kCUDA = DeviceType::CUDA;
constexpr DeviceType kMeta = DeviceType::Meta;
using DeviceIndex = int8_t;
std::string DeviceTypeName(DeviceType t, bool lower_case = false);

struct Device {
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  Device(const std::string& text);  // "cuda:0"
  DeviceType type() const noexcept { return type_; }
  DeviceIndex index() const noexcept { return index_; }
  bool has_index() const noexcept { return index_ != -1; }
  bool is_cuda() const noexcept { return type_ == kCUDA; }
  bool is_cpu() const noexcept { return type_ == kCPU; }
  bool is_meta() const noexcept { return type_ == kMeta; }
  bool operator==(const Device& other) const noexcept { return type_ == other.type_ && index_ == other.index_; }
  bool operator!=(const Device& other) const noexcept { return !(*this == other); }
  std::string str() const;

 private:
  DeviceType type_;
  DeviceIndex index_ = -1;
};

enum class Layout : int8_t { Strided = 0, Sparse = 1 };
constexpr Layout kStrided = Layout::Strided;
constexpr Layout kSparse = Layout::Sparse;
enum class MemoryFormat : int8_t { Contiguous = 0, Preserve = 1, ChannelsLast = 2, ChannelsLast3d = 3 };

[[noreturn]] void kw_bad_index(size_t index, size_t length);

template <typename T>
class ArrayRef final {
 public:
  using iterator = const T*;
  using const_iterator = const T*;
  using size_type = size_t;
  using value_type = T;
  constexpr ArrayRef() : data_(nullptr), size_(0) {}
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  template <typename A>
  ArrayRef(const std::vector<T, A>& v) : data_(v.data()), size_(v.size()) {
    static_assert(!std::is_same_v<T, bool>, "ArrayRef<bool> cannot be constructed from a std::vector<bool> bitfield.");
  }
  template <size_t N>
  constexpr ArrayRef(const std::array<T, N>& a) : data_(a.data()), size_(N) {}
  template <size_t N>
  constexpr ArrayRef(const T (&a)[N]) : data_(a), size_(N) {}
  constexpr ArrayRef(const std::initializer_list<T>& l)
      : data_(l.begin() == l.end() ? static_cast<const T*>(nullptr) : l.begin()), size_(l.size()) {}
  constexpr iterator begin() const { return data_; }
  constexpr iterator end() const { return data_ + size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  constexpr const T& operator[](size_t i) const { return data_[i]; }
  const T& at(size_t i) const {
    if (i >= size_) kw_bad_index(i, size_);
    return data_[i];
  }
  ArrayRef<T> slice(size_t n, size_t m) const { return ArrayRef<T>(data_ + n, m); }
  ArrayRef<T> slice(size_t n) const { return slice(n, size_ - n); }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  bool equals(ArrayRef other) const { return size_ == other.size_ && std::equal(begin(), end(), other.begin()); }

 private:
  const T* data_;
  size_t size_;
};
template <typename T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) { return a.equals(b); }
template <typename T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) { return !a.equals(b); }
template <typename T>
bool operator==(ArrayRef<T> a, const std::vector<T>& b) { return a.equals(ArrayRef<T>(b)); }
template <typename T>
bool operator==(const std::vector<T>& a, ArrayRef<T> b) { return b.equals(ArrayRef<T>(a)); }
using IntArrayRef = ArrayRef<int64_t>;
template <typename T>
using optional = std::optional<T>;
using std::nullopt;
template <typename T>
class OptionalArrayRef final {
 public:
  constexpr OptionalArrayRef() noexcept = default;
  constexpr OptionalArrayRef(std::nullopt_t) noexcept {}
  constexpr OptionalArrayRef(const std::optional<ArrayRef<T>>& other) noexcept : wrapped_(other) {}
  constexpr OptionalArrayRef(const T& one) noexcept : wrapped_(one) {}
  constexpr OptionalArrayRef(const std::initializer_list<T>& list) : wrapped_(ArrayRef<T>(list)) {}
  template <typename U, std::enable_if_t<std::is_convertible_v<U&&, ArrayRef<T>> && !std::is_same_v<std::decay_t<U>, OptionalArrayRef> &&
                                             !std::is_same_v<std::decay_t<U>, T>, int> = 0>
  constexpr OptionalArrayRef(U&& value) : wrapped_(ArrayRef<T>(std::forward<U>(value))) {}
  constexpr bool has_value() const noexcept { return wrapped_.has_value(); }
  constexpr explicit operator bool() const noexcept { return wrapped_.has_value(); }
  constexpr const ArrayRef<T>& value() const { return wrapped_.value(); }
  constexpr const ArrayRef<T>& operator*() const { return *wrapped_; }
  const std::optional<ArrayRef<T>>& kw() const { return wrapped_; }

 private:
  std::optional<ArrayRef<T>> wrapped_;
};
using OptionalIntArrayRef = OptionalArrayRef<int64_t>;

struct Scalar {
  Scalar() : Scalar(int64_t{0}) {}
  template <typename T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  Scalar(T v) : tag_(KW_INT) { as_.i = static_cast<int64_t>(v); }
  Scalar(bool v) : tag_(KW_BOOLEAN) { as_.i = v; }
  Scalar(double v) : tag_(KW_DOUBLE) { as_.d = v; }
  Scalar(float v) : Scalar(static_cast<double>(v)) {}
  Scalar(c10::Half v) : Scalar(static_cast<double>(static_cast<float>(v))) {}
  Scalar(c10::BFloat16 v) : Scalar(static_cast<double>(static_cast<float>(v))) {}
  template <typename T>
  T to() const { return tag_ == KW_DOUBLE ? static_cast<T>(as_.d) : static_cast<T>(as_.i); }
  float toFloat() const { return to<float>(); }
  double toDouble() const { return to<double>(); }
  int toInt() const { return to<int>(); }
  int64_t toLong() const { return to<int64_t>(); }
  bool toBool() const { return to<bool>(); }
  bool isFloatingPoint() const { return tag_ == KW_DOUBLE; }
  bool isIntegral(bool include_bool) const { return tag_ == KW_INT || (include_bool && tag_ == KW_BOOLEAN); }
  bool isBoolean() const { return tag_ == KW_BOOLEAN; }
  ScalarType type() const { return tag_ == KW_DOUBLE ? kDouble : tag_ == KW_BOOLEAN ? kBool : kLong; }
  kw_value kw() const {
    kw_value v{tag_, 0, nullptr, {}};
    if (tag_ == KW_DOUBLE) v.as.number = as_.d;
    else if (tag_ == KW_INT) v.as.integer = as_.i;
    else v.as.boolean = as_.i != 0;
    return v;
  }

 private:
  int32_t tag_;
  union { int64_t i; double d; } as_;
};

struct TensorOptions {
  TensorOptions() = default;
  TensorOptions(ScalarType t) : dtype_(t) {}
  TensorOptions(TypeMeta t) : dtype_(t.toScalarType()) {}
  TensorOptions(Layout l) : layout_(l) {}
  TensorOptions(MemoryFormat m) : format_(m) {}
  template <typename T, std::enable_if_t<std::is_same_v<std::decay_t<T>, Device>, int> = 0>
  TensorOptions(T&& d) : device_(d) {}
  template <typename... A, std::enable_if_t<std::is_constructible_v<Device, A&&...> && (sizeof...(A) > 1 ||
            !std::is_base_of_v<TensorOptions, std::decay_t<std::tuple_element_t<0, std::tuple<A..., int>>>>), int> = 0>
  TensorOptions(A&&... a) : device_(Device(std::forward<A>(a)...)) {}
  [[nodiscard]] TensorOptions dtype(std::optional<ScalarType> t) const { auto r = *this; r.dtype_ = t; return r; }
  [[nodiscard]] TensorOptions dtype(TypeMeta t) const { return dtype(std::optional<ScalarType>(t.toScalarType())); }
  [[nodiscard]] TensorOptions dtype(ScalarType t) const { return dtype(std::optional<ScalarType>(t)); }
  template <typename T>
  TensorOptions& dtype() { dtype_ = CppTypeToScalarType<T>::value; return *this; }
  template <typename... A>
  [[nodiscard]] TensorOptions device(A&&... a) const { auto r = *this; r.device_ = Device(std::forward<A>(a)...); return r; }
  [[nodiscard]] TensorOptions device(std::optional<Device> d) const { auto r = *this; r.device_ = d; return r; }
  [[nodiscard]] TensorOptions layout(std::optional<Layout> l) const { auto r = *this; r.layout_ = l; return r; }
  [[nodiscard]] TensorOptions requires_grad(std::optional<bool> g) const { auto r = *this; r.grad_ = g; return r; }
  [[nodiscard]] TensorOptions pinned_memory(std::optional<bool> p) const { auto r = *this; r.pinned_ = p; return r; }
  [[nodiscard]] TensorOptions memory_format(std::optional<MemoryFormat> m) const { auto r = *this; r.format_ = m; return r; }
  Device device() const { return device_.value_or(Device(kCPU)); }
  bool has_device() const { return device_.has_value(); }
  bool has_dtype() const { return dtype_.has_value(); }
  bool requires_grad() const { return grad_.value_or(false); }
  bool pinned_memory() const { return pinned_.value_or(false); }
  TypeMeta dtype() const { return TypeMeta(dtype_.value_or(static_cast<ScalarType>(kw_default_dtype()))); }
  std::optional<ScalarType> dtype_opt() const { return dtype_; }
  std::optional<Device> device_opt() const { return device_; }
  std::optional<MemoryFormat> memory_format_opt() const { return format_; }
  int kw_dtype() const { return dtype_ ? static_cast<int>(*dtype_) : -1; }
  kw_device kw_device_or(int type) const {
    return device_ ? ::kw_device{static_cast<int32_t>(device_->type()), device_->index()} : ::kw_device{type, -1};
  }
  bool kw_strided() const { return !layout_ || *layout_ == kStrided; }

 private:
  std::optional<ScalarType> dtype_;
  std::optional<Device> device_;
  std::optional<Layout> layout_;
  std::optional<bool> grad_;
  std::optional<bool> pinned_;
  std::optional<MemoryFormat> format_;
};
inline TensorOptions dtype(ScalarType t) { return TensorOptions(t); }
inline TensorOptions dtype(TypeMeta t) { return TensorOptions(t); }
template <typename T>
TensorOptions dtype() { return TensorOptions(CppTypeToScalarType<T>::value); }
inline TensorOptions device(Device d) { return TensorOptions().device(d); }
inline TensorOptions layout(Layout l) { return TensorOptions().layout(l); }
inline TensorOptions requires_grad(bool g = true) { return TensorOptions().requires_grad(g); }

template <typename I>
struct kw_range {
  struct iterator {
    I value;
    I operator*() const { return value; }
    iterator& operator++() { ++value; return *this; }
    bool operator!=(const iterator& o) const { return value != o.value; }
  };
  I first, last;
  iterator begin() const { return {first}; }
  iterator end() const { return {last}; }
};
template <typename A, typename B>
kw_range<B> irange(A a, B b) { return {static_cast<B>(a), std::max(static_cast<B>(a), b)}; }
template <typename B>
kw_range<B> irange(B b) { return {B(0), std::max(B(0), b)}; }
}  // namespace kw
}  // namespace c10

namespace torch {
inline namespace kw {
using Dtype = at::ScalarType;
using std::nullopt;
using std::optional;
constexpr auto kUInt8 = at::kByte, kInt8 = at::kChar, kInt16 = at::kShort, kInt32 = at::kInt, kInt64 = at::kLong;
constexpr auto kUInt16 = at::kUInt16, kUInt32 = at::kUInt32, kUInt64 = at::kUInt64;
constexpr auto kFloat16 = at::kHalf, kFloat32 = at::kFloat, kFloat64 = at::kDouble;
constexpr auto kU8 = kUInt8, kI8 = kInt8, kI16 = kInt16, kI32 = kInt32, kI64 = kInt64;
constexpr auto kF16 = kFloat16, kF32 = kFloat32, kF64 = kFloat64;
}  // namespace kw
}  // namespace torch
