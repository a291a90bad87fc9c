// pybind11's module, def, arg and conversions for the types that wrappers pass, over CPython's own interface.
//
// Why: pybind11 costs seconds in each of nvcc's passes. The rule: conversions, overload order, keyword handling and texts
// are pybind11 3.0's (cast.h, stl.h, pybind11.h `dispatcher`); types it does not offer here do not compile, and the real
// pybind11 is used. One thing is added: a number that reaches a raw-pointer parameter becomes a temporary host value, as
// in pybind11, and the device is told its name for the call, so that a kernel that follows the pointer is explained.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <kw_facade/tensor.h>
#include <typeinfo>

extern "C" {
void kw_adopt(void* base, size_t bytes, int kind, const char* name);
void kw_forget(void* base);
}

namespace pybind11 {
inline namespace kw {
class handle {
 public:
  handle() = default;
  handle(PyObject* p) : p_(p) {}
  PyObject* ptr() const { return p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool is_none() const { return p_ == Py_None; }

 protected:
  PyObject* p_ = nullptr;
};
class object : public handle {
 public:
  object() = default;
  object(const object& o) : handle(o.p_) { Py_XINCREF(p_); }
  object(object&& o) noexcept : handle(o.p_) { o.p_ = nullptr; }
  object& operator=(object o) noexcept { std::swap(p_, o.p_); return *this; }
  ~object() { Py_XDECREF(p_); }
  static object steal(PyObject* p) { object o; o.p_ = p; return o; }
  static object borrow(PyObject* p) { Py_XINCREF(p); return steal(p); }
  PyObject* release() { PyObject* p = p_; p_ = nullptr; return p; }
};
struct none : object {
  none() : object(object::borrow(Py_None)) {}
};
struct error_already_set : std::exception {
  const char* what() const noexcept override { return "a Python exception is set"; }
};
struct value_error : std::runtime_error { using runtime_error::runtime_error; };
struct index_error : std::runtime_error { using runtime_error::runtime_error; };
struct type_error : std::runtime_error { using runtime_error::runtime_error; };

struct gil_scoped_release {
  gil_scoped_release() : state(PyEval_SaveThread()) {}
  ~gil_scoped_release() { PyEval_RestoreThread(state); }
  PyThreadState* state;
};
struct gil_scoped_acquire {
  gil_scoped_acquire() : state(PyGILState_Ensure()) {}
  ~gil_scoped_acquire() { PyGILState_Release(state); }
  PyGILState_STATE state;
};

// ---- conversions: load(object, convert), take(), make(value), and the words of the signature -----------------------
namespace detail {
template <typename T, typename = void>
struct caster;  // undefined: a type the facade does not offer

template <typename T>
using bare = std::remove_cv_t<std::remove_reference_t<std::remove_pointer_t<std::remove_reference_t<T>>>>;
struct words {
  std::string argument, result;
};

template <typename T>
struct caster<T, std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> &&
                                  !std::is_same_v<T, wchar_t> && !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>>> {
  T value{};
  bool load(PyObject* src, bool convert) {
    bool error;
    if constexpr (std::is_floating_point_v<T>) {
      if (!convert && !PyFloat_Check(src)) return false;
      double v = PyFloat_AsDouble(src);
      error = v == -1.0 && PyErr_Occurred();
      if (!error) return value = static_cast<T>(v), true;
    } else {
      if (PyFloat_Check(src) || (!convert && !PyLong_Check(src) && !PyIndex_Check(src))) return false;
      bool fits;
      if constexpr (std::is_unsigned_v<T>) {
        auto index = object::steal(PyNumber_Index(src));
        unsigned long v = index ? PyLong_AsUnsignedLong(index.ptr()) : static_cast<unsigned long>(-1);
        error = v == static_cast<unsigned long>(-1) && PyErr_Occurred();
        fits = v == static_cast<unsigned long>(static_cast<T>(v));
        if (!error && fits) return value = static_cast<T>(v), true;
      } else {
        long v = PyLong_AsLong(src);
        error = v == -1 && PyErr_Occurred();
        fits = v == static_cast<long>(static_cast<T>(v));
        if (!error && fits) return value = static_cast<T>(v), true;
      }
    }
    PyErr_Clear();
    if (error && convert && PyNumber_Check(src)) {
      auto number = object::steal(std::is_floating_point_v<T> ? PyNumber_Float(src) : PyNumber_Long(src));
      PyErr_Clear();
      return number && load(number.ptr(), false);
    }
    return false;
  }
  T take() { return value; }
  static PyObject* make(T v) {
    if constexpr (std::is_floating_point_v<T>) return PyFloat_FromDouble(v);
    else if constexpr (std::is_signed_v<T>) return PyLong_FromLong(v);
    else return PyLong_FromUnsignedLong(v);
  }
  static words describe() {
    return std::is_floating_point_v<T> ? words{"typing.SupportsFloat | typing.SupportsIndex", "float"}
                                       : words{"typing.SupportsInt | typing.SupportsIndex", "int"};
  }
};
template <>
struct caster<bool> {
  bool value = false;
  bool load(PyObject* src, bool convert) {
    if (src == Py_True || src == Py_False) return value = src == Py_True, true;
    const char* type = Py_TYPE(src)->tp_name;
    if (!convert && std::strcmp(type, "numpy.bool") != 0 && std::strcmp(type, "numpy.bool_") != 0) return false;
    int truth = -1;
    if (src == Py_None) truth = 0;
    else if (Py_TYPE(src)->tp_as_number && Py_TYPE(src)->tp_as_number->nb_bool) truth = Py_TYPE(src)->tp_as_number->nb_bool(src);
    if (truth != 0 && truth != 1) return PyErr_Clear(), false;
    return value = truth, true;
  }
  bool take() { return value; }
  static PyObject* make(bool v) { return PyBool_FromLong(v); }
  static words describe() { return {"bool", "bool"}; }
};
template <>
struct caster<std::string> {
  std::string value;
  bool load(PyObject* src, bool) {
    Py_ssize_t size = 0;
    if (PyUnicode_Check(src)) {
      const char* text = PyUnicode_AsUTF8AndSize(src, &size);
      if (!text) return PyErr_Clear(), false;
      return value.assign(text, static_cast<size_t>(size)), true;
    }
    if (PyBytes_Check(src)) return value.assign(PyBytes_AS_STRING(src), static_cast<size_t>(PyBytes_GET_SIZE(src))), true;
    if (PyByteArray_Check(src)) return value.assign(PyByteArray_AsString(src), static_cast<size_t>(PyByteArray_Size(src))), true;
    return false;
  }
  std::string& take() { return value; }
  static PyObject* make(const std::string& v) { return PyUnicode_DecodeUTF8(v.data(), static_cast<Py_ssize_t>(v.size()), nullptr); }
  static words describe() { return {"str", "str"}; }
};
template <>
struct caster<at::Tensor> {
  at::Tensor value;
  bool load(PyObject* src, bool) {
    if (!kw_tensor_is_python(src)) return false;
    value = at::Tensor::kw_made(kw_tensor_from_python(src));
    return true;
  }
  at::Tensor& take() { return value; }
  static PyObject* make(const at::Tensor& v) { return static_cast<PyObject*>(kw_tensor_to_python(v.kw_handle())); }
  static words describe() { return {"torch.Tensor", "torch.Tensor"}; }
};
template <>
struct caster<at::ScalarType> {
  at::ScalarType value = at::kFloat;
  bool load(PyObject* src, bool) {
    if (std::strcmp(Py_TYPE(src)->tp_name, "torch.dtype") != 0) return false;
    value = static_cast<at::ScalarType>(kw_dtype_from_python(src));
    return true;
  }
  at::ScalarType take() { return value; }
  static PyObject* make(at::ScalarType v) { return static_cast<PyObject*>(kw_dtype_to_python(static_cast<int>(v))); }
  static words describe() { return {"torch.dtype", "torch.dtype"}; }
};
template <>
struct caster<at::Device> {
  kw_device value{0, -1};
  bool load(PyObject* src, bool) {
    return std::strcmp(Py_TYPE(src)->tp_name, "torch.device") == 0 && kw_device_from_python(src, &value) == 0;
  }
  at::Device take() { return {static_cast<at::DeviceType>(value.type), static_cast<at::DeviceIndex>(value.index)}; }
  static PyObject* make(at::Device v) { return static_cast<PyObject*>(kw_device_to_python({static_cast<int32_t>(v.type()), v.index()})); }
  static words describe() { return {"torch.device", "torch.device"}; }
};
template <>
struct caster<at::Scalar> {
  at::Scalar value;
  bool load(PyObject* src, bool) {
    if (PyBool_Check(src)) return value = at::Scalar(src == Py_True), true;
    if (PyLong_Check(src)) return value = at::Scalar(static_cast<int64_t>(PyLong_AsLongLong(src))), true;
    if (PyFloat_Check(src)) return value = at::Scalar(PyFloat_AsDouble(src)), true;
    return false;
  }
  at::Scalar& take() { return value; }
  static PyObject* make(const at::Scalar& v) {
    return v.isBoolean() ? PyBool_FromLong(v.toBool()) : v.isFloatingPoint() ? PyFloat_FromDouble(v.toDouble()) : PyLong_FromLongLong(v.toLong());
  }
  static words describe() { return {"Union[Number, torch.SymInt, torch.SymFloat, torch.SymBool]", "Union[Number, torch.SymInt, torch.SymFloat, torch.SymBool]"}; }
};
template <>
struct caster<object> {
  object value;
  bool load(PyObject* src, bool) { return value = object::borrow(src), true; }
  object& take() { return value; }
  static PyObject* make(const object& v) { return Py_XNewRef(v.ptr()); }
  static words describe() { return {"object", "object"}; }
};
template <typename T>
struct caster<std::optional<T>> {
  std::optional<T> value;
  bool load(PyObject* src, bool convert) {
    if (src == Py_None) return true;
    caster<T> inner;
    if (!inner.load(src, convert)) return false;
    value.emplace(inner.take());
    return true;
  }
  std::optional<T>& take() { return value; }
  static PyObject* make(const std::optional<T>& v) { return v ? caster<T>::make(*v) : Py_NewRef(Py_None); }
  static words describe() { auto w = caster<T>::describe(); return {w.argument + " | None", w.result + " | None"}; }
};
bool is_listlike(PyObject* src);
template <typename T, typename A>
struct caster<std::vector<T, A>> {
  std::vector<T, A> value;
  bool load(PyObject* src, bool convert) {
    if (!is_listlike(src) || (!convert && !PySequence_Check(src))) return false;
    auto items = object::steal(PySequence_Tuple(src));
    if (!items) return PyErr_Clear(), false;
    value.clear();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.ptr()); ++i) {
      caster<T> inner;
      if (!inner.load(PyTuple_GET_ITEM(items.ptr(), i), convert)) return false;
      value.push_back(inner.take());
    }
    return true;
  }
  std::vector<T, A>& take() { return value; }
  static PyObject* make(const std::vector<T, A>& v) {
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(v.size()));
    Py_ssize_t i = 0;
    for (const auto& item : v) PyList_SET_ITEM(list, i++, caster<T>::make(item));
    return list;
  }
  static words describe() {
    auto w = caster<T>::describe();
    return {"collections.abc.Sequence[" + w.argument + "]", "list[" + w.result + "]"};
  }
};
template <>
struct caster<at::IntArrayRef> {
  std::vector<int64_t> value;
  bool load(PyObject* src, bool) {
    if (!PyTuple_Check(src) && !PyList_Check(src)) return false;
    caster<std::vector<int64_t>> inner;
    return inner.load(src, false) && (value = inner.take(), true);
  }
  at::IntArrayRef take() { return value; }
  static PyObject* make(at::IntArrayRef v) { return caster<std::vector<int64_t>>::make(v.vec()); }
  static words describe() { return {"Tuple[int, ...]", "Tuple[int, ...]"}; }
};
template <typename... T>
struct tuple_caster {
  std::tuple<caster<T>...> parts;
  bool load(PyObject* src, bool convert) { return load(src, convert, std::index_sequence_for<T...>{}); }
  template <size_t... I>
  bool load(PyObject* src, bool convert, std::index_sequence<I...>) {
    if (!PySequence_Check(src) || PySequence_Size(src) != static_cast<Py_ssize_t>(sizeof...(T))) return PyErr_Clear(), false;
    auto items = object::steal(PySequence_Tuple(src));
    return items && (std::get<I>(parts).load(PyTuple_GET_ITEM(items.ptr(), I), convert) && ...);
  }
  template <typename V, size_t... I>
  static PyObject* make(const V& v, std::index_sequence<I...>) { return PyTuple_Pack_steal({caster<T>::make(std::get<I>(v))...}); }
  static PyObject* PyTuple_Pack_steal(std::initializer_list<PyObject*> items) {
    PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(items.size()));
    Py_ssize_t i = 0;
    for (PyObject* item : items) PyTuple_SET_ITEM(tuple, i++, item);
    return tuple;
  }
  static words describe() {
    words w{"tuple[", "tuple["};
    const char* comma = "";
    ((w.argument += comma + caster<T>::describe().argument, w.result += comma + caster<T>::describe().result, comma = ", "), ...);
    return {w.argument + "]", w.result + "]"};
  }
};
template <typename... T>
struct caster<std::tuple<T...>> : tuple_caster<T...> {
  std::tuple<T...> take() { return std::apply([](auto&... p) { return std::tuple<T...>(p.take()...); }, this->parts); }
  static PyObject* make(const std::tuple<T...>& v) { return tuple_caster<T...>::make(v, std::index_sequence_for<T...>{}); }
};
template <typename A, typename B>
struct caster<std::pair<A, B>> : tuple_caster<A, B> {
  std::pair<A, B> take() { return {std::get<0>(this->parts).take(), std::get<1>(this->parts).take()}; }
  static PyObject* make(const std::pair<A, B>& v) { return tuple_caster<A, B>::make(v, std::index_sequence_for<A, B>{}); }
};

std::string type_name(const std::type_info& type);

// One parameter, as cast_op hands it over: by value, by reference, or the address of the temporary.
template <typename P, typename = void>
struct parameter {
  caster<bare<P>> inner;
  static constexpr bool is_pointer = false;
  bool load(PyObject* src, bool convert) { return inner.load(src, convert); }
  decltype(auto) take() {
    if constexpr (std::is_rvalue_reference_v<P>) return std::move(inner.take());
    else return inner.take();
  }
  void adopt(const char*) {}
  void forget() {}
  static words describe() { return caster<bare<P>>::describe(); }
};
template <typename V>
struct raw_parameter {  // T* for an arithmetic T
  caster<V> inner;
  static constexpr bool is_pointer = true;
  bool load(PyObject* src, bool convert) { return inner.load(src, convert); }
  V* take() { return &inner.value; }
  void adopt(const char* name) { kw_adopt(&inner.value, sizeof(V), 5 /* KW_BINDING_TEMPORARY */, name); }
  void forget() { kw_forget(&inner.value); }
  static words describe() { return caster<V>::describe(); }
};
template <typename P>
struct parameter<P, std::enable_if_t<std::is_pointer_v<P> && std::is_arithmetic_v<bare<P>> && !std::is_same_v<bare<P>, char>>>
    : raw_parameter<bare<P>> {};
template <typename P>
struct parameter<P, std::enable_if_t<std::is_pointer_v<P> && std::is_same_v<bare<P>, char>>> {
  caster<std::string> inner;
  bool none = false;
  static constexpr bool is_pointer = false;
  bool load(PyObject* src, bool convert) { return (none = src == Py_None) ? convert : inner.load(src, convert); }
  const char* take() { return none ? nullptr : inner.value.c_str(); }
  void adopt(const char*) {}
  void forget() {}
  static words describe() { return {"str", "str"}; }
};
template <typename P>
struct parameter<P, std::enable_if_t<std::is_pointer_v<P> && (std::is_class_v<bare<P>> || std::is_void_v<bare<P>>)>> {
  // A class that no binding knows, or void: None is a null pointer, nothing else converts (void: a capsule does).
  void* value = nullptr;
  static constexpr bool is_pointer = false;
  bool load(PyObject* src, bool convert) {
    if (src == Py_None) return std::is_void_v<bare<P>> || convert;
    if (!std::is_void_v<bare<P>> || !PyCapsule_CheckExact(src)) return false;
    value = PyCapsule_GetPointer(src, PyCapsule_GetName(src));
    return true;
  }
  P take() { return static_cast<P>(value); }
  void adopt(const char*) {}
  void forget() {}
  static words describe() {
    if constexpr (std::is_void_v<bare<P>>) return {"types.CapsuleType", "types.CapsuleType"};
    else return {type_name(typeid(bare<P>)), type_name(typeid(bare<P>))};
  }
};

// ---- functions -----------------------------------------------------------------------------------------------------
inline PyObject* next_overload() { return reinterpret_cast<PyObject*>(1); }
struct argument {
  std::string name;
  object value;  // the default, null without one
  std::string shown;
  bool convert = true, none = true;
};
struct call_state {
  std::vector<PyObject*> args;
  std::vector<char> convert;
};
struct record {
  std::string name, doc, signature;
  std::vector<argument> args;
  size_t nargs = 0, nargs_pos = 0, nargs_pos_only = 0;
  bool release_gil = false;
  record* next = nullptr;
  virtual ~record() = default;
  virtual PyObject* call(call_state&) = 0;
  std::string temporary_name(size_t i, const std::type_info& type, bool is_const) const;
};
// Parameter names as the candidate wrote them; generated beside the bindings (build/sources.py).
struct written {
  written(const char* function, std::initializer_list<const char*> names);
};

template <typename F, typename R, typename... A>
struct bound final : record {
  static constexpr size_t arity = sizeof...(A);
  F f;
  explicit bound(F g) : f(std::move(g)) { nargs = nargs_pos = sizeof...(A); }
  PyObject* call(call_state& state) override { return run(state, std::index_sequence_for<A...>{}); }
  template <size_t... I>
  PyObject* run(call_state& state, std::index_sequence<I...>) {
    std::tuple<parameter<A>...> in;
    if (!(std::get<I>(in).load(state.args[I], state.convert[I] != 0) && ...)) return next_overload();
    (adopt<A>(std::get<I>(in), I), ...);
    struct leave {
      std::tuple<parameter<A>...>& in;
      ~leave() { (std::get<I>(in).forget(), ...); }
    } forgotten{in};
    std::optional<gil_scoped_release> released;
    if (release_gil) released.emplace();
    if constexpr (std::is_void_v<R>) {
      f(static_cast<A>(std::get<I>(in).take())...);
      released.reset();
      return Py_NewRef(Py_None);
    } else {
      decltype(auto) result = f(static_cast<A>(std::get<I>(in).take())...);
      released.reset();
      if constexpr (std::is_pointer_v<std::decay_t<R>>) return result ? caster<std::string>::make(result) : Py_NewRef(Py_None);
      else return caster<bare<R>>::make(result);
    }
  }
  template <typename P>
  void adopt(parameter<P>& p, size_t i) {
    if constexpr (parameter<P>::is_pointer)
      p.adopt(temporary_name(i, typeid(bare<P>), std::is_const_v<std::remove_pointer_t<P>>).c_str());
  }
  static void describe(words* out) { (void)out; ((*out++ = parameter<A>::describe()), ...); }
  static std::string returns() {
    if constexpr (std::is_void_v<R>) return "None";
    else if constexpr (std::is_pointer_v<std::decay_t<R>>) return "str";
    else return caster<bare<R>>::describe().result;
  }
};

void set_python_error(const char* kind, const char* text);
void translate();  // the exception in flight, by pybind11's own rules
std::string repr(PyObject* o);
}  // namespace detail

// ---- what a binding block says ---------------------------------------------------------------------------------------
struct arg_v;
struct arg {
  explicit arg(const char* n = nullptr) : name(n) {}
  template <typename T>
  arg_v operator=(T&& value) const;
  arg& noconvert(bool on = true) { convert_ = !on; return *this; }
  arg& none(bool on = true) { none_ = on; return *this; }
  const char* name;
  bool convert_ = true, none_ = true;
};
struct arg_v : arg {
  template <typename T>
  arg_v(const char* n, T&& v) : arg(n), value(object::steal(default_of(std::forward<T>(v)))) {}
  static PyObject* default_of(std::nullopt_t) { return Py_NewRef(Py_None); }
  static PyObject* default_of(const char* text) { return PyUnicode_FromString(text); }
  template <typename T>
  static PyObject* default_of(const T& v) {
    if constexpr (std::is_base_of_v<object, T>) return Py_XNewRef(v.ptr());
    else return detail::caster<T>::make(v);
  }
  object value;
};
template <typename T>
arg_v arg::operator=(T&& v) const {
  arg_v made(name, std::forward<T>(v));
  made.convert_ = convert_;
  made.none_ = none_;
  return made;
}
struct kw_only {};
struct pos_only {};
template <typename... G>
struct call_guard {
  static_assert((std::is_same_v<G, gil_scoped_release> && ...), "the fast headers know gil_scoped_release only");
};
enum class return_value_policy { automatic, automatic_reference, take_ownership, copy, move, reference, reference_internal };
namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals

class module_ : public object {
 public:
  explicit module_(PyObject* m) : object(object::borrow(m)) {}
  struct doc_slot {
    PyObject* m;
    void operator=(const char* text) { PyModule_SetDocString(m, text); }
  };
  doc_slot doc() const { return {p_}; }
  template <typename R, typename... A, typename... X>
  module_& def(const char* name, R (*f)(A...), const X&... extra) {
    return add(name, new detail::bound<R (*)(A...), R, A...>(f), extra...);
  }
  template <typename F, typename... X, std::enable_if_t<std::is_class_v<std::decay_t<F>>, int> = 0>
  module_& def(const char* name, F&& f, const X&... extra) {
    return def_object(name, std::forward<F>(f), &std::decay_t<F>::operator(), extra...);
  }

 private:
  template <typename F, typename R, typename C, typename... A, typename... X>
  module_& def_object(const char* name, F&& f, R (C::*)(A...) const, const X&... extra) {
    return add(name, new detail::bound<std::decay_t<F>, R, A...>(std::forward<F>(f)), extra...);
  }
  static void apply(detail::record& r, const char* doc) { r.doc = doc; }
  static void apply(detail::record& r, const arg& a) {
    r.args.push_back({a.name ? a.name : "", {}, "", a.convert_, a.none_});
  }
  static void apply(detail::record& r, const arg_v& a) {
    r.args.push_back({a.name ? a.name : "", a.value, detail::repr(a.value.ptr()), a.convert_, a.none_});
  }
  static void apply(detail::record& r, kw_only) { r.nargs_pos = r.args.size(); }
  static void apply(detail::record& r, pos_only) { r.nargs_pos_only = r.args.size(); }
  static void apply(detail::record& r, call_guard<gil_scoped_release>) { r.release_gil = true; }
  static void apply(detail::record&, call_guard<>) {}
  static void apply(detail::record&, return_value_policy) {}
  template <typename B, typename... X>
  module_& add(const char* name, B* f, const X&... extra) {
    f->name = name;
    (apply(*f, extra), ...);
    detail::words shown[B::arity + 1];
    B::describe(shown);
    attach(f, shown, B::returns());
    return *this;
  }
  void attach(detail::record* f, const detail::words* shown, const std::string& returns);
};
using module = module_;
namespace detail {
PyObject* initialise(PyModuleDef* definition, void (*fill)(module_&));
}  // namespace detail
}  // namespace kw
}  // namespace pybind11
namespace py = pybind11;

#define KW_STRING_(x) #x
#define KW_STRING(x) KW_STRING_(x)
#define KW_JOIN_(a, b) a##b
#define KW_JOIN(a, b) KW_JOIN_(a, b)
#define PYBIND11_MODULE(name, variable)                                                            \
  static void KW_JOIN(pybind11_init_, name)(::pybind11::module_&);                                 \
  extern "C" __attribute__((visibility("default"))) PyObject* KW_JOIN(PyInit_, name)() {           \
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, KW_STRING(name), nullptr, -1, nullptr, \
                                     nullptr, nullptr, nullptr, nullptr};                          \
    return ::pybind11::detail::initialise(&definition, &KW_JOIN(pybind11_init_, name));            \
  }                                                                                                \
  void KW_JOIN(pybind11_init_, name)(::pybind11::module_& variable)

namespace torch {
inline namespace kw {
namespace detail {
[[noreturn]] void kw_raise();  // the exception in flight, by torch's rules
template <bool release, typename F, typename R, typename... A>
auto wrap(F f) {
  return [f](A... a) -> R {
    try {
      std::optional<pybind11::gil_scoped_release> released;
      if constexpr (release) released.emplace();
      return f(std::forward<A>(a)...);
    } catch (...) {
      kw_raise();
    }
  };
}
template <bool release, typename F, typename R, typename C, typename... A>
auto wrap_object(F f, R (C::*)(A...) const) { return wrap<release, F, R, A...>(std::move(f)); }
}  // namespace detail
template <typename R, typename... A>
auto wrap_pybind_function(R (*f)(A...)) { return detail::wrap<false, R (*)(A...), R, A...>(f); }
template <typename F, std::enable_if_t<std::is_class_v<std::decay_t<F>>, int> = 0>
auto wrap_pybind_function(F&& f) { return detail::wrap_object<false, std::decay_t<F>>(std::forward<F>(f), &std::decay_t<F>::operator()); }
template <typename R, typename... A>
auto wrap_pybind_function_no_gil(R (*f)(A...)) { return detail::wrap<true, R (*)(A...), R, A...>(f); }
}  // namespace kw
}  // namespace torch
