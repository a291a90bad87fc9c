"""What a kernel does wrong is named with cause, line, thread, block and allocation; the launch ends as on a GPU."""

from __future__ import annotations

import ctypes
import struct
import time

import numpy as np
import pytest
from emulated import DeviceArray, compiled, launch, needs_nvcc

from kernelwright.emulate import runtime
from kernelwright.emulate.module import LaunchOutcome
from kernelwright.records import Finding

pytestmark = [pytest.mark.emu, needs_nvcc]

VIEW = r"""extern "C" __global__ void shifted(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
"""

SOURCE = r"""#include <cassert>
#include <cstdio>
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = x[i] > 0.f ? x[i] : 0.f;                                     // line 5
}
__global__ void gather(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[(i * 40503) % n];                                           // line 9
}
__global__ void copy4(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }   // line 11
__global__ void shared_past(float* y, int k) {
    __shared__ float a[64];
    __shared__ float b[64];
    a[threadIdx.x] = 1; b[threadIdx.x] = 2;
    __syncthreads();
    y[threadIdx.x] = a[threadIdx.x + k] + b[63 - threadIdx.x];                      // line 17
}
__global__ void dynamic(float* y) {
    extern __shared__ float s[];
    s[threadIdx.x] = threadIdx.x;                                                   // line 21
    __syncthreads();
    y[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void local_past(float* y, int k) {
    float v[8];
    for (int i = 0; i < k; i++) v[i] = y[i];                                        // line 27
    float s = 0;
    for (int i = 0; i < 8; i++) s += v[(i * k) & 7];
    y[threadIdx.x] = s;
}
__global__ void two_barriers(float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = y[threadIdx.x];
    if (threadIdx.x < 16) {
        __syncthreads();                                                            // line 36
        y[threadIdx.x] = s[63 - threadIdx.x];
    } else {
        s[threadIdx.x] += 1;
        __syncthreads();                                                            // line 40
        y[threadIdx.x] = s[0] * 2;
    }
}
__global__ void never(float* y) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;"); else asm volatile("bar.sync 2, 64;");   // line 45
    y[0] = 1;
}
__global__ void returns_before(const float* x, float* y, int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();                                                                // line 50
    y[threadIdx.x] = x[threadIdx.x];
}
__global__ void spin(volatile int* flag, int* y) {
    while (*flag == 0) {}                                                           // line 54
    y[0] = 1;
}
__global__ void asserts(int n) { assert(threadIdx.x < n); }                         // line 57
__global__ void traps(int n) { if (threadIdx.x == n) __trap(); }
__global__ void prints(int n) {
    int i = threadIdx.x;
    long long wide = (long long)i << 33; const char* s = "text"; void* p = (void*)16;
    if (i < n) printf("%d|%5.2f|%-6s|%lld|%x|%c|%%|%*d|%p\n", i, i * 0.5, s, wide, i + 250, 'a' + i, 4, i, p);
}
__device__ float inner(const float* x, int i) { return x[i]; }                      // line 64
__global__ void outer(const float* x, float* y, int n) { y[threadIdx.x] = inner(x, threadIdx.x + n); }   // line 65
__constant__ int table[4] = {1, 2, 3, 4};
__device__ int counter = 5;
__global__ void globals(int* y) { y[threadIdx.x] = table[threadIdx.x & 3] + counter; }
__global__ void writes(int* p) { p[threadIdx.x] = 1; }
"""


def only(outcome: LaunchOutcome) -> Finding:
    """The one finding there is."""
    assert len(outcome.findings) == 1, outcome.findings
    return outcome.findings[0]


def line(finding: Finding) -> int:
    """The innermost source line."""
    return finding.frames[0].line


def floats(n: int, name: str = "") -> DeviceArray:
    return DeviceArray(np.arange(n, dtype=np.float32), name)


def test_one_element_past_the_end_names_line_thread_block_and_allocation() -> None:
    x, y = floats(1000, "x"), floats(1000, "y")
    outcome = launch(compiled(SOURCE), "relu", 4, 256, x, y, 1000)
    load, store = outcome.findings
    assert outcome.error == 700
    assert (load.cause, load.access, line(load), load.block, load.thread) == (
        "memory.out-of-bounds", "load", 5, (3, 0, 0), (232, 0, 0),
    )  # fmt: skip
    assert load.allocation is not None and (load.allocation.name, load.allocation.bytes, load.offset) == (
        "x",
        4000,
        4000,
    )
    assert store.allocation is not None and (store.allocation.name, store.access) == ("y", "store")
    assert load.kernel == "relu(float const*, float*, int)"


def test_an_index_that_lands_in_another_tensor_is_reported_against_the_one_meant() -> None:
    n = 1_000_000
    x, y = floats(n, "x"), floats(n, "y")
    found = only(launch(compiled(SOURCE), "gather", (n + 255) // 256, 256, x, y, n))
    i = next(i for i in range(n) if (i * 40503 + 2**31) % 2**32 - 2**31 != i * 40503)
    wrapped = (i * 40503 + 2**31) % 2**32 - 2**31
    index = -((-wrapped) % n)
    assert (found.cause, line(found), found.offset) == ("memory.out-of-bounds", 9, 4 * index)
    assert found.block[0] * 256 + found.thread[0] == i
    assert found.allocation is not None and found.allocation.name == "x"


def test_an_index_that_leaves_the_view_it_was_given_is_observed() -> None:
    x, y = DeviceArray(np.ones(1024, np.float32), "x"), DeviceArray(np.zeros(256, np.float32), "y")
    start = x.address + 512 * 4
    runtime.library().kw_view(start, 0, 200 * 4)
    params = struct.pack("<QQi", start, y.address, 256)
    outcome = compiled(VIEW).launch("shifted", (2, 1, 1), (128, 1, 1), params)
    (seen,) = outcome.observations
    assert (outcome.error, outcome.findings) == (0, ())
    assert (seen.cause, seen.frames[0].line, seen.access) == ("memory.out-of-bounds", 3, "load")
    assert (seen.block, seen.thread, seen.offset) == ((1, 0, 0), (72, 0, 0), 800)
    assert seen.allocation is not None and (seen.allocation.name, seen.allocation.bytes) == (
        "the view that was passed",
        800,
    )
    assert seen.message == "x has 4096 bytes, of which the tensor that was passed is 800, from byte 2048 on"
    runtime.library().kw_view(start, 0, 256 * 4)
    again = compiled(VIEW).launch("shifted", (2, 1, 1), (128, 1, 1), params)
    assert (again.findings, again.observations) == ((), ())
    x.free()


def test_a_vector_load_off_its_alignment_ends_in_716() -> None:
    x, y = floats(1000, "x"), floats(1000)
    x.address += 4
    outcome = launch(compiled(SOURCE), "copy4", 1, 64, x, y)
    found = only(outcome)
    assert (outcome.error, found.cause, found.bytes, found.offset, found.count) == (716, "memory.misaligned", 16, 4, 64)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (runtime.HOST, "interface.host-memory"),
        (runtime.BINDING_TEMPORARY, "interface.raw-pointer"),
        (0, "interface.host-memory"),
    ],
)
def test_memory_of_the_host_is_recognised(kind: int, cause: str) -> None:
    host = np.zeros(1 << 20, np.float32)
    y = floats(1000)
    if kind:
        runtime.library().kw_adopt(host.ctypes.data, host.nbytes, kind, b"host")
    x = floats(1)
    x.address = host.ctypes.data
    outcome = launch(compiled(SOURCE), "relu", 1, 256, x, y, 900)
    runtime.library().kw_forget(host.ctypes.data)
    assert (outcome.error, only(outcome).cause, only(outcome).count) == (700, cause, 256)


def test_freed_memory_is_recognised() -> None:
    x, y = floats(1000, "gone"), floats(1000)
    x.free()
    found = only(launch(compiled(SOURCE), "relu", 1, 256, x, y, 900))
    assert found.cause == "memory.use-after-free"
    assert found.allocation is not None and (found.allocation.kind, found.allocation.name) == ("freed", "gone")


def test_a_null_pointer_is_named() -> None:
    x, y = floats(1), floats(1000)
    x.address = 0
    found = only(launch(compiled(SOURCE), "relu", 1, 32, x, y, 900))
    assert (found.cause, found.allocation) == ("memory.out-of-bounds", None)
    assert "null" in found.message


def test_leaving_one_shared_array_for_the_next_is_found() -> None:
    found = only(launch(compiled(SOURCE), "shared_past", 1, 64, floats(64), 1))
    assert (found.cause, found.space, line(found), found.thread, found.offset) == (
        "memory.out-of-bounds", "shared", 17, (63, 0, 0), 256,
    )  # fmt: skip


def test_dynamic_shared_memory_ends_where_the_launch_said() -> None:
    y = floats(128)
    assert launch(compiled(SOURCE), "dynamic", 1, 128, y, dynamic_shared=512).error == 0
    assert y.get().tolist() == list(range(127, -1, -1))
    found = launch(compiled(SOURCE), "dynamic", 1, 128, y, dynamic_shared=508).findings[0]
    assert (found.space, found.access, line(found), found.thread) == ("shared", "store", 21, (127, 0, 0))


def test_a_local_array_indexed_past_its_end_is_an_overrun() -> None:
    found = only(launch(compiled(SOURCE), "local_past", 1, 32, floats(64), 10))
    assert (found.cause, line(found), found.offset, found.count) == ("memory.local-overrun", 27, 32, 64)


def test_a_warp_split_over_two_barriers_names_both_lines() -> None:
    outcome = launch(compiled(SOURCE), "two_barriers", 1, 64, floats(64))
    assert outcome.error == 719
    assert {(f.cause, line(f)) for f in outcome.findings} == {
        ("sync.divergent-barrier", 36), ("sync.divergent-barrier", 40),
    }  # fmt: skip


def test_warps_that_wait_for_one_another_for_ever_are_stopped() -> None:
    outcome = launch(compiled(SOURCE), "never", 1, 64, floats(64))
    assert outcome.error == 719
    assert {(f.cause, line(f), f.thread[0]) for f in outcome.findings} == {
        ("sync.divergent-barrier", 45, 0), ("sync.divergent-barrier", 45, 32),
    }  # fmt: skip


def test_threads_that_returned_count_as_arrived_and_are_observed() -> None:
    x, y = floats(64), DeviceArray(np.zeros(64, np.float32))
    outcome = launch(compiled(SOURCE), "returns_before", 1, 64, x, y, 40)
    assert (outcome.error, outcome.findings) == (0, ())
    assert y.get()[:40].tolist() == list(range(40))
    assert [(o.cause, line(o)) for o in outcome.observations] == [("sync.divergent-barrier", 50)]


def test_a_kernel_that_never_ends_is_stopped_with_its_line() -> None:
    flag, y = DeviceArray(np.zeros(1, np.int32)), DeviceArray(np.zeros(1, np.int32))
    before = time.monotonic()
    outcome = launch(compiled(SOURCE), "spin", 2, 32, flag, y, deadline_s=0.2)
    assert time.monotonic() - before < 5
    assert (outcome.error, outcome.interrupted) == (702, True)
    assert [frames[0].line for frames in outcome.stopped_at] == [54]


def test_a_failed_assertion_ends_in_710_with_its_text() -> None:
    outcome = launch(compiled(SOURCE), "asserts", 1, 32, 30)
    found = only(outcome)
    assert (outcome.error, found.thread, found.count) == (710, (30, 0, 0), 2)
    assert "threadIdx.x < n" in found.message and ":57:" in found.message


def test_a_trap_ends_in_719() -> None:
    outcome = launch(compiled(SOURCE), "traps", 1, 64, 37)
    assert (outcome.error, only(outcome).thread) == (719, (37, 0, 0))


def test_printf_formats_as_cuda_does() -> None:
    printed = launch(compiled(SOURCE), "prints", 1, 32, 2).printed
    assert printed == "0| 0.00|text  |0|fa|a|%|   0|0x10\n1| 0.50|text  |8589934592|fb|b|%|   1|0x10\n"


def test_a_fault_in_an_inlined_function_keeps_the_call_behind_it() -> None:
    found = launch(compiled(SOURCE), "outer", 1, 32, floats(32), floats(32), 1).findings[0]
    assert [(frame.line, frame.function.split("(")[0]) for frame in found.frames] == [(64, "inner"), (65, "outer")]


def test_device_variables_hold_their_initial_values_and_constants_refuse_stores() -> None:
    module = compiled(SOURCE)
    y = DeviceArray(np.zeros(8, np.int32))
    launch(module, "globals", 1, 8, y)
    assert y.get().tolist() == [6, 7, 8, 9] * 2
    address, size = module.symbol("table")
    assert (size, ctypes.c_int.from_address(address + 4).value) == (16, 2)
    y.address = address
    found = only(launch(module, "writes", 1, 4, y))
    assert (found.cause, found.allocation is not None and found.allocation.kind) == ("memory.out-of-bounds", "const")


def test_of_blocks_that_fault_in_parallel_the_first_one_speaks() -> None:
    x, y = floats(1000, "x"), floats(100_000)
    seen = {launch(compiled(SOURCE), "relu", 300, 256, x, y, 100_000 - 1).findings[0].block for _ in range(5)}
    assert seen == {(3, 0, 0)}


def test_memory_nobody_wrote_shows_as_poison() -> None:
    y = floats(4)
    address = runtime.library().kw_alloc(64, runtime.GLOBAL, b"")
    assert ctypes.c_uint32.from_address(address).value == 0x7FA57FA5
    big = runtime.library().kw_alloc(200 << 20, runtime.GLOBAL, b"")
    assert {ctypes.c_uint16.from_address(big + o).value for o in (0, 99 << 20, (200 << 20) - 2)} == {0x7FA5}
    ctypes.c_uint16.from_address(big + 4096).value = 1
    assert ctypes.c_uint16.from_address(big + (16 << 20) + 4096).value == 0x7FA5
    for given in (address, big):
        assert runtime.library().kw_free(given) == 0
    assert runtime.library().kw_free(y.address + 4) == -1
