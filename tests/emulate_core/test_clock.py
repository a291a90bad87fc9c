"""Kernels that wait by the clock: time passes for who looks at it again and again."""

from __future__ import annotations

import numpy as np
from emulated import DeviceArray, launch, ptx


def test_a_kernel_that_waits_a_minute_by_the_clock_ends_at_once() -> None:
    module = ptx(
        """
	mov.u64 %rd1, %clock64;
WAIT:
	mov.u64 %rd2, %clock64;
	sub.u64 %rd3, %rd2, %rd1;
	setp.lt.u64 %p1, %rd3, 60000000000;
	@%p1 bra WAIT;
	mov.u32 %r1, 1;
	st.global.u32 [%at], %r1;
"""
    )
    out = DeviceArray(np.zeros(64, np.int32))
    outcome = launch(module, "t", 1, 64, out, deadline_s=30.0)
    assert (outcome.error, outcome.interrupted) == (0, False)
    assert out.get().all()


def test_two_looks_at_the_clock_are_close_and_in_order() -> None:
    module = ptx(
        """
	mov.u64 %rd1, %globaltimer;
	mov.u64 %rd2, %globaltimer;
	sub.u64 %rd3, %rd2, %rd1;
	mul.wide.u32 %rd4, %t, 8;
	add.u64 %rd4, %rd4, %out;
	st.global.u64 [%rd4], %rd3;
"""
    )
    out = DeviceArray(np.full(32, -1, np.int64))
    launch(module, "t", 1, 32, out)
    assert (out.get() >= 0).all() and (out.get() < 10**9).all()
