"""The user's host code on the real headers: what must be declared for it that the text taken over does not declare."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelwright.build import headers, splice, toolchain
from kernelwright.errors import MachineError


@pytest.mark.emu
@pytest.mark.parametrize(("declared", "compiles"), [(splice._MATH, True), ("", False)])
def test_a_libc_that_cudas_headers_take_for_a_newer_one_is_helped_out(
    tmp_path: Path, declared: str, compiles: bool
) -> None:
    try:
        chain = toolchain.find()
    except MachineError as error:
        pytest.skip(f"{error}; {error.hint}")
    first = "#include <cmath>\n#include <cstring>\n#include <math.h>\n#include <string.h>\n#include <cuda_runtime.h>\n"
    text = f'{first}{declared}#include <kw_facade/splice.h>\n#include "crt/common_functions.h"\n'
    (tmp_path / "spliced.cpp").write_text(text)
    # glibc 2.38 and later define this themselves.
    pretend = ["-std=c++17", "-w", "-fsyntax-only", "-D__GLIBC_USE_ISOC23=1"]
    include = [*splice.real_include_flags(chain), "-isystem", str(headers.FACADE)]
    command = [str(chain.host), *pretend, *include, "spliced.cpp"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (answer.returncode == 0) is compiles, answer.stderr[-2000:]
    assert compiles or "sinpi" in answer.stderr


@pytest.mark.tiny
def test_what_only_nvcc_sees_of_a_header_ends_where_its_condition_does() -> None:
    text = """
#if defined(__CUDACC__)
a; /* a comment
#endif */ b;
#if X
c;
#else
d;
#endif
#else
e;
#endif
#ifdef __CUDACC__
f;
#endif
#if defined __CUDACC__
g;
#endif
h;
"""
    assert splice.nvcc_alone(text) == ["a;  b;\n#if X\nc;\n#else\nd;\n#endif", "g;"]
