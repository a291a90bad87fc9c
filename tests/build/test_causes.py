"""Recorded statements of compilers, and the causes they mean."""

from __future__ import annotations

import textwrap

import pytest

from kernelwright.build import diagnostics
from kernelwright.build.nvcc import CommandFailed
from kernelwright.records import BuildRecord, Cause

pytestmark = pytest.mark.tiny

CANDIDATE = textwrap.dedent(
    '''
    import os
    from torch.utils.cpp_extension import load_inline
    CUDA = r"""
    #include <old/gone.h>
    __global__ void k(__half* x) { x[0] = x[0] + x[1]; }
    torch::Tensor f(torch::Tensor x, float s) {
        return x;
    }
    """
    CPP = "torch::Tensor f(torch::Tensor x, double s);"
    ext = load_inline(name="my_ext", cpp_sources=CPP, cuda_sources=CUDA, functions=["f"],
                      extra_cuda_cflags=["--no-such-flag"])
    '''
).lstrip("\n")
CALL = 11


def causes(tool: str, output: str, *, name: str = "my_ext") -> list[Cause]:
    failure = CommandFailed(tool, "", output)
    told = diagnostics.of_failure(failure, own=["candidate.py", "main.cpp", "cuda.cu"], text=CANDIDATE)
    record = BuildRecord(name, "full", False, 0.0, False, None, diagnostics=told, call_line=CALL)
    return list(diagnostics.causes_of(record, CANDIDATE))


ROWS = """
g++      | build.missing-declaration | 10 | main.cpp:5:9: error: 'f' was not declared in this scope
cudafe++ | build.disabled-operators  | 5  | candidate.py(5): error: no suitable conversion from "__half"
cudafe++ | build.missing-header      | 7  | candidate.py(7): error: namespace "c10::cuda" has no member "CUDAStream"
cudafe++ | build.removed-api         | 7  | candidate.py(7): error: identifier "AT_CHECK" is undefined
cudafe++ | build.syntax              | 7  | candidate.py(7): error: expected a ";"
gcc      | build.missing-header      | 4  | candidate.py:4:10: fatal error: old/gone.h: No such file or directory
g++      | build.wrong-language      | 5  | candidate.py:5:1: error: '__global__' does not name a type
cicc     | build.wrong-language      | 5  | candidate.py(5): error: calling a __host__ function("rand") from here
nvcc     | build.wrong-flag          | 12 | nvcc fatal   : Unknown option '--no-such-flag'
g++      | build.duplicate-definition| 11 | ld: b.o: multiple definition of `f(at::Tensor)'; a.o: first defined here
ptxas    | build.wrong-architecture  | 11 | ptxas u.ptx, line 3; error   : 'wgmma' requires .target sm_90a
ptxas    | build.toolchain           | 11 | ptxas fatal   : Unsupported .version 9.5; current version is '9.0'
"""
RECORDED = [tuple(part.strip() for part in row.split("|", 3)) for row in ROWS.strip().splitlines()]


@pytest.mark.parametrize(("tool", "cause", "line", "output"), RECORDED, ids=[row[3][:50] for row in RECORDED])
def test_a_recorded_statement_means_its_cause(tool: str, cause: str, line: str, output: str) -> None:
    first = causes(tool, output)[0]
    assert (first.id, first.line) == (cause, int(line))
    assert first.evidence and first.sentence.endswith(".")


def test_half_operators_are_recognised_by_their_operands() -> None:
    text = (
        'candidate.py(5): error: no operator "+" matches these operands\n            operand types are: __half + __half'
    )
    assert causes("cudafe++", text)[0].id == "build.disabled-operators"


def test_a_name_that_is_no_identifier_is_the_cause_whatever_the_compiler_says() -> None:
    found = causes("g++", "main.cpp:3:1: error: expected initializer before '-' token", name="my-ext")
    assert [cause.id for cause in found] == ["build.bad-module-name"]


def test_an_error_in_a_header_is_placed_at_the_line_that_instantiates_it() -> None:
    output = 'vector.h(12): error: no instance\n      detected during instantiation of "f" at line 7 of candidate.py\n'
    assert diagnostics.read("cudafe++", output, own=["candidate.py"], text=CANDIDATE)[0].line == 7


def test_the_facades_namespaces_are_not_shown() -> None:
    output = 'candidate.py(7): error: class "at::kw::Tensor" has no member "foo"'
    assert "kw::" not in diagnostics.read("cudafe++", output, own=["candidate.py"])[0].message
