// Wrapper code as people write it; see corpus.py.
#include <pybind11/stl.h>
#include <stdexcept>
namespace py = pybind11;
torch::Tensor scale_packed(torch::Tensor x, double s);
torch::Tensor negate_any(torch::Tensor x);
std::string facts(const torch::Tensor& x) {
  return c10::str(x.sizes(), x.strides(), x.dim(), " ", x.numel(), " ", x.scalar_type(), " ", x.dtype(), " ", x.device(), " ",
                  x.is_contiguous(), x.is_cuda(), x.element_size(), x.requires_grad(), x.size(-1), x.stride(0));
}
torch::Tensor arithmetic(torch::Tensor x) { return ((x * 2 + 1 - x / 3).relu() + 2 * x).sum({0}, true) - (1 - x.mean()); }
std::vector<torch::Tensor> shapes(torch::Tensor x) {
  return {x.t().contiguous(), x.view({-1}), x.reshape({3, 2}), x.unsqueeze(0).expand({2, 2, 3}), x[1], x.permute({1, 0}),
          x.slice(1, 0, 2), x.to(torch::kFloat64), x.flatten(), x.transpose(0, 1)};
}
std::vector<torch::Tensor> factories(torch::Tensor x) {
  auto o = torch::TensorOptions().dtype(torch::kInt32).device(x.device());
  return {torch::zeros({2, 2}, x.options()), torch::ones({2}, o), torch::full({2}, 7, x.options()), torch::zeros_like(x),
          torch::arange(4, o), torch::tensor({1.5f, 2.5f}), torch::empty_like(x).fill_(3), torch::eye(2)};
}
std::tuple<torch::Tensor, int64_t, std::optional<std::string>> several(torch::Tensor x) { return {x.abs(), x.argmax().item<int64_t>(), std::nullopt}; }
void check(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 3, "expected 3 dims, got ", x.dim(), " for ", x.sizes(), " of ", x.scalar_type(), " on ", x.device(), " ", 1.5, " ", true);
}
void check_bare(torch::Tensor x) { TORCH_CHECK(x.numel() == 0); }
void check_kinds(int kind) {
  TORCH_CHECK_INDEX(kind != 0, "index ", kind);
  TORCH_CHECK_VALUE(kind != 1, "value ", kind);
  TORCH_CHECK_TYPE(kind != 2, "type ", kind);
  TORCH_CHECK_NOT_IMPLEMENTED(kind != 3, "not implemented ", kind);
  if (kind == 4) throw std::invalid_argument("invalid");
  if (kind == 5) throw std::out_of_range("range");
}
int64_t size_of(torch::Tensor x, int64_t d) { return x.size(d); }
double first_double(torch::Tensor x) { return *x.data_ptr<double>(); }
float element(torch::Tensor x) { auto a = x.accessor<float, 2>(); return a[1][2]; }
float element3(torch::Tensor x) { auto a = x.accessor<float, 3>(); return a[0][0][0]; }
int take_int(int a) { return a; }
int64_t take_long(int64_t a) { return a; }
uint8_t take_byte(uint8_t a) { return a; }
unsigned take_unsigned(unsigned a) { return a; }
bool take_bool(bool a) { return a; }
float take_float(float a) { return a; }
double take_double(double a) { return a; }
std::string take_string(const std::string& a) { return a + "!"; }
std::vector<int64_t> take_vector(std::vector<int64_t> a) { a.push_back(9); return a; }
int64_t take_sizes(at::IntArrayRef a) { return a.size(); }
bool take_optional(std::optional<torch::Tensor> a) { return a.has_value(); }
int64_t take_list(std::vector<torch::Tensor> a) { return a.size(); }
std::pair<int, float> take_pair(std::pair<int, float> a) { return a; }
at::ScalarType take_dtype(at::ScalarType a) { return a; }
float through_pointer(const float* a) { return *a; }
int overloaded_int(int a) { return a; }
std::string overloaded_float(double a) { return "double"; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "a corpus";
#define WRAP(f) m.def(#f, torch::wrap_pybind_function(f), #f)
  WRAP(facts); WRAP(arithmetic); WRAP(shapes); WRAP(factories); WRAP(several); WRAP(check); WRAP(check_bare); WRAP(check_kinds);
  WRAP(size_of); WRAP(first_double); WRAP(element); WRAP(element3); WRAP(scale_packed); WRAP(negate_any);
  m.def("take_int", &take_int, py::arg("a") = 3);
  m.def("take_strict", &take_int, py::arg("a").noconvert());
  m.def("take_long", &take_long, "takes", py::arg("a"));
#define PLAIN(f) m.def(#f, &f)
  PLAIN(take_byte); PLAIN(take_unsigned); PLAIN(take_bool); PLAIN(take_float); PLAIN(take_double); PLAIN(take_string);
  PLAIN(take_vector); PLAIN(take_sizes); PLAIN(take_optional); PLAIN(take_list); PLAIN(take_pair); PLAIN(take_dtype);
  PLAIN(through_pointer); m.def("check_plain", &check_kinds); m.def("check_shape", &check);
  m.def("overloaded", &overloaded_int);
  m.def("overloaded", &overloaded_float);
  m.def("released", [](double a) { return a * 2; }, py::arg("a"), py::call_guard<py::gil_scoped_release>());
}
