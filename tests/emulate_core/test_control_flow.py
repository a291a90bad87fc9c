"""Divergence, loops, barriers, and who waits for whom: values, against Python's own reading of the same code."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import DeviceArray, compiled, launch, needs_nvcc, ptx

pytestmark = [pytest.mark.emu, needs_nvcc]

SOURCE = r"""
__global__ void early(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i];
    for (int k = 0; k < v; k++) {
        if (k == 5 && (i & 1)) break;
        if ((k ^ i) & 4) { y[i] += k; } else { if (k & 1) continue; y[i] -= 1; }
        if (y[i] > 100) return;
    }
    y[i] += 1000;
}
__global__ void collatz(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = x[i];
    int c = 0;
    while (v != 1) { v = (v & 1) ? 3 * v + 1 : v >> 1; c++; }
    y[i] = c;
}
__global__ void block_sum(const float* x, float* y, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    float v = 0;
    for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) v += x[i];
    s[t] = v;
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = s[0];
}
__global__ void cube(int* y) {
    int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    y[b * blockDim.x * blockDim.y * blockDim.z + t] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * b;
}
__global__ void half_shuffles(int* y) {
    int t = threadIdx.x, v = t;
    if (t & 1) v = __shfl_xor_sync(0xaaaaaaaa, v, 2); else v = __shfl_xor_sync(0x55555555, v, 4);
    __syncwarp();
    y[t] = v + __shfl_down_sync(0xffffffff, v, 1);
}
__global__ void warp_functions(int* y) {
    int t = threadIdx.x, s = 0;
    for (int i = 0; i < t % 4 + 1; i++) s += i + t;
    s += __shfl_xor_sync(~0u, s, 1);
    unsigned ballot = __ballot_sync(~0u, s & 1);
    y[t] = s + __popc(ballot) * 1000 + __any_sync(~0u, t == 3) + __all_sync(~0u, t < 31)
         + __reduce_add_sync(~0u, t) + (int)(__match_any_sync(~0u, t / 8) >> (t / 8 * 8));
}
__global__ void barrier_results(int* y) {
    int t = threadIdx.x;
    int count = __syncthreads_count(t % 3 == 0), all = __syncthreads_and(t < 1000), any = __syncthreads_or(t == 777);
    y[t] = count * 4 + all * 2 + any;
}
__global__ void lock(int* l, int* c) {
    for (int i = 0; i < 2; i++) {
        bool done = false;
        while (!done) {
            if (atomicCAS(l, 0, 1) == 0) { c[0] += 1; __threadfence(); atomicExch(l, 0); done = true; }
        }
    }
}
__global__ void grid_barrier(int* arrived, int* y) {
    if (threadIdx.x == 0) { atomicAdd(arrived, 1); while (atomicAdd(arrived, 0) < gridDim.x) {} }
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = *arrived;
}
__global__ void producer_consumer(int* y) {
    __shared__ int box[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int round = 0; round < 3; round++) {
        if (warp == 0) {
            box[lane] = lane * 10 + round;
            asm volatile("bar.arrive 1, 64;" ::: "memory");
            asm volatile("bar.sync 2, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            y[round * 32 + lane] = box[31 - lane];
            asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
    }
}
__device__ __noinline__ int triangle(int n) { int s = 0; for (int i = 1; i <= n; i++) s += i; return s; }
struct Table { int v[40]; };
__global__ void table(Table t, int* y) { y[threadIdx.x] = t.v[(threadIdx.x * 7) % 40]; }
__global__ void half_warp(int* y) {
    int v = threadIdx.x;
    if (threadIdx.x < 16) v = __shfl_xor_sync(~0u, v, 1);
    asm volatile("bar.sync 0;");
    y[threadIdx.x] = v;
}
struct Pair { double a; int b; };
__device__ __noinline__ Pair make(int n) { Pair p; p.a = n * 0.5; p.b = triangle(n); return p; }
__global__ void calls(double* y) {
    Pair p = make(threadIdx.x % 7);
    y[threadIdx.x] = p.a + p.b + triangle(threadIdx.x & 3);
}
"""


def test_lanes_that_leave_a_loop_early_or_return_keep_their_values() -> None:
    x = np.random.default_rng(0).integers(0, 40, 300).astype(np.int32)
    y = DeviceArray(np.zeros(300, np.int32))

    def expected(i: int, v: int) -> int:
        a = 0
        for k in range(v):
            if k == 5 and i & 1:
                break
            if (k ^ i) & 4:
                a += k
            else:
                if k & 1:
                    continue
                a -= 1
            if a > 100:
                return a
        return a + 1000

    assert launch(compiled(SOURCE), "early", 2, 256, DeviceArray(x), y, 300).error == 0
    assert y.get().tolist() == [expected(i, int(v)) for i, v in enumerate(x)]


def test_a_loop_of_different_length_in_every_lane_ends_with_the_right_counts() -> None:
    x = np.random.default_rng(1).integers(1, 5000, 1000).astype(np.int32)
    y = DeviceArray(np.zeros(1000, np.int32))

    def steps(v: int) -> int:
        count = 0
        while v != 1:
            v, count = (3 * v + 1 if v & 1 else v >> 1), count + 1
        return count

    launch(compiled(SOURCE), "collatz", 4, 256, DeviceArray(x), y, 1000)
    assert y.get().tolist() == [steps(int(v)) for v in x]


def test_a_tree_reduction_through_barriers_sums_each_block() -> None:
    x = np.random.default_rng(2).random(4000, np.float32)
    y = DeviceArray(np.zeros(4, np.float32))
    assert launch(compiled(SOURCE), "block_sum", 4, 256, DeviceArray(x), y, 4000).error == 0
    padded = np.zeros(4096, np.float32)
    padded[:4000] = x
    np.testing.assert_allclose(y.get(), padded.reshape(4, 4, 256).transpose(1, 0, 2).reshape(4, -1).sum(1), rtol=1e-5)


def test_threads_and_blocks_of_three_dimensions_are_numbered_x_first() -> None:
    y = DeviceArray(np.zeros(2 * 3 * 2 * 5 * 4 * 3, np.int32))
    launch(compiled(SOURCE), "cube", (2, 3, 2), (5, 4, 3), y)
    z, yy, x = np.meshgrid(np.arange(3), np.arange(4), np.arange(5), indexing="ij")
    one = (x + 10 * yy + 100 * z).reshape(-1)
    assert y.get().tolist() == np.concatenate([one + 1000 * b for b in range(12)]).tolist()


def test_shuffles_in_both_arms_of_a_branch_wait_for_their_own_members() -> None:
    y = DeviceArray(np.zeros(32, np.int32))
    assert launch(compiled(SOURCE), "half_shuffles", 1, 32, y).error == 0
    t = np.arange(32)
    v = np.where(t & 1, t ^ 2, t ^ 4)
    assert y.get().tolist() == (v + np.where(t < 31, np.roll(v, -1), v)).tolist()


def test_warp_functions_behind_a_divergent_loop_see_all_lanes() -> None:
    y = DeviceArray(np.zeros(32, np.int32))
    outcome = launch(compiled(SOURCE), "warp_functions", 1, 32, y)
    t = np.arange(32)
    s = np.array([sum(i + k for i in range(k % 4 + 1)) for k in t])
    s = s + s[t ^ 1]
    assert y.get().tolist() == (s + (s & 1).sum() * 1000 + 1 + 0 + t.sum() + 0xFF).tolist()
    assert outcome.observations == ()


def test_barrier_reductions_count_all_threads_of_a_block_with_a_partial_warp() -> None:
    y = DeviceArray(np.zeros(100, np.int32))
    launch(compiled(SOURCE), "barrier_results", 1, 100, y)
    assert set(y.get().tolist()) == {34 * 4 + 2}


def test_a_spin_lock_within_a_warp_lets_every_lane_through() -> None:
    lock, counter = DeviceArray(np.zeros(1, np.int32)), DeviceArray(np.zeros(1, np.int32))
    outcome = launch(compiled(SOURCE), "lock", 2, 48, lock, counter, deadline_s=20.0)
    assert (outcome.error, int(counter.get()[0])) == (0, 2 * 48 * 2)


def test_blocks_that_wait_for_one_another_run_side_by_side() -> None:
    arrived, y = DeviceArray(np.zeros(1, np.int32)), DeviceArray(np.zeros(20 * 64, np.int32))
    outcome = launch(compiled(SOURCE), "grid_barrier", 20, 64, arrived, y, deadline_s=20.0)
    assert outcome.error == 0
    assert set(y.get().tolist()) == {20}


def test_named_barriers_hand_values_from_one_warp_to_another() -> None:
    y = DeviceArray(np.zeros(96, np.int32))
    assert launch(compiled(SOURCE), "producer_consumer", 1, 64, y).error == 0
    assert y.get().tolist() == [(31 - lane) * 10 + r for r in range(3) for lane in range(32)]


def test_functions_that_are_not_inlined_return_structures() -> None:
    y = DeviceArray(np.zeros(40, np.float64))
    launch(compiled(SOURCE), "calls", 1, 40, y)

    def triangle(n: int) -> int:
        return n * (n + 1) // 2

    assert y.get().tolist() == [t % 7 * 0.5 + triangle(t % 7) + triangle(t & 3) for t in range(40)]


def test_a_parameter_array_is_read_at_an_index_of_its_own_in_each_lane() -> None:
    y = DeviceArray(np.zeros(40, np.int32))
    params = np.arange(100, 140, dtype=np.int32).tobytes() + y.address.to_bytes(8, "little")
    outcome = compiled(SOURCE).launch("_Z5table5TablePi", (1, 1, 1), (40, 1, 1), params)
    assert (outcome.error, y.get().tolist()) == (0, [100 + t * 7 % 40 for t in range(40)])


def test_a_shuffle_whose_members_never_come_goes_on_and_is_observed() -> None:
    y = DeviceArray(np.zeros(32, np.int32))
    outcome = launch(compiled(SOURCE), "half_warp", 1, 32, y)
    assert (outcome.error, outcome.findings) == (0, ())
    assert {o.cause for o in outcome.observations} == {"warp.mask"}
    assert y.get().tolist() == [t ^ 1 if t < 16 else t for t in range(32)]


def test_a_launch_gives_the_same_bits_every_time() -> None:
    x = np.random.default_rng(3).standard_normal(5000).astype(np.float32)
    module = compiled("__global__ void add(const float* x, float* y, int n) {"
                      " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicAdd(y, x[i]); }")  # fmt: skip
    given, seen = DeviceArray(x), set()
    for _ in range(5):
        y = DeviceArray(np.zeros(1, np.float32))
        launch(module, "add", 20, 256, given, y, 5000)
        seen.add(float(y.get()[0]))
    assert len(seen) == 1


def test_a_guarded_instruction_leaves_the_register_where_the_guard_is_false() -> None:
    module = ptx("""
	mov.u32 %r1, 7;
	setp.lt.u32 %p1, %t, 10;
	@%p1 mov.u32 %r1, %t;
	@!%p1 add.u32 %r1, %r1, %t;
	st.global.u32 [%at], %r1;
""")
    y = DeviceArray(np.zeros(32, np.int32))
    launch(module, "t", 1, 32, y)
    assert y.get().tolist() == [t if t < 10 else 7 + t for t in range(32)]


def test_a_breakpoint_ends_the_kernel_as_without_a_debugger() -> None:
    module = ptx("setp.eq.u32 %p1, %t, 3;\n@%p1 brkpt;\nmov.u32 %r1, 7;\nst.global.u32 [%at], %r1;")
    outcome = launch(module, "t", 1, 32, DeviceArray(np.zeros(32, np.int32)))
    assert outcome.error == 719
    assert [(finding.cause, finding.count) for finding in outcome.findings] == [("device.trap", 1)]
