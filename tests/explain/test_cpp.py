"""The scan of C++ in a candidate: what it must find, and what it must not take for a function, a store or an array."""

import pytest

from kernelwright.explain import cpp

pytestmark = pytest.mark.tiny


def sources(code: str) -> cpp.Sources:
    return cpp.Sources.of(f'S = r"""{code}"""\n')


def test_definitions_are_found_and_declarations_calls_and_macros_are_not() -> None:
    found = sources("""
void declared(int a);
extern "C" {
__global__ void __launch_bounds__(256) kernel(float* y) { if (y) { helper(y); } }
}
PYBIND11_MODULE(name, m) { m.def("run", &run); }
auto run(torch::Tensor x) -> torch::Tensor {
    for (int i = 0; i < 3; ++i) { kernel<<<1, 1>>>(x.data_ptr<float>()); }
    return x;
}
""")
    assert [(f.name, f.line, f.is_kernel) for f in found.functions] == [("kernel", 4, True), ("run", 7, False)]
    assert [(launch.kernel, launch.line) for launch in found.launches] == [("kernel", 8)]


def test_a_literal_whose_lines_are_not_the_files_lines_is_left_alone() -> None:
    assert cpp.Sources.of('S = "void f() {\\n}\\nvoid g() {}"\n').functions == []


@pytest.mark.parametrize(
    ("demangled", "base"),
    [
        ("scale(float const*, int)", "scale"),
        ("void ns::reduce<float, 4>(float const*, int)", "reduce"),
        ("reduce<Pair<int, float> >", "reduce"),
        ("plain", "plain"),
    ],
)
def test_a_demangled_name_has_one_base_name(demangled: str, base: str) -> None:
    assert cpp.base_name(demangled) == base


def test_local_arrays_are_told_from_shared_ones_elements_and_scalars() -> None:
    (function,) = sources("""
__global__ void k(float* y) {
    __shared__ float tile[32][33];
    float acc[8] = {}, scalar;
    const int where[2][2] = {{0, 1}, {2, 3}};
    acc[3] = tile[0][1];
    y[0] = acc[where[0][0]];
}
""").functions
    assert cpp.local_arrays(function) == {"acc": 4, "where": 5}


def test_stores_are_assignments_to_pointer_parameters_only() -> None:
    (function,) = sources("""
__global__ void k(const float* __restrict__ x, float* __restrict__ y, float *z, int n) {
    y[n] += x[0];
    if (y[0] == z[1]) return;
    z[x[2] > 0 ? 1 : 0] = 1.f;
}
""").functions
    assert cpp.stores(function) == [("y", 3), ("z", 5)]


def test_the_returned_tensor_is_found_by_name_and_inline_and_not_guessed_between_two() -> None:
    named, inline, two = sources("""
torch::Tensor a(torch::Tensor x) { auto t = torch::empty({1});
    auto y = torch::zeros_like(x); return y; }
torch::Tensor b(torch::Tensor x) {
    return torch::empty({2}, x.options()); }
torch::Tensor c(torch::Tensor x) { auto p = torch::empty({1}); auto q = torch::empty({1}); if (1) return p; return q; }
""").functions
    first, second = cpp.returned_allocation(named), cpp.returned_allocation(inline)
    assert first is not None and (first.line, first.call) == (3, "zeros_like")
    assert second is not None and (second.line, second.on_device) == (5, True)
    assert cpp.returned_allocation(two) is None


def test_several_dim3_in_one_statement_are_told_apart() -> None:
    (function,) = sources("""
void f(int n) {
    dim3 threads(32, 8), blocks((n + 31) / 32,
                                n);
    dim3 more = dim3(1);
}
""").functions
    assert [cpp.dim3_line(function, name) for name in ("threads", "blocks", "more", "n")] == [3, 3, 5, 0]
