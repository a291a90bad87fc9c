"""cuda::barrier, cuda::pipeline and the primitives under them: values, races, and barriers that never open."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import DeviceArray, compiled, launch, needs_nvcc, ptx

from kernelwright.records import SourceLine

pytestmark = [pytest.mark.emu, needs_nvcc]

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#pragma nv_diag_suppress static_var_with_dynamic_init
namespace cg = cooperative_groups;
using barrier = cuda::barrier<cuda::thread_scope_block>;

extern "C" __global__ void reversed(const float* from, float* to) {
    __shared__ barrier bar;
    alignas(16) __shared__ float tile[256];
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&bar, block.size());
    block.sync();
    cuda::memcpy_async(block, tile, from, cuda::aligned_size_t<16>(sizeof tile), bar);
    bar.arrive_and_wait();
    to[threadIdx.x] = tile[255 - threadIdx.x];
}
// Half of the warps make tiles, half of them take them; EARLY says that a tile is free before it was read.
template <bool EARLY> __device__ void stages(const float* from, float* to) {
    __shared__ barrier full[2], empty[2];
    __shared__ float tile[2][64];
    if (threadIdx.x < 2) {
        init(&full[threadIdx.x], 128);
        init(&empty[threadIdx.x], 128);
    }
    __syncthreads();
    int lane = threadIdx.x % 64;
    if (threadIdx.x < 64) {
        for (int i = 0; i < 6; i++) {
            empty[i % 2].arrive_and_wait();
            tile[i % 2][lane] = from[i * 64 + lane];
            barrier::arrival_token token = full[i % 2].arrive();
        }
    } else {
        barrier::arrival_token token = empty[0].arrive();
        token = empty[1].arrive();
        for (int i = 0; i < 6; i++) {
            full[i % 2].arrive_and_wait();
            if (EARLY) token = empty[i % 2].arrive();
            to[i * 64 + lane] = 2 * tile[i % 2][63 - lane];
            if (!EARLY) token = empty[i % 2].arrive();
        }
    }
}
extern "C" __global__ void handed_over(const float* from, float* to) { stages<false>(from, to); }
extern "C" __global__ void overwritten(const float* from, float* to) { stages<true>(from, to); }
extern "C" __global__ void pipelined(const float* from, float* to) {
    alignas(16) __shared__ float tile[2][128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int i = 0, ahead = 0; i < 4; i++) {
        for (; ahead < 4 && ahead < i + 2; ahead++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tile[ahead % 2], from + ahead * 128, cuda::aligned_size_t<16>(512), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        to[i * 128 + threadIdx.x] = tile[i % 2][127 - threadIdx.x];
        pipe.consumer_release();
    }
}
extern "C" __global__ void grouped(const float* from, float* to) {
    extern __shared__ float tile[];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, from, sizeof(float) * 256);
    cg::wait(block);
    to[threadIdx.x] = tile[255 - threadIdx.x];
}
extern "C" __global__ void too_few(float* to) {
    __shared__ barrier bar;
    if (threadIdx.x == 0) init(&bar, 96);
    __syncthreads();
    bar.arrive_and_wait();
    to[threadIdx.x] = 1;
}
extern "C" __global__ void unready(float* to) {
    __shared__ barrier bar;
    if (threadIdx.x == 0) init(&bar, 64);
    bar.arrive_and_wait();
    to[threadIdx.x] = 1;
}
"""


def _data(count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(7).standard_normal(count).astype(np.float32)


def _line(stack: tuple[SourceLine, ...]) -> str:
    """The innermost line that is the kernel's own."""
    own = next(frame for frame in stack if frame.file.endswith("kernel.cu"))
    return SOURCE.splitlines()[own.line - 1].strip()


@pytest.mark.parametrize(("kernel", "shared"), [("reversed", 0), ("grouped", 1024)])
def test_a_tile_copied_asynchronously_is_there_behind_the_wait(kernel: str, shared: int) -> None:
    data = _data(256)
    source, target = DeviceArray(data), DeviceArray(np.zeros_like(data))
    outcome = launch(compiled(SOURCE), kernel, 1, 256, source, target, dynamic_shared=shared)
    assert (outcome.error, outcome.findings, outcome.observations) == (0, (), ())
    np.testing.assert_array_equal(target.get(), data[::-1])


def test_warps_hand_tiles_over_through_barriers_without_a_finding() -> None:
    data = _data(384)
    source, target = DeviceArray(data), DeviceArray(np.zeros_like(data))
    outcome = launch(compiled(SOURCE), "handed_over", 1, 128, source, target)
    assert (outcome.error, outcome.findings, outcome.observations) == (0, (), ())
    np.testing.assert_array_equal(target.get(), 2 * data.reshape(6, 64)[:, ::-1].ravel())


def test_a_pipeline_of_two_stages_gives_every_tile_once() -> None:
    data = _data(512)
    source, target = DeviceArray(data), DeviceArray(np.zeros_like(data))
    outcome = launch(compiled(SOURCE), "pipelined", 1, 128, source, target)
    assert (outcome.error, outcome.findings, outcome.observations) == (0, (), ())
    np.testing.assert_array_equal(target.get(), data.reshape(4, 128)[:, ::-1].ravel())


def test_a_tile_overwritten_while_others_read_it_is_a_race_of_two_lines() -> None:
    source, target = DeviceArray(_data(384)), DeviceArray(np.zeros(384, np.float32))
    outcome = launch(compiled(SOURCE), "overwritten", 1, 128, source, target)
    race = next(finding for finding in outcome.findings if finding.cause == "sync.shared-race")
    assert {_line(race.frames), _line(race.other)} == {
        "tile[i % 2][lane] = from[i * 64 + lane];",
        "to[i * 64 + lane] = 2 * tile[i % 2][63 - lane];",
    }


def test_a_barrier_that_nobody_completes_is_a_deadlock_with_the_missing_arrivals() -> None:
    outcome = launch(compiled(SOURCE), "too_few", 1, 64, DeviceArray(np.zeros(64, np.float32)))
    assert outcome.error == 719
    (finding,) = outcome.findings
    assert finding.cause == "sync.deadlock"
    assert _line(finding.frames) == "bar.arrive_and_wait();"
    assert finding.message == "it waits at an mbarrier that expects 96 arrivals; 32 are missing"


def test_arriving_before_the_barrier_is_made_is_found() -> None:
    outcome = launch(compiled(SOURCE), "unready", 1, 64, DeviceArray(np.zeros(64, np.float32)))
    assert "sync.shared-race" in {finding.cause for finding in outcome.findings}


def test_an_mbarrier_that_was_never_made_is_uninitialised_memory() -> None:
    module = ptx(
        "mbarrier.arrive.shared.b64 %rd1, [bar];\nst.global.u32 [%at], %t;",
        registers=".shared .align 8 .b64 bar;",
    )
    outcome = launch(module, "t", 1, 32, DeviceArray(np.zeros(32, np.int32)))
    assert [finding.cause for finding in outcome.findings] == ["memory.uninitialised"]
