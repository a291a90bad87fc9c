"""The float64 oracle: whole, in chunks, or replaced with a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelwright.judge.judge import judge, take_yardsticks
from kernelwright.judge.oracle import NotRows, Oracle, Reference, double_model
from kernelwright.records import Precision


class Wrapped(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: object) -> object:
        return self.function(*inputs)


def oracle_for(
    model: torch.nn.Module, inputs: list[object], budget: int, chunk: int, patch: pytest.MonkeyPatch
) -> Oracle:
    patch.setattr("kernelwright.judge.oracle.CHUNK_BYTES", chunk)
    reference = Reference(model, inputs, seed=1)
    return Oracle(reference, model64=double_model(model)[0], budget_bytes=budget)


def whole(oracle: Oracle) -> torch.Tensor:
    return torch.cat([piece.outputs[0] for piece in oracle.pieces()])


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (torch.matmul, ((64, 100), (100, 8))),
        (torch.matmul, ((64, 64), (64, 64))),
        (lambda x: torch.softmax(x, 1), ((64, 100),)),
        (lambda x, y: x * y, ((64, 100), (64, 100))),
    ],
)
def test_chunks_give_what_the_whole_gives(
    function: Callable[..., object], shapes: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    inputs: list[object] = [torch.randn(shape) for shape in shapes]
    chunked = oracle_for(Wrapped(function), inputs, 0, 20_000, monkeypatch)
    unchunked = oracle_for(Wrapped(function), inputs, 1 << 30, 20_000, monkeypatch)
    assert chunked.how.startswith("float64 in ")
    assert unchunked.how == "float64"
    assert torch.allclose(whole(chunked), whole(unchunked), rtol=1e-14, atol=1e-14)
    assert whole(chunked).dtype == torch.float64


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.softmax(x, 0),
        lambda x: (x - x.mean(0)) / x.std(0),
        lambda x: torch.cumsum(x, 0),
        lambda x: x.sum(),
    ],
)
def test_what_looks_across_rows_is_never_cut(function: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    oracle = oracle_for(Wrapped(function), [torch.randn(64, 100)], 0, 20_000, monkeypatch)
    assert oracle.how.startswith("float32 reference (float64 needs")
    assert not oracle.exact


def test_a_chunk_that_turns_out_wrong_in_the_middle_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def peeks(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        if x.size(0) == 64:
            out[30] = 0
        return out

    oracle = oracle_for(Wrapped(peeks), [torch.randn(64, 100)], 0, 20_000, monkeypatch)
    with pytest.raises(NotRows):
        list(oracle.pieces())


def test_a_reference_that_refuses_float64_stands_in_itself_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def strict(x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return x + 1

    oracle = oracle_for(Wrapped(strict), [torch.randn(8, 8)], 1 << 30, 20_000, monkeypatch)
    assert oracle.how == "float32 reference (in float64 it raises TypeError: float32 only)"
    assert take_yardsticks(oracle, oracle._reference) is None


def test_the_reference_that_draws_random_numbers_is_known() -> None:
    assert Reference(torch.nn.Dropout(0.5), [torch.randn(8)], seed=1).random
    assert not Reference(torch.nn.Linear(8, 8), [torch.randn(8)], seed=1).random


def rounded(operands: torch.dtype) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda x, w: torch.softmax(x.to(operands).double() @ w.to(operands).double(), 1).float()


def tf32(x: torch.Tensor) -> torch.Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32).double()


def backwards(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(x.size(0), w.size(1))
    for k in reversed(range(x.size(1))):
        total = total + x[:, k : k + 1] * w[k : k + 1]
    return torch.softmax(total, 1)


def half_sums(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(x.size(0), w.size(1), dtype=torch.float16)
    for k in range(x.size(1)):
        total = total + (x[:, k : k + 1] * w[k : k + 1]).half()
    return torch.softmax(total.float(), 1)


@pytest.mark.parametrize(
    ("candidate", "grades"),
    [
        (lambda x, w: torch.softmax(x @ w, 1), {Precision.FP32}),
        (backwards, {Precision.FP32}),
        (lambda x, w: torch.softmax(tf32(x) @ tf32(w), 1).float(), {Precision.TF32, Precision.FP16}),
        (rounded(torch.float16), {Precision.TF32, Precision.FP16}),
        (rounded(torch.bfloat16), {Precision.BF16}),
        (half_sums, {Precision.FP16, Precision.BF16}),
        (lambda x, w: torch.softmax(x @ w * 3, 1), {Precision.WORSE}),
    ],
)
def test_a_candidate_is_graded_by_the_format_it_rounds_to(
    candidate: Callable[..., torch.Tensor], grades: set[Precision]
) -> None:
    torch.manual_seed(3)
    inputs: list[object] = [torch.randn(64, 512), torch.randn(512, 32) / 20]
    model = Wrapped(lambda x, w: torch.softmax(x @ w, 1))
    reference = Reference(model, inputs, seed=1)
    oracle = Oracle(reference, model64=double_model(model)[0], budget_bytes=1 << 30)
    judgement = judge(
        candidate(*inputs),
        devices=["cpu"],
        expected_device="cpu",
        reference=reference,
        oracle=oracle,
        yardsticks=take_yardsticks(oracle, reference),
        atol=1e-4,
        rtol=1e-4,
    )
    assert judgement.outputs[0].precision in grades


def test_a_settled_oracle_keeps_its_outputs_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    inputs: list[object] = [torch.randn(64, 100)]
    function = Wrapped(lambda x: torch.softmax(x, 1))
    oracle = oracle_for(function, inputs, 1 << 30, 20_000, monkeypatch)
    before = whole(oracle)
    assert oracle.settle()
    assert torch.equal(whole(oracle), before)
    assert sum(tensor.numel() for tensor in oracle.held) == before.numel()
    chunked = oracle_for(function, inputs, 0, 20_000, monkeypatch)
    assert not chunked.settle()
    assert torch.allclose(whole(chunked), before, rtol=1e-14, atol=1e-14)
