// The facade's bodies that need no template: compiled once, linked into every module built in the fast tier.
//
// The rule: nothing here is exported; two modules each have their own copy, and share tensors only through libkw_torch.so.
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <kw_facade/binding.h>
#include <kw_facade/factories.h>
#include <unordered_map>

namespace c10 {
inline namespace kw {
std::string DeviceTypeName(DeviceType t, bool lower_case) {
  const char* upper = t == kCPU ? "CPU" : t == kCUDA ? "CUDA" : t == kMeta ? "META" : "MPS";
  const char* lower = t == kCPU ? "cpu" : t == kCUDA ? "cuda" : t == kMeta ? "meta" : "mps";
  return lower_case ? lower : upper;
}
Device::Device(const std::string& text) : type_(kCPU) {
  auto colon = text.find(':');
  auto kind = text.substr(0, colon);
  if (kind == "cuda") type_ = kCUDA;
  else if (kind == "meta") type_ = kMeta;
  else if (kind != "cpu") throw Error("Invalid device string: '" + text + "'");
  if (colon != std::string::npos) index_ = static_cast<DeviceIndex>(std::stoi(text.substr(colon + 1)));
}
std::string Device::str() const {
  return DeviceTypeName(type_, true) + (has_index() ? ":" + std::to_string(static_cast<int>(index_)) : "");
}
std::string_view TypeMeta::name() const {
  static const char* const names[] = {"unsigned char", "signed char", "short int", "int", "long int", "c10::Half", "float", "double"};
  size_t i = static_cast<size_t>(type_);
  return i < 8 ? names[i] : type_ == kBool ? "bool" : type_ == kBFloat16 ? "c10::BFloat16" : toString(type_);
}
bool isFloatingType(ScalarType t) {
  return t == kDouble || t == kFloat || t == kHalf || t == kBFloat16 || (t >= kFloat8_e5m2 && t <= ScalarType::Float8_e4m3fnuz);
}
bool isReducedFloatingType(ScalarType t) { return isFloatingType(t) && t != kDouble && t != kFloat; }
bool isComplexType(ScalarType t) { return t >= kComplexHalf && t <= kComplexDouble; }
bool isIntegralType(ScalarType t, bool include_bool) {
  return (t >= kByte && t <= kLong) || (t >= kUInt16 && t <= kUInt64) || (include_bool && t == kBool);
}
void kw_bad_index(size_t index, size_t length) {
  throw Error(str("ArrayRef: invalid index Index = ", index, "; Length = ", length));
}

void kw_append(std::string& out, const char* v) { out += v; }
void kw_append(std::string& out, char v) { out += v; }
void kw_append(std::string& out, double v) {
  char text[32];  // an ostream's default: six significant digits
  std::snprintf(text, sizeof text, "%g", v);
  out += text;
}
void kw_append(std::string& out, int64_t v) { out += std::to_string(v); }
void kw_append(std::string& out, uint64_t v) { out += std::to_string(v); }
void kw_append(std::string& out, const void* v) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", v);
  out += v ? text : "0";
}
void kw_append(std::string& out, ScalarType v) { out += toString(v); }
void kw_append(std::string& out, DeviceType v) { out += DeviceTypeName(v, true); }
void kw_append(std::string& out, const Device& v) { out += v.str(); }
void kw_append(std::string& out, const TypeMeta& v) { out += v.name(); }

void kw_throw() {
  const char* message = kw_error_message();
  std::string text = message ? message : "unknown failure";
  std::string kind = kw_error_kind() ? kw_error_kind() : "RuntimeError";
  if (kind == "IndexError") throw IndexError(text);
  if (kind == "ValueError") throw ValueError(text);
  if (kind == "TypeError") throw TypeError(text);
  if (kind == "NotImplementedError") throw NotImplementedError(text);
  if (kind == "OutOfMemoryError") throw OutOfMemoryError(text);
  throw Error(text);
}
void kw_warn(const std::string& text) { std::fprintf(stderr, "Warning: %s\n", text.c_str()); }
}  // namespace kw
namespace cuda {
inline namespace kw {
[[noreturn]] void kw_cuda_fail(int error, const char* name, const char* text);
void kw_cuda_fail(int, const char* name, const char* text) {
  throw AcceleratorError(
      std::string("CUDA error: ") + text + "\nSearch for `" + name +
      "' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information."
      "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."
      "\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
      "\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n");
}
}  // namespace kw
}  // namespace cuda
}  // namespace c10

namespace at {
inline namespace kw {
Results::Results(const char* name, const char* overload, std::initializer_list<Arg> args) {
  static_assert(sizeof(Arg) == sizeof(kw_value), "an Arg is a kw_value");
  if (kw_op_call(name, overload, args.begin(), static_cast<int>(args.size()), values, &count)) {
    count = 0;
    c10::kw_throw();
  }
}
Results::~Results() {
  for (int i = 0; i < count; ++i) kw_value_release(&values[i]);
}
Tensor Results::tensor(int i) const {
  return i < count && values[i].tag == KW_TENSOR ? Tensor::kw_take(kw_tensor_new_ref(values[i].as.tensor)) : Tensor();
}
Tensor call(const char* name, const char* overload, std::initializer_list<Arg> args) {
  return Results(name, overload, args).tensor(0);
}
void TensorBase::kw_undefined() { throw c10::Error("tensor does not have a device"); }
size_t TensorBase::wrap(int64_t d) const {
  int64_t n = dim(), low = n ? -n : -1, high = n ? n - 1 : 0;
  if (n == 0 || d < low || d > high)
    throw c10::IndexError(c10::str("Dimension out of range (expected to be in range of [", low, ", ", high, "], but got ", d, ")"));
  return static_cast<size_t>(d < 0 ? d + n : d);
}
void* TensorBase::pointer(int dtype, int is_const) const {
  void* p = kw_tensor_data(need(), dtype, is_const);
  if (!p && kw_error_message()) c10::kw_throw();
  return p;
}
MemoryFormat TensorBase::suggest_memory_format() const {
  if (dim() == 4 && !is_contiguous() && is_contiguous(MemoryFormat::ChannelsLast)) return MemoryFormat::ChannelsLast;
  if (dim() == 5 && !is_contiguous() && is_contiguous(MemoryFormat::ChannelsLast3d)) return MemoryFormat::ChannelsLast3d;
  return MemoryFormat::Contiguous;
}
std::string TensorBase::toString() const { return std::string(is_cuda() ? "CUDA" : "CPU") + c10::toString(scalar_type()) + "Type"; }
bool TensorBase::is_non_overlapping_and_dense() const {
  return Results("aten::is_non_overlapping_and_dense", "", {Tensor(*this)}).values[0].as.boolean;
}
void Tensor::kw_check() {
  if (kw_error_message()) c10::kw_throw();
}
Scalar Tensor::item() const {
  Results r("aten::item", "", {*this});
  const kw_value& v = r.values[0];
  if (v.tag == KW_DOUBLE) return Scalar(v.as.number);
  if (v.tag == KW_BOOLEAN) return Scalar(v.as.boolean != 0);
  return Scalar(v.as.integer);
}
std::tuple<Tensor, Tensor> Tensor::pair(const char* name, const char* overload, std::initializer_list<Arg> args) {
  Results r(name, overload, args);
  return {r.tensor(0), r.tensor(1)};
}
std::vector<Tensor> Tensor::list(const char* name, const char* overload, std::initializer_list<Arg> args) {
  Results r(name, overload, args);
  std::vector<Tensor> out;
  if (r.count == 1 && r.values[0].tag == KW_TENSORLIST)
    for (int i = 0; i < r.values[0].count; ++i) out.push_back(kw_take(kw_tensor_new_ref(r.values[0].as.tensors[i])));
  return out;
}
void kw_append(std::string& out, const Tensor& t) {
  char* text = t.defined() ? kw_tensor_text(t.kw_handle()) : nullptr;
  out += text ? text : "[ Tensor (undefined) ]";
  std::free(text);
}
}  // namespace kw
}  // namespace at
