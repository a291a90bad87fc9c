"""Ways of reaching a ceiling: kernels of our own and the library's, each timed in a burst when the card is cool.

Why: no one way of loading, storing or multiplying is the fastest on every GPU. The rule: random data, sizes that are
long against a launch, and a ceiling is whatever the best of its trials reached; what this device lacks is left out.
"""

from __future__ import annotations

import ctypes
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.errors import MachineError

NATIVE = Path(__file__).parent / "native"
MEMORY, BYTES = NATIVE / "ceilings.cu", NATIVE / "products.cu"
"""Kernels of the memory, and of products of signed bytes."""
MOST_BYTES = 4 << 30
"""Of one buffer: long against a launch, short against patience."""
L2_BYTES = 8 << 20
"""Of the buffer that the L2 delivers: half of the smallest L2 of a data sheet here that is split in two."""
L2_PASSES = 400
BURST = 6
"""Launches of a burst after a pause; the fastest counts, for the clock falls within a few of them."""
PAUSE_SECONDS = 0.1
LAUNCHES = 50
BLOCK_CYCLES = 200_000
"""Of the spinning kernel, 0.1 ms: a call is queued by then."""


@dataclass(frozen=True)
class Trial:
    """One way of reaching a ceiling, in a burst."""

    name: str
    """The ceiling's."""
    unit: str
    """``GB/s`` | ``TFLOP/s`` | ``TOP/s`` | ``ms``."""
    amount: float
    """GB, TFLOP or TOP of one call; 0 for the launch, whose figure is the time itself."""
    run: Callable[[], Any]
    how: str
    burst_ms: float

    def better(self, other: Trial) -> bool:
        """Whether this way reached more."""
        return self.amount / self.burst_ms > other.amount / other.burst_ms


@dataclass(frozen=True)
class _Way:
    """One kernel of ceilings.cu."""

    ceiling: str
    variant: int
    traffic: float
    """Bytes moved for each byte of the buffer."""
    how: str
    bulk: bool = False
    """Needs the bulk copy engine."""


_WAYS = (
    _Way("read", 1, 1, "bulk copy ring, 12 pieces of 16 KiB a multiprocessor", bulk=True),
    _Way("read", 2, 1, "bulk copy ring, 2 x 24 pieces of 4 KiB a multiprocessor", bulk=True),
    _Way("read", 3, 1, "4 independent 16-byte loads a thread"),
    _Way("read", 4, 1, "8 independent 16-byte loads a thread"),
    _Way("write", 5, 1, "16-byte stores"),
    _Way("write", 6, 1, "16-byte streaming stores"),
    _Way("copy", 7, 2, "4 independent 16-byte loads and stores a thread"),
    _Way("copy", 8, 2, "8 independent 16-byte loads and stores a thread"),
)

_SHAPES = ((8192, 8192, 8192), (4096, 4096, 4096), (1024, 8192, 8192))
"""M, N, K of products. A long one runs into the power cap within one launch, a short one does not fill the device."""
_PRODUCTS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
_BYTE_PASSES = (500, 2000)
"""Of the kernel of bytes: about 0.3 and 1.1 ms on an H200."""


# ---- memory --------------------------------------------------------------------------------------------------------
def memory(progress: Callable[[str], None]) -> Iterator[Trial]:
    """Bandwidths and the launch, by the kernels of ceilings.cu and by PyTorch's own.

    Raises ``MachineError`` where our kernels cannot be built or fail.
    """
    import torch

    progress("building the memory kernels")
    library = library_of(MEMORY)
    size = min(MOST_BYTES, torch.cuda.mem_get_info(0)[0] // 4) // (1 << 20) << 20
    one = torch.rand(size // 4, device="cuda:0")
    two = torch.empty_like(one)
    out = torch.zeros((), device="cuda:0")

    def call(variant: int, bytes: int, passes: int = 0) -> Callable[[], None]:
        def launch() -> None:
            status = int(
                library.kw_ceiling(
                    variant,
                    ctypes.c_void_p(one.data_ptr()),
                    ctypes.c_void_p(two.data_ptr()),
                    ctypes.c_int64(bytes),
                    passes,
                    ctypes.c_void_p(out.data_ptr()),
                )
            )
            if status != 0:
                raise MachineError(f"memory kernel {variant} failed with CUDA error {status}")

        return launch

    progress("measuring the launch")
    empty = call(0, 0)
    yield Trial("launch", "ms", 0.0, empty, "an empty kernel between two events", min(spans(empty, LAUNCHES)))
    progress("measuring the L2")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    moved = sms * 2 * L2_PASSES * 4 * 1024 * 16
    yield burst("l2", "GB/s", moved / 1e9, call(9, L2_BYTES, L2_PASSES), "each block reads the same 8 MiB")
    for way in _WAYS:
        if way.bulk and not library.kw_has_bulk():
            continue
        progress(f"measuring {way.ceiling}: {way.how}")
        yield burst(way.ceiling, "GB/s", size * way.traffic / 1e9, call(way.variant, size), way.how)
    progress("measuring copy: torch")
    yield burst("copy", "GB/s", size * 2 / 1e9, lambda: two.copy_(one), "torch.Tensor.copy_")
    yield burst("write", "GB/s", size / 1e9, lambda: two.fill_(1.5), "torch.Tensor.fill_")


def library_of(source: Path) -> ctypes.CDLL:
    """One of the sources, built for this device and kept.

    Raises ``MachineError`` where nvcc is missing or refuses it.
    """
    import torch

    from kernelwright.build import toolchain
    from kernelwright.build.cache import digest, obtain

    tools = toolchain.find()
    command = [str(tools.nvcc), "-O3", "-shared", "-Xcompiler", "-fPIC", *flags(*torch.cuda.get_device_capability(0))]

    def make(folder: Path) -> None:
        answer = subprocess.run(
            [*command, str(source), "-o", str(folder / "ceilings.so")], capture_output=True, text=True, check=False
        )
        if answer.returncode != 0:
            raise MachineError(f"nvcc could not build {source.name}:\n" + answer.stderr[-2000:])

    name = digest(source.read_bytes(), *command, tools.version)
    folder, _ = obtain("ceilings", name, make)
    return ctypes.CDLL(str(folder / "ceilings.so"))


def flags(major: int, minor: int) -> list[str]:
    """nvcc's for a device of this capability: Hopper's tensor cores are reached by instructions of its own alone."""
    arch, own = f"{major}{minor}", "a" if (major, minor) == (9, 0) else ""
    return [f"-gencode=arch=compute_{arch}{own},code=sm_{arch}{own}", *(["-DKW_WGMMA"] if own else [])]


# ---- products ------------------------------------------------------------------------------------------------------
def products(progress: Callable[[str], None]) -> Iterator[Trial]:
    """Matrix rates of the library on normal random data, and of our own kernel on bytes; a dtype that the device lacks
    is left out.

    Raises ``MachineError`` where our kernel cannot be built or fails.
    """
    for name in _PRODUCTS:
        for m, n, k in _SHAPES:
            progress(f"measuring {name}: a product of {m} x {n} x {k}")
            try:
                run = _product(name, m, n, k)
                run()
            except (RuntimeError, AttributeError, TypeError):
                continue
            how = f"cuBLAS, {m} x {n} x {k}, normal random data"
            yield burst(name, "TOP/s" if name == "int8" else "TFLOP/s", 2 * m * n * k / 1e12, run, how)
    yield from _bytes(progress)


def _bytes(progress: Callable[[str], None]) -> Iterator[Trial]:
    """The tensor cores' own rate with random signed bytes: the library's products reach half of it on an H200."""
    import torch

    if torch.cuda.get_device_capability(0) < (8, 0):
        return
    library = library_of(BYTES)
    out = torch.zeros((), dtype=torch.int32, device="cuda:0")
    operations = ctypes.c_int64()

    def call(passes: int) -> Callable[[], None]:
        def launch() -> None:
            status = int(library.kw_products(passes, ctypes.c_void_p(out.data_ptr()), ctypes.byref(operations)))
            if status != 0:
                raise MachineError(f"the kernel of products of bytes failed with CUDA error {status}")

        return launch

    for passes in _BYTE_PASSES:
        progress(f"measuring int8: {passes} passes over random bytes")
        launch = call(passes)
        launch()
        yield burst(
            "int8", "TOP/s", operations.value / 1e12, launch, "signed bytes, random, from shared memory or registers"
        )


def _product(name: str, m: int, n: int, k: int) -> Callable[[], Any]:
    import torch

    dtype = {"fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}.get(name, torch.float32)
    a, b = (torch.randn(shape, device="cuda:0", dtype=torch.float32) for shape in ((m, k), (k, n)))
    if name == "int8":
        low, high = (t.mul(40).clamp(-128, 127).to(torch.int8) for t in (a, b.t().contiguous()))
        return lambda: torch._int_mm(low, high.t())
    if name == "fp8":
        one = torch.ones((), device="cuda:0")
        # The library wants the second factor with its columns contiguous.
        a8, b8 = a.to(torch.float8_e4m3fn), b.t().contiguous().to(torch.float8_e4m3fn).t()
        return lambda: torch._scaled_mm(a8, b8, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    x, y = a.to(dtype), b.to(dtype)
    out = torch.empty(m, n, device="cuda:0", dtype=dtype)

    def run() -> Any:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        try:
            return torch.matmul(x, y, out=out)
        finally:
            torch.set_float32_matmul_precision(before)

    return run


# ---- timing --------------------------------------------------------------------------------------------------------
def burst(name: str, unit: str, amount: float, run: Callable[[], Any], how: str) -> Trial:
    """``amount`` (GB, TFLOP or TOP a call) and the least time of a call in a burst after a pause, on a cool card."""
    import torch

    run()
    torch.cuda.synchronize()
    time.sleep(PAUSE_SECONDS)
    return Trial(name, unit, amount, run, how, min(spans(run, BURST)))


def spans(run: Callable[[], Any], count: int) -> list[float]:
    """Times in ms of ``count`` calls, one at a time, each from behind a spinning kernel: without the host's part."""
    import torch

    cuda: Any = torch.cuda
    spans = []
    for _ in range(count):
        start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda._sleep(BLOCK_CYCLES)
        start.record()
        run()
        stop.record()
        cuda.synchronize()
        spans.append(start.elapsed_time(stop))
    return spans


def batch(run: Callable[[], Any], count: int) -> float:
    """Mean time in ms of ``count`` calls back to back."""
    import torch

    cuda: Any = torch.cuda
    start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        run()
    stop.record()
    cuda.synchronize()
    return float(start.elapsed_time(stop)) / count
