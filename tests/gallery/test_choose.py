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
def test_a_matvec_plan_covers_k_once_and_leaves_no_segment_empty_but_where_blocks_meet(transposed: bool) -> None:
    for M, K, itemsize, _, plan in matvec_plans(transposed):
        assert rows_covered(plan, itemsize) >= K, (M, K, itemsize, plan)
        if not (plan.cluster > 1 or plan.posted or transposed):
            assert plan.segment * (plan.segments - 1) < K, (M, K, itemsize, plan)


BY_COLUMNS = (matvec.WALK, matvec.COLUMN, matvec.ELEMENT)


def classes(plan: matvec.Plan, itemsize: int) -> int:
    """How many alignments the rows that walk reads may have."""
    return 16 // itemsize if plan.variant == matvec.WALK and not plan.aligned else 1


def rows_covered(plan: matvec.Plan, itemsize: int) -> int:
    return plan.segment * plan.segments


def tiles(plan: matvec.Plan, M: int, itemsize: int) -> int:
    """How many blocks of walk stand side by side."""
    per_piece = 16 // itemsize
    return -(-(-(-M // per_piece) + (not plan.aligned)) // plan.lanes)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_matvec_plan_uses_only_kernels_that_exist(transposed: bool) -> None:
    for M, K, itemsize, hopper, plan in matvec_plans(transposed):
        per_piece = 16 // itemsize if plan.aligned else 1
        assert plan.cluster == 1 or (hopper and plan.variant == matvec.COLUMN), (M, K, plan)
        assert (plan.variant in BY_COLUMNS) == transposed
        if plan.variant == matvec.NARROW:
            assert plan.lanes * per_piece * (4 if plan.lanes == 32 else 1) >= K and K % per_piece == 0, (M, K, plan)
        if plan.variant == matvec.DIRECT:
            assert plan.rows in (1, 2, 4, 8) and plan.depth == 8
        if plan.variant == matvec.RING:
            assert hopper and plan.aligned and plan.segment * itemsize % 4096 == 0


@pytest.mark.parametrize("transposed", [False, True])
def test_no_thread_of_a_matvec_adds_more_than_4096_products_in_a_row(transposed: bool) -> None:
    for M, K, itemsize, _, plan in matvec_plans(transposed):
        per_piece = 16 // itemsize if plan.aligned else 1
        threads = {matvec.NARROW: plan.lanes, matvec.DIRECT: 256, matvec.RING: 256}
        apart = threads.get(plan.variant, 256 // plan.lanes)
        chain = -(-plan.segment // (apart * (1 if transposed else per_piece))) * (1 if transposed else per_piece)
        assert chain <= 4096, (M, K, itemsize, plan, chain)


@pytest.mark.parametrize("transposed", [False, True])
def test_every_matvec_recipe_covers_k_with_kernels_that_exist(transposed: bool) -> None:
    for (M, K), itemsize, (sms, hopper), aligned in itertools.product(
        itertools.product(SIZES[::3], SIZES[::3]), (2, 4), DEVICES[:2], (True, False)
    ):
        aligned = aligned and (M if transposed else K) * itemsize % 16 == 0
        for name, plan in matvec.recipes(M, K, itemsize, aligned, transposed, sms, hopper).items():
            where = (M, K, itemsize, name, plan)
            if plan.variant == matvec.TORCH:
                continue
            assert rows_covered(plan, itemsize) >= K, where
            assert (plan.variant in BY_COLUMNS) == transposed, where
            assert hopper or (plan.cluster == 1 and plan.variant != matvec.RING), where
            if plan.variant != matvec.COLUMN:  # whose clusters may also post
                assert plan.cluster == 1 or (plan.segments == plan.cluster in (2, 4, 8, 16) and not plan.posted), where
            if plan.variant == matvec.DIRECT:
                assert plan.rows <= plan.depth and plan.depth in ((8, 16) if plan.aligned else (8,)), where
            if plan.variant == matvec.WALK:
                assert 1 <= plan.lanes <= 256 and plan.depth in (4, 8, 16), where
                assert plan.segments % classes(plan, itemsize) == 0, where
                assert plan.cluster == 1, where
            if plan.variant == matvec.COLUMN:
                assert aligned and M * itemsize % 16 == 0 and plan.lanes in (8, 16, 32, 64), where
                assert plan.depth in (4, 8, 16) and plan.segments % plan.cluster == 0, where
                assert (plan.segments > plan.cluster) == plan.posted, where
                assert not plan.posted or plan.lanes < 64 or plan.cluster > 1, where  # two lanes a unit post
                assert -(-plan.segment // (256 // plan.lanes)) <= 4096, where
            if plan.variant == matvec.ELEMENT:
                assert plan.depth in (8, 16, 24) and plan.segments == plan.cluster, where
                assert -(-plan.segment // 8) <= 4096, where


@pytest.mark.parametrize("transposed", [False, True])
def test_blocks_that_post_their_sums_to_all_run_at_once(transposed: bool) -> None:
    for (M, K), itemsize, (sms, hopper), aligned in itertools.product(
        itertools.product(SIZES, SIZES[::2]), (2, 4), DEVICES, (True, False)
    ):
        aligned = aligned and (M if transposed else K) * itemsize % 16 == 0
        for name, plan in matvec.recipes(M, K, itemsize, aligned, transposed, sms, hopper).items():
            where = (M, K, itemsize, sms, name, plan)
            if plan.posted and plan.variant in (matvec.WALK, matvec.DIRECT):  # ring starts a block a multiprocessor
                groups = tiles(plan, M, itemsize) if transposed else -(-M // plan.rows)
                assert plan.segments > 1 and groups * plan.segments <= 2 * sms, where
            assert not plan.posted or plan.segments * M <= matvec.MAIL, where


def softmax_plans():
    lengths = (
        *range(1, 3000, 37), 4096, 4097, 8192, 8193, 16384, 16385, 32768, 50257, 65536, 131072, 262144, 262145, 1 << 21,
    )  # fmt: skip
    for N, itemsize, hopper in itertools.product(lengths, (2, 4), (True, False)):
        for aligned in (0, softmax.WHOLE, softmax.ROWS):
            if aligned != softmax.ROWS or N * itemsize % 16 == 0:
                for name, plan in softmax.recipes(64, N, itemsize, aligned, hopper, True).items():
                    yield N, itemsize, aligned, hopper, name, plan


def test_a_softmax_plan_holds_its_row() -> None:
    for N, itemsize, aligned, hopper, name, plan in softmax_plans():
        where = (N, itemsize, aligned, hopper, name, plan)
        within = (128 if plan.variant == softmax.STREAM else 16) // itemsize
        pieces = within * (4 if plan.variant == softmax.STREAM else 1) if plan.aligned else 1
        shift = within - 1 if plan.aligned == softmax.WHOLE else 0
        width = -(-(N + shift) // (plan.blocks * pieces)) * pieces
        longest = {softmax.WARP: 1024, softmax.ONLINE: 1 << 31, softmax.TORCH: 1 << 31, softmax.EXACT: N}
        values = softmax.values_of(plan.variant, plan.aligned, itemsize).get(plan.threads, 0)
        assert longest.get(plan.variant, plan.threads * values) >= width, where
        assert hopper or (plan.blocks == 1 and plan.variant != softmax.STREAM), where
        if plan.variant == softmax.EXACT:
            assert N % (plan.threads * within) == 0 and N // (plan.threads * within) in (1, 2, 4, 8), where
        if plan.variant in (softmax.BLOCK, softmax.STREAM):
            assert plan.aligned == aligned and plan.blocks in (*range(1, 9), 16), where
        elif plan.variant != softmax.TORCH:
            assert plan.aligned in (0, softmax.ROWS) and plan.blocks == 1, where
        assert aligned or plan.variant != softmax.STREAM, where


def test_a_linear_plan_gives_every_part_at_least_one_step() -> None:
    few = SIZES[:-1:2]
    for (M, N, K), (sms, hopper) in itertools.product(itertools.product(few, few, SIZES), DEVICES[:2]):
        for name, plan in linear.recipes(M, N, K, sms, hopper).items():
            where = (M, N, K, sms, name, plan)
            if plan.variant in linear.SIDES:
                per_split = -(-K // plan.splits)
                segment = -(-per_split // 128) * 128
                assert M <= linear.MOST_ROWS and (plan.splits - 1) * segment < K, where
            elif plan.variant != linear.TORCH:
                assert 1 <= plan.splits <= max(1, -(-K // linear.BLOCK_K)), where
                assert (plan.variant in (linear.PORTABLE, linear.PORTABLE_BYTES)) == (not hopper), where
                if linear.is_bytes(plan.variant):
                    assert 6144 <= K <= 32768 and M >= 64 and M * N >= 1 << 19, where


def test_bytes_are_a_choice_for_large_products_of_long_rows_alone() -> None:
    def has(M: int, N: int, K: int, *, hopper: bool = True) -> bool:
        return any(linear.is_bytes(plan.variant) for plan in linear.recipes(M, N, K, 132, hopper).values())

    assert has(1024, 8192, 8192) and has(64, 8192, 8192) and has(1024, 1024, 32768) and has(4096, 4096, 6144)
    assert not has(1024, 8192, 4096) and not has(1024, 1024, 32769)  # float32's error is as small; sums overflow
    assert not has(63, 8192, 8192) and not has(512, 1024, 8192)  # cuBLAS divides K, which makes its error as small
    assert has(1024, 8192, 8192, hopper=False)
    assert linear._rule(1024, 8192, 8192, 132, False).variant == linear.PORTABLE  # until somebody measures


def test_what_was_measured_nearby_goes_before_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = matvec._rule(4096, 4096, 4, True, True, 132, True)
    monkeypatch.setattr(matvec, "TUNED", {"H200": ((4, True, 4096, 4096, "column 64 cluster 8 / 8"),)})
    matvec.choose.cache_clear()
    try:
        at = matvec.choose(4096, 4096, 4, True, True, 132, True, "NVIDIA H200")
        assert at.cluster == 8 and at.segments == 8 and at.lanes == 64
        assert matvec.choose(6000, 4096, 4, True, True, 132, True, "NVIDIA H200").segments == 8
        assert matvec.choose(4096, 4096, 4, True, True, 132, True, "NVIDIA A100-SXM4-80GB") == rule
        far = (4096, 65536, 4, True, True, 132, True)
        assert matvec.choose(*far, "NVIDIA H200") == matvec._rule(*far)
    finally:
        matvec.choose.cache_clear()


def test_a_measured_recipe_that_a_shape_cannot_have_leaves_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = matvec._rule(100, 4097, 4, False, False, 132, True)
    monkeypatch.setattr(matvec, "TUNED", {"H200": ((4, False, 100, 4096, "ring"),)})
    matvec.choose.cache_clear()
    try:
        assert matvec.choose(100, 4097, 4, False, False, 132, True, "NVIDIA H200") == rule
    finally:
        matvec.choose.cache_clear()


def test_a_plan_reads_as_a_sentence() -> None:
    assert str(matvec._rule(2048, 1 << 20, 4, True, False, 132, True)) == (
        "ring: 4 rows x 4 KB x 10 stages, 32 segments of 32768, then combine, 16-byte loads"
    )
    assert str(softmax._rule(8192, 4, softmax.ROWS, True)) == (
        "block: 512 threads a block, 1 block a row, 16-byte loads and stores"
    )
    assert str(linear._rule(1024, 8192, 8192, 132, True)) == (
        "split x in bytes, then hopper: wgmma, 128 x 128 tiles, K in 1 part"
    )
    assert str(linear._rule(1, 512, 512, 132, True)) == (
        "rows: plain float32, W read once as it is, 128 threads abreast, K in 1 part"
    )
