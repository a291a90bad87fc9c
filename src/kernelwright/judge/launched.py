"""What a forward pass launched on a GPU, as its driver tells it.

Why: a candidate whose kernels never run while PyTorch does the work, or one that returns a constant, is known on the
emulated device because that sees every launch; on a GPU the driver's activity records (CUPTI, which PyTorch's profiler
reads) tell as much, whoever launches and by whatever way. The rule: a kernel is a library's only where its name says
so; any other may be the candidate's own, so that what is unknown speaks for the candidate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import torch
from torch.profiler import ProfilerActivity, profile

LIBRARY = re.compile(
    r"Memcpy|Memset"
    # PyTorch's own, and what it takes from CUB.
    r"|(?:void )?(?:at::|at_cuda_detail::|\(anonymous namespace\)::|c10::|cub::|thrust::|cunn_)"
    # cuBLAS, cuBLASLt and CUTLASS; cuDNN; cuFFT.
    r"|(?:void )?(?:cublas|cutlass|nvjet|magma|gemm|gemv|gemmk1|splitKreduce|dot_kernel|reduce_1Block|asum|nrm2)"
    r"|(?:sm\d+|volta|turing|ampere|hopper|maxwell)_\w*(?:gemm|xmma|cudnn|s884|s1688|s16816|sgemm|dgemm)"
    r"|(?:void )?(?:cudnn|nchwToNhwc|nhwcToNchw|implicit_convolve|conv2d_grouped|winograd|fft|regular_fft|vector_fft)"
)
"""How the kernels of libraries are named that PyTorch calls."""


def own(names: Iterable[str]) -> tuple[str, ...]:
    """The kernels among ``names`` that are no library's, each once."""
    return tuple(dict.fromkeys(name for name in names if not LIBRARY.match(name)))


def launched(forward: Callable[[], object]) -> list[str] | None:
    """The names of what ``forward`` launched, in order; None where the driver tells of nothing at all.

    Raises what ``forward`` does.
    """
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        forward()
        torch.cuda.synchronize()
    return [str(event.name) for event in profiler.events() or () if str(event.device_type) == "DeviceType.CUDA"] or None
