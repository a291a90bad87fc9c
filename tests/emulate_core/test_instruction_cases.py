"""Every instruction case of tests/emulate/instructions, on the compiled emulator.

One rule beside the file's own: where a case expects the canonical NaN, any NaN will do. The emulator keeps a NaN's
payload, because that is how memory that nobody wrote is recognised in a result.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import instruction_case
import numpy as np
import pytest
from emulated import DeviceArray, launch

from kernelwright.emulate.module import EmulatedModule, RefusedCall

GROUPS = {key: list(names) for key, names in groupby(instruction_case.names(), key=lambda name: name.split(".")[0])}
REFUSED = {"call.recursive"}
"""Cases that must be refused by name."""

_NANS = {"f32": (32, 0x7F800000), "f16": (16, 0x7C00), "bf16": (16, 0x7F80)}


def _is_other_nan(mismatch: Any) -> bool:
    """Whether only NaN payloads differ from the canonical ones."""
    if not mismatch.expected.startswith("0x"):
        return False
    expected, got = int(mismatch.expected, 16), int(mismatch.got, 16)
    for width, infinity in _NANS.values():
        ones = (1 << width) - 1
        canonical = ones >> 1
        parts = [(expected >> n & ones, got >> n & ones) for n in range(0, 64, width)]
        if all(e == g or (e == canonical and (g & canonical) > infinity) for e, g in parts):
            return True
    return False


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
        if name in REFUSED:
            with pytest.raises(RefusedCall, match="calls itself"):
                launch(module, "t", case.grid, case.block, given, out)
            continue
        outcome = launch(module, "t", case.grid, case.block, given, out, deadline_s=5.0)
        assert (outcome.error, outcome.findings) == (0, ()), name
        found = [m for m in instruction_case.mismatches(case, np.asarray(out.get())) if not _is_other_nan(m)]
        wrong += map(str, found[:2])
        given.free()
        out.free()
    assert not wrong, "\n".join(wrong)
