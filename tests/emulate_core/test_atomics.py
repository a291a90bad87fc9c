"""Atomics, the in-kernel heap, and which kernels may run their blocks in parallel."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import DeviceArray, compiled, launch, needs_nvcc

pytestmark = [pytest.mark.emu, needs_nvcc]

SOURCE = r"""
extern "C" __global__ void count(int* h, const int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&h[x[i]], 1);
}
extern "C" __global__ void histogram(int* h, const int* x, int n) {
    __shared__ int s[64];
    if (threadIdx.x < 64) s[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&s[x[i]], 1);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&h[threadIdx.x], s[threadIdx.x]);
}
extern "C" __global__ void order(int* ticket, int* y) { y[blockIdx.x] = atomicAdd(ticket, 1); }
extern "C" __global__ void heap(int* y) {
    int* p = (int*)malloc(16);
    p[0] = threadIdx.x;
    p[3] = p[0] * 2;
    y[threadIdx.x] = p[3];
    free(p);
}
extern "C" __global__ void last_block(const float* x, float* part, float* y, unsigned* arrived, int n) {
    __shared__ float s[128];
    __shared__ bool last;
    int t = threadIdx.x;
    float v = 0;
    for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) v += x[i];
    s[t] = v;
    __syncthreads();
    for (int k = 64; k; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) { part[blockIdx.x] = s[0]; __threadfence(); last = atomicInc(arrived, gridDim.x) == gridDim.x - 1; }
    __syncthreads();
    if (last && t == 0) { float q = 0; for (int i = 0; i < gridDim.x; i++) q += ((volatile float*)part)[i]; *y = q; }
}
"""


@pytest.mark.parametrize("kernel", ["count", "histogram"])
def test_counting_with_atomics_loses_nothing_and_runs_in_parallel(kernel: str) -> None:
    x = np.random.default_rng(0).integers(0, 64, 50_000).astype(np.int32)
    h = DeviceArray(np.zeros(64, np.int32))
    assert launch(compiled(SOURCE), kernel, 196, 256, h, DeviceArray(x), x.size).error == 0
    assert h.get().tolist() == np.bincount(x, minlength=64).tolist()
    assert compiled(SOURCE).compiled(kernel).parallel


def test_a_ticket_that_is_read_keeps_the_blocks_in_order() -> None:
    ticket, y = DeviceArray(np.zeros(1, np.int32)), DeviceArray(np.zeros(100, np.int32))
    launch(compiled(SOURCE), "order", 100, 1, ticket, y)
    assert y.get().tolist() == list(range(100))
    assert not compiled(SOURCE).compiled("order").parallel


def test_the_last_block_to_arrive_sees_what_all_others_wrote() -> None:
    x = np.random.default_rng(1).random(20_000, np.float32)
    part, y = DeviceArray(np.zeros(30, np.float32)), DeviceArray(np.zeros(1, np.float32))
    arrived = DeviceArray(np.zeros(1, np.uint32))
    assert launch(compiled(SOURCE), "last_block", 30, 128, DeviceArray(x), part, y, arrived, x.size).error == 0
    np.testing.assert_allclose(y.get()[0], x.sum(dtype=np.float64), rtol=1e-6)


def test_in_kernel_malloc_gives_each_thread_its_own_memory() -> None:
    y = DeviceArray(np.zeros(40, np.int32))
    assert launch(compiled(SOURCE), "heap", 1, 40, y).error == 0
    assert y.get().tolist() == [2 * t for t in range(40)]
