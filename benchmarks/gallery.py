"""Measures the gallery's functions on one GPU beside PyTorch's, checks them against float64, and prints one table.

    python benchmarks/gallery.py [--only matvec,softmax,linear] [--quick] [--compile] [--tune] [--json FILE]

What is timed is what a user calls. Two figures each: device time from a cold L2 cache (events around one call that the
host queued while the card was reading something else; calls in turn, the middle of the rounds and its 95 % interval),
and the time a call takes end to end, host included, in a row of calls from a warm cache. The ceilings (reading and
copying) are measured in the same run. ``--tune`` first measures all plans at these shapes, which replaces this
machine's tables; ``--quick`` takes some of the shapes and fewer rounds. Nothing is compared that was not right.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
from kernelwright import gallery
from kernelwright.gallery import _clock, _tables, _tune
from kernelwright.gallery.kernels import linear as linear_kernel
from kernelwright.gallery.kernels import matvec as matvec_kernel
from kernelwright.gallery.kernels import softmax as softmax_kernel

FILES = {"matvec": matvec_kernel, "softmax": softmax_kernel, "linear": linear_kernel}
WIDE = (2048, 1 << 20)
"""The public matrix-vector problem."""
FUSED = (1024, 8192, 8192)
"""The public problem of linear + GELU + softmax."""

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--only", default="matvec,softmax,linear")
parser.add_argument("--quick", action="store_true", help="some of the shapes, fewer rounds")
parser.add_argument("--compile", action="store_true", help="also time torch.compile (float32): seconds a shape")
parser.add_argument("--tune", action="store_true", help="measure all plans first and use the fastest")
parser.add_argument("--host", action="store_true", help="also the time end to end, host included")
parser.add_argument("--dtypes", default="float32,float16,bfloat16")
parser.add_argument("--json", type=Path)
arguments = parser.parse_args()
RECORDS: list[dict[str, Any]] = []
ROUNDS = 10 if arguments.quick else 32


def build() -> None:
    """All extensions at once: each is two compilers' work."""
    started = time.time()
    code = "from kernelwright.gallery.kernels import {0}; {0}.extension()"
    jobs = [subprocess.Popen([sys.executable, "-c", code.format(name)]) for name in FILES]
    for job in jobs:
        if job.wait():
            sys.exit("a kernel's file does not build; see above")
    for file in FILES.values():
        file.extension()
    print(f"built in {time.time() - started:.1f} s", flush=True)


def interval(values: list[float]) -> list[float]:
    """The middle of the rounds and its 95 % interval by order statistics."""
    ordered, n = sorted(values), len(values)
    low = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)))
    return [round(v, 2) for v in (_clock.middle(values), ordered[low], ordered[n - 1 - low])]


def compare(calls: dict[str, Callable[[], Any]], *, rounds: int = ROUNDS, **facts: Any) -> dict[str, float]:
    """Device microseconds of each call; the record also holds intervals and the time end to end."""
    for call in calls.values():
        call(), call()
    samples = _clock.device_samples(calls, rounds=rounds)
    record: dict[str, Any] = {**facts, "device_us": {name: interval(values) for name, values in samples.items()}}
    if arguments.host:
        record["host_us"] = {n: round(us, 2) for n, us in _clock.host_us(calls, calls_a_round=30, rounds=12).items()}
    RECORDS.append(record)
    return {name: _clock.middle(values) for name, values in samples.items()}


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def summary(title: str, ratios: dict[str, float]) -> None:
    """Geometric mean and the least of speed-ups by name."""
    if ratios:
        least = sorted(ratios, key=lambda name: ratios[name])[:3]
        below = sum(ratio < 0.97 for ratio in ratios.values())
        print(
            f"== {title}: geometric mean x{geometric_mean(list(ratios.values())):.3f} over {len(ratios)}, "
            f"{below} below 0.97x, least " + ", ".join(f"x{ratios[name]:.3f} ({name})" for name in least),
            flush=True,
        )


def some(shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    return shapes[::2] if arguments.quick else shapes


def close(
    found: torch.Tensor, exact: torch.Tensor, theirs: torch.Tensor, least: float, size: float = 0.0
) -> tuple[str, float, float]:
    """How far both are from float64 over ``size`` (its root mean square), and a mark where ours is too far."""
    size = size or max(float(exact.pow(2).mean().sqrt()), 1e-300)
    ours, other = (float((y.double() - exact).abs().max()) / size for y in (found, theirs))
    return "" if ours <= max(2 * other, least) else "  <-- ERROR", ours, other


# ---- ceilings -------------------------------------------------------------------------------
def read_calls(A: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Kernels that only read all of A."""
    from kernelwright.measure import ceilings

    library, out = ceilings._library(), torch.zeros((), device="cuda")

    def read(variant: int) -> None:
        bytes = ctypes.c_int64(A.numel() * A.element_size())
        pointers = ctypes.c_void_p(A.data_ptr()), ctypes.c_void_p(A.data_ptr())
        if library.kw_ceiling(variant, *pointers, bytes, 0, ctypes.c_void_p(out.data_ptr())):
            raise RuntimeError("the reading kernel failed")

    return {"read: bulk 16 KB": partial(read, 1), "read: bulk 4 KB": partial(read, 2), "read: loads": partial(read, 3)}


def copy_ceiling() -> float:
    """GB/s, read and written bytes together."""
    source, target = torch.randn(1 << 29, device="cuda"), torch.empty(1 << 29, device="cuda")
    us = compare({"copy": lambda: target.copy_(source)}, rounds=9, kernel="copy")["copy"]
    return 2 * source.numel() * 4 / us / 1e3


# ---- matvec ---------------------------------------------------------------------------------
def run_wide_matvec() -> None:
    M, K = WIDE
    A, x = torch.randn(M, K, device="cuda"), torch.randn(K, device="cuda")
    exact = _tune._in_float64(A, x)
    calls: dict[str, Callable[[], Any]] = {
        "ours": lambda: gallery.matvec(A, x),
        "torch.matmul": lambda: torch.matmul(A, x.unsqueeze(1)),
        "torch.mv": lambda: torch.mv(A, x),
        **read_calls(A),
    }
    if arguments.compile:
        compiled = torch.compile(lambda A, x: (A * x).sum(1))
        calls["compile (A * x).sum"] = partial(compiled, A, x)
    times = compare(calls, kernel="matvec", shape=WIDE, dtype="float32")
    mark, ours, theirs = close(gallery.matvec(A, x), exact, torch.mv(A, x), 1e-6)
    best = min(us for name, us in times.items() if name.startswith("read"))
    for name, us in times.items():
        rate = A.numel() * 4 / us / 1e3
        print(f"2048 x 2^20 float32  {name:20s} {us:8.1f} us  {rate:5.0f} GB/s  {best / us:6.1%} of the best reader")
    print(
        f"2048 x 2^20: x{times['torch.matmul'] / times['ours']:.3f} torch.matmul; errors {ours:.1e}, {theirs:.1e}{mark}"
    )


def run_matvec() -> None:
    speedups: dict[str, dict[str, float]] = {}
    ends: dict[str, float] = {}
    for dtype in [getattr(torch, name) for name in arguments.dtypes.split(",")]:
        for stored in some(_tune.MATVEC):
            for transposed in (False, True):
                A = torch.randn(stored, device="cuda").to(dtype)
                A = A.t() if transposed else A
                (M, K), x = A.shape, torch.randn(A.shape[1], device="cuda").to(dtype)
                layout, kind = "A.T @ x" if transposed else "A @ x", str(dtype)[6:]
                y = gallery.matvec(A, x)
                # A single result may be near zero by chance: over what it is on average.
                mark, ours, theirs = close(y, _tune._in_float64(A, x), torch.mv(A, x), 1e-6, K**0.5)
                mark += "" if torch.equal(y, gallery.matvec(A, x)) else "  <-- NOT THE SAME BITS"
                sms, hopper, device = matvec_kernel._device(0)
                aligned = (M if transposed else K) * A.element_size() % 16 == 0
                plan = matvec_kernel.choose(M, K, A.element_size(), aligned, transposed, sms, hopper, device)
                calls = {"ours": partial(gallery.matvec, A, x), "torch": partial(torch.mv, A, x)}
                times = compare(calls, kernel="matvec", shape=stored, layout=layout, dtype=kind, plan=str(plan))
                ratio = times["torch"] / times["ours"]
                name = f"{stored[0]} x {stored[1]} {kind} {layout}"
                speedups.setdefault(f"matvec {layout} {kind}", {})[name] = ratio
                host = RECORDS[-1].get("host_us", {})
                end = ""
                if host:
                    ends[name] = host["torch"] / host["ours"]
                    end = f"  end to end {host['ours']:6.1f} / {host['torch']:6.1f}"
                print(
                    f"{name:34s} {times['ours']:7.1f} / {times['torch']:7.1f} us  x{ratio:5.2f}{end}  "
                    f"{A.numel() * A.element_size() / times['ours'] / 1e3:5.0f} GB/s  err {ours:.0e} {theirs:.0e}  "
                    f"{plan}{mark}{'' if ratio >= 0.97 else '  <-- SLOWER'}",
                    flush=True,
                )
    for title, ratios in speedups.items():
        summary(title, ratios)
    summary("matvec, all", {name: ratio for ratios in speedups.values() for name, ratio in ratios.items()})
    summary("matvec, end to end", ends)


# ---- softmax --------------------------------------------------------------------------------
def run_softmax() -> None:
    ceiling = copy_ceiling()
    print(f"copy ceiling {ceiling:.0f} GB/s (read + write)")
    speedups: dict[str, dict[str, float]] = {}
    for dtype in [getattr(torch, name) for name in arguments.dtypes.split(",")]:
        for M, N in some(_tune.SOFTMAX):
            for gelu in (False, True):
                z = torch.randn(M, N, device="cuda").to(dtype)
                bias = (torch.randn(N, device="cuda") * 0.1).to(dtype) if gelu else None

                def eager(z: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
                    return torch.softmax(z if bias is None else F.gelu(z + bias), 1)

                part = z[:: max(1, M // 64)]
                exact = part.double() if bias is None else F.gelu(part.double() + bias.double())
                activation = "gelu" if gelu else None
                ours = partial(gallery.softmax, z, bias=bias, activation=activation)
                step = max(1, M // 64)
                least = 1e-6 if dtype == torch.float32 else 2e-2
                mark, error, theirs = close(ours()[::step], torch.softmax(exact, 1), eager(z, bias)[::step], least)
                copy = partial(torch.empty_like(z).copy_, z)  # as many bytes: the ceiling where a launch counts, too
                calls: dict[str, Callable[[], Any]] = {"ours": ours, "eager": partial(eager, z, bias), "copy": copy}
                if arguments.compile and dtype == torch.float32:
                    torch._dynamo.reset()
                    calls["compile"] = partial(torch.compile(eager, dynamic=False), z, bias)
                kind, what = str(dtype)[6:], "gelu" if gelu else "plain"
                hopper, device = softmax_kernel._device(0)
                aligned = softmax_kernel.ROWS if N * z.element_size() % 16 == 0 else softmax_kernel.WHOLE
                plan = softmax_kernel.choose(M, N, z.element_size(), aligned, hopper, gelu, not gelu, device)
                times = compare(calls, kernel="softmax", shape=(M, N), gelu=gelu, dtype=kind, plan=str(plan))
                rate = 2 * z.numel() * z.element_size() / times["ours"] / 1e3
                ratio = min(us for name, us in times.items() if name not in ("ours", "copy")) / times["ours"]
                name = f"{M} x {N} {kind} {what}"
                speedups.setdefault(f"softmax {what} {kind}", {})[name] = ratio
                print(
                    f"{name:30s} "
                    + "  ".join(f"{call} {us:7.1f}" for call, us in times.items())
                    + f" us  x{ratio:.2f}  {rate:5.0f} GB/s {rate / ceiling:4.0%} of copying"
                    f"  err {error:.0e} {theirs:.0e}  {plan}{mark}{'' if ratio >= 0.97 else '  <-- SLOWER'}",
                    flush=True,
                )
    for title, ratios in speedups.items():
        summary(title, ratios)


# ---- linear ---------------------------------------------------------------------------------
def operands(kind: str, M: int, N: int, K: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, W and b; W as nn.Linear draws it unless ``kind`` says otherwise."""
    g = torch.Generator(device="cuda").manual_seed(7)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, device="cuda", generator=g)

    def uniform(*size: int) -> torch.Tensor:
        return torch.rand(*size, device="cuda", generator=g)

    if kind == "positive":
        x, w = uniform(M, K), uniform(N, K) * (2.0 / K)
    elif kind == "wide":
        x, w = normal(M, K) * torch.exp(2 * normal(M, K)), normal(N, K) * torch.exp(2 * normal(N, K))
        w /= 55 * 55 * math.sqrt(K)
    else:
        x, w = normal(M, K), (uniform(N, K) * 2 - 1) / math.sqrt(K)
    if kind == "outlier":
        x[:, 5] *= 300
        w[3, 7] = 30.0
    return x, w, (uniform(N) * 2 - 1) / math.sqrt(K)


def run_errors() -> None:
    for kind in ("random", "positive", "wide", "outlier"):
        for M, N, K in (FUSED, (333, 1000, 5003), (7, 4096, 4096)):
            x, w, b = operands(kind, M, N, K)
            rows = slice(None, None, max(1, M // 32))
            exact = x[rows].double() @ w.double().t() + b.double()
            size = exact.pow(2).mean().sqrt()
            figures = []
            for z in (gallery.linear(x, w, b), F.linear(x, w, b)):
                away = z[rows].double() - exact
                figures += [float(away.pow(2).mean().sqrt() / size), float(away.abs().max() / size)]
            good = figures[0] <= figures[2] and figures[1] <= 1.5 * figures[3]
            told = "z rms {:.1e} max {:.1e}, eager rms {:.1e} max {:.1e}".format(*figures)
            print(f"linear {kind:8s} {M} x {N} x {K}: {told}{'' if good else '  <-- ERROR'}", flush=True)
            RECORDS.append({"kernel": "linear-error", "kind": kind, "shape": (M, N, K), "errors": figures})


def trace(title: str, call: Callable[[], Any]) -> None:
    """The kernels of one call and their times, from a warm start."""
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = {}
    for event in seen.events():
        if event.device_time_total:
            kernels.setdefault(event.name.replace("void ", "").split("<")[0].split("(")[0], []).append(
                event.device_time_total
            )
    told = ", ".join(f"{name} {statistics.median(us):.1f} us x {len(us) // 5}" for name, us in kernels.items())
    print(f"kernels of {title}: {told}", flush=True)


def run_linear() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    ratios: dict[str, float] = {}
    ends: dict[str, float] = {}
    for M, N, K in some(_tune.LINEAR):
        x, w, b = operands("random", M, N, K)

        def eager(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.softmax(F.gelu(F.linear(x, w, b)), 1)

        def fresh(x: torch.Tensor = x, w: torch.Tensor = w, b: torch.Tensor = b) -> torch.Tensor:
            gallery.forget(w)
            return gallery.linear_gelu_softmax(x, w, b)

        calls: dict[str, Callable[[], Any]] = {
            "ours": partial(gallery.linear_gelu_softmax, x, w, b),
            "W split in the call": fresh,
            "eager": partial(eager, x, w, b),
        }
        if arguments.compile:
            torch._dynamo.reset()
            calls["compile"] = partial(torch.compile(eager, dynamic=False), x, w, b)
            if (M, N, K) == FUSED:
                tuned = torch.compile(eager, dynamic=False, mode="max-autotune-no-cudagraphs")
                calls["max-autotune"] = partial(tuned, x, w, b)
        if (M, N, K) == FUSED:
            z, xh, wh = torch.randn(M, N, device="cuda"), x.half(), w.half()
            calls |= {
                "product with GELU": partial(gallery.linear, x, w, b, activation="gelu"),
                "softmax in place": partial(softmax_kernel.softmax, z, in_place=True),
                "F.linear": partial(F.linear, x, w, b),
                "cuBLAS fp16 product": lambda xh=xh, wh=wh: xh @ wh.t(),
            }
        rows = slice(None, None, max(1, M // 32))
        exact = torch.softmax(F.gelu(x[rows].double() @ w.double().t() + b.double()), 1)
        y, theirs = calls["ours"](), calls["eager"]()
        mark, error, their_error = close(y[rows], exact, theirs[rows], 1e-6)
        sms, hopper, device = linear_kernel._device(0)
        plan = linear_kernel.choose(M, N, K, sms, hopper, device)
        times = compare(calls, kernel="linear_gelu_softmax", shape=(M, N, K), plan=str(plan))
        ratio = min(us for name, us in times.items() if name in ("eager", "compile", "max-autotune")) / times["ours"]
        ratios[f"{M} x {N} x {K}"] = ratio
        if host := RECORDS[-1].get("host_us"):
            ends[f"{M} x {N} x {K}"] = host["eager"] / host["ours"]
            mark += f"  end to end {host['ours']:.1f} / {host['eager']:.1f}"
        print(
            f"{M} x {N} x {K}: x{ratio:.2f}  "
            + ", ".join(f"{name} {us:.1f}" for name, us in times.items())
            + f" us  err {error:.1e} {their_error:.1e}  {plan}{mark}{'' if ratio >= 0.97 else '  <-- SLOWER'}",
            flush=True,
        )
        if (M, N, K) == FUSED:
            trace("prepared", calls["ours"])
            trace("W split in the call", fresh)
        calls.clear()
    summary("linear+gelu+softmax", ratios)
    summary("linear+gelu+softmax, end to end", ends)


def tune(name: str) -> None:
    """All plans of one kernel at the shipped shapes."""
    _tune.tune(_tune.shipped_benches([name]), tell=lambda words: print(words, flush=True))


def main() -> None:
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "driver", _tables.driver(), flush=True)
    build()
    names = arguments.only.split(",")
    sections = {
        "matvec": (run_wide_matvec, run_matvec),
        "softmax": (run_softmax,),
        "linear": (run_errors, run_linear),
    }
    steps = [step for name in names for step in (*((partial(tune, name),) if arguments.tune else ()), *sections[name])]
    with torch.no_grad():
        for step in steps:
            started, title = time.time(), getattr(step, "__name__", "tune")
            try:
                step()
            except Exception as error:  # the other sections' figures are worth having
                print(f"{title} FAILED: {type(error).__name__}: {error}", flush=True)
            torch.cuda.empty_cache()
            print(f"{title}: {time.time() - started:.0f} s", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(RECORDS))


if __name__ == "__main__":
    main()
