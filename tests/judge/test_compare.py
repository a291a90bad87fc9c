"""The comparison: tolerance, NaN, infinities, poison, relations, impostors."""

from __future__ import annotations

import math

import pytest
import torch

from kernelwright.judge.compare import Tally
from kernelwright.judge.poison import POISON16
from kernelwright.records import OutputNumerics


def compared(
    out: torch.Tensor,
    oracle: torch.Tensor,
    *,
    reference: torch.Tensor | None = None,
    pieces: int = 1,
    tol: float = 1e-4,
) -> tuple[OutputNumerics, Tally]:
    reference = oracle.to(out.dtype) if reference is None else reference
    tally = Tally("output", out, reference, atol=tol, rtol=tol)
    flat = oracle.reshape(-1)
    step = -(-flat.numel() // pieces)
    for start in range(0, flat.numel(), step):
        tally.add(start, flat[start : start + step])
    return tally.result(None), tally


def test_an_error_at_the_tolerance_passes_and_above_it_fails() -> None:
    oracle = torch.tensor([0.0, 1000.0], dtype=torch.float64)
    assert compared(oracle + torch.tensor([0.9e-4, 0.09]), oracle)[0].within_tolerance
    result, _ = compared(oracle + torch.tensor([0.0, 0.11]), oracle)
    assert not result.within_tolerance
    assert result.mismatch is not None
    assert result.mismatch.worst == (1,)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_never_passes_where_the_oracle_is_finite(bad: float) -> None:
    out = torch.zeros(100)
    out[17] = bad
    result, _ = compared(out, torch.zeros(100, dtype=torch.float64), tol=1e30)
    assert result.mismatch is not None
    assert result.mismatch.count == 1
    assert result.mismatch.first == (17,)
    assert result.mismatch.nan == int(math.isnan(bad))
    assert result.mismatch.inf == int(math.isinf(bad))
    assert result.max_abs_error == math.inf


def test_nan_and_infinity_pass_only_where_the_oracle_has_the_same() -> None:
    values = [math.nan, math.inf, -math.inf, 1.0]
    oracle = torch.tensor(values, dtype=torch.float64)
    result, _ = compared(oracle.float(), oracle)
    assert result.within_tolerance
    assert result.max_abs_error == 0
    swapped = oracle.float()[[1, 2, 0, 3]]
    result, _ = compared(swapped, oracle)
    assert result.mismatch is not None
    assert result.mismatch.count == 3


def test_a_finite_value_fails_where_the_oracle_is_nan() -> None:
    result, _ = compared(torch.zeros(4), torch.full((4,), math.nan, dtype=torch.float64))
    assert result.mismatch is not None
    assert result.mismatch.count == 4


@pytest.mark.parametrize(
    ("dtype", "word"), [(torch.float32, torch.int32), (torch.float16, torch.int16), (torch.bfloat16, torch.int16)]
)
def test_untouched_memory_is_told_from_other_nan(dtype: torch.dtype, word: torch.dtype) -> None:
    poison = POISON16 if word is torch.int16 else POISON16 << 16 | POISON16
    out = torch.zeros(64, 64, dtype=dtype)
    out.view(word)[:, 48:] = poison
    out[3, 3] = math.nan
    result, _ = compared(out, torch.zeros(64, 64, dtype=torch.float64))
    assert result.mismatch is not None
    assert result.mismatch.unwritten == 64 * 16
    assert result.mismatch.nan == 64 * 16 + 1
    assert "unwritten: columns 48-63, the last 16 of axis 1; all of axis 0" in result.mismatch.description


def test_a_nan_computed_from_untouched_memory_is_tainted() -> None:
    out = torch.zeros(8)
    out.view(torch.int32)[2] = POISON16 << 16 | POISON16
    out[2] = out[2] * 2 + 1
    out[5] = -out[2]
    result, _ = compared(out, torch.zeros(8, dtype=torch.float64))
    assert result.mismatch is not None
    assert (result.mismatch.tainted, result.mismatch.unwritten) == (2, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: 2 * x, "every wrong value is 2 times the expected one"),
        (lambda x: -x, "every wrong value has the opposite sign"),
        (lambda x: x + 3, "every wrong value is the expected one plus 3"),
        (lambda x: 0 * x, "every wrong value is 0"),
        (lambda x: 0 * x + 7, "every wrong value is 7"),
    ],
)
def test_a_relation_between_wrong_and_right_values_is_stated(change: object, said: str) -> None:
    oracle = torch.rand(32, 32, dtype=torch.float64) + 1
    result, _ = compared(change(oracle).float(), oracle)  # type: ignore[operator]
    assert result.mismatch is not None
    assert said in result.mismatch.description


def test_unrelated_values_are_given_no_relation() -> None:
    torch.manual_seed(0)
    result, _ = compared(torch.rand(32, 32), torch.rand(32, 32, dtype=torch.float64))
    assert result.mismatch is not None
    assert "every wrong value" not in result.mismatch.description


def test_pieces_give_what_the_whole_gives() -> None:
    torch.manual_seed(0)
    oracle = torch.randn(40, 50, dtype=torch.float64)
    out = (oracle + 1e-6 * torch.randn(40, 50)).float()
    out[7] = 0
    one, many = compared(out, oracle)[0], compared(out, oracle, pieces=7)[0]
    assert many.mismatch == one.mismatch
    assert (many.max_abs_error, many.reference_max_abs_error) == (one.max_abs_error, one.reference_max_abs_error)
    assert many.rms_error == pytest.approx(one.rms_error, rel=1e-12)


def test_integers_must_be_equal_to_the_oracle_or_the_reference() -> None:
    oracle = torch.tensor([10_000, 20_000, 5])
    assert not compared(torch.tensor([10_001, 20_000, 5]), oracle)[0].within_tolerance
    assert compared(torch.tensor([10_000, 20_000, 4]), oracle, reference=torch.tensor([10_000, 20_000, 4]))[
        0
    ].within_tolerance


def test_impostors_that_the_tolerance_lets_pass_are_named() -> None:
    small = torch.full((100,), 5e-5, dtype=torch.float64)
    assert compared(small.float(), small)[1].impostors.passing() == ("zeros", "constant", "mean")
    level = torch.full((100,), 3.0, dtype=torch.float64)
    assert compared(level.float(), level)[1].impostors.passing() == ("constant", "mean")
    spread = torch.linspace(0, 1, 100, dtype=torch.float64)
    assert compared(spread.float(), spread)[1].impostors.passing() == ()


def test_an_input_that_equals_the_output_is_an_impostor() -> None:
    x = torch.rand(10, 10)
    oracle = torch.relu(x).double()
    tally = Tally("output", x.clone(), x, atol=1e-4, rtol=1e-4)
    tally.add(0, oracle.reshape(-1), {0: x.reshape(-1), 1: (x + 1).reshape(-1)})
    assert tally.impostors.passing() == ("input 0",)


def test_where_the_reference_misses_the_tolerance_twice_its_error_passes_and_more_fails() -> None:
    oracle = torch.linspace(1, 2, 1000, dtype=torch.float64)
    reference = oracle.clone()
    reference[10] += 0.01
    good, _ = compared(oracle + 0.019, oracle, reference=reference, pieces=3)
    assert good.within_tolerance
    assert good.allowed_error == pytest.approx(0.02)
    out = oracle + 0.019
    out[700] += 0.002
    bad, _ = compared(out, oracle, reference=reference, pieces=3)
    assert bad.mismatch is not None
    assert (bad.mismatch.count, bad.mismatch.first, bad.mismatch.worst) == (1, (700,), (700,))
    assert bad.mismatch.first_expected == pytest.approx(float(oracle[700]), abs=1e-6)


def test_a_reference_that_keeps_the_tolerance_allows_nothing_more() -> None:
    oracle = torch.linspace(1, 2, 1000, dtype=torch.float64)
    result, _ = compared(oracle + 3e-4, oracle, reference=oracle + 0.9e-4)
    assert (result.within_tolerance, result.allowed_error) == (False, None)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reference_that_overflows_allows_nothing_and_never_lets_pass_what_is_not_finite(bad: float) -> None:
    oracle = torch.linspace(1, 2, 1000, dtype=torch.float64)
    reference = oracle.clone()
    reference[0] = bad
    assert compared(oracle + 0.1, oracle, reference=reference)[0].allowed_error is None
    reference[1] += 0.5
    out = oracle.clone()
    out[5] = bad
    assert not compared(out, oracle, reference=reference)[0].within_tolerance


def test_an_error_that_the_reference_allows_counts_for_impostors_too() -> None:
    oracle = torch.linspace(1, 2, 1000, dtype=torch.float64)
    reference = oracle.clone()
    reference[10] += 1.5
    tally = compared(oracle, oracle, reference=reference)[1]
    assert tally.impostors.passing(tally.allowed) == ("zeros", "constant", "mean")
