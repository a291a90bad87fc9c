// kw_op_call: any operator by name, with C values for arguments, through the boxed dispatcher.
//
// The rule: an argument fits a parameter when torch's C++ API would take it there; where no overload is named, the first
// one that all arguments fit is called.
#include "torch_value.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace kw {
namespace {

using c10::IValue;
using c10::TypeKind;

template <class T>
c10::List<T> list_of(const T* values, int count) {
  c10::List<T> list;
  for (int i = 0; i < count; i++) list.push_back(values[i]);
  return list;
}

std::optional<IValue> fit_list(const kw_value& v, const c10::TypePtr& element, std::optional<int32_t> length) {
  TypeKind kind = element->kind();
  if (kind == TypeKind::IntType && v.tag == KW_INTLIST) return IValue(list_of<int64_t>(v.as.integers, v.count));
  if (kind == TypeKind::IntType && v.tag == KW_INT) {
    std::vector<int64_t> repeated(size_t(length.value_or(1)), v.as.integer);
    return IValue(repeated);
  }
  if (kind == TypeKind::FloatType && v.tag == KW_DOUBLELIST) return IValue(list_of<double>(v.as.numbers, v.count));
  if (kind == TypeKind::BoolType && v.tag == KW_BOOLLIST) {
    c10::List<bool> list;
    for (int i = 0; i < v.count; i++) list.push_back(v.as.booleans[i] != 0);
    return IValue(list);
  }
  if (v.tag != KW_TENSORLIST) return std::nullopt;
  if (kind == TypeKind::TensorType) {
    c10::List<at::Tensor> list;
    for (int i = 0; i < v.count; i++) list.push_back(get(v.as.tensors[i]));
    return IValue(list);
  }
  if (kind == TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> list;
    for (int i = 0; i < v.count; i++)
      list.push_back(v.as.tensors[i] ? std::optional<at::Tensor>(get(v.as.tensors[i])) : std::nullopt);
    return IValue(list);
  }
  return std::nullopt;
}

// `v` as a value of the parameter's type; nothing where it does not fit.
std::optional<IValue> fit(const kw_value& v, const c10::TypePtr& type, std::optional<int32_t> length) {
  switch (type->kind()) {
    case TypeKind::OptionalType:
      if (v.tag == KW_NONE || (v.tag == KW_DTYPE && v.as.dtype < 0) || (v.tag == KW_TENSOR && !v.as.tensor)) return IValue();
      return fit(v, type->castRaw<c10::OptionalType>()->getElementType(), length);
    case TypeKind::TensorType:
      return v.tag == KW_TENSOR ? std::optional<IValue>(get(v.as.tensor)) : std::nullopt;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      if (v.tag == KW_INT) return IValue(v.as.integer);
      if (v.tag == KW_DTYPE) return IValue(int64_t(v.as.dtype));
      return std::nullopt;
    case TypeKind::FloatType:
      if (v.tag == KW_DOUBLE) return IValue(v.as.number);
      if (v.tag == KW_INT) return IValue(double(v.as.integer));
      return std::nullopt;
    case TypeKind::BoolType:
      return v.tag == KW_BOOLEAN ? std::optional<IValue>(v.as.boolean != 0) : std::nullopt;
    case TypeKind::NumberType:
      if (v.tag == KW_INT) return IValue(v.as.integer);
      if (v.tag == KW_DOUBLE) return IValue(v.as.number);
      if (v.tag == KW_BOOLEAN) return IValue(v.as.boolean != 0);
      if (v.tag == KW_COMPLEX) return IValue(c10::complex<double>(v.as.complex_number[0], v.as.complex_number[1]));
      return std::nullopt;
    case TypeKind::StringType:
      return v.tag == KW_STRING ? std::optional<IValue>(std::string(v.as.string)) : std::nullopt;
    case TypeKind::DeviceObjType:
      if (v.tag != KW_DEVICE) return std::nullopt;
      return IValue(c10::Device(c10::DeviceType(v.as.device.type), c10::DeviceIndex(v.as.device.index)));
    case TypeKind::ListType:
      return fit_list(v, type->castRaw<c10::ListType>()->getElementType(), length);
    default:
      return std::nullopt;
  }
}

// The stack for one overload, or why its schema does not take these arguments.
bool arrange(const c10::FunctionSchema& schema, const kw_value* args, int nargs, std::vector<IValue>& stack, std::string& why) {
  stack.clear();
  const auto& parameters = schema.arguments();
  std::vector<const kw_value*> given(parameters.size(), nullptr);
  for (int i = 0; i < nargs; i++) {
    int at = args[i].name ? schema.argumentIndexWithName(args[i].name).value_or(-1) : i;
    if (at < 0 || size_t(at) >= parameters.size() || (!args[i].name && parameters[size_t(at)].kwarg_only())) {
      why = args[i].name ? std::string("no parameter ") + args[i].name : "too many arguments";
      return false;
    }
    given[size_t(at)] = &args[i];
  }
  for (size_t i = 0; i < parameters.size(); i++) {
    const auto& p = parameters[i];
    std::optional<IValue> value = given[i] ? fit(*given[i], p.type(), p.N()) : p.default_value();
    if (!value && !given[i] && p.type()->kind() == TypeKind::OptionalType) value = IValue();
    if (!value) {
      why = (given[i] ? "wrong type for " : "missing ") + p.name();
      return false;
    }
    stack.push_back(std::move(*value));
  }
  return true;
}

const std::vector<c10::OperatorHandle>& overloads(const std::string& name) {
  static std::mutex lock;
  static std::map<std::string, std::vector<c10::OperatorHandle>> known;
  std::lock_guard<std::mutex> hold(lock);
  auto found = known.find(name);
  if (found != known.end()) return found->second;
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorName> names;
  for (auto& candidate : dispatcher.getAllOpNames())
    if (candidate.name == name) names.push_back(candidate);
  auto rank = [](const c10::OperatorName& n) {
    const std::string& o = n.overload_name;
    return std::make_pair(o.empty() ? 0 : o == "Tensor" ? 1 : o == "Scalar" ? 2 : 3, o);
  };
  std::sort(names.begin(), names.end(), [&](auto& a, auto& b) { return rank(a) < rank(b); });
  std::vector<c10::OperatorHandle> handles;
  for (auto& n : names)
    if (auto op = dispatcher.findSchema(n)) handles.push_back(*op);
  return known.emplace(name, std::move(handles)).first->second;
}

std::string full_name(const char* name) {
  std::string text(name);
  return text.find("::") == std::string::npos ? "aten::" + text : text;
}

template <class T, class L>
T* copied(const L& list) {
  T* values = static_cast<T*>(malloc(sizeof(T) * (list.size() + 1)));
  for (size_t i = 0; i < list.size(); i++) values[i] = T(list[i]);
  return values;
}

kw_value give_value(const IValue& v) {
  kw_value out{};
  if (v.isTensor()) {
    out.tag = KW_TENSOR;
    out.as.tensor = give(v.toTensor());
  } else if (v.isInt()) {
    out.tag = KW_INT;
    out.as.integer = v.toInt();
  } else if (v.isDouble()) {
    out.tag = KW_DOUBLE;
    out.as.number = v.toDouble();
  } else if (v.isBool()) {
    out.tag = KW_BOOLEAN;
    out.as.boolean = v.toBool();
  } else if (v.isComplexDouble()) {
    out.tag = KW_COMPLEX;
    out.as.complex_number[0] = v.toComplexDouble().real();
    out.as.complex_number[1] = v.toComplexDouble().imag();
  } else if (v.isString()) {
    out.tag = KW_STRING;
    out.as.string = strdup(v.toStringRef().c_str());
  } else if (v.isIntList()) {
    auto list = v.toIntVector();
    out.tag = KW_INTLIST;
    out.count = int(list.size());
    out.as.integers = copied<int64_t>(list);
  } else if (v.isDoubleList()) {
    auto list = v.toDoubleVector();
    out.tag = KW_DOUBLELIST;
    out.count = int(list.size());
    out.as.numbers = copied<double>(list);
  } else if (v.isTensorList()) {
    auto list = v.toTensorVector();
    auto* handles = static_cast<kw_tensor*>(malloc(sizeof(kw_tensor) * (list.size() + 1)));
    for (size_t i = 0; i < list.size(); i++) handles[i] = give(list[i]);
    out.tag = KW_TENSORLIST;
    out.count = int(list.size());
    out.as.tensors = handles;
  } else {
    TORCH_CHECK(v.isNone(), "a result of type ", v.tagKind(), " cannot be handed over");
  }
  return out;
}

}  // namespace
}  // namespace kw

int kw_op_exists(const char* name) { return !kw::overloads(kw::full_name(name)).empty(); }

int kw_op_call(const char* name, const char* overload, const kw_value* args, int nargs, kw_value* outs, int* nouts) {
  int room = *nouts;
  *nouts = 0;
  return kw::guarded_status([&] {
    std::string full = kw::full_name(name), why = "no such operator";
    std::vector<c10::IValue> stack;
    bool out_given = std::any_of(args, args + nargs, [](const kw_value& a) { return a.name && !strcmp(a.name, "out"); });
    for (const auto& op : kw::overloads(full)) {
      const std::string& its = op.operator_name().overload_name;
      if (overload ? its != overload : its.find("out") != std::string::npos && !out_given) continue;
      if (!kw::arrange(op.schema(), args, nargs, stack, why)) continue;
      op.callBoxed(stack);
      TORCH_CHECK(int(stack.size()) <= room, full, " gives ", stack.size(), " results, room for ", room);
      for (const auto& value : stack) outs[(*nouts)++] = kw::give_value(value);
      return;
    }
    TORCH_CHECK_TYPE(false, full, overload ? "." : "", overload ? overload : "", "() does not take these ", nargs,
                     " arguments (", why, ")");
  });
}

void kw_value_release(kw_value* v) {
  if (v->tag == KW_TENSOR) kw_tensor_release(v->as.tensor);
  if (v->tag == KW_TENSORLIST)
    for (int i = 0; i < v->count; i++) kw_tensor_release(v->as.tensors[i]);
  if (v->tag == KW_TENSORLIST || v->tag == KW_INTLIST || v->tag == KW_DOUBLELIST || v->tag == KW_STRING)
    free(const_cast<char*>(v->as.string));
  v->tag = KW_NONE;
}
