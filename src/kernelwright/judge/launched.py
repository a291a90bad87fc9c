"""What a forward pass launched on a GPU, as its driver tells it.

Why: a candidate whose kernels never run while PyTorch does the work, or one that returns a constant, is known on the
emulated device because that sees every launch; on a GPU the driver's activity records (CUPTI, which PyTorch's profiler
reads) tell as much, whoever launches and by whatever way. The rule: a kernel is a library's only where its name says so
and the candidate built none of that name; any other may be its own, so that what is unknown speaks for the candidate.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable

LIBRARY = re.compile(
    r"Memcpy|Memset"
    r"|(?:void )?(?:"
    # PyTorch's own, and what it takes from CUB and Thrust.
    r"at::|at_cuda_detail::|\(anonymous namespace\)::|c10::|cub::|thrust::|cunn_"
    # cuBLAS, cuBLASLt and CUTLASS.
    r"|cublas\w*::|cutlass\w*::|cask\w*::|xmma\w*::|nvjet_|magma_|internal::region_transform|batch_gemm_kernel1x1_core"
    r"|gemv2[TN]_kernel|gemvNSP_kernel|gemm_kernel[12]x[12]_|gemmSN_|gemmk1_kernel|[sdcz]gemm_largek|splitKreduce_kernel"
    r"|reduce_1Block_kernel|dot_kernel<|asum_kernel<|nrm2_(?:64addr_)?kernel<"
    # cuDNN and cuFFT.
    r"|cudnn\w*::|cudnn_|nchwToNhwc|nhwcToNchw|implicit_convolve_sgemm|conv2d_grouped_direct|flip_filter|fft2d_"
    r"|op_tensor_kernel_alpha|regular_fft|vector_fft|composite_fft|multi_bluestein_fft"
    r")"
    # Instances that are named by what they are tuned for.
    r"|(?:sm\d+|volta|turing|ampere|hopper|maxwell)_\w*(?:gemm|xmma|cudnn|cutlass)|cutlass_\d"
    r"|std::enable_if<.*> *(?:::type )?internal::"
)
"""How kernels of the libraries are named that PyTorch calls; as in libcublas, libcublasLt and libcudnn of CUDA 13.0."""


def own(names: Iterable[str], built: Collection[str]) -> tuple[str, ...]:
    """The kernels among ``names`` that may be the candidate's, each once; ``built`` are those that it compiled."""
    mine = {_identifier(name) for name in built}
    found = (name for name in names if _identifier(name) in mine or not LIBRARY.match(name))
    return tuple(dict.fromkeys(found))


def _identifier(name: str) -> str:
    """The function's own name: without namespaces, template arguments, parameters and result."""
    plain = name.replace("(anonymous namespace)", "").partition("(")[0].partition("<")[0]
    return plain.split()[-1].rpartition("::")[2] if plain.split() else ""


def launched(forward: Callable[[], object]) -> list[str] | None:
    """The names of what ``forward`` launched, in order; None where the driver tells of nothing at all.

    Raises what ``forward`` does.
    """
    # Here, because the supervisor takes names apart and imports no torch.
    import torch
    from torch.profiler import ProfilerActivity, profile

    with warnings.catch_warnings():
        # Of a second profile in one process, and of what is not asked for.
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
            forward()
            torch.cuda.synchronize()
        events = profiler.events() or ()
    return [str(event.name) for event in events if str(event.device_type) == "DeviceType.CUDA"] or None
