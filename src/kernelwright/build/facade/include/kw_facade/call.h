// Calling any torch operator by name: C++ arguments become kw_values, results become tensors.
#pragma once
#include <kw_facade/exception.h>

namespace at {
inline namespace kw {
class Tensor;
using TensorList = c10::ArrayRef<Tensor>;

// One argument of an operator call. It borrows what it points to, so it must not outlive the full expression.
struct Arg : kw_value {
  enum class Tag : int32_t {};
  explicit Arg(Tag t) : kw_value{static_cast<int32_t>(t), 0, nullptr, {}} {}
  Arg(const Tensor& t);
  Arg(TensorList list);
  Arg(int64_t v) : Arg(Tag{KW_INT}) { as.integer = v; }
  Arg(int v) : Arg(static_cast<int64_t>(v)) {}
  Arg(bool v) : Arg(Tag{KW_BOOLEAN}) { as.boolean = v; }
  Arg(double v) : Arg(Tag{KW_DOUBLE}) { as.number = v; }
  Arg(const Scalar& v) : kw_value(v.kw()) {}
  Arg(const char* v) : Arg(Tag{KW_STRING}) { as.string = v; }
  Arg(std::string_view v) : Arg(Tag{KW_STRING}) { as.string = v.data(); }
  Arg(IntArrayRef v) : Arg(Tag{KW_INTLIST}) { count = static_cast<int32_t>(v.size()); as.integers = v.data(); }
  Arg(ScalarType v) : Arg(Tag{KW_DTYPE}) { as.dtype = static_cast<int32_t>(v); }
  Arg(MemoryFormat v) : Arg(Tag{KW_INT}) { as.integer = static_cast<int64_t>(v); }
  Arg(Device v) : Arg(Tag{KW_DEVICE}) { as.device = {static_cast<int32_t>(v.type()), v.index()}; }
  template <typename T>
  Arg(const std::optional<T>& v) : kw_value(v ? static_cast<kw_value>(Arg(*v)) : static_cast<kw_value>(Arg(Tag{KW_NONE}))) {}
  Arg(std::nullopt_t) : Arg(Tag{KW_NONE}) {}
  Arg named(const char* n) const { Arg r = *this; r.name = n; return r; }

 private:
  Arg& operator=(const Arg&) = default;

 public:
  Arg(const Arg&) = default;
};

// The results of one call; releases what nobody took.
struct Results {
  kw_value values[8];
  int count = 8;
  Results(const char* name, const char* overload, std::initializer_list<Arg> args);
  Results(const Results&) = delete;
  ~Results();
  Tensor tensor(int i) const;
};
Tensor call(const char* name, const char* overload, std::initializer_list<Arg> args);
}  // namespace kw
}  // namespace at
