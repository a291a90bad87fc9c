// What a GPU would refuse before a kernel runs: tensors on different devices, generators of another device.
//
// Why: on host memory every mixture would work, and a candidate that passes here must not fail on a GPU. The rule: torch's
// own words, as an H200 gave them (torch 2.11, tests/device/programs/device_errors.txt); operators that allow mixtures
// or word it differently stand in the tables below.
#include "torch_device.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>

#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace kw {
namespace {

using at::Tensor;
using Values = std::vector<c10::IValue>;

// CUDA kernels that take tensors of any device.
const std::unordered_set<std::string_view> kAnyDevice = {
    "aten::copy_", "aten::_copy_from", "aten::_pack_padded_sequence", "aten::set_", "aten::_ctc_loss",
    "aten::_pin_memory", "aten::is_pinned", "aten::resize_as_"};

// Arguments that may lie on the host, by name, in any operator whose name begins so.
struct HostArgument { std::string_view prefix, argument; };
constexpr HostArgument kHostArguments[] = {
    {"aten::index", "indices"}, {"aten::_index_put_impl_", "indices"}, {"aten::_unsafe_index", "indices"}};

// Operators that TensorIterator checks, though they are no structured ones.
const std::unordered_set<std::string_view> kIterated = {
    "aten::where", "aten::index_put_", "aten::_index_put_impl_", "aten::index", "aten::mse_loss", "aten::smooth_l1_loss"};

bool may_be_host(std::string_view op, std::string_view argument) {
  for (const auto& h : kHostArguments)
    if (op.substr(0, h.prefix.size()) == h.prefix && argument == h.argument) return true;
  return false;
}

template <class F>
void each_tensor(const c10::IValue& value, F visit) {
  if (value.isTensor()) visit(value.toTensor());
  else if (value.isTensorList()) for (const Tensor& t : value.toTensorVector()) visit(t);
  else if (value.isOptionalTensorList())
    for (const std::optional<Tensor>& t : value.toOptionalTensorVector()) if (t) visit(*t);
}

// Structured operators have a kernel for every backend beside the out= one, and another form of wrapper name.
bool structured(const c10::OperatorName& name) {
  auto op = c10::Dispatcher::singleton().findOp(name);
  return op && op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// The generated CUDA wrapper's name (torchgen/dest/register_dispatch_key.py): of mm "wrapper_CUDA_mm", of scatter_.src
// "wrapper_CUDA_scatter__src"; of an unstructured one "wrapper_CUDA_<overload>_<name>".
std::string wrapper(const c10::OperatorName& op, const Values& args, bool* is_structured) {
  std::string name = op.name.substr(op.name.find("::") + 2), overload = op.overload_name;
  bool plain = overload == "out" || overload == "output" || overload == "grad_input";
  bool out = plain || (overload.size() > 4 && overload.substr(overload.size() - 4) == "_out");
  if (out) overload = plain ? "" : overload.substr(0, overload.size() - 4);
  *is_structured = structured({op.name, overload}) || (plain && structured({op.name, "Tensor"}));
  if (!*is_structured) return "wrapper_CUDA_" + op.overload_name + "_" + name;
  bool in_place = out && args.size() > 1 && args.front().isTensor() && args.back().isTensor() &&
                  args.front().toTensor().is_same(args.back().toTensor());
  return "wrapper_CUDA_" + name + (in_place ? "_" : "") + (overload.empty() ? "" : "_" + overload);
}

void check_convolution(const Values& args) {
  static const char* const names[] = {"input", "weight", "bias"};
  for (size_t i = 1; i < 3; i++) {
    if (!args[0].isTensor() || !args[i].isTensor() || !args[i].toTensor().defined()) continue;
    const Tensor &input = args[0].toTensor(), &other = args[i].toTensor();
    TORCH_CHECK(input.device() == other.device(), "Input type (", input.toString(), ") and ", names[i], " type (",
                other.toString(), ") should be the same");
  }
}

void check_masked_fill(const Values& args) {
  const Tensor &self = args[0].toTensor(), &mask = args[1].toTensor();
  TORCH_CHECK(self.device() == mask.device(), "expected self and mask to be on the same device, but got mask on ",
              mask.device(), " and self on ", self.device());
}

void check_products(const Values& args) {
  size_t first = args.size() > 3 ? 1 : 0;  // addmm has one tensor more in front
  const Tensor &a = args[first].toTensor(), &b = args[first + 1].toTensor();
  TORCH_CHECK(a.dtype() == b.dtype(), "expected mat1 and mat2 to have the same dtype, but got: ", a.dtype(), " != ", b.dtype());
}

const std::unordered_map<std::string_view, void (*)(const Values&)> kBefore = {
    {"aten::convolution", &check_convolution}, {"aten::masked_fill_", &check_masked_fill}};
const std::unordered_map<std::string_view, void (*)(const Values&)> kAfter = {
    {"aten::mm", &check_products}, {"aten::addmm", &check_products}};

void check_devices(const c10::OperatorHandle& op, const Values& args) {
  const auto& schema = op.schema();
  std::optional<c10::Device> common;
  for (size_t i = 0; i < args.size(); i++) {
    const auto& argument = schema.arguments()[i];
    if (may_be_host(schema.name(), argument.name())) continue;
    each_tensor(args[i], [&](const Tensor& t) {
      if (!t.defined() || (t.device().is_cpu() && t.dim() == 0)) return;
      if (!common) common = t.device();
      if (*common == t.device()) return;
      bool is_structured = false;
      std::string method = wrapper(op.operator_name(), args, &is_structured);
      bool iterated = kIterated.count(schema.name()) || (is_structured && argument.is_out());
      TORCH_CHECK(!iterated, "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!");
      c10::impl::common_device_check_failure(*common, t, method.c_str(), argument.name().c_str());
    });
  }
}

void check_generators(const Values& args) {
  bool on_device = false;
  for (const auto& arg : args) {
    each_tensor(arg, [&](const Tensor& t) { on_device |= t.defined() && t.is_cuda(); });
    on_device |= arg.isDevice() && arg.toDevice().is_cuda();
  }
  for (const auto& arg : args) {
    if (!arg.isGenerator() || arg.toGenerator().device().is_cuda() == on_device) continue;
    TORCH_CHECK(false, "Expected a '", on_device ? "cuda" : "cpu", "' device type for generator but found '",
                arg.toGenerator().device().type(), "'");
  }
}

}  // namespace

void check_arguments(const c10::OperatorHandle& op, const Values& args) {
  const auto& name = op.schema().name();
  if (auto check = kBefore.find(name); check != kBefore.end()) check->second(args);
  if (!kAnyDevice.count(name)) check_devices(op, args);
  if (auto check = kAfter.find(name); check != kAfter.end()) check->second(args);
  check_generators(args);
}

}  // namespace kw
