"""The generated units are torch's, byte for byte, but for the markers; flags are torch's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelwright.build import sources, toolchain
from kernelwright.build.extension import Extension, Unit, split, without_targets
from kernelwright.errors import MachineError

pytestmark = pytest.mark.tiny


def without_markers(text: str) -> str:
    return re.sub(r"^#line .*\n", "", text, flags=re.M)


def test_main_cpp_is_what_torch_writes() -> None:
    units = sources.inline_units(["int f();"], ["// cuda"], ["f"], lines=None, implicit_headers=True, wrapped=True)
    assert without_markers(units[0].text) == (
        "#include <torch/extension.h>\nint f();\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n"
        'm.def("f", torch::wrap_pybind_function(f), "f");\n}\n'
    )
    assert units[1].text == "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n// cuda\n"


def test_docstrings_come_from_a_dictionary() -> None:
    assert sources.bindings({"f": "does f"}, wrapped=False)[1] == 'm.def("f", f, "does f");'


def test_functions_of_another_kind_are_refused_as_torch_does() -> None:
    with pytest.raises(ValueError, match="Expected 'functions' to be a list or dict"):
        sources.bindings(("f",), wrapped=True)


def test_parameter_names_are_the_candidates_own() -> None:
    unit = Unit(
        "main.cpp", "void gemv(const float* A, std::vector<int64_t> v, float* y = nullptr, int rows = 3);", False
    )
    assert sources.parameter_names([unit], ["gemv"]) == {"gemv": ["A", "v", "y", "rows"]}


def test_targets_are_taken_out_of_the_flags() -> None:
    flags = split(("-O3 -gencode arch=compute_80,code=sm_80", "-arch=sm_90", "--use_fast_math", "--threads=2", "-t 4"))
    assert without_targets(flags) == ["-O3", "--use_fast_math"]


def test_torchs_own_flags_come_first_and_in_order() -> None:
    try:
        chain = toolchain.find()
    except MachineError as error:
        pytest.skip(str(error))
    extension = Extension("e", (), cuda_cflags=("-O3",), include_paths=("inc",))
    flags = extension.nvcc_flags(chain)
    common = (Path(chain.torch_include).parent / "utils" / "cpp_extension.py").read_text()
    assert flags[:3] == ["-DTORCH_EXTENSION_NAME=e", "-DTORCH_API_INCLUDE_EXTENSION_H", f"-I{Path('inc').absolute()}"]
    assert "-D__CUDA_NO_HALF_OPERATORS__" in flags and flags.index("-O3") > flags.index("--expt-relaxed-constexpr")
    assert flags[-1] in common
