"""The way of building for a GPU: what it makes, and when torch's own build is asked instead."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernelwright.build import BuildContext, gpu, nvcc, ptxas, splice, toolchain
from kernelwright.build.extension import Extension, optimisation
from kernelwright.build.gpu import GpuBuilder
from kernelwright.build.lines import LineMap
from kernelwright.build.sources import inline_units, names_of
from kernelwright.errors import MachineError
from kernelwright.records import BuildRecord

KERNEL = """
__global__ void twice(float* x) { x[threadIdx.x] *= 2.f; }
torch::Tensor run(torch::Tensor x) { twice<<<1, x.numel()>>>(x.data_ptr<float>()); return x; }
"""
FAT_BINARY = 0xBA55ED50
"""First word of every fat binary, as `fatbinary` 13.0 writes it."""


@pytest.fixture
def chain() -> toolchain.Toolchain:
    try:
        return toolchain.find()
    except MachineError as error:
        pytest.skip(f"{error}; {error.hint}")


def builder(records: list[BuildRecord], asked: list[Any]) -> GpuBuilder:
    context = BuildContext("candidate.py", "", None, "sm_90", records.append, lambda request: None)

    def theirs(*args: Any, **named: Any) -> str:
        asked.append((args, named))
        return "torch's"

    return GpuBuilder(context, theirs={"load_inline": theirs, "load": theirs})


def test_what_our_way_cannot_do_is_torchs_with_the_same_arguments_and_the_reason(chain: toolchain.Toolchain) -> None:
    asked: list[Any] = []
    flags = ["-rdc=true"]
    made = builder([], asked).load_inline("mine", "", KERNEL, functions=["run"], extra_cuda_cflags=flags)
    assert made == "torch's"
    ((args, named),) = asked
    assert args == ("mine", "", KERNEL)
    why = named.pop("fell_through")
    assert named == {"functions": ["run"], "extra_cuda_cflags": flags}
    assert "relocatable" in why or "was not found" in why


def test_a_torch_without_cuda_is_left_to_say_so_itself(chain: toolchain.Toolchain) -> None:
    if chain.torch_has_cuda:
        pytest.skip("this torch has CUDA")
    asked: list[Any] = []
    builder([], asked).load("mine", ["somewhere.cu"])
    assert len(asked) == 1


@pytest.mark.emu
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_each_target_is_one_pass_with_the_same_names(chain: toolchain.Toolchain, tmp_path: Path, arch: str) -> None:
    source = tmp_path / "cuda.cu"
    source.write_text("__global__ void twice(float* x) { x[threadIdx.x] *= 2.f; }\n")
    steps = nvcc.plan(chain, source, [], arch=arch, salt="")
    assert f"compute_{arch.removeprefix('sm_')} " in steps.compile
    steps.run(steps.host_preprocess, steps.lower, steps.device_preprocess, steps.compile)
    assert [path.name for path in (steps.lowered, steps.stub, steps.ptx)] == [
        "cuda.cudafe1.cpp",
        "cuda.cudafe1.stub.c",
        "cuda.ptx",
    ]
    (fact,) = ptxas.facts(steps, arch)
    assert fact.name == "_Z5twicePf"
    assert (tmp_path / ptxas.CUBIN).read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("flags", "level"),
    [([], "-O0"), (["-O"], "-O"), (["-O3", "-std=c++20"], "-O3"), (["-O3", "-g", "-Os"], "-Os"), (["-Wall"], "-O0")],
)
@pytest.mark.tiny
def test_the_last_level_of_optimisation_counts_and_none_is_none(flags: list[str], level: str) -> None:
    assert optimisation(flags) == level


@pytest.mark.emu
@pytest.mark.parametrize(
    ("flags", "level", "own"),
    [
        ((), "-O0", []),
        (("-O3",), "-O3", []),
        (("-O3", "-Xcompiler", "-O1"), "-O3", []),
        (("-O 2", "-Xcompiler=-fopenmp,-march=native"), "-O2", ["-fopenmp", "-march=native"]),
        (("-O3", "--threads=2"), "-O3", []),
    ],
)
def test_host_code_is_compiled_at_the_level_that_nvcc_would_take(
    chain: toolchain.Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    level: str,
    own: list[str],
) -> None:
    commands: list[list[str]] = []
    asked: list[str] = []

    def prefix(chain: toolchain.Toolchain, std: str, optimise: str) -> Path:
        asked.append(optimise)
        return tmp_path

    def compiled(text: str, name: str, command: list[str], place: Path, *, salt: str) -> Path:
        commands.append(command)
        return place / "unit.o"

    monkeypatch.setattr(splice, "prefix", prefix)
    monkeypatch.setattr(gpu, "compile_text", compiled)
    units = inline_units(
        [], [KERNEL], [], lines=LineMap("", "candidate.py"), implicit_headers=True, wrapped=False
    )  # fmt: skip
    index = next(i for i, unit in enumerate(units) if unit.cuda)
    extension = Extension("mine", units, cuda_cflags=flags)
    gpu._cuda_object(extension, chain, index, tmp_path, arch="sm_90", sm="sm_90")
    (command,) = commands
    assert asked == [level]
    assert [word for word in command if word.startswith("-O")] == [level]
    assert [word for word in command if word.startswith(("-f", "-m")) and word != "-fPIC"] == own


@pytest.mark.emu
@pytest.mark.slow
def test_an_object_holds_machine_code_for_the_device_itself(chain: toolchain.Toolchain, tmp_path: Path) -> None:
    units = inline_units(
        ["torch::Tensor run(torch::Tensor x);"], [KERNEL], ["run"],
        lines=LineMap("", "candidate.py"), implicit_headers=True, wrapped=True,
    )  # fmt: skip
    extension = Extension("mine", units, functions=names_of(["run"]))
    index = next(i for i, unit in enumerate(units) if unit.cuda)
    made, low = gpu._cuda_object(extension, chain, index, tmp_path, arch="sm_90", sm="sm_90")
    assert [fact.name for fact in low.kernels] == ["_Z5twicePf"]
    image = (tmp_path / gpu.IMAGE).read_bytes()
    assert struct.unpack("<I", image[:4]) == (FAT_BINARY,)
    assert image in made.read_bytes()
    assert low.image is not None
    assert low.image.read_bytes()[:4] == b"\x7fELF"


HOST_CODE = r"""
#include <mma.h>
using namespace nvcuda;
struct Half {
  int from, to;
  __device__ Half(int n) : from(threadIdx.x * n), to(min(from + n, max(n, 7))) {}
};
__constant__ float factor;
template <typename T>
__global__ void scaled(T* x, int n) {
  const Half half(n);
  for (int i = half.from; i < half.to; ++i) x[i] *= factor;
}
torch::Tensor run(torch::Tensor x) {
  const int64_t n = x.numel();
  const int threads = min(256, max(static_cast<int>(n), 1));
  const auto some = min(n, int64_t(1) << 20);
  const float most = max(1.f, 2.f) + min(2.0, 1.f);
  cudaMemcpyToSymbol(factor, &most, sizeof most);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "run", [&] {
    int blocks = 0;
    cudaFuncAttributes told;
    cudaFuncSetAttribute(scaled<scalar_t>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
    cudaFuncGetAttributes(&told, scaled<scalar_t>);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scaled<scalar_t>, threads, 0);
    scaled<scalar_t><<<blocks, threads>>>(x.data_ptr<scalar_t>(), min(n, some));
  });
  return x;
}
"""


@pytest.mark.emu
def test_host_code_that_nvcc_alone_has_the_headers_for_is_built_the_fast_way(
    chain: toolchain.Toolchain, tmp_path: Path
) -> None:
    units = inline_units(
        ["torch::Tensor run(torch::Tensor x);"], [HOST_CODE], ["run"],
        lines=LineMap("", "candidate.py"), implicit_headers=True, wrapped=True,
    )  # fmt: skip
    index = next(i for i, unit in enumerate(units) if unit.cuda)
    extension = Extension("mine", units, functions=names_of(["run"]))
    made, low = gpu._cuda_object(extension, chain, index, tmp_path, arch="sm_90", sm="sm_90")
    assert sorted(fact.name for fact in low.kernels) == ["_Z6scaledIdEvPT_i", "_Z6scaledIfEvPT_i"]
    # A static function without a body compiles, and does not link.
    answer = subprocess.run(["nm", "-u", str(made)], capture_output=True, text=True, check=True)
    assert {"_Z3minii", "_Z3maxii"} & set(answer.stdout.split()) == set()


@pytest.mark.emu
def test_kernels_assembled_side_by_side_have_the_machine_code_and_facts_of_one_after_the_other(
    chain: toolchain.Toolchain, tmp_path: Path
) -> None:
    body = "x[threadIdx.x] = sinf(x[threadIdx.x]) * {0}.f; for (int i = 0; i < {0}; ++i) x[i * 32] += x[i];"
    text = "\n".join(f"__global__ void k{i}(float* x) {{ {body.format(i)} }}" for i in range(1, 7))
    made = []
    for name, flags in (("one", ["-Xptxas=-split-compile=1"]), ("many", [])):
        source = tmp_path / name / "cuda.cu"
        source.parent.mkdir()
        source.write_text(text)
        steps = nvcc.plan(chain, source, flags, arch="sm_90", salt="")
        steps.run(steps.host_preprocess, steps.lower, steps.device_preprocess, steps.compile)
        facts = {fact.name: fact for fact in ptxas.facts(steps, "sm_90")}
        made.append((facts, functions((source.parent / ptxas.CUBIN).read_bytes())))
    assert made[0] == made[1]
    assert len(made[0][0]) == 6 and len(made[0][1]) == 6


def functions(cubin: bytes) -> dict[str, bytes]:
    """The code of each function in an ELF file: sections ``.text.NAME``, by name."""
    (at,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, at + i * size) for i in range(count)]
    found = {}
    for name, _, _, _, offset, length in headers:
        start = headers[names][4] + name
        word = cubin[start : cubin.index(b"\0", start)].decode()
        if word.startswith(".text."):
            found[word] = cubin[offset : offset + length]
    return found
