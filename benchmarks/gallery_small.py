"""Runs every plan of every gallery kernel once at small shapes, against float64: what compute-sanitizer watches.

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python benchmarks/gallery_small.py
    compute-sanitizer --tool racecheck python benchmarks/gallery_small.py

Without caching each tensor is an allocation of its own, so that an access beside it is seen.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from kernelwright.gallery.kernels import linear, matvec, softmax


def away(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).abs().max() / exact.abs().max())


def run_matvec() -> int:
    runs, (sms, hopper, _) = 0, matvec._device(0)
    # The last: long enough that the ring's stages come round, and for nothing else.
    for M, K in ((70, 2056), (3, 9001), (1032, 300), (65, 64), (64, 3000), (536, 24576)):
        for transposed in (False, True):
            A = torch.randn((K, M) if transposed else (M, K), device="cuda")
            A, x = A.t() if transposed else A, torch.randn(K, device="cuda")
            exact, aligned = A.double() @ x.double(), (M if transposed else K) % 4 == 0
            for name, plan in matvec.recipes(M, K, 4, aligned, transposed, sms, hopper).items():
                if plan.variant != matvec.TORCH and (K < 20000 or plan.variant == matvec.RING):
                    error, runs = away(matvec.matvec(A, x, plan), exact), runs + 1
                    assert error < 3e-6, (M, K, transposed, name, error)
    return runs


def run_softmax() -> int:
    runs, hopper = 0, softmax._device(0)[0]
    # The last two: rows enough that clusters of a stream claim some.
    for M, N in (
        (3, 64),
        (3, 1001),
        (3, 1024),
        (3, 2049),
        (3, 4096),
        (3, 16640),
        (3, 33001),
        (560, 16384),
        (560, 16385),
    ):
        z, bias = torch.randn(M, N, device="cuda"), torch.randn(N, device="cuda")
        keep = torch.rand(M, N, device="cuda") < 0.8
        exact = torch.softmax(F.gelu(z.double() + bias.double()).masked_fill(~keep, float("-inf")), 1)
        aligned = softmax.ROWS if N % 4 == 0 else softmax.WHOLE
        for name, plan in softmax.recipes(M, N, 4, aligned, hopper, False).items():
            if M == 3 or plan.variant == softmax.STREAM:
                y = softmax.softmax(z, bias=bias, mask=keep, activation="gelu", plan=plan)
                error, runs = away(y, exact), runs + 1
                assert error < 5e-6, (M, N, name, error)
    return runs


def run_linear() -> int:
    runs, (sms, hopper, _) = 0, linear._device(0)
    for M, N, K in ((40, 130, 700), (7, 33, 300), (300, 4400, 516), (1024, 2304, 1024), (410, 200, 2560)):
        x, w, b = torch.randn(M, K, device="cuda"), torch.randn(N, K, device="cuda"), torch.randn(N, device="cuda")
        x[min(3, M - 1), 2] = 1e20
        exact = F.gelu(x.double() @ w.double().t() + b.double())
        plans = linear.recipes(M, N, K, sms, hopper)
        plans["portable"] = linear.Plan(linear.PORTABLE, 1)
        for variant in linear.WIDTHS:  # those of bytes leave the tiles of the row above to halves
            if linear.is_bytes(variant) and (hopper or variant == linear.PORTABLE_BYTES):
                plans[linear.VARIANTS[variant]] = linear.Plan(variant, 1)
        for name, plan in plans.items():
            if plan.variant != linear.TORCH:
                linear.forget(w)
                for split in ("in front", "kept, and x split inside where it is large"):
                    error, runs = away(linear.linear(x, w, b, activation="gelu", plan=plan), exact), runs + 1
                    assert error < 3e-6, (M, N, K, name, split, error)
    return runs


def main() -> None:
    torch.manual_seed(3)
    with torch.no_grad():
        for run in (run_matvec, run_softmax, run_linear):
            print(f"{run.__name__}: {run()} runs, all right", flush=True)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
