"""Limits from ceilings and work, with figures that can be checked by hand."""

from __future__ import annotations

import dataclasses

import pytest

from kernelwright.device.specs import spec
from kernelwright.measure import limits
from kernelwright.measure.records import Ceiling, Ceilings, Work

pytestmark = pytest.mark.tiny


def ceilings(**rates: float) -> Ceilings:
    units = {"read": "GB/s", "write": "GB/s", "launch": "ms"}
    return Ceilings(
        "a card", "1", 50 << 20, {n: Ceiling(n, units.get(n, "TFLOP/s"), r, None, "") for n, r in rates.items()}
    )


H200 = ceilings(read=4704.0, write=4684.0, launch=0.0027, fp32=51.4, tf32=405.0, fp16=752.0, bf16=783.0, fp64=63.8)


def test_a_matrix_vector_product_is_bound_by_reading_its_matrix() -> None:
    work = Work(read_bytes=8_594_128_896, written_bytes=8192, flops={"fp32": 4_294_967_296})
    found = limits.limit(work, H200, {"candidate": 1.9, "eager": 2.3})
    assert found is not None
    assert found.kind == "memory"
    assert found.limit_ms == pytest.approx(1.8270, abs=1e-3)
    assert found.fraction["candidate"] == pytest.approx(0.9616, abs=1e-3)
    assert found.fraction["eager"] == pytest.approx(0.7943, abs=1e-3)


def test_an_fp32_product_has_a_limit_for_each_way_whose_rate_is_known_and_the_least_binds() -> None:
    work = Work(read_bytes=302_022_656, written_bytes=33_554_432, flops={"fp32": 137_438_953_472})
    found = limits.limit(work, H200, {})
    assert found is not None
    assert found.arithmetic_ms == {
        "fp32": pytest.approx(2.6739, abs=1e-3),
        "fp16x3": pytest.approx(3 * 137.439 / 752.0, abs=1e-3),
    }
    assert found.kind == "arithmetic:fp16x3"
    assert found.limit_ms == found.arithmetic_ms["fp16x3"]


def test_six_products_of_bytes_are_a_way_where_their_rate_is_known() -> None:
    work = Work(read_bytes=302_022_656, written_bytes=33_554_432, flops={"fp32": 137_438_953_472})
    slow = limits.limit(work, ceilings(read=4704.0, write=4684.0, fp32=51.4, fp16=752.0, int8=1400.0), {})
    fast = limits.limit(work, ceilings(read=4704.0, write=4684.0, fp32=51.4, fp16=752.0, int8=1800.0), {})
    assert slow is not None and fast is not None
    assert slow.arithmetic_ms["int8x6"] == pytest.approx(6 * 137.439 / 1400.0, abs=1e-3)
    assert (slow.kind, fast.kind) == ("arithmetic:fp16x3", "arithmetic:int8x6")
    assert fast.limit_ms == pytest.approx(6 * 137.439 / 1800.0, abs=1e-3)
    assert limits.in_words(fast.kind) == "arithmetic in int8x6"


def test_where_the_tensor_cores_are_not_known_fp32_binds() -> None:
    work = Work(read_bytes=1000, written_bytes=0, flops={"fp32": 10**12})
    found = limits.limit(work, ceilings(read=4000.0, write=4000.0, fp32=50.0), {})
    assert found is not None
    assert (found.kind, found.limit_ms) == ("arithmetic:fp32", pytest.approx(20.0))


def test_a_tiny_problem_is_bound_by_one_launch() -> None:
    found = limits.limit(Work(4096, 4096), H200, {"candidate": 0.0054})
    assert found is not None
    assert (found.kind, found.limit_ms) == ("launch", 0.0027)
    assert found.fraction["candidate"] == pytest.approx(0.5)


def test_an_output_that_fits_in_the_l2_need_not_reach_the_memory() -> None:
    small = limits.limit(Work(10**9, 50 << 20), H200, {})
    large = limits.limit(Work(10**9, (50 << 20) + 10**9), H200, {})
    assert small is not None and large is not None
    assert small.memory_ms == pytest.approx(1e3 / 4704.0, rel=1e-6)
    assert large.memory_ms == pytest.approx(1e3 / 4704.0 + 1e3 / 4684.0, rel=1e-6)


def test_products_of_two_dtypes_add_up() -> None:
    found = limits.arithmetic_ms(Work(0, 0, {"bf16": 783 * 10**9, "fp64": 638 * 10**8}), H200)
    assert found == {"bf16+fp64": pytest.approx(2.0)}


def test_without_a_read_ceiling_there_is_no_limit() -> None:
    assert limits.limit(Work(1, 1), ceilings(write=1.0), {}) is None


def test_a_data_sheet_stands_in_and_says_so() -> None:
    sheet = limits.from_data_sheet(spec("h200"))
    assert sheet.source == "data sheet"
    found = limits.limit(Work(8_594_128_896, 8192), sheet, {})
    assert found is not None
    assert found.ceilings == "data sheet"
    assert 1.7 < found.limit_ms < 1.83


def test_a_faster_ceiling_never_raises_a_limit() -> None:
    work = Work(302_022_656, 33_554_432, {"fp32": 137_438_953_472})
    before = limits.limit(work, H200, {})
    for name in H200.ceilings:
        if name == "launch":
            continue
        faster = dict(H200.ceilings)
        faster[name] = dataclasses.replace(faster[name], best=2 * faster[name].best)
        after = limits.limit(work, dataclasses.replace(H200, ceilings=faster), {})
        assert before is not None and after is not None
        assert after.limit_ms <= before.limit_ms
