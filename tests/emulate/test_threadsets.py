"""Thread sets are exact where thread numbers decide, and never too small."""

import numpy as np
import pytest

from kernelwright.emulate.analysis import analyse
from kernelwright.emulate.ptx.parse import parse
from kernelwright.emulate.threadsets import ThreadSets

pytestmark = pytest.mark.tiny

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    mov.u32 %r1, %tid.x;
    {code}
    @%p1 bra END;
    bar.sync 0;
END:
    ret;
}}
"""


@pytest.mark.parametrize(
    ("code", "reaches"),
    [
        ("setp.gt.u32 %p1, %r1, 31;", lambda t: t <= 31),
        ("shr.u32 %r2, %r1, 5; setp.ne.s32 %p1, %r2, 0;", lambda t: t < 32),
        # Thread 0 wraps to 4294967295: the usual form of a range check.
        ("add.s32 %r2, %r1, -1; setp.gt.u32 %p1, %r2, 30;", lambda t: (t >= 1) & (t <= 31)),
        ("add.s32 %r2, %r1, -1; setp.lt.s32 %p1, %r2, 0;", lambda t: t > 0),
        ("ld.param.u32 %r2, [out]; setp.gt.u32 %p1, %r2, 30;", lambda t: t >= 0),
    ],
)
def test_the_block_behind_a_branch_is_reached_by(code: str, reaches: object) -> None:
    function = parse(PTX.format(code=code)).functions["k"]
    barrier = next(i for i, instruction in enumerate(function.instructions) if instruction.op == "bar")
    found = ThreadSets(analyse(function), (64, 1, 1)).reaching(barrier)
    assert np.array_equal(found, reaches(np.arange(64)))  # type: ignore[operator]
