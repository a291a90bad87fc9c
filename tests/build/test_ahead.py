"""What is built ahead is what the candidate's own call then finds."""

import time

import pytest

from kernelwright.build import fast, toolchain
from kernelwright.build.ahead import Ahead
from kernelwright.build.extension import Extension
from kernelwright.candidate.loads import loads

pytestmark = pytest.mark.emu

CANDIDATE = '''from torch.utils.cpp_extension import load_inline
SOURCE = """
__global__ void fill(float* y) { y[threadIdx.x] = 1.f; }
void run(torch::Tensor y) { fill<<<1, 32>>>(y.data_ptr<float>()); }
"""
ext = load_inline(name="filled_ahead", cpp_sources="void run(torch::Tensor y);", cuda_sources=SOURCE, functions=["run"])
'''


def test_the_module_is_in_the_store_before_the_candidate_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = CANDIDATE.replace("1.f", f"{time.time_ns() % 10**6}.f")  # never built before
    ahead = Ahead("candidate.py", text, arch="sm_80", capability=(9, 0))
    built: list[Extension] = []
    real = fast.build

    def build(extension: Extension, *arguments: object, **keywords: object) -> object:
        built.append(extension)
        return real(extension, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(fast, "build", build)
    (load,) = loads(text)
    ahead.run(load.function, load.positional, load.keywords)
    assert [extension.name for extension in built] == ["filled_ahead"]
    again = real(built[0], toolchain.find(), arch="sm_80", sm="sm_90")
    assert again.cached
    assert [fact.name for fact in again.kernels] != []


def test_a_build_that_fails_ahead_says_nothing() -> None:
    Ahead("candidate.py", CANDIDATE, arch="sm_80", capability=(9, 0)).run("load_inline", (), {"no_such": 1})
