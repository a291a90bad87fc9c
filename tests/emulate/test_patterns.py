"""The block-wide broadcast pattern is found in its variants, and in nothing that is right."""

import subprocess
from pathlib import Path

import pytest

from kernelwright.build.toolchain import find
from kernelwright.emulate.patterns import block_broadcasts
from kernelwright.emulate.ptx.parse import parse

pytestmark = pytest.mark.emu

PRELUDE = """
__device__ __forceinline__ float warp_sum(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
    return v;
}
__device__ __forceinline__ float warp_all(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
__global__ void k(const float* x, float* y, int n) {
    __shared__ float part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float v = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[i];
"""
STORE = "    v = warp_sum(v);\n    if (lane == 0) part[warp] = v;\n    __syncthreads();\n"
USE = "\n    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] / v;\n}\n"

FAULTY = {
    "by thread, reduced by warp 0": "v = threadIdx.x < blockDim.x / 32 ? part[lane] : 0.f;"
    " if (warp == 0) v = warp_sum(v); v = __shfl_sync(~0u, v, 0);",
    "every warp loads, warp 0 reduces": "v = lane < blockDim.x / 32 ? part[lane] : 0.f;"
    " if (warp == 0) v = warp_sum(v); v = __shfl_sync(~0u, v, 0);",
    "every warp reduces, warp 0 loads": "v = threadIdx.x < blockDim.x / 32 ? part[lane] : 0.f;"
    " v = warp_sum(v); v = __shfl_sync(~0u, v, 0);",
    "guarded by a thread number": "if (threadIdx.x < 32) { v = lane < 8 ? part[lane] : 0.f; v = warp_sum(v); }"
    " v = __shfl_sync(~0u, v, 0);",
}
RIGHT = {
    "through shared memory": "v = threadIdx.x < 8 ? part[lane] : 0.f; if (warp == 0) v = warp_sum(v);"
    " if (threadIdx.x == 0) part[0] = v; __syncthreads(); v = part[0];",
    "every warp reduces for itself": "v = lane < blockDim.x / 32 ? part[lane] : 0.f; v = warp_sum(v);"
    " v = __shfl_sync(~0u, v, 0);",
    "butterfly": "v = lane < blockDim.x / 32 ? part[lane] : 0.f; v = warp_all(v);",
}


def patterns(tmp_path: Path, source: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    cuda = tmp_path / "k.cu"
    cuda.write_text(source)
    subprocess.run(
        [str(find().nvcc), "-ptx", "-arch=sm_80", "-lineinfo", str(cuda), "-o", str(tmp_path / "k.ptx")],
        check=True,
        capture_output=True,
    )
    (function,) = parse((tmp_path / "k.ptx").read_text()).functions.values()
    return [(p.holders, p.others) for p in block_broadcasts(function, (256, 1, 1))]


@pytest.mark.parametrize("name", FAULTY)
def test_a_shuffle_taken_for_a_block_broadcast_names_the_warps(tmp_path: Path, name: str) -> None:
    assert patterns(tmp_path, PRELUDE + STORE + FAULTY[name] + USE) == [((0,), (1, 2, 3, 4, 5, 6, 7))]


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_block_reduction_shows_no_pattern(tmp_path: Path, name: str) -> None:
    assert patterns(tmp_path, PRELUDE + STORE + RIGHT[name] + USE) == []


def test_a_broadcast_within_each_warp_is_no_pattern(tmp_path: Path) -> None:
    assert patterns(tmp_path, PRELUDE + "v = warp_sum(v); v = __shfl_sync(~0u, v, 0);" + USE) == []


def test_a_broadcast_that_only_the_first_thread_uses_is_no_pattern(tmp_path: Path) -> None:
    code = "v = threadIdx.x < 8 ? part[lane] : 0.f; v = warp_sum(v); v = __shfl_sync(~0u, v, 0);"
    assert patterns(tmp_path, PRELUDE + STORE + code + " if (threadIdx.x == 0) y[0] = v; }") == []
