"""How fast the emulated device runs kernels, all checks on, beside the numpy interpreter of the same PTX.

Run ``python benchmarks/emulator.py``; it needs nvcc. Figures are thread instructions a second (PTX instructions times
the threads that ran them, control flow included), the best of several runs on one core and on all; compiling is shown
apart. "Memory" is one core without the race checks (``--checks memory``), "counted" one core with counters on as well
(``--counters``). The interpreter runs the same kernel on a smaller problem, in the same process.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelwright.emulate import runtime
from kernelwright.emulate.interp import Interpreter
from kernelwright.emulate.module import EmulatedModule

Array = np.ndarray[Any, Any]

SOURCE = r"""
extern "C" __global__ void gemv(const float4* __restrict__ A, const float4* __restrict__ x,
                                float* y, int rows, int n4) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const float4* a = A + (size_t)row * n4;
    float s = 0;
    for (int c = threadIdx.x; c < n4; c += 32) {
        float4 u = a[c], v = x[c];
        s += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
    }
    for (int o = 16; o; o >>= 1) s += __shfl_down_sync(~0u, s, o);
    if (threadIdx.x == 0) y[row] = s;
}
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int n) {
    __shared__ float a[32][32], b[32][32];
    int tx = threadIdx.x, ty = threadIdx.y, r = blockIdx.y * 32 + ty, c = blockIdx.x * 32 + tx;
    float s = 0;
    for (int k = 0; k < n; k += 32) {
        a[ty][tx] = A[r * n + k + tx];
        b[ty][tx] = B[(k + ty) * n + c];
        __syncthreads();
        for (int j = 0; j < 32; j++) s += a[ty][j] * b[j][tx];
        __syncthreads();
    }
    C[r * n + c] = s;
}
extern "C" __global__ void softmax(const float* x, float* y, int cols) {
    __shared__ float part[8];
    const float* p = x + (size_t)blockIdx.x * cols;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float m = -1e30f, s = 0;
    for (int c = threadIdx.x; c < cols; c += 256) m = fmaxf(m, p[c]);
    for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
    if (lane == 0) part[warp] = m;
    __syncthreads();
    for (int i = 0; i < 8; i++) m = fmaxf(m, part[i]);
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += 256) s += expf(p[c] - m);
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (lane == 0) part[warp] = s;
    __syncthreads();
    s = 0;
    for (int i = 0; i < 8; i++) s += part[i];
    for (int c = threadIdx.x; c < cols; c += 256) y[(size_t)blockIdx.x * cols + c] = expf(p[c] - m) / s;
}
extern "C" __global__ void collatz(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, c = 0;
    if (i >= n) return;
    unsigned v = x[i];
    while (v != 1) { v = (v & 1) ? 3 * v + 1 : v >> 1; c++; }
    y[i] = c;
}
"""


class Device:
    """Arrays in emulated device memory, freed together."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def put(self, content: Array) -> int:
        """A copy's address."""
        address: int = runtime.library().kw_alloc(content.nbytes, runtime.GLOBAL, b"")
        ctypes.memmove(address, content.ctypes.data, content.nbytes)
        self._held.append(address)
        return address

    def free(self) -> None:
        """Free them all."""
        for address in self._held:
            runtime.library().kw_free(address)


@dataclass(frozen=True)
class Problem:
    """One kernel with its launch and its check."""

    kernel: str
    title: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    params: bytes
    output: int
    expected: Array
    tolerance: float

    def error(self) -> float:
        """Largest difference from what is expected."""
        got = np.empty_like(self.expected)
        ctypes.memmove(got.ctypes.data, self.output, got.nbytes)
        return float(np.abs(got.astype(np.float64) - self.expected).max())


def problems(device: Device, scale: int) -> list[Problem]:
    """The four kernels; ``scale`` divides the amount of work roughly by its square."""
    random = np.random.default_rng(0)
    made = []
    n = 2048 // scale
    a, x = (random.standard_normal(shape, dtype=np.float32) for shape in ((n, n), (n,)))
    y = device.put(np.zeros(n, np.float32))
    params = struct.pack("<QQQii", device.put(a), device.put(x), y, n, n // 4)
    made.append(Problem("gemv", f"GEMV {n}²", (n // 4, 1, 1), (32, 4, 1), params, y, a @ x, 1e-3))
    n = 256 if scale == 1 else 64
    a, b = (random.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    c = device.put(np.zeros((n, n), np.float32))
    params = struct.pack("<QQQi", device.put(a), device.put(b), c, n)
    made.append(Problem("gemm", f"tiled GEMM {n}³", (n // 32, n // 32, 1), (32, 32, 1), params, c, a @ b, 1e-3))
    rows, cols = 1024 // scale, 1024
    x = random.standard_normal((rows, cols), dtype=np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    y = device.put(np.zeros_like(x))
    params = struct.pack("<QQi", device.put(x), y, cols)
    expected = e / e.sum(1, keepdims=True)
    made.append(Problem("softmax", f"softmax {rows}×{cols}", (rows, 1, 1), (256, 1, 1), params, y, expected, 1e-6))
    n = (1 << 18) // scale**2
    v = random.integers(1, 100_000, n).astype(np.int32)
    counts = np.zeros(n, np.int32)
    state = v.astype(np.int64)
    while (state != 1).any():
        counts += state != 1
        state = np.where(state == 1, 1, np.where(state & 1, 3 * state + 1, state >> 1))
    y = device.put(np.zeros(n, np.int32))
    params = struct.pack("<QQi", device.put(v), y, n)
    made.append(Problem("collatz", f"Collatz, {n} threads", (-(-n // 256), 1, 1), (256, 1, 1), params, y, counts, 0))
    return made


def measure(
    module: EmulatedModule,
    problem: Problem,
    workers: int,
    runs: int = 5,
    *,
    counted: bool = False,
    races: bool = True,
) -> tuple[float, int, float]:
    """Best seconds, thread instructions, and the seconds the first launch took to compile."""
    best, count, compile_seconds = float("inf"), 0, 0.0
    for run in range(runs):
        shape = problem.grid, problem.block, problem.params
        how = {"counted": counted, "global_races": races, "shared_races": races}
        outcome = module.launch(problem.kernel, *shape, workers=workers, **how)
        if outcome.error or not problem.error() <= problem.tolerance:
            raise SystemExit(f"{problem.title}: error {outcome.error}, {outcome.findings}, off by {problem.error()}")
        best, count = min(best, outcome.seconds), outcome.thread_instructions
        compile_seconds = outcome.compile_seconds if run == 0 else compile_seconds
    return best, count, compile_seconds


def main() -> None:
    """Print one line a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("KERNELWRIGHT_CACHE", folder)
        source = Path(folder) / "bench.cu"
        source.write_text(SOURCE)
        made = source.with_suffix(".ptx")
        subprocess.run(["nvcc", "-arch=sm_80", "-ptx", "-lineinfo", str(source), "-o", str(made)], check=True)
        text = made.read_text()
        module = EmulatedModule(text)
        cores = os.cpu_count() or 1
        titles = f"{'kernel':<24} {'1 core':>10} {f'{cores} cores':>10} {'memory':>10} {'counted':>10} {'compile':>9}"
        print(f"{titles}   interpreter, smaller problem")
        device, small = Device(), Device()
        for problem, little in zip(problems(device, 1), problems(small, 8), strict=True):
            seconds, count, compile_seconds = measure(module, problem, 1)
            all_seconds, _, _ = measure(module, problem, 0)
            fast_seconds, _, _ = measure(module, problem, 1, races=False)
            counted_seconds, _, _ = measure(module, problem, 1, counted=True)
            _, little_count, _ = measure(module, little, 1, runs=1)
            interpreter = Interpreter(module.module)
            before = time.perf_counter()
            interpreter.launch(little.kernel, little.grid, little.block, little.params)
            slow = little_count / (time.perf_counter() - before)
            rate = count / seconds
            print(
                f"{problem.title:<24} {rate / 1e9:>6.2f} G/s {count / all_seconds / 1e9:>6.2f} G/s "
                f"{count / fast_seconds / 1e9:>6.2f} G/s "
                f"{count / counted_seconds / 1e9:>6.2f} G/s "
                f"{compile_seconds:>7.2f} s   {slow / 1e6:.2f} M/s on {little.title}: {rate / slow:.0f}x slower"
            )
        device.free()
        small.free()


if __name__ == "__main__":
    main()
