// The binding layer's bodies: overloads, keywords, messages and exceptions, as pybind11 3.0 and torch have them.
//
// The rule: the order of attempts and every text are pybind11's (pybind11.h, `dispatcher`), so that a wrong call reads as it
// would with the real one.
#include <cxxabi.h>

#include <cstdlib>
#include <kw_facade/binding.h>
#include <unordered_map>

namespace pybind11 {
inline namespace kw {
namespace detail {
std::string type_name(const std::type_info& type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type.name();
  std::free(text);
  for (size_t at; (at = name.find("kw::")) != std::string::npos;) name.erase(at, 4);
  return name;
}

bool is_listlike(PyObject* src) {
  if (PySequence_Check(src)) return !PyUnicode_Check(src) && !PyBytes_Check(src);
  if (PyGen_Check(src) || PyAnySet_Check(src)) return true;
  for (const char* name : {"dict_keys", "dict_values", "dict_items", "map", "zip"})
    if (std::strcmp(Py_TYPE(src)->tp_name, name) == 0) return true;
  return false;
}

// Parameter names as the candidate wrote them; generated beside the bindings (build/sources.py).
static std::unordered_map<std::string, std::vector<std::string>>& written_names() {
  static std::unordered_map<std::string, std::vector<std::string>> names;
  return names;
}
written::written(const char* function, std::initializer_list<const char*> names) {
  written_names()[function].assign(names.begin(), names.end());
}
std::string record::temporary_name(size_t i, const std::type_info& type, bool is_const) const {
  auto known = written_names().find(name);
  std::string text = "argument " + std::to_string(i + 1);
  if (i < args.size() && !args[i].name.empty()) text += " '" + args[i].name + "'";
  else if (known != written_names().end() && i < known->second.size()) text += " '" + known->second[i] + "'";
  return text + " of " + name + " (" + (is_const ? "const " : "") + type_name(type) + "*)";
}
void set_python_error(const char* kind, const char* text) {
  PyObject* type = PyExc_RuntimeError;
  if (!std::strcmp(kind, "IndexError")) type = PyExc_IndexError;
  else if (!std::strcmp(kind, "ValueError")) type = PyExc_ValueError;
  else if (!std::strcmp(kind, "TypeError")) type = PyExc_TypeError;
  else if (!std::strcmp(kind, "NotImplementedError")) type = PyExc_NotImplementedError;
  else if (!std::strcmp(kind, "OutOfMemoryError") || !std::strcmp(kind, "AcceleratorError")) {
    auto torch = object::steal(PyImport_ImportModule("torch"));
    auto found = object::steal(torch ? PyObject_GetAttrString(torch.ptr(), kind) : nullptr);
    PyErr_Clear();
    PyErr_SetString(found ? found.ptr() : type, text);
    return;
  }
  PyErr_SetString(type, text);
}

// pybind11's own translation (functions that torch::wrap_pybind_function did not wrap).
void translate() {
  try {
    throw;
  } catch (error_already_set&) {
  } catch (const c10::Error& e) { set_python_error(e.kw_kind(), e.what());  // torch registers its own translator
  } catch (const type_error& e) { PyErr_SetString(PyExc_TypeError, e.what());
  } catch (const value_error& e) { PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const index_error& e) { PyErr_SetString(PyExc_IndexError, e.what());
  } catch (const std::bad_alloc& e) { PyErr_SetString(PyExc_MemoryError, e.what());
  } catch (const std::domain_error& e) { PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const std::invalid_argument& e) { PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const std::length_error& e) { PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const std::out_of_range& e) { PyErr_SetString(PyExc_IndexError, e.what());
  } catch (const std::range_error& e) { PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const std::overflow_error& e) { PyErr_SetString(PyExc_OverflowError, e.what());
  } catch (const std::exception& e) { PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) { PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!"); }
}

static bool same(PyObject* key, const std::string& name) {
  return !name.empty() && PyUnicode_CompareWithASCIIString(key, name.c_str()) == 0;
}

// One overload's arguments, from what Python passed; false where they cannot be meant for it.
static bool gather(const record& f, PyObject* const* in, size_t n, PyObject* names, call_state& out) {
  size_t given = names ? static_cast<size_t>(PyTuple_GET_SIZE(names)) : 0, used = 0;
  if (n > f.nargs_pos || (n < f.nargs_pos && f.args.size() < f.nargs_pos)) return false;
  for (size_t i = 0; i < n; ++i) {
    const argument* a = i < f.args.size() ? &f.args[i] : nullptr;
    for (size_t k = 0; a && k < given; ++k) if (same(PyTuple_GET_ITEM(names, k), a->name)) return false;
    if (a && !a->none && in[i] == Py_None) return false;
    out.args.push_back(in[i]);
    out.convert.push_back(a ? a->convert : true);
  }
  for (size_t i = n; i < f.nargs; ++i) {
    const argument& a = f.args[i];
    PyObject* value = a.value.ptr();
    for (size_t k = 0; i >= f.nargs_pos_only && k < given; ++k)
      if (same(PyTuple_GET_ITEM(names, k), a.name)) value = in[n + k], ++used;
    if (!value || (!a.none && value == Py_None)) return false;
    out.args.push_back(value);
    out.convert.push_back(a.convert);
  }
  return used == given;
}
std::string repr(PyObject* o) {
  auto text = object::steal(PyObject_Repr(o));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  PyErr_Clear();
  return utf8 ? utf8 : "<repr raised Error>";
}
static void refuse(const record* first, PyObject* const* in, size_t n, PyObject* names) {
  std::string text = first->name + "(): incompatible function arguments. The following argument types are supported:\n";
  int i = 0;
  for (const record* f = first; f; f = f->next) text += "    " + std::to_string(++i) + ". " + f->signature + "\n";
  text += "\nInvoked with: ";
  for (size_t k = 0; k < n; ++k) text += (k ? ", " : "") + repr(in[k]);
  if (names && PyTuple_GET_SIZE(names)) {
    text += n ? "; kwargs: " : "kwargs: ";
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names); ++k)
      text += (k ? ", " : "") + std::string(PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, k))) + "=" + repr(in[n + static_cast<size_t>(k)]);
  }
  PyErr_SetString(PyExc_TypeError, text.c_str());
}
static PyObject* dispatch(PyObject* capsule, PyObject* const* in, Py_ssize_t nargs, PyObject* names) {
  auto* first = static_cast<record*>(PyCapsule_GetPointer(capsule, "kernelwright.function"));
  size_t n = static_cast<size_t>(nargs);
  PyObject* result = next_overload();
  try {
    bool overloaded = first->next != nullptr;
    std::vector<std::pair<record*, call_state>> second;
    for (record* f = first; f && result == next_overload(); f = f->next) {
      call_state state;
      if (!gather(*f, in, n, names, state)) continue;
      call_state strict = state;
      if (overloaded) std::fill(strict.convert.begin(), strict.convert.end(), 0);
      result = f->call(strict);
      if (overloaded && std::count(state.convert.begin(), state.convert.end(), 1)) second.emplace_back(f, std::move(state));
    }
    for (auto& [f, state] : second) {
      if (result != next_overload()) break;
      result = f->call(state);
    }
  } catch (...) {
    translate();
    return nullptr;
  }
  if (result == next_overload()) {
    refuse(first, in, n, names);
    return nullptr;
  }
  return result;
}

PyObject* initialise(PyModuleDef* definition, void (*fill)(module_&)) {
  PyObject* made = PyModule_Create(definition);
  if (!made) return nullptr;
  try {
    module_ m(made);
    fill(m);
  } catch (...) {
    translate();
    Py_DECREF(made);
    return nullptr;
  }
  return made;
}
}  // namespace detail

void module_::attach(detail::record* f, const detail::words* shown, const std::string& returns) {
  f->signature = "(";
  for (size_t i = 0; i < f->nargs; ++i) {
    if (i == f->nargs_pos) f->signature += (i ? ", *, " : "*, ");
    else if (i) f->signature += ", ";
    bool known = i < f->args.size();
    f->signature += (known && !f->args[i].name.empty() ? f->args[i].name : "arg" + std::to_string(i)) + ": ";
    f->signature += known && !f->args[i].convert ? shown[i].result : shown[i].argument;
    if (known && f->args[i].value) f->signature += " = " + f->args[i].shown;
    if (f->nargs_pos_only && i + 1 == f->nargs_pos_only) f->signature += ", /";
  }
  f->signature += ") -> " + returns;
  const char* name = f->name.c_str();
  auto old = object::steal(PyObject_GetAttrString(p_, name));
  PyErr_Clear();
  if (old && PyCFunction_Check(old.ptr())) {
    auto* last = static_cast<detail::record*>(PyCapsule_GetPointer(PyCFunction_GET_SELF(old.ptr()), "kernelwright.function"));
    PyErr_Clear();
    while (last && last->next) last = last->next;
    if (last) {
      last->next = f;
      return;
    }
  }
  auto* method = new PyMethodDef{};
  method->ml_name = strdup(name);
  method->ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&detail::dispatch));
  method->ml_flags = METH_FASTCALL | METH_KEYWORDS;
  method->ml_doc = strdup((f->name + f->signature + "\n" + (f->doc.empty() ? "" : "\n" + f->doc + "\n")).c_str());
  auto capsule = object::steal(PyCapsule_New(f, "kernelwright.function", nullptr));
  auto module_name = object::steal(PyModule_GetNameObject(p_));
  PyModule_AddObject(p_, name, PyCFunction_NewEx(method, capsule.ptr(), module_name.ptr()));
}
}  // namespace kw
}  // namespace pybind11

namespace torch {
inline namespace kw {
namespace detail {
void kw_raise() {
  try {
    throw;
  } catch (pybind11::error_already_set&) {
  } catch (const c10::Error& e) { pybind11::detail::set_python_error(e.kw_kind(), e.what());
  } catch (const pybind11::type_error& e) { PyErr_SetString(PyExc_TypeError, e.what());
  } catch (const pybind11::value_error& e) { PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const pybind11::index_error& e) { PyErr_SetString(PyExc_IndexError, e.what());
  } catch (const std::exception& e) { PyErr_SetString(PyExc_RuntimeError, e.what()); }
  throw pybind11::error_already_set();
}
}  // namespace detail
}  // namespace kw
}  // namespace torch
