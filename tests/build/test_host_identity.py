"""What the real headers are asked about changes with host text only: not with kernels' bodies, not with lines."""

import pytest

from kernelwright.build import toolchain
from kernelwright.build.confirmation import _host_identity
from kernelwright.build.context import ConfirmRequest
from kernelwright.build.extension import Extension
from kernelwright.build.sources import inline_units

pytestmark = pytest.mark.emu

SOURCE = """
__global__ void fill(float* y, float v) {
    y[threadIdx.x] = v;
}
void run(torch::Tensor y) { fill<<<1, 32>>>(y.data_ptr<float>(), 1.f); }
"""


def identity(source: str) -> str:
    declaration = "void run(torch::Tensor y);"
    units = inline_units([declaration], [source], ["run"], lines=None, implicit_headers=True, wrapped=True)
    request = ConfirmRequest(Extension("identified", units, functions=("run",)), "sm_80", "sm_90")
    return _host_identity(request, toolchain.find())


def test_a_kernels_body_and_added_lines_leave_it_and_host_code_and_signatures_change_it() -> None:
    known = identity(SOURCE)
    assert identity(SOURCE.replace("= v;", "= v + 1.f;\n    // and a line more")) == known
    assert identity(SOURCE.replace("1.f);", "2.f);")) != known
    assert identity(SOURCE.replace("float v)", "double v)")) != known
