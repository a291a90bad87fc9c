"""Which bodies the host compiler cannot see."""

from __future__ import annotations

import pytest

from kernelwright.build import skeleton

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize(
    "source",
    [
        "__global__ void k(float* x) { x[0] = 1; }",
        "template <typename T>\n__global__ void __launch_bounds__(256) k(T* x) {\n  if (x) { x[0] = 1; }\n}",
        "static __device__ __forceinline__ float f(float a) { return a + 1; }",
        '__global__ void k() { printf("}"); /* } */ }',
    ],
)
def test_a_device_only_body_is_blanked(source: str) -> None:
    made = skeleton.of(source)
    inner = made[made.index("{") + 1 : made.rindex("}")]
    assert not inner.strip()
    assert made.count("\n") == source.count("\n")
    assert made[: made.index("{")] == source[: source.index("{")]


@pytest.mark.parametrize(
    "source",
    [
        "__host__ __device__ int f() { return 1; }",
        "__device__ constexpr int f() { return 1; }",
        "__device__ auto f() { return 1; }",
        "void host() { k<<<1, 1>>>(); }",
        "auto l = [=] __device__ (int i) { return i; };",
        "__global__ void k() {\n#if X\n  a();\n#endif\n}",
        "__device__ int f() { static int n; return n++; }",
        "__device__ float table[2] = {1, 2};",
    ],
)
def test_what_the_host_can_see_stays(source: str) -> None:
    assert skeleton.of(source) == source


def test_comments_do_not_count() -> None:
    assert skeleton.of("int a; // one\nint b;").split() == ["int", "a;", "int", "b;"]


def test_lines_inside_device_functions_are_known_by_their_place() -> None:
    source = '#line 9 "candidate.py"\n// a word\n__global__ void k() {\n  a();\n}\nvoid host() {\n  b();\n}\n'
    assert skeleton.device_lines(source) == {("candidate.py", 11)}
