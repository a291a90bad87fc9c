"""Instructions that are refused by name, before anything runs: nvcc writes none of them for plain sm_80 kernels."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import DeviceArray, launch

from kernelwright.emulate.module import EmulatedModule, RefusedInstruction

BODIES = {
    "ld.global.b128": ".reg .b128 %q; ld.global.b128 %q, [%out]; st.global.b128 [%out], %q;",
    "st.global.b128": ".reg .b128 %q; mov.b128 %q, {%out, %out}; st.global.b128 [%out], %q;",
    "tex.1d.v4.f32.s32": ".reg .b32 %q<4>; tex.1d.v4.f32.s32 {%q0, %q1, %q2, %q3}, [%out, {%q0}]; "
    "st.global.b32 [%out], %q0;",
    "cp.async.bulk.wait_group": "cp.async.bulk.wait_group 0;",
}


@pytest.mark.parametrize("opcode", sorted(BODIES))
def test_an_instruction_that_is_not_emulated_is_named_with_its_line(opcode: str) -> None:
    module = EmulatedModule(f""".version 8.7
.target sm_90
.address_size 64
.visible .entry t(.param .u64 out)
{{
	.reg .b64 %out;
	ld.param.u64 %out, [out];
	{BODIES[opcode]}
	ret;
}}
""")
    with pytest.raises(RefusedInstruction) as refusal:
        launch(module, "t", 1, 32, DeviceArray(np.zeros(8, np.int32)))
    assert str(refusal.value).startswith(f"{opcode} is not emulated (PTX line 8)")
