"""Every plan must cover its problem, stay within what its kernel was built for, and keep float32 chains short."""

from __future__ import annotations

import itertools

import pytest

from kernelwright.gallery.kernels import linear, matvec, softmax

pytestmark = pytest.mark.tiny

SIZES = (1, 2, 3, 7, 31, 64, 65, 129, 528, 1000, 1024, 4096, 5003, 65536, 1 << 20)
DEVICES = ((132, True), (108, False), (1, False), (142, False))


def matvec_plans(transposed: bool):
    for (M, K), itemsize, (sms, hopper), aligned in itertools.product(
        itertools.product(SIZES, SIZES), (2, 4), DEVICES, (True, False)
    ):
        aligned = aligned and (M if transposed else K) * itemsize % 16 == 0
        yield M, K, itemsize, hopper, matvec.choose(M, K, itemsize, aligned, transposed, sms, hopper)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_matvec_plan_covers_k_once_and_leaves_no_segment_empty_but_in_a_cluster(transposed: bool) -> None:
    for M, K, itemsize, _, plan in matvec_plans(transposed):
        assert plan.segment * plan.segments >= K, (M, K, itemsize, plan)
        assert plan.clustered or plan.segment * (plan.segments - 1) < K, (M, K, itemsize, plan)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_matvec_plan_uses_only_kernels_that_exist(transposed: bool) -> None:
    for M, K, itemsize, hopper, plan in matvec_plans(transposed):
        per_piece = 16 // itemsize if plan.aligned else 1
        assert not plan.clustered or (hopper and plan.segments in (2, 4, 8)), (M, K, plan)
        assert (plan.variant == matvec.STRIP) == transposed
        if plan.variant == matvec.NARROW:
            assert plan.lanes * per_piece * (4 if plan.lanes == 32 else 1) >= K and K % per_piece == 0, (M, K, plan)
        if plan.variant == matvec.DIRECT:
            assert plan.rows in (1, 2, 4)
        if plan.variant == matvec.STRIP:
            assert plan.rows in (1, 2, 4, 8) and plan.lanes in (1, 2, 4, 8, 16, 32)
            assert M % per_piece == 0 and (not plan.clustered or plan.lanes == 32 or plan.rows > 0)
        if plan.variant == matvec.RING:
            assert hopper and plan.aligned and plan.segment * itemsize % 4096 == 0


@pytest.mark.parametrize("transposed", [False, True])
def test_no_thread_of_a_matvec_adds_more_than_4096_products_in_a_row(transposed: bool) -> None:
    for M, K, itemsize, _, plan in matvec_plans(transposed):
        per_piece = 16 // itemsize if plan.aligned else 1
        threads = {matvec.NARROW: plan.lanes, matvec.DIRECT: 256, matvec.RING: 256}
        apart = threads.get(plan.variant, plan.rows * (32 // plan.lanes))
        chain = -(-plan.segment // (apart * (1 if transposed else per_piece))) * (1 if transposed else per_piece)
        assert chain <= 4096, (M, K, itemsize, plan, chain)


def test_a_softmax_plan_holds_its_row() -> None:
    for N in (
        *range(1, 3000),
        4096,
        4097,
        8192,
        8193,
        16384,
        16385,
        32768,
        50257,
        65536,
        131072,
        262144,
        262145,
        1 << 21,
    ):
        for aligned, hopper in itertools.product((True, False), (True, False)):
            plan = softmax.choose(N, aligned, hopper)
            longest = {softmax.WARP: 1024, softmax.ONLINE: 1 << 31}.get(plan.variant, plan.threads * plan.blocks * 32)
            assert longest >= N, (N, plan)
            assert not (plan.variant == softmax.BLOCK and plan.threads == 128) or N <= 2048
            assert plan.variant != softmax.CLUSTER or (hopper and plan.threads in (256, 512) and plan.blocks <= 16)


def test_a_linear_plan_gives_every_part_at_least_one_step() -> None:
    for (M, N, K), (sms, hopper) in itertools.product(itertools.product(SIZES[:-1], SIZES[:-1], SIZES), DEVICES):
        plan = linear.choose(M, N, K, sms, hopper)
        assert 1 <= plan.splits <= max(1, -(-K // linear.BLOCK_K)), (M, N, K, plan)
        assert plan.width == (0 if not hopper else 32 if M <= 32 else 128)


def test_a_plan_reads_as_a_sentence() -> None:
    assert str(matvec.choose(2048, 1 << 20, 4, True, False, 132, True)) == (
        "ring: 4 rows x 4 KB x 10 stages, 32 segments of 32768, then combine, 16-byte loads"
    )
    assert str(softmax.choose(8192, True, True)) == (
        "block: 256 threads a block, 1 blocks a row, 16-byte loads and stores"
    )
    assert str(linear.choose(1, 8192, 8192, 132, False)) == "portable: mma.sync, 128 x 128 tiles, K in 2 parts"
