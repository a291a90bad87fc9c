"""Functions that call themselves or one another: values against Python's own recursion, and what ends one too deep."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import Array, DeviceArray, compiled, launch, needs_nvcc

from kernelwright.emulate.recursion import DEPTH

pytestmark = [pytest.mark.emu, needs_nvcc]

SOURCE = r"""
struct Node { int left, right, value; };
__device__ int weighted(const Node* nodes, int at, int depth) {
    if (at < 0) return 0;
    Node n = nodes[at];
    return n.value * depth + weighted(nodes, n.left, depth + 1) + weighted(nodes, n.right, depth + 1);
}
__global__ void tree(const Node* nodes, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = weighted(nodes, i, 1);
}
__device__ bool odd(int n);
__device__ __noinline__ bool even(int n) { return n == 0 ? true : odd(n - 1); }
__device__ __noinline__ bool odd(int n) { return n == 0 ? false : even(n - 1); }
__global__ void parity(int* out) { out[threadIdx.x] = even(threadIdx.x) + 2 * odd(threadIdx.x); }
__device__ __noinline__ void quicksort(int* a, int lo, int hi) {
    int i = lo, j = hi, p = a[(lo + hi) / 2];
    while (i <= j) {
        while (a[i] < p) i++;
        while (a[j] > p) j--;
        if (i <= j) { int t = a[i]; a[i] = a[j]; a[j] = t; i++; j--; }
    }
    if (lo < j) quicksort(a, lo, j);
    if (i < hi) quicksort(a, i, hi);
}
__global__ void sorts(int* a, int n) { quicksort(a + threadIdx.x * n, 0, n - 1); }
struct Five { float v[5]; };
__device__ __noinline__ Five mix(Five a, int n) {
    if (n == 0) return a;
    Five b = mix(a, n - 1), c;
    for (int i = 0; i < 5; i++) c.v[i] = b.v[(i + n) % 5] + a.v[i] * n;
    return c;
}
__global__ void structures(float* out) {
    Five a;
    for (int i = 0; i < 5; i++) a.v[i] = threadIdx.x + i;
    Five b = mix(a, threadIdx.x % 5);
    for (int i = 0; i < 5; i++) out[threadIdx.x * 5 + i] = b.v[i];
}
__device__ __noinline__ int meet(int n, int lane) {
    __syncthreads();
    if (n == 0) return lane;
    int below = meet(n - 1, lane);
    return below + __shfl_xor_sync(~0u, below, 1);
}
__global__ void meetings(int* out, int n) { out[threadIdx.x] = meet(n, threadIdx.x); }
__device__ __noinline__ int down(int n, int* seen) {
    if (n == 0) return 0;
    int rest = down(n - 1, seen);
    seen[threadIdx.x]++;
    return rest + n;
}
__global__ void deep(int* out, int* seen) { out[threadIdx.x] = down(threadIdx.x, seen); }
__device__ int again(int n);
__device__ int (*pointers[2])(int) = {again, again};
__device__ __noinline__ int again(int n) { return n < 2 ? n : pointers[n & 1](n - 1) + 1; }
__global__ void pointer(int* out) { out[threadIdx.x] = pointers[0](threadIdx.x); }
"""


def test_a_tree_is_walked_by_two_calls_in_each_activation() -> None:
    rng = np.random.default_rng(0)
    nodes = np.full((200, 3), -1, np.int32)
    nodes[:, 2] = rng.integers(1, 9, 200)
    for child in range(1, 200):
        parents = [p for p in range(child) if (nodes[p, :2] < 0).any()]
        parent = int(rng.choice(parents))
        nodes[parent, int(nodes[parent, 0] >= 0)] = child

    def weighted(at: int, depth: int) -> int:
        left, right, value = (int(x) for x in nodes[at])
        return 0 if at < 0 else value * depth + weighted(left, depth + 1) + weighted(right, depth + 1)

    out = DeviceArray(np.zeros(100, np.int32))
    outcome = launch(compiled(SOURCE), "tree", 4, 32, DeviceArray(nodes), out, 100)
    assert (outcome.error, outcome.findings) == (0, ())
    assert out.get().tolist() == [weighted(at, 1) for at in range(100)]


def test_two_functions_that_call_each_other_are_entered_at_either() -> None:
    out = DeviceArray(np.zeros(40, np.int32))
    assert launch(compiled(SOURCE), "parity", 1, 40, out).error == 0
    assert out.get().tolist() == [2 if n & 1 else 1 for n in range(40)]


def test_quicksort_keeps_its_bounds_across_the_first_call() -> None:
    given = np.random.default_rng(1).integers(0, 1000, (33, 50)).astype(np.int32)
    array = DeviceArray(given)
    assert launch(compiled(SOURCE), "sorts", 1, 33, array, 50).error == 0
    assert (array.get() == np.sort(given, axis=1)).all()


def test_structures_by_value_have_a_place_in_each_frame() -> None:
    out = DeviceArray(np.zeros(200, np.float32))
    assert launch(compiled(SOURCE), "structures", 1, 40, out).error == 0

    def mix(a: Array, n: int) -> Array:
        return a if n == 0 else np.roll(mix(a, n - 1), -n) + a * n

    expected = np.array([mix(np.arange(5.0) + t, t % 5) for t in range(40)])
    assert (out.get().reshape(40, 5) == expected).all()


def test_barriers_and_shuffles_inside_recursion_meet_all_lanes() -> None:
    out = DeviceArray(np.zeros(96, np.int32))
    outcome = launch(compiled(SOURCE), "meetings", 1, 96, out, 6)
    assert (outcome.error, outcome.findings) == (0, ())
    assert out.get().tolist() == [(t + (t ^ 1)) << 5 for t in range(96)]


def test_a_thread_that_recurses_too_deep_ends_with_a_finding_and_the_others_go_on() -> None:
    out, seen = DeviceArray(np.zeros(DEPTH + 6, np.int32)), DeviceArray(np.zeros(DEPTH + 6, np.int32))
    outcome = launch(compiled(SOURCE), "deep", 1, DEPTH + 6, out, seen)
    (finding,) = outcome.findings
    assert (outcome.error, finding.cause, finding.count, finding.thread) == (719, "device.trap", 6, (DEPTH, 0, 0))
    assert "down(int, int*) calls itself more than 64 deep" in finding.message
    assert [frame.function for frame in finding.frames] == ["down(int, int*)", "deep(int*, int*)"]
    assert out.get().tolist() == [n * (n + 1) // 2 if n < DEPTH else 0 for n in range(DEPTH + 6)]
    assert seen.get().tolist() == [n if n < DEPTH else 0 for n in range(DEPTH + 6)]


def test_recursion_through_a_pointer_ends_by_name() -> None:
    out = DeviceArray(np.zeros(32, np.int32))
    outcome = launch(compiled(SOURCE), "pointer", 1, 32, out)
    (finding,) = outcome.findings
    assert (outcome.error, finding.count) == (719, 30)
    assert "again(int) calls itself through a pointer" in finding.message
    assert out.get().tolist()[:2] == [0, 1]
