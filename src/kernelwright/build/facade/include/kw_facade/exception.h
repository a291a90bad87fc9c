// TORCH_CHECK and its family: c10::Error with the same messages as torch's.
//
// No __LINE__ or __FILE__ enters the object: a host object is reused when only line numbers moved (build/host.py), and
// torch shows neither to Python unless TORCH_SHOW_CPP_STACKTRACES is set.
#pragma once
#include <cassert>

#include <kw_facade/types.h>

namespace c10 {
inline namespace kw {
class Error : public std::exception {
 public:
  explicit Error(std::string message, const char* kind = "RuntimeError") : message_(std::move(message)), kind_(kind) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  const std::string& msg() const { return message_; }
  const char* kw_kind() const noexcept { return kind_; }  // the Python class that torch turns it into

 private:
  std::string message_;
  const char* kind_;
};
#define KW_ERROR(Name, Python)                                                      \
  class Name : public Error {                                                       \
   public:                                                                          \
    explicit Name(std::string message) : Error(std::move(message), Python) {}       \
  };
KW_ERROR(IndexError, "IndexError")
KW_ERROR(ValueError, "ValueError")
KW_ERROR(TypeError, "TypeError")
KW_ERROR(NotImplementedError, "NotImplementedError")
KW_ERROR(OutOfMemoryError, "OutOfMemoryError")
KW_ERROR(AcceleratorError, "AcceleratorError")
#undef KW_ERROR

// c10::str: what an ostream would print, without one. A type it does not know is one for the real headers.
void kw_append(std::string& out, const char* v);
void kw_append(std::string& out, char v);
void kw_append(std::string& out, double v);
void kw_append(std::string& out, int64_t v);
void kw_append(std::string& out, uint64_t v);
void kw_append(std::string& out, const void* v);
void kw_append(std::string& out, ScalarType v);
void kw_append(std::string& out, DeviceType v);
void kw_append(std::string& out, const Device& v);
void kw_append(std::string& out, const TypeMeta& v);
inline void kw_append(std::string& out, std::string_view v) { out.append(v); }
inline void kw_append(std::string& out, const std::string& v) { out.append(v); }
inline void kw_append(std::string& out, c10::Half v) { kw_append(out, static_cast<double>(static_cast<float>(v))); }
inline void kw_append(std::string& out, c10::BFloat16 v) { kw_append(out, static_cast<double>(static_cast<float>(v))); }
template <typename T, std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, char>, int> = 0>
void kw_append(std::string& out, T v) {
  if constexpr (std::is_floating_point_v<T>) kw_append(out, static_cast<double>(v));
  else if constexpr (sizeof(T) == 1 && !std::is_same_v<T, bool>) kw_append(out, static_cast<char>(v));
  else if constexpr (std::is_signed_v<T>) kw_append(out, static_cast<int64_t>(v));
  else kw_append(out, static_cast<uint64_t>(v));
}
template <typename T>
void kw_append(std::string& out, ArrayRef<T> list) {
  out += '[';
  for (size_t i = 0; i < list.size(); ++i) {
    if (i) out += ", ";
    kw_append(out, list[i]);
  }
  out += ']';
}
template <typename... A>
std::string str(const A&... a) {
  std::string out;
  (kw_append(out, a), ...);
  return out;
}
inline std::string str(const std::string& s) { return s; }
inline std::string str(const char* s) { return s; }
}  // namespace kw
namespace detail {
inline namespace kw {
inline const char* torchCheckMsgImpl(const char* expected) { return expected; }
inline const char* torchCheckMsgImpl(const char*, const char* message) { return message; }
template <typename... A>
std::string torchCheckMsgImpl(const char*, const A&... a) { return c10::str(a...); }
template <typename E>
[[noreturn]] inline void kw_fail(std::string message) { throw E(std::move(message)); }
}  // namespace kw
}  // namespace detail
inline namespace kw {
// Throws what the last call into libkw_torch.so left behind.
[[noreturn]] void kw_throw();
void kw_warn(const std::string& text);
}  // namespace kw
}  // namespace c10

#define KW_CHECK(E, cond, ...)                                                                       \
  if (__builtin_expect(static_cast<bool>(!(cond)), 0)) {                                             \
    ::c10::detail::kw_fail<E>(::c10::detail::torchCheckMsgImpl(                                      \
        "Expected " #cond " to be true, but got false.  (Could this error message be improved?  If so, " \
        "please report an enhancement request to PyTorch.)", ##__VA_ARGS__));                        \
  }
#define TORCH_CHECK(cond, ...) KW_CHECK(::c10::Error, cond, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(cond, ...) KW_CHECK(::c10::IndexError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(cond, ...) KW_CHECK(::c10::ValueError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(cond, ...) KW_CHECK(::c10::TypeError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(cond, ...) KW_CHECK(::c10::NotImplementedError, cond, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(cond, ...)                                                             \
  if (__builtin_expect(static_cast<bool>(!(cond)), 0)) {                                             \
    ::c10::detail::kw_fail<::c10::Error>(                                                            \
        ::c10::str(#cond " INTERNAL ASSERT FAILED, please report a bug to PyTorch. ", ##__VA_ARGS__)); \
  }
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(...) while (false) TORCH_INTERNAL_ASSERT(__VA_ARGS__)
#define TORCH_WARN(...) ::c10::kw_warn(::c10::str(__VA_ARGS__))
#define TORCH_WARN_ONCE(...)                                  \
  {                                                           \
    static bool kw_warned = false;                            \
    if (!kw_warned) { kw_warned = true; TORCH_WARN(__VA_ARGS__); } \
  }
#define AT_ERROR(...) ::c10::detail::kw_fail<::c10::Error>(::c10::str(__VA_ARGS__))
#define C10_THROW_ERROR(Type, message) throw ::c10::Type(message)
