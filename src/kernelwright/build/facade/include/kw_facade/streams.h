// operator<< for the facade's types, for sources that use streams themselves.
#pragma once
#include <iomanip>
#include <iostream>
#include <sstream>

#include <kw_facade/tensor.h>

namespace c10 {
inline namespace kw {
#define KW_STREAMED(T) \
  inline std::ostream& operator<<(std::ostream& out, const T& v) { return out << c10::str(v); }
KW_STREAMED(ScalarType) KW_STREAMED(DeviceType) KW_STREAMED(Device) KW_STREAMED(TypeMeta)
template <typename T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> list) { return out << c10::str(list); }
}  // namespace kw
inline std::ostream& operator<<(std::ostream& out, const Half& v) { return out << static_cast<float>(v); }
inline std::ostream& operator<<(std::ostream& out, const BFloat16& v) { return out << static_cast<float>(v); }
}  // namespace c10
namespace at {
inline namespace kw {
KW_STREAMED(Tensor)
#undef KW_STREAMED
}  // namespace kw
}  // namespace at
