"""Which refusals of the facade need no second opinion."""

import pytest

from kernelwright.build.certain import in_device_code, settles
from kernelwright.build.extension import Extension, Unit
from kernelwright.build.nvcc import CommandFailed
from kernelwright.records import Diagnostic

pytestmark = pytest.mark.tiny

EXTENSION = Extension("ext", (Unit("cuda.cu", "", cuda=True),), candidate="candidate.py")


def settled(*messages: str, file: str = "candidate.py") -> bool:
    told = [Diagnostic("nvcc", "error", message, file, 9) for message in messages]
    return settles(CommandFailed.__new__(CommandFailed), told, EXTENSION)


@pytest.mark.parametrize("message", ['expected a ";"', 'expected a ")"', 'expected a "}"', "missing closing quote"])
def test_a_missing_bracket_or_semicolon_is_the_users_own(message: str) -> None:
    assert settled(message)
    assert settled(message, 'identifier "v" is undefined')


def test_a_name_that_only_real_headers_may_know_is_asked_about_whatever_follows_it() -> None:
    assert not settled('identifier "TORCH_SOMETHING" is undefined', 'expected a ";"')
    assert not settled('namespace "torch" has no member "empty_lik"')


def test_a_missing_semicolon_in_a_header_of_ours_is_not_the_users() -> None:
    assert not settled('expected a ";"', file="extension.h")


def test_a_name_in_device_code_that_nothing_declares_may_come_with_torchs_headers() -> None:
    text = '#line 1 "cuda.cu"\n__global__ void kernel(float* y) {\n    y[0] = -FLT_MAX;\n}\n'
    extension = Extension("ext", (Unit("cuda.cu", text, cuda=True),), candidate="cuda.cu")

    def decided(message: str) -> bool:
        return in_device_code([Diagnostic("nvcc", "error", message, "cuda.cu", 2)], extension)

    assert decided('no operator "-" matches these operands')
    assert not decided('identifier "FLT_MAX" is undefined')
