"""Tensor-core instructions against numpy: wmma in its layouts and types, mma fed by ldmatrix and cp.async."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulated import DeviceArray, compiled, launch, needs_nvcc

from kernelwright.device.specs import spec
from kernelwright.emulate.device import EmulatedDevice

pytestmark = [pytest.mark.emu, needs_nvcc]

SOURCE = r"""
#include <mma.h>
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
using namespace nvcuda;
template <typename A, typename B, typename C, typename T>
__device__ void product(const T* a, const T* b, float* c, int n, int k) {
    A x; B y; C z;
    wmma::fill_fragment(z, 0.f);
    int row = blockIdx.y * 16, column = blockIdx.x * 16;
    for (int l = 0; l < n; l += k) {
        wmma::load_matrix_sync(x, a + row * n + l, n);
        wmma::load_matrix_sync(y, b + column * n + l, n);
        wmma::mma_sync(z, x, y, z);
    }
    wmma::store_matrix_sync(c + row * n + column, z, n, wmma::mem_row_major);
}
#define FRAGMENT(use, k, type, layout) wmma::fragment<wmma::use, 16, 16, k, type, wmma::layout>
#define SUM(k) wmma::fragment<wmma::accumulator, 16, 16, k, float>
extern "C" __global__ void f16(const half* a, const half* b, float* c, int n) {
    product<FRAGMENT(matrix_a, 16, half, row_major), FRAGMENT(matrix_b, 16, half, col_major), SUM(16)>(a, b, c, n, 16);
}
extern "C" __global__ void bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n) {
    product<FRAGMENT(matrix_a, 16, __nv_bfloat16, row_major), FRAGMENT(matrix_b, 16, __nv_bfloat16, col_major),
            SUM(16)>(a, b, c, n, 16);
}
extern "C" __global__ void tf32(const float* a, const float* b, float* c, int n) {
    product<FRAGMENT(matrix_a, 8, wmma::precision::tf32, row_major),
            FRAGMENT(matrix_b, 8, wmma::precision::tf32, col_major), SUM(8)>(a, b, c, n, 8);
}
extern "C" __global__ void tile(const half* A, const half* B, float* C) {
    __shared__ half a[16 * 16], b[16 * 8];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&a[t * 8], &A[t * 8], 16);
    if (t < 16) __pipeline_memcpy_async(&b[t * 8], &B[t * 8], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncwarp();
    unsigned x[4], y[2];
    unsigned at = __cvta_generic_to_shared(&a[(t % 16) * 16 + (t / 16) * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
    at = __cvta_generic_to_shared(&b[(t % 16) * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1},[%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(at));
    float d[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int i = 0; i < 4; i++) C[(t / 4 + i / 2 * 8) * 8 + t % 4 * 2 + i % 2] = d[i];
}
"""
N = 48


def _operands(seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    a, b = (random.standard_normal((N, N)).astype(np.float32) for _ in range(2))
    return a, b


@pytest.mark.parametrize("kernel", ["f16", "bf16", "tf32"])
def test_wmma_multiplies_values_as_its_operands_hold_them(kernel: str) -> None:
    a, b = _operands(0)
    if kernel == "f16":
        held = [x.astype(np.float16) for x in (a, b)]
        values = [x.astype(np.float64) for x in held]
    elif kernel == "bf16":
        held = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b)]
        values = [(x.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for x in held]
    else:
        held = [a, b]
        values = [(x.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for x in held]
    c = DeviceArray(np.zeros((N, N), np.float32))
    outcome = launch(compiled(SOURCE), kernel, (N // 16, N // 16), 32, DeviceArray(held[0]), DeviceArray(held[1]), c, N)
    assert (outcome.error, outcome.findings) == (0, ())
    # Each of the N / k steps rounds once to float.
    np.testing.assert_allclose(c.get(), values[0] @ values[1].T, rtol=0, atol=1e-5)
    assert any(opcode.startswith("wmma.mma") for opcode in outcome.approximate)


def test_mma_takes_what_ldmatrix_and_cp_async_brought() -> None:
    a, b = (x.astype(np.float16) for x in _operands(1))
    a, b = a[:16, :16].copy(), b[:16, :8].copy()
    c = DeviceArray(np.zeros((16, 8), np.float32))
    outcome = launch(compiled(SOURCE), "tile", 1, 32, DeviceArray(a), DeviceArray(b), c)
    assert (outcome.error, outcome.findings) == (0, ())
    np.testing.assert_allclose(c.get(), a.astype(np.float64) @ b.astype(np.float64), rtol=0, atol=2e-6)


def test_an_asynchronous_copy_past_the_end_is_found() -> None:
    a, b = (x.astype(np.float16) for x in _operands(1))
    c = DeviceArray(np.zeros((16, 8), np.float32))
    short = DeviceArray(a.reshape(-1)[:200].copy(), "short")
    outcome = launch(compiled(SOURCE), "tile", 1, 32, short, DeviceArray(b), c)
    found = outcome.findings[0]
    assert (outcome.error, found.cause, found.bytes, found.thread, found.offset) == (
        700, "memory.out-of-bounds", 16, (25, 0, 0), 400,
    )  # fmt: skip
    assert found.allocation is not None and found.allocation.name == "short"


@pytest.mark.parametrize(("presented", "word"), [("h200", "exact"), ("a100", "approximate")])
def test_products_count_as_exact_where_the_presented_device_sums_like_the_one_that_was_measured(
    presented: str, word: str
) -> None:
    device = EmulatedDevice(spec(presented))
    device.approximate = {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"}
    assert device.fact().fidelity == (f"{word}: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",)
