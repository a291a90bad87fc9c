"""Environment registers are read from a variable of the module's own, and no line of the PTX moves."""

from __future__ import annotations

import pytest

from kernelwright.emulate.gridbarrier import POINTER, with_workspace
from kernelwright.emulate.ptx.parse import parse

PTX = """.version 9.0
.target sm_80
.address_size 64

.visible .entry ask(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    // begin inline asm
    mov.u32 %r1, %envreg1;
    // end inline asm
    mov.u32 %r2, %envreg2;
    ld.param.u64 %rd1, [out];
    st.global.u32 [%rd1], %r1;
    st.global.u32 [%rd1+4], %r2;
    ret;
}
"""

pytestmark = pytest.mark.tiny


def test_a_module_that_reads_no_environment_register_is_left_alone() -> None:
    plain = PTX.replace("%envreg1", "%tid.x").replace("%envreg2", "%tid.y")
    assert with_workspace(plain) is plain


def test_reads_become_halves_of_the_pointer_on_their_own_lines() -> None:
    made = with_workspace(PTX)
    assert "%envreg" not in made
    assert len(made.splitlines()) == len(PTX.splitlines())
    assert "mov.u32 %r1, %kw_high1;" in made.splitlines()[9]
    assert "mov.u32 %r2, %kw_low2;" in made.splitlines()[11]
    assert parse(made).variables[POINTER].size == 8
