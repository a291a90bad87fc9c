"""Every instruction case of tests/emulate/instructions, on the compiled emulator.

One rule beside the file's own: where a case expects a NaN, any NaN will do. The emulator keeps a NaN's payload where a
GPU does not, because that is how memory that nobody wrote is recognised in a result.
"""

from __future__ import annotations

from itertools import groupby

import instruction_case
import numpy as np
import pytest
from emulated import DeviceArray, launch

from kernelwright.emulate.module import EmulatedModule

GROUPS = {key: list(names) for key, names in groupby(instruction_case.names(), key=lambda name: name.split(".")[0])}


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_every_case_of_a_mnemonic_gives_the_expected_bits(group: str) -> None:
    wrong: list[str] = []
    for name in GROUPS[group]:
        case = instruction_case.load(name)
        module = EmulatedModule(case.ptx)
        given, out = (
            DeviceArray(instruction_case.input_bytes(case), "in"),
            DeviceArray(instruction_case.output_bytes(case), "out"),
        )
        outcome = launch(module, "t", case.grid, case.block, given, out, deadline_s=5.0)
        assert (outcome.error, outcome.findings) == (0, ()), name
        wrong += map(str, instruction_case.mismatches(case, np.asarray(out.get()), any_nan=True)[:2])
        given.free()
        out.free()
    assert not wrong, "\n".join(wrong)
