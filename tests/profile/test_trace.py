"""The traced kernels of a few forward passes."""

from __future__ import annotations

import pytest

from kernelwright.profile.trace import forward_us, shares, table

pytestmark = pytest.mark.tiny

PASSES = [
    [("void gemm<float>(Params)", 300.0), ("void k<(int)256>(const float *, int)", 40.0), ("Memset (Device)", 2.0)],
    [("void gemm<float>(Params)", 310.0), ("void k<(int)256>(const float *, int)", 50.0), ("Memset (Device)", 2.0)],
    [
        ("void gemm<float>(Params)", 290.0),
        ("void k<(int)256>(const float *, int)", 20.0),
        ("void k<(int)256>(const float *, int)", 25.0),
        ("Memset (Device)", 2.0),
    ],
]


def test_kernels_are_listed_longest_first_with_the_median_of_a_pass() -> None:
    made = table(PASSES)
    assert [(one.name.split("<")[0], one.launches, one.total_us) for one in made] == [
        ("void gemm", 1, 300.0),
        ("void k", 1, 45.0),
        ("Memset (Device)", 1, 2.0),
    ]
    assert made[0].share == pytest.approx(300 / 347)
    assert forward_us(PASSES) == 342.0
    assert forward_us([]) is None


def test_a_kernel_is_found_whichever_demangler_wrote_its_name() -> None:
    made = table(PASSES)
    found = shares(made, {"void k<256>(float const*, int)": 1, "gemm<float>(Params)": 1, "other(int)": 1})
    assert found["void k<256>(float const*, int)"] == pytest.approx(45 / 347)
    assert found["gemm<float>(Params)"] == pytest.approx(300 / 347)
    assert found["other(int)"] == 0.0
    assert shares((), {"k": 1}) == {}


def test_kernels_whose_lambdas_are_spelled_otherwise_share_their_templates_time() -> None:
    made = table([[("void each<4, f()::{lambda()#2}>(int)", 30.0), ("void each<8, g()::{lambda()#1}>(int)", 60.0),
                   ("void each<2>(int)", 10.0)]])  # fmt: skip
    found = shares(
        made, {"each<(int)4, f()::[lambda() (instance 2)]>(int)": 1.0, "each<8, [x]>(int)": 2.0, "each<2>(int)": 9}
    )
    assert list(found.values()) == pytest.approx([0.3, 0.6, 0.1])
