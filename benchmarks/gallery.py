"""Measures the gallery's kernels on one GPU beside PyTorch, checks them against float64, and prints one table.

    python benchmarks/gallery.py [--only matvec,softmax,linear] [--alternatives] [--compile] [--out FOLDER]

Every comparison interleaves ours and theirs call by call, on random data, each call a replayed CUDA graph with the L2
cache flushed by a read before it; figures are medians of GPU time between events. (A flush by writing would leave dirty
lines whose eviction the timed call pays for.) The kernels are the candidate files' own CUDA text, built by plain nvcc
and called through ctypes, so that a run needs seconds, not the minutes that torch's headers cost. Outputs are poisoned
with NaN before each check.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
from kernelwright.gallery.kernels import linear as linear_kernel
from kernelwright.gallery.kernels import matvec as matvec_kernel
from kernelwright.gallery.kernels import softmax as softmax_kernel

CEILING_SOURCE = r"""
#include <cuda_runtime.h>
#include <stdint.h>
// Reads everything through the bulk copy engine and uses one word of each 16 KB.
constexpr int BYTES = 16384, STAGES = 12;
__device__ __forceinline__ uint32_t at(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void wait(uint64_t* b, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred d;\na: mbarrier.try_wait.parity.shared::cta.b64 d, [%0], %1;\n@d bra o;\nbra a;\no:\n}"
        ::"r"(at(b)), "r"(parity) : "memory");
}
__global__ void __launch_bounds__(64) read_kernel(const char* __restrict__ a, long chunks, float* out) {
    extern __shared__ __align__(1024) unsigned char stages[];
    __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(full + i)));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(empty + i)));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    int s = 0;
    uint32_t parity = 0;
    if (threadIdx.x == 32) {
        uint64_t once;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
        for (long c = blockIdx.x; c < chunks; c += gridDim.x) {
            wait(empty + s, parity ^ 1);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                         ::"r"(at(full + s)), "r"(BYTES) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                         "[%0], [%1], %2, [%3], %4;"
                         ::"r"(at(stages + s * BYTES)), "l"(a + c * BYTES), "r"(BYTES), "r"(at(full + s)), "l"(once)
                         : "memory");
            if (++s == STAGES) s = 0, parity ^= 1;
        }
    } else if (threadIdx.x == 0) {
        float sum = 0.f;
        for (long c = blockIdx.x; c < chunks; c += gridDim.x) {
            wait(full + s, parity);
            sum += *(volatile float*)(stages + s * BYTES);
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(empty + s)) : "memory");
            if (++s == STAGES) s = 0, parity ^= 1;
        }
        if (sum == 1.2345f) *out = sum;
    }
}
extern "C" int read_all(const void* a, long bytes, float* out, int sms, void* stream) {
    cudaFuncSetAttribute(read_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * BYTES);
    read_kernel<<<sms, 64, STAGES * BYTES, (cudaStream_t)stream>>>((const char*)a, bytes / BYTES, out);
    return cudaGetLastError();
}
"""

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--only", default="matvec,softmax,linear")
parser.add_argument("--alternatives", action="store_true", help="also time other plans than the chosen one")
parser.add_argument("--compile", action="store_true", help="also time torch.compile")
parser.add_argument("--dtypes", default="float32,bfloat16,float16")
parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir(), "gallery-benchmark"))
arguments = parser.parse_args()
arguments.out.mkdir(parents=True, exist_ok=True)
BUILD = arguments.out / "build"
BUILD.mkdir(exist_ok=True)
GPU = "cuda"
SMS = torch.cuda.get_device_properties(0).multi_processor_count if torch.cuda.is_available() else 132
RECORDS: list[dict[str, Any]] = []


def start_build(name: str, source: str, *flags: str, arch: str = "90a") -> tuple[str, subprocess.Popen[bytes]]:
    path = BUILD / f"{name}.cu"
    path.write_text(source)
    command = [
        "nvcc",
        "-O3",
        "-std=c++17",
        "-shared",
        "-Xcompiler",
        "-fPIC",
        f"-gencode=arch=compute_{arch},code=sm_{arch}",
    ]
    return name, subprocess.Popen([*command, *flags, str(path), "-o", str(BUILD / f"{name}.so")])


def build() -> dict[str, ctypes.CDLL]:
    started = time.time()
    hopper = "-DGALLERY_HOPPER"
    jobs = [
        start_build("ceiling", CEILING_SOURCE),
        start_build("matvec", matvec_kernel.CUDA_SOURCE, hopper, arch="90"),
        start_build("softmax", softmax_kernel.CUDA_SOURCE, hopper, arch="90"),
        start_build("linear", linear_kernel.CUDA_SOURCE, hopper, "-DGALLERY_ERF_ONLY"),
    ]
    libraries = {}
    for name, job in jobs:
        if job.wait():
            print(f"BUILD FAILED: {name}")
        else:
            libraries[name] = ctypes.CDLL(str(BUILD / f"{name}.so"))
    print(f"built in {time.time() - started:.1f} s")
    return libraries


def pointer(t: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(0 if t is None else t.data_ptr())


def stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def wide(n: int) -> ctypes.c_int64:
    return ctypes.c_int64(n)


def checked(code: int) -> None:
    if code:
        raise RuntimeError(f"the launch returned CUDA error {code}")


_flush: list[torch.Tensor] = []


def flush() -> None:
    """Fill L2 with clean lines: reads leave nothing to write back during the timed call."""
    if not _flush:
        _flush.append(torch.ones(64 << 20, device=GPU))
    _flush[0].sum()


def compare(functions: dict[str, Callable[[], Any]], rounds: int = 15, cold: bool = True) -> dict[str, float]:
    """Median milliseconds of each, interleaved round by round; each is a replayed CUDA graph, so that the host does
    not count."""
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    side = torch.cuda.Stream()
    for name, function in functions.items():
        function(), function()
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name], stream=side):
            function()
        graphs[name].replay()
    samples: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, graph in graphs.items():
            if cold:
                flush()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            samples[name].append((begin, end))
    torch.cuda.synchronize()
    return {name: statistics.median(b.elapsed_time(e) for b, e in pairs) for name, pairs in samples.items()}


def record(**facts: Any) -> None:
    RECORDS.append(facts)


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


# ---- matvec --------------------------------------------------------------------------------
SHAPES = [
    (1, 1 << 20), (4, 1 << 20), (16, 1 << 20), (64, 1 << 20), (128, 1 << 18), (1, 65536), (8, 65536), (64, 65536),
    (512, 65536), (2048, 65536), (64, 8192), (512, 8192), (2048, 8192), (8192, 8192), (4096, 4096), (11008, 4096),
    (16384, 4096), (65536, 4096), (1024, 1024), (8192, 1024), (65536, 1024), (4096, 256), (65536, 256), (65536, 64),
    (8192, 64), (1000, 5000), (3001, 1003), (50257, 768),
]  # fmt: skip


class Matvec:
    """One product, with its own output and workspace."""

    def __init__(self, library: ctypes.CDLL, A: torch.Tensor, x: torch.Tensor, plan: matvec_kernel.Plan) -> None:
        self.y = torch.full((A.shape[0],), float("nan"), dtype=A.dtype, device=GPU)
        partial = (
            torch.full((plan.segments, A.shape[0]), float("nan"), device=GPU)
            if plan.segments > 1 and not plan.clustered
            else None
        )
        strip = plan.variant == matvec_kernel.STRIP
        self.keep = (A, x, partial)
        dtype = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}[A.dtype]
        given = (
            plan.variant,
            dtype,
            int(plan.aligned),
            pointer(A),
            pointer(x),
            pointer(self.y),
            pointer(partial),
            wide(A.shape[0]),
        )
        cut = (
            wide(A.shape[1]),
            wide(A.stride(1 if strip else 0)),
            wide(plan.segment),
            plan.segments,
            int(plan.clustered),
            plan.rows,
            plan.lanes,
            SMS,
        )
        self.call, self.arguments = library.matvec_launch, (*given, *cut)

    def __call__(self) -> None:
        checked(self.call(*self.arguments, stream()))


def other_plans(
    M: int, K: int, itemsize: int, transposed: bool, chosen: matvec_kernel.Plan
) -> list[matvec_kernel.Plan]:
    k = matvec_kernel
    per_piece = 16 // itemsize if chosen.aligned else 1
    plans: list[matvec_kernel.Plan] = []
    if transposed:
        for row_warps in (1, 4, 8):
            slots = row_warps * (32 // chosen.lanes)
            tiles = -(-M // (8 // row_warps * chosen.lanes * per_piece))
            for per_sm in (2, 4, 8):
                segments = max(1, min(per_sm * SMS // tiles, K // (slots * 2), 4096))
                plans.append(k._cut(k.STRIP, chosen.aligned, K, 1, segments, False, row_warps, chosen.lanes))
            if row_warps == 8:
                plans += [
                    k._cut(k.STRIP, chosen.aligned, K, 1, s, True, 8, chosen.lanes) for s in (2, 4, 8) if s * slots <= K
                ]
    else:
        unit = 256 * per_piece
        for rows in (1, 2, 4):
            plans.append(k._cut(k.DIRECT, chosen.aligned, K, unit, 1, False, rows))
            plans += [
                k._cut(k.DIRECT, chosen.aligned, K, unit, s, True, rows)
                for s in (2, 4, 8)
                if s * unit <= K and rows < 4
            ]
            plans += [k._cut(k.DIRECT, chosen.aligned, K, unit, s, False, rows) for s in (16, 64, 256) if s * unit <= K]
        if chosen.aligned and K % per_piece == 0:
            plans.append(k._choose_ring(M, K, itemsize, SMS))
    return [p for p in dict.fromkeys(plans) if p != chosen]


def error_of(y: torch.Tensor, reference: torch.Tensor) -> float:
    difference = (y.double() - reference).abs().max().item()
    return difference / max(reference.pow(2).mean().sqrt().item(), 1e-300)


def run_matvec(libraries: dict[str, ctypes.CDLL]) -> None:
    library = libraries["matvec"]
    speedups: dict[str, list[float]] = {}
    for dtype in [getattr(torch, name) for name in arguments.dtypes.split(",")]:
        for stored in SHAPES:
            for transposed in (False, True):
                A = torch.randn(stored, device=GPU).to(dtype)
                A = A.t() if transposed else A
                M, K = A.shape
                x = torch.randn(K, device=GPU).to(dtype)
                itemsize = A.element_size()
                stride = A.stride(1 if transposed else 0)
                aligned = stride * itemsize % 16 == 0
                plan = matvec_kernel.choose(M, K, itemsize, aligned, transposed, SMS, True)
                ours = Matvec(library, A, x, plan)
                ours()
                reference = A.double() @ x.double()
                error, theirs = error_of(ours.y, reference), error_of(A @ x, reference)
                again = ours.y.clone()
                ours()
                same = torch.equal(again, ours.y)
                times = compare({"ours": ours, "torch": lambda A=A, x=x: torch.mv(A, x)})
                read = A.numel() * itemsize
                speedup = times["torch"] / times["ours"]
                speedups.setdefault(f"{dtype} {'A.T' if transposed else 'A'}", []).append(speedup)
                bad = "" if error <= max(2 * theirs, 1e-6) and same else "  <-- ERROR"
                slow = "" if speedup >= 0.97 else "  <-- SLOWER"
                print(
                    f"{M:6d} x {K:7d} {str(dtype)[6:]:8s} {'A.T@x' if transposed else 'A@x  '} "
                    f"ours {times['ours'] * 1e3:8.1f} us {read / times['ours'] / 1e6:5.0f} GB/s  "
                    f"torch {times['torch'] * 1e3:8.1f}  x{speedup:5.2f}  err {error:.1e} / {theirs:.1e}"
                    f"  {plan}{bad}{slow}",
                    flush=True,
                )
                record(
                    kernel="matvec",
                    M=M,
                    K=K,
                    dtype=str(dtype),
                    transposed=transposed,
                    ms=times,
                    error=error,
                    torch_error=theirs,
                )
                if arguments.alternatives:
                    others = {str(p): Matvec(library, A, x, p) for p in other_plans(M, K, itemsize, transposed, plan)}
                    for name, other in others.items():
                        other()
                        if not error_of(other.y, reference) <= max(2 * theirs, 1e-6):
                            print("   WRONG:", name, error_of(other.y, reference))
                    found = compare({"chosen": ours, **others}, rounds=7)
                    best = sorted(found.items(), key=lambda item: item[1])[:3]
                    if best[0][1] < 0.97 * found["chosen"]:
                        print(
                            "   better:",
                            "; ".join(f"{ms * 1e3:.1f} us {name}" for name, ms in best),
                            f"(chosen {found['chosen'] * 1e3:.1f})",
                        )
                del A, x, ours, reference
    for name, values in speedups.items():
        print(
            f"matvec {name}: geometric mean x{geometric_mean(values):.2f}, least x{min(values):.2f}, "
            f"{len(values)} shapes"
        )


def run_wide_matvec(libraries: dict[str, ctypes.CDLL]) -> None:
    """The public problem: A 2048 x 2^20 float32, 8.6 GB, beside the read ceiling."""
    library = libraries["matvec"]
    M, K = 2048, 1 << 20
    A, x = torch.randn(M, K, device=GPU), torch.randn(K, device=GPU)
    reference = torch.cat([A[i : i + 64].double() @ x.double() for i in range(0, M, 64)])
    sink = torch.zeros(1, device=GPU)
    plans = [matvec_kernel.choose(M, K, 4, True, False, SMS, hopper) for hopper in (True, False)]
    functions: dict[str, Callable[[], Any]] = {str(p): Matvec(library, A, x, p) for p in plans}
    functions["torch.mv"] = lambda: torch.mv(A, x)
    functions["torch.matmul"] = lambda: torch.matmul(A, x.unsqueeze(1))
    functions["plain reader"] = lambda: checked(
        libraries["ceiling"].read_all(pointer(A), ctypes.c_long(A.numel() * 4), pointer(sink), SMS, stream())
    )
    if arguments.alternatives:
        for chunks in (8, 16, 32, 64, 128):
            p = matvec_kernel.Plan(matvec_kernel.RING, True, chunks * 1024, 1024 // chunks, False, 4, 1)
            functions[str(p)] = Matvec(library, A, x, p)
    times = compare(functions, rounds=11, cold=False)
    for name, ms in times.items():
        function = functions[name]
        error = f"err {error_of(function.y, reference):.1e}" if isinstance(function, Matvec) else ""
        print(
            f"2048 x 2^20 float32  {name:60s} {ms:7.3f} ms {A.numel() * 4 / ms / 1e6:5.0f} GB/s  "
            f"{times['plain reader'] / ms:6.1%} of the plain reader's  {error}"
        )
    print(f"2048 x 2^20 float32  torch.mv error {error_of(torch.mv(A, x), reference):.1e}", flush=True)
    record(kernel="matvec-wide", ms=times)


# ---- softmax --------------------------------------------------------------------------------
ROWS = [
    (65536, 256), (65536, 512), (65536, 1024), (32768, 2048), (32768, 4096), (1024, 8192), (16384, 8192),
    (8192, 16384), (4096, 32768), (2048, 65536), (1024, 131072), (512, 262144), (4096, 1000), (8192, 50257),
]  # fmt: skip


class Softmax:
    def __init__(
        self,
        library: ctypes.CDLL,
        z: torch.Tensor,
        bias: torch.Tensor | None,
        activation: int,
        plan: softmax_kernel.Plan,
    ) -> None:
        self.y = torch.full_like(z, float("nan"))
        self.keep = (z, bias)
        dtype = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}[z.dtype]
        chosen = (plan.variant, plan.threads, plan.blocks, activation, dtype, int(plan.aligned))
        given = (
            pointer(z),
            wide(z.stride(0)),
            pointer(bias),
            ctypes.c_float(1.0),
            pointer(None),
            wide(0),
            0,
            pointer(self.y),
        )
        self.call, self.arguments = library.softmax_launch, (*chosen, *given, wide(z.shape[0]), z.shape[1])

    def __call__(self) -> None:
        checked(self.call(*self.arguments, stream()))


def copy_ceiling() -> float:
    """GB/s, read and written bytes together."""
    source, target = torch.randn(1 << 30, device=GPU), torch.empty(1 << 30, device=GPU)
    times = []
    for _ in range(7):  # not in a graph: there a copy becomes a slower memory-copy node
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return 2 * source.numel() * 4 / statistics.median(times) / 1e6


def run_softmax(libraries: dict[str, ctypes.CDLL]) -> None:
    k, library = softmax_kernel, libraries["softmax"]
    ceiling = copy_ceiling()
    print(f"copy ceiling {ceiling:.0f} GB/s (read + write)")
    speedups: list[float] = []
    for M, N in ROWS:
        for gelu in (False, True):
            z = torch.randn(M, N, device=GPU)
            bias = torch.randn(N, device=GPU) * 0.1 if gelu else None
            plan = k.choose(N, N % 4 == 0, True)
            ours = Softmax(library, z, bias, 1 if gelu else 0, plan)
            ours()
            some = z[:: max(1, M // 64)]
            exact = some.double() + bias.double() if bias is not None else some.double()
            exact = torch.softmax(F.gelu(exact) if gelu else exact, 1)

            def eager(z: torch.Tensor = z, bias: torch.Tensor | None = bias) -> torch.Tensor:
                return torch.softmax(F.gelu(z + bias) if bias is not None else z, 1)

            error = ((ours.y[:: max(1, M // 64)].double() - exact) / exact).abs().max().item()
            theirs = ((eager()[:: max(1, M // 64)].double() - exact) / exact).abs().max().item()
            functions: dict[str, Callable[[], Any]] = {"ours": ours, "eager": eager}
            if arguments.compile and M * N >= 1 << 24 and N & (N - 1) == 0:
                torch._dynamo.reset()
                compiled = torch.compile(eager, dynamic=False)
                functions["compile"] = lambda compiled=compiled, z=z, bias=bias: compiled(z, bias)
            times = compare(functions, rounds=11)
            rate = 2 * z.numel() * 4 / times["ours"] / 1e6
            speedup = min(times[name] for name in times if name != "ours") / times["ours"]
            speedups.append(speedup)
            print(
                f"{M:6d} x {N:6d} {'bias+gelu' if gelu else 'plain    '} ours {times['ours'] * 1e3:7.1f} us "
                f"{rate:5.0f} GB/s {rate / ceiling:4.0%} of copy  "
                + "  ".join(f"{name} {times[name] * 1e3:7.1f}" for name in times if name != "ours")
                + f"  x{speedup:.2f}  err {error:.1e} / {theirs:.1e}  {plan}"
                + ("" if error <= max(2 * theirs, 2e-6) else "  <-- ERROR"),
                flush=True,
            )
            record(
                kernel="softmax", M=M, N=N, gelu=gelu, ms=times, ceiling_gb_s=ceiling, error=error, torch_error=theirs
            )
            if arguments.alternatives and N % 4 == 0:
                plans = [
                    k.Plan(k.BLOCK, t, 1, True)
                    for t in (128, 256, 512, 1024)
                    if t * 32 >= N >= t * 8 and not (t == 128 and N > 2048)
                ]
                plans += [
                    k.Plan(k.CLUSTER, t, b, True)
                    for t in (256, 512)
                    for b in (2, 4, 8, 16)
                    if b * 32 * t >= N >= b * 8 * t
                ]
                plans += [k.Plan(k.ONLINE, 1024, 1, True)] if N >= 16384 else []
                others = {str(p): Softmax(library, z, bias, 1 if gelu else 0, p) for p in plans if p != plan}
                for name, other in others.items():
                    other()
                    if not ((other.y[:: max(1, M // 64)].double() - exact) / exact).abs().max().item() <= max(
                        2 * theirs, 2e-6
                    ):
                        print("   WRONG:", name)
                found = compare({"chosen": ours, **others}, rounds=5)
                print(
                    "   ",
                    "; ".join(
                        f"{ms * 1e3:.1f} us {name.split(' a row')[0]}"
                        for name, ms in sorted(found.items(), key=lambda i: i[1])[:5]
                    ),
                )
                del others
            del z, ours
    print(f"softmax: geometric mean x{geometric_mean(speedups):.2f}, least x{min(speedups):.2f}, {len(speedups)} cases")


# ---- linear --------------------------------------------------------------------------------
class Linear:
    """One layer; ``split_weight`` decides whether a call prepares the weight."""

    def __init__(
        self,
        library: ctypes.CDLL,
        x: torch.Tensor,
        w: torch.Tensor,
        bias: torch.Tensor,
        plan: linear_kernel.Plan,
        activation: int = 1,
    ) -> None:
        self.library, self.x, self.w, self.bias = library, x, w, bias
        (self.M, self.K), self.N = x.shape, w.shape[0]
        self.padded = -(-self.K // 64) * 64
        half = {"dtype": torch.float16, "device": GPU}
        self.xs, self.ws = torch.empty(2, self.M, self.padded, **half), torch.empty(2, self.N, self.padded, **half)
        self.undo_x, self.undo_w = torch.empty(self.M, device=GPU), torch.empty(self.N, device=GPU)
        self.misfits = torch.zeros(self.N + 1, dtype=torch.int32, device=GPU)
        self.out = torch.full((self.M, self.N), float("nan"), device=GPU)
        self.partial = torch.full((plan.splits, self.M, self.N), float("nan"), device=GPU) if plan.splits > 1 else None
        self.plan, self.activation = plan, activation
        self.split_w()

    def split_x(self) -> None:
        self._split(self.x, self.xs, self.undo_x, None)

    def split_w(self) -> None:
        self._split(self.w, self.ws, self.undo_w, self.misfits)

    def _split(self, source: torch.Tensor, to: torch.Tensor, undo: torch.Tensor, misfits: torch.Tensor | None) -> None:
        given = (pointer(source), wide(source.stride(0)), *source.shape, self.padded)
        made = (pointer(to[0]), pointer(to[1]), pointer(undo), pointer(misfits))
        checked(self.library.linear_split(*given, *made, stream()))

    def multiply(self) -> None:
        sizes = (self.plan.width, self.plan.splits, SMS, self.M, self.N, self.K, self.padded)
        x = (pointer(self.x), wide(self.x.stride(0)), pointer(self.xs[0]), pointer(self.xs[1]), pointer(self.undo_x))
        w = (pointer(self.w), wide(self.w.stride(0)), pointer(self.ws[0]), pointer(self.ws[1]), pointer(self.undo_w))
        epilogue = (pointer(self.bias), pointer(None), wide(0), ctypes.c_float(1.0), self.activation)
        made = (pointer(self.partial), pointer(self.out))
        checked(self.library.linear_multiply(*sizes, *x, *w, pointer(self.misfits), *epilogue, *made, stream()))

    def __call__(self) -> None:
        self.split_x(), self.multiply()


def operands(kind: str, M: int, N: int, K: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator(device=GPU).manual_seed(7)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, device=GPU, generator=g)

    def uniform(*size: int) -> torch.Tensor:
        return torch.rand(*size, device=GPU, generator=g)

    if kind == "positive":
        x, w = uniform(M, K), uniform(N, K) * (2.0 / K)
    elif kind == "wide":
        x, w = (
            normal(M, K) * torch.exp(2 * normal(M, K)),
            normal(N, K) * torch.exp(2 * normal(N, K)) / (55 * 55 * math.sqrt(K)),
        )
    else:
        x, w = normal(M, K), (uniform(N, K) * 2 - 1) / math.sqrt(K)
    if kind == "outlier":
        x[:, 5] *= 300
        w[3, 7] = 30.0
    if kind == "special":
        x[1, 3], x[2, 9], w[5, 2], w[6, 0] = float("inf"), float("nan"), float("-inf"), float("nan")
        x[3] = 0
        x[4] *= 1e-38
        w[7] *= 1e25
        x[5, 1:] = 1e-30
    return x, w, (uniform(N) * 2 - 1) / math.sqrt(K)


def z_errors(z: torch.Tensor, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    rows = torch.arange(0, x.shape[0], max(1, x.shape[0] // 32), device=GPU)[:32]
    exact = x[rows].double() @ w.double().t() + b.double()
    scale = exact.pow(2).mean().sqrt()
    difference = z[rows].double() - exact
    return (difference.pow(2).mean().sqrt() / scale).item(), (difference.abs().max() / scale).item()


def run_linear(libraries: dict[str, ctypes.CDLL]) -> None:
    k, library = linear_kernel, libraries["linear"]
    smooth = libraries["softmax"].softmax_launch
    torch.backends.cuda.matmul.allow_tf32 = False

    for kind, (M, N, K) in [
        (kind, shape)
        for kind in ("random", "positive", "wide", "outlier")
        for shape in ((1024, 8192, 8192), (333, 1000, 5003))
    ]:
        x, w, b = operands(kind, M, N, K)
        theirs = z_errors(F.linear(x, w, b), x, w, b)
        for plan in (
            (k.Plan(128, 1), k.Plan(0, 1), k.Plan(128, 3))
            if M == 1024
            else (k.Plan(128, 1), k.Plan(0, 2), k.Plan(32, 4))
        ):
            ours = Linear(library, x, w, b, plan, 0)
            ours()
            error = z_errors(ours.out, x, w, b)
            misfit = int((ours.undo_x < 0).sum()), int(ours.misfits[0])
            good = error[0] <= theirs[0] and error[1] <= 1.5 * theirs[1]
            print(
                f"linear {kind:8s} {M} x {N} x {K} {plan}: z rms {error[0]:.1e} max {error[1]:.1e}, "
                f"eager {theirs[0]:.1e} {theirs[1]:.1e}, misfits {misfit}{'' if good else '  <-- ERROR'}",
                flush=True,
            )
            record(kernel="linear-error", kind=kind, shape=(M, N, K), plan=str(plan), error=error, torch_error=theirs)
    x, w, b = operands("special", 64, 100, 777)
    exact = F.linear(x, w, b)
    for plan in (k.Plan(128, 1), k.Plan(32, 2), k.Plan(0, 1)):
        ours = Linear(library, x, w, b, plan, 0)
        ours()
        finite = torch.isfinite(exact)
        same = torch.equal(ours.out[~finite].nan_to_num(), exact[~finite].nan_to_num()) and bool(
            torch.isfinite(ours.out[finite]).all()
        )
        near = ((ours.out - exact).abs() / (x.abs() @ w.abs().t() + 1e-30))[finite].max().item()
        print(f"largest difference over |x| |w|: {near:.1e}")
        same = same and near < 1e-6
        print(
            f"linear special values {plan}: {'same as torch' if same else 'DIFFERENT  <-- ERROR'}, "
            f"misfits {int((ours.undo_x < 0).sum())}, {int(ours.misfits[0])}",
            flush=True,
        )

    shapes = [
        (1024, 8192, 8192), (1, 8192, 8192), (16, 8192, 8192), (128, 8192, 8192), (512, 8192, 8192),
        (1024, 1024, 1024), (1024, 4096, 4096), (4096, 4096, 4096), (8192, 8192, 8192), (1000, 5000, 3000),
        (2048, 512, 2048), (8192, 1024, 512), (256, 16384, 4096), (64, 512, 16384), (1, 512, 512),
    ]  # fmt: skip
    speedups = []
    for M, N, K in shapes:
        x, w, b = operands("random", M, N, K)
        plan = k.choose(M, N, K, SMS, True)
        ours = Linear(library, x, w, b, plan)
        aligned = N % 4 == 0
        soft = softmax_kernel.choose(N, aligned, True)

        def finish(layer: Linear, soft: softmax_kernel.Plan = soft) -> None:
            chosen = (soft.variant, soft.threads, soft.blocks, 0, 0, int(soft.aligned))
            row = (pointer(layer.out), wide(layer.N), pointer(None), ctypes.c_float(1.0), pointer(None), wide(0), 0)
            checked(smooth(*chosen, *row, pointer(layer.out), wide(layer.M), layer.N, stream()))

        def prepared(layer: Linear = ours, finish: Callable[..., None] = finish) -> None:
            layer(), finish(layer)

        def fresh(layer: Linear = ours, finish: Callable[..., None] = finish) -> None:
            layer.split_w(), layer(), finish(layer)

        def eager(x: torch.Tensor = x, w: torch.Tensor = w, b: torch.Tensor = b) -> torch.Tensor:
            return torch.softmax(F.gelu(F.linear(x, w, b)), 1)

        prepared()
        y = ours.out.clone()
        reference = torch.softmax(F.gelu(x[:32].double() @ w.double().t() + b.double()), 1)
        error = ((y[:32].double() - reference) / reference).abs().max().item()
        theirs = ((eager()[:32].double() - reference) / reference).abs().max().item()
        functions: dict[str, Callable[[], Any]] = {"prepared": prepared, "fresh": fresh, "eager": eager}
        wanted = (M, N, K) == (1024, 8192, 8192)
        if wanted:
            portable = Linear(library, x, w, b, k.Plan(0, 1))
            portable()
            xh, wh = x.half(), w.half()
            functions |= {
                "split x": ours.split_x,
                "split W": ours.split_w,
                "multiply": ours.multiply,
                "softmax": lambda layer=ours: finish(layer),
                "multiply, portable": portable.multiply,
                "fp32 linear": lambda x=x, w=w, b=b: F.linear(x, w, b),
                "cuBLAS fp16 product": lambda xh=xh, wh=wh: xh @ wh.t(),
            }
        if arguments.alternatives and not wanted:
            for splits in (1, 2, 3, 4, 8):
                if splits * 4 <= -(-K // 64) and splits != plan.splits and splits * M * N * 4 < 1 << 30:
                    layer = Linear(library, x, w, b, k.Plan(plan.width, splits))
                    functions[f"splits {splits}"] = lambda layer=layer: prepared(layer)
            if plan.width == 32:
                layer = Linear(library, x, w, b, k.Plan(128, plan.splits))
                functions["width 128"] = lambda layer=layer: prepared(layer)
        if arguments.compile and (M, N, K) in shapes[:8]:
            torch._dynamo.reset()
            compiled = torch.compile(eager, dynamic=False)
            functions["compile"] = lambda compiled=compiled, x=x, w=w, b=b: compiled(x, w, b)
        times = compare(functions, rounds=15 if wanted else 9)
        speedup = min(times[n] for n in ("eager", "compile") if n in times) / times["prepared"]
        speedups.append(speedup)
        print(
            f"linear+gelu+softmax {M} x {N} x {K} {plan}: x{speedup:.2f}  y err {error:.1e} / {theirs:.1e}  "
            + ", ".join(f"{n} {ms * 1e3:.1f} us" for n, ms in times.items()),
            flush=True,
        )
        record(kernel="linear_gelu_softmax", shape=(M, N, K), plan=str(plan), ms=times, error=error, torch_error=theirs)
        functions.clear()
    print(f"linear+gelu+softmax: geometric mean x{geometric_mean(speedups):.2f}, least x{min(speedups):.2f}")


def main() -> None:
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "driver", torch.cuda.get_device_properties(0))
    libraries = build()
    sections = {"matvec": [run_wide_matvec, run_matvec], "softmax": [run_softmax], "linear": [run_linear]}
    for name in arguments.only.split(","):
        for section in sections[name]:
            started = time.time()
            try:
                section(libraries)
            except Exception as error:
                print(f"{section.__name__} FAILED: {type(error).__name__}: {error}", flush=True)
            torch.cuda.empty_cache()
            print(f"{section.__name__}: {time.time() - started:.0f} s", flush=True)
            (arguments.out / "gallery.json").write_text(json.dumps(RECORDS))


if __name__ == "__main__":
    main()
