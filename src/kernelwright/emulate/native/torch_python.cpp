// kw_torch.h's Python part: tensors, dtypes and devices to and from Python objects. The caller holds the GIL.
// torch/csrc/autograd/python_variable.h brings pybind11 (15 s of compile time), so the functions used are declared
// here, and a tensor is reached through its `_cdata` attribute (the TensorImpl's address), the same in torch 2.9-2.14.
#include <Python.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>

#include "torch_device.h"
#include "torch_value.h"

PyObject* THPGenerator_initDefaultGenerator(const at::Generator& generator);
PyObject* THPVariable_Wrap(const at::TensorBase& tensor);
extern PyObject* THPVariableClass;
namespace torch {
THPDtype* getTHPDtype(at::ScalarType dtype);
}

using kw::guarded;
using kw::guarded_status;

namespace {
at::Tensor unpack(PyObject* object) {
  PyObject* address = PyObject_GetAttrString(object, "_cdata");
  auto* impl = address ? static_cast<c10::TensorImpl*>(PyLong_AsVoidPtr(address)) : nullptr;
  Py_XDECREF(address);
  TORCH_CHECK(impl, "a tensor without _cdata");
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(impl));
}
}  // namespace

int kw_tensor_is_python(void* object) {
  return object && PyObject_IsInstance(static_cast<PyObject*>(object), THPVariableClass) == 1;
}

kw_tensor kw_tensor_from_python(void* object) {
  return guarded([&]() -> at::Tensor {
    auto* o = static_cast<PyObject*>(object);
    if (o == Py_None) return {};
    TORCH_CHECK_TYPE(kw_tensor_is_python(o), "expected a torch.Tensor, got ", Py_TYPE(o)->tp_name);
    return unpack(o);
  });
}

void* kw_tensor_to_python(kw_tensor t) {
  void* object = nullptr;
  guarded_status([&] { object = THPVariable_Wrap(kw::get(t)); });
  return object;
}

int kw_dtype_from_python(void* object) {
  int dtype = -1;
  guarded_status([&] {
    auto* o = static_cast<PyObject*>(object);
    TORCH_CHECK_TYPE(THPDtype_Check(o), "expected a torch.dtype, got ", Py_TYPE(o)->tp_name);
    dtype = int(reinterpret_cast<THPDtype*>(o)->scalar_type);
  });
  return dtype;
}

void* kw_dtype_to_python(int dtype) {
  PyObject* object = nullptr;
  guarded_status([&] { object = reinterpret_cast<PyObject*>(torch::getTHPDtype(at::ScalarType(dtype))); });
  Py_XINCREF(object);
  return object;
}

int kw_device_from_python(void* object, kw_device* out) {
  return guarded_status([&] {
    auto* o = static_cast<PyObject*>(object);
    c10::Device device(c10::kCPU);
    if (PyUnicode_Check(o)) {
      device = c10::Device(std::string(PyUnicode_AsUTF8(o)));
    } else {
      TORCH_CHECK_TYPE(THPDevice_Check(o), "expected a torch.device, got ", Py_TYPE(o)->tp_name);
      device = reinterpret_cast<THPDevice*>(o)->device;
    }
    *out = {int32_t(device.type()), int32_t(device.index())};
  });
}

void* kw_device_to_python(kw_device device) {
  PyObject* object = nullptr;
  guarded_status([&] {
    object = THPDevice_New(c10::Device(c10::DeviceType(device.type), c10::DeviceIndex(device.index)));
  });
  return object;
}

void* kw_default_generator(void) {
  void* object = nullptr;
  guarded_status([&] { object = THPGenerator_initDefaultGenerator(kw::default_generator()); });
  return object;
}
