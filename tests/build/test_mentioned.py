"""Which undeclared names need no compile to be sure of, by what torch's and CUDA's real headers hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.build import fast, toolchain
from kernelwright.build.extension import Extension, Unit
from kernelwright.build.lowered import lower
from kernelwright.build.mentioned import undeclared
from kernelwright.errors import MachineError
from kernelwright.records import Diagnostic

TEXT = """#include <torch/types.h>
#include <cuda_runtime.h>
// C10_CUDA_KERNEL_LAUNCH_CHECK is used without its header.
__global__ void kernel(float* y) { y[0] = 1.f; }
void run(torch::Tensor y) {
    TORCH_CHECK(y.is_cuda(), "on the GPU");
    AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "run", [&] { kernel<<<1, sizeof(scalar_t)>>>(y.data_ptr<float>()); });
    auto z = torch::hamming_window(4);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    at::cuda::getCurrentCUDAStream();
}
"""


@pytest.fixture(scope="module")
def chain() -> toolchain.Toolchain:
    try:
        return toolchain.find()
    except MachineError as error:
        pytest.skip(f"{error}; {error.hint}")


def certain(chain: toolchain.Toolchain, text: str, *messages: str, folder: str = "") -> list[str]:
    unit = Unit("cuda.cu", f'#line 5 "candidate.py"\n{text}', cuda=True, folder=folder)
    told = [Diagnostic("nvcc", "error", message, "candidate.py", 9) for message in messages]
    extension = Extension("ext", (unit,), candidate="candidate.py", with_cuda=True)
    return [d.message for d in undeclared(extension, chain, told, arch="sm_80")]


def test_a_name_that_no_header_mentions_is_undeclared_for_certain(chain: toolchain.Toolchain) -> None:
    sure = [
        'identifier "C10_CUDA_KERNEL_LAUNCH_CHECK" is undefined',
        'namespace "at::cuda" has no member "getCurrentCUDAStream"',
    ]
    assert certain(chain, TEXT, *sure, 'expected a ";"') == sure


@pytest.mark.parametrize("name", ["hamming_window", "TORCH_CHECK", "scalar_t", "cudaMalloc"])
def test_what_a_header_declares_or_a_macro_makes_is_not(chain: toolchain.Toolchain, name: str) -> None:
    assert certain(chain, TEXT, f'identifier "{name}" is undefined') == []


def test_neither_is_what_stands_in_a_header_of_the_users_or_behind_one_that_is_missing(
    chain: toolchain.Toolchain, tmp_path: Path
) -> None:
    (tmp_path / "mine.h").write_text("namespace mine { int helper(int); }\n")
    text = '#include "mine.h"\nint run() { return helper(1) + other(2); }\n'
    messages = ['identifier "helper" is undefined', 'identifier "other" is undefined']
    assert certain(chain, text, *messages, folder=str(tmp_path)) == messages[1:]
    assert certain(chain, text.replace("mine.h", "no_such_header.h"), *messages) == []


@pytest.mark.parametrize("name", ["FLT_MAX", "DBL_EPSILON", "INT_MAX", "LLONG_MIN", "INFINITY", "M_PI", "INT64_MAX"])
def test_limits_that_torchs_headers_bring_are_there_behind_the_facade_too(
    chain: toolchain.Toolchain, name: str
) -> None:
    text = f"#include <torch/extension.h>\n__global__ void kernel(double* y) {{ y[0] = {name}; }}\n"
    unit = Unit("cuda.cu", text, cuda=True)
    low = lower(fast.source(Extension("ext", (unit,), with_cuda=True), chain, unit, "sm_80"), "sm_80")
    assert ".entry" in low.ptx
    assert certain(chain, text, f'identifier "{name}" is undefined') == []
