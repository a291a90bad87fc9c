"""A counted launch: values by hand, the same in every run, and nothing at all where nothing is counted."""

from __future__ import annotations

import numpy as np
import pytest
import random_kernels
from emulated import DeviceArray, compiled, launch, needs_nvcc

from kernelwright.counters import metrics as m
from kernelwright.counters.records import KernelCounters
from kernelwright.emulate.codegen.kernel import KernelCode
from kernelwright.emulate.flatten import flatten
from kernelwright.emulate.module import EmulatedModule

pytestmark = [pytest.mark.emu, needs_nvcc]

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
extern "C" __global__ void strided(const float* x, float* y, int stride, int shift) {
    y[threadIdx.x] = x[threadIdx.x * stride + shift];
}
extern "C" __global__ void wide(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }
template <class T> __device__ void through(const int* at, T* y) {
    __shared__ T tile[512];
    for (int i = threadIdx.x; i < 512; i += 32) tile[i] = y[i % 32];
    __syncwarp();
    y[threadIdx.x] = tile[at[threadIdx.x]];
}
extern "C" __global__ void banks4(const int* at, float* y) { through(at, y); }
extern "C" __global__ void banks8(const int* at, float2* y) { through(at, y); }
extern "C" __global__ void banks16(const int* at, float4* y) { through(at, y); }
extern "C" __global__ void diverge(int* y, int from) {
    int v = y[threadIdx.x];
    if (threadIdx.x >= from) y[threadIdx.x] = v + 1;
    y[threadIdx.x + 128] = v;
}
extern "C" __global__ void leave(int* y, int from) {
    if (threadIdx.x >= from) return;
    y[threadIdx.x] += 1;
}
extern "C" __global__ void arithmetic(float* x, double* y) {
    float v = x[threadIdx.x];
    double w = y[threadIdx.x];
    x[threadIdx.x] = __fadd_rn(__fmul_rn(v, v), __fmaf_rn(v, 3.f, 1.f));
    y[threadIdx.x] = __fma_rn(w, w, w);
}
extern "C" __global__ void bins(int* y, int n, int back) {
    int was = atomicAdd(&y[threadIdx.x % n], 1);
    if (back) y[64 + threadIdx.x] = was;
}
extern "C" __global__ void shared_bins(int* y, int n, int by) {
    __shared__ int own[64];
    own[threadIdx.x] = own[threadIdx.x + 32] = 0;
    __syncwarp();
    if (by) atomicAdd(&own[threadIdx.x % n], by);
    else atomicAdd(&own[threadIdx.x % n], 1);
    __syncwarp();
    y[threadIdx.x] = own[threadIdx.x];
}
extern "C" __global__ void nobody_reads(int* y, int n) { atomicAdd(&y[threadIdx.x % n], 1); }
extern "C" __global__ void neighbours(const float* x, float* y, int by) {
    __shared__ float tile[1024];
    for (int i = threadIdx.x; i < 1024; i += 32) tile[i] = x[i];
    __syncwarp();
    float* p = tile + 4 * threadIdx.x;
    float s = p[0] + p[1] + p[2] + p[3];
    float* q = tile + by * threadIdx.x;
    s += q[0] + q[1] + q[2] + q[3];
    __syncwarp();
    q[0] = s, q[1] = s + 1;
    p[0] = s, p[1] = s + 1, p[2] = s + 2, p[3] = s + 3;
    __syncwarp();
    y[threadIdx.x] = tile[2 * threadIdx.x];
}
using namespace nvcuda::wmma;
template <class layout> __device__ void multiply(const __half* a, float* c, int n) {
    fragment<matrix_a, 16, 16, 16, __half, layout> fa;
    fragment<matrix_b, 16, 16, 16, __half, layout> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    fill_fragment(fc, 0.f);
    load_matrix_sync(fa, a, n);
    load_matrix_sync(fb, a, n);
    mma_sync(fc, fa, fb, fc);
    store_matrix_sync(c, fc, n, mem_row_major);
}
extern "C" __global__ void by_rows(const __half* a, float* c, int n) { multiply<row_major>(a, c, n); }
extern "C" __global__ void by_columns(const __half* a, float* c, int n) { multiply<col_major>(a, c, n); }
template <int pitch> __device__ void matrices(const uint4* x, unsigned* y) {
    __shared__ uint4 tile[16][pitch];
    __pipeline_memcpy_async(&tile[threadIdx.x % 16][threadIdx.x / 16], x + threadIdx.x, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncwarp();
    unsigned r[4], at = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x % 16][threadIdx.x / 16]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    y[threadIdx.x] = r[0] + r[1] + r[2] + r[3];
}
extern "C" __global__ void matrices8(const uint4* x, unsigned* y) { matrices<8>(x, y); }
extern "C" __global__ void matrices9(const uint4* x, unsigned* y) { matrices<9>(x, y); }
extern "C" __global__ void own_array(const int* at, int* y) {
    int kept[16];
    for (int i = 0; i < 16; i++) kept[i] = at[i] + i;
    y[threadIdx.x] = kept[at[threadIdx.x] % 16];
}
"""


def floats(n: int) -> DeviceArray:
    return DeviceArray(np.zeros(n, np.float32))


def indices(values: list[int]) -> DeviceArray:
    return DeviceArray(np.array(values, np.int32))


def count(kernel: str, block: int | tuple[int, ...], *values: DeviceArray | int, grid: int = 1) -> KernelCounters:
    outcome = launch(compiled(SOURCE), kernel, grid, block, *values, counted=True)
    assert outcome.error == 0 and not outcome.findings
    assert outcome.counters is not None
    return outcome.counters


@pytest.mark.parametrize(
    ("stride", "shift", "sectors", "ideal"),
    [(1, 0, 4, 4), (1, 1, 5, 4), (2, 0, 8, 4), (32, 0, 32, 4), (0, 0, 1, 1), (4, 0, 16, 4), (1, 8, 4, 4)],
)
def test_a_warps_load_touches_the_sectors_of_its_addresses(stride: int, shift: int, sectors: int, ideal: int) -> None:
    found = count("strided", 32, floats(1100), floats(32), stride, shift).metrics
    assert found[m.requests("global", "ld")] == 1
    assert found[m.sectors("global", "ld")] == sectors
    assert found[m.sectors_per_request("global", "ld")] == sectors
    assert found[m.ideal_sectors("ld")] == ideal
    assert found[m.sectors("global", "st")] == 4
    assert found[m.SECTORS_GLOBAL] == sectors + 4
    assert found[m.COMPULSORY_READ] == 32 * sectors and found[m.COMPULSORY_WRITE] == 128


def test_sixteen_bytes_a_lane_are_one_request_of_sixteen_sectors() -> None:
    found = count("wide", 32, floats(128), floats(128)).metrics
    assert found[m.requests("global", "ld")] == found[m.requests("global", "st")] == 1
    assert found[m.sectors("global", "ld")] == found[m.ideal_sectors("ld")] == 16


def test_lanes_that_are_not_there_touch_nothing() -> None:
    found = count("strided", 40, floats(1100), floats(40), 1, 0).metrics
    assert found[m.requests("global", "ld")] == 2
    assert found[m.sectors("global", "ld")] == 5


def test_memory_that_two_blocks_read_is_fetched_once() -> None:
    found = count("strided", 32, floats(1100), floats(32), 1, 0, grid=8).metrics
    assert found[m.sectors("global", "ld")] == 32
    assert found[m.COMPULSORY_READ] == 128


def wavefronts(kernel: str, element: int, lanes: list[int]) -> tuple[float, float]:
    counters = count(kernel, 32, indices(lanes), floats(32 * element))
    line = next(line for line in counters.lines if m.shared_requests("ld") in line.metrics)
    assert line.metrics[m.shared_requests("ld")] == 1
    return line.metrics[m.wavefronts("ld")], line.metrics.get(m.conflicts("ld"), 0.0)


@pytest.mark.parametrize("ways", [1, 2, 4, 8, 16])
def test_n_words_of_one_bank_take_n_wavefronts(ways: int) -> None:
    assert wavefronts("banks4", 1, [lane * ways % 512 for lane in range(32)]) == (ways, ways - 1)


def test_lanes_that_want_one_word_share_a_wavefront() -> None:
    assert wavefronts("banks4", 1, [7] * 32) == (1, 0)
    assert wavefronts("banks4", 1, [lane // 2 for lane in range(32)]) == (1, 0)


def test_wider_elements_go_by_halves_and_quarters_of_the_warp() -> None:
    assert wavefronts("banks8", 2, list(range(32))) == (2, 0)
    assert wavefronts("banks16", 4, list(range(32))) == (4, 0)
    assert wavefronts("banks8", 2, [16 * lane for lane in range(32)]) == (32, 30)


@pytest.mark.parametrize(
    ("lanes", "eight", "sixteen"),
    [
        ([0] * 32, 1, 2), ([lane // 2 for lane in range(32)], 1, 2), ([lane // 16 for lane in range(32)], 1, 2),
        ([lane % 2 for lane in range(32)], 1, 2), ([lane % 8 for lane in range(32)], 2, 4),
        ([lane ^ 1 for lane in range(32)], 2, 4),
    ],
)  # fmt: skip
def test_wide_loads_that_repeat_addresses_next_door_are_served_together(
    lanes: list[int], eight: int, sixteen: int
) -> None:
    assert wavefronts("banks8", 2, lanes) == (eight, 0)
    assert wavefronts("banks16", 4, lanes) == (sixteen, 0)


def test_a_branch_that_parts_a_warp_is_divergent_and_only_in_that_warp() -> None:
    found = count("diverge", 96, indices([0] * 256), 40).metrics
    assert found[m.BRANCHES_DIVERGENT] == 1
    assert found[m.BRANCHES_UNIFORM] == 2
    assert found[m.BRANCH_UNIFORMITY] == pytest.approx(200 / 3)
    assert found[m.requests("global", "st")] == 5


def test_a_branch_to_the_end_is_no_branch_as_ptxas_makes_an_exit_of_it() -> None:
    found = count("leave", 96, indices([0] * 256), 40).metrics
    assert found[m.BRANCHES_DIVERGENT] == found[m.BRANCHES_UNIFORM] == 0


def test_threads_that_took_part_are_counted_by_instruction() -> None:
    found = count("leave", 32, indices([0] * 32), 8)
    assert found.instructions["st.global.u32"] == 1
    line = next(line for line in found.lines if m.requests("global", "st") in line.metrics)
    assert found.metrics[m.THREAD_INST] < 32 * found.metrics[m.INST]
    assert line.metrics[m.sectors("global", "st")] == 1


def test_flop_are_counted_by_type_and_an_fma_twice() -> None:
    found = count("arithmetic", 64, floats(64), DeviceArray(np.ones(64))).metrics
    assert [found[m.flops(op)] for op in ("fadd", "fmul", "ffma", "dfma")] == [64, 64, 64, 64]
    assert found[m.flop("fp32")] == 256 and found[m.flop("fp64")] == 128


def test_atomics_on_one_address_take_turns() -> None:
    found = count("nobody_reads", 64, indices([0] * 64), 1).metrics
    assert found[m.requests("global", "red")] == 2
    assert found[m.sectors("global", "red")] == 64
    assert found[m.ideal_sectors("red")] == found[m.SECTORS_GLOBAL_IDEAL] == 2
    assert found[m.ATOMICS] == found[m.ATOMIC_HOTTEST] == 64 and found[m.ATOMIC_ADDRESSES] == 1
    found = count("nobody_reads", 64, indices([0] * 64), 64).metrics
    assert found[m.sectors("global", "red")] == 8 and found[m.ATOMIC_HOTTEST] == 1


def test_increments_of_shared_memory_share_what_other_atomics_take_turns_at() -> None:
    increments = count("shared_bins", 32, indices([0] * 32), 4, 0).metrics
    additions = count("shared_bins", 32, indices([0] * 32), 4, 3).metrics
    assert (increments[m.shared_requests("atom")], increments[m.wavefronts("atom")]) == (1, 1)
    assert (additions[m.shared_requests("atom")], additions[m.wavefronts("atom")]) == (1, 8)


def test_an_atomic_that_somebody_reads_is_told_from_a_reduction() -> None:
    found = count("bins", 32, indices([0] * 128), 8, 1).metrics
    assert found[m.requests("global", "atom")] == 1
    assert m.requests("global", "red") not in found


def test_local_arrays_lie_interleaved() -> None:
    found = count("own_array", 32, indices([3] * 32), indices([0] * 32)).metrics
    assert found[m.requests("local", "ld")] == 1
    assert found[m.sectors("local", "ld")] == 4
    found = count("own_array", 32, indices(list(range(32))), indices([0] * 32)).metrics
    assert found[m.sectors("local", "ld")] == 32


def test_neighbouring_loads_are_one_wide_load_where_their_alignment_is_known() -> None:
    counters = count("neighbours", 32, floats(1024), floats(32), 4)
    lines = sorted(
        (line.frames[-1].line, line.metrics[m.shared_requests("ld")], line.metrics[m.wavefronts("ld")])
        for line in counters.lines
        if m.shared_requests("ld") in line.metrics
    )
    assert [(requests, taken) for _, requests, taken in lines] == [(1, 4), (4, 16), (1, 2)]
    stores = [line.metrics for line in counters.lines if m.shared_requests("st") in line.metrics][-2:]
    assert [(one[m.shared_requests("st")], one[m.wavefronts("st")]) for one in stores] == [(2, 8), (1, 4)]
    assert counters.instructions["ld.shared.f32"] == 9


@pytest.mark.parametrize("kernel", ["by_rows", "by_columns"])
def test_fragments_move_the_sectors_of_their_matrix_in_either_order(kernel: str) -> None:
    found = count(kernel, 32, DeviceArray(np.zeros(2048, np.float16)), floats(2048), 128).metrics
    # Eight lines of 16 bytes a request: half of each sector; of the result eight lines of 32 bytes.
    assert [found[name("global", op)] for name in (m.requests, m.sectors) for op in ("ld", "st")] == [8, 4, 64, 32]
    assert (found[m.ideal_sectors("ld")], found[m.ideal_sectors("st")]) == (32, 32)
    assert found[m.MMA] == 1 and found[m.flop("tensor")] == 2 * 16**3


def test_ldmatrix_takes_a_wavefront_a_matrix_unless_its_rows_share_banks() -> None:
    zeros = DeviceArray(np.zeros(128, np.uint32))
    clash = count("matrices8", 32, zeros, indices([0] * 32)).metrics
    padded = count("matrices9", 32, zeros, indices([0] * 32)).metrics
    assert (clash[m.shared_requests("ldsm")], clash[m.wavefronts("ldsm")], clash[m.conflicts("ldsm")]) == (1, 32, 28)
    assert (padded[m.wavefronts("ldsm")], padded[m.ideal_wavefronts("ldsm")]) == (4, 4)


def test_asynchronous_copies_are_counted_on_both_sides() -> None:
    found = count("matrices9", 32, DeviceArray(np.zeros(128, np.uint32)), indices([0] * 32)).metrics
    assert found[m.requests("global", "ldgsts")] == found[m.shared_requests("ldgsts")] == 1
    assert found[m.sectors("global", "ldgsts")] == 16
    assert found[m.wavefronts("ldgsts")] == 4
    # As ncu has it, among the loads, too.
    assert found[m.requests("global", "ld")] == 1 and found[m.sectors("global", "ld")] == 16


def test_runs_repeat_exactly_wherever_memory_lies() -> None:
    first = count("strided", 96, floats(1100), floats(96), 3, 1, grid=40)
    held = [floats(n) for n in (5, 77, 1025)]
    assert count("strided", 96, floats(1100), floats(96), 3, 1, grid=40) == first
    one = launch(compiled(SOURCE), "strided", 40, 96, floats(1100), floats(96), 3, 1, counted=True, workers=1)
    assert one.counters == first
    for array in held:
        array.free()


def test_a_launch_that_is_not_counted_holds_nothing_of_it() -> None:
    module = compiled(SOURCE)
    outcome = launch(module, "strided", 1, 32, floats(1100), floats(32), 1, 0)
    assert outcome.counters is None
    function = flatten(module.module, module.module.functions["strided"])
    plain, counted = (KernelCode(module.module, function, counted=yes).compile() for yes in (False, True))
    assert "kw_count" not in plain.text and plain.cells is None
    assert "kw_count_load" in counted.text


def test_counting_changes_no_result() -> None:
    results = []
    for counted in (False, True):
        y = indices([0] * 128)
        launch(compiled(SOURCE), "bins", 4, 64, y, 8, 0, counted=counted)
        results.append(y.get())
    assert np.array_equal(*results)
    assert results[0][:8].tolist() == [32] * 8


@pytest.mark.parametrize("seed", range(200, 206))
def test_random_kernels_compute_the_same_when_counted_and_every_thread_instruction_is_counted_once(seed: int) -> None:
    module = EmulatedModule(random_kernels.random_kernel(seed))
    results = []
    for counted in (False, True):
        out = DeviceArray(np.zeros((32, 2), np.uint32))
        outcome = launch(module, "t", 1, 32, out, 0, counted=counted)
        results.append((out.get(), outcome.thread_instructions))
    assert np.array_equal(results[0][0], results[1][0])
    assert outcome.counters is not None
    metrics = outcome.counters.metrics
    assert metrics[m.THREAD_INST] == results[0][1] == results[1][1]
    assert metrics[m.THREAD_INST_ON] <= metrics[m.THREAD_INST] <= 32 * metrics[m.INST]
    assert sum(outcome.counters.instructions.values()) == metrics[m.INST]
