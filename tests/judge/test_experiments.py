"""Each variant is found by its outputs, on a small reference of its own, and nothing is found for unrelated outputs."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from kernelwright.explain import CAUSES
from kernelwright.explain.experiment import ROWS
from kernelwright.judge import experiments as module
from kernelwright.judge.experiments import experiments, on_other_inputs, reinterpreted
from kernelwright.judge.variants import VARIANTS
from kernelwright.records import Experiment

Forward = Callable[..., torch.Tensor]


def tried(reference: Forward, wrong: Forward, *inputs: torch.Tensor) -> tuple[Experiment, ...]:
    """Experiments on ``reference`` in float64 where the candidate computes ``wrong`` in the inputs' own dtype."""
    wide = [x.double() for x in inputs]
    with torch.no_grad():
        exact = [reference(*wide)]
        slack = [float((reference(*inputs).double() - exact[0]).abs().nan_to_num(0.0, 0.0, 0.0).max()) * 4]
        made = experiments([wrong(*inputs)], lambda: [reference(*wide)], exact, slack, atol=1e-4, rtol=1e-4)
        return made.found


def shown(reference: Forward, wrong: Forward, *inputs: torch.Tensor) -> str:
    found = tried(reference, wrong, *inputs)
    assert found, "nothing was found"
    return found[0].variant


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def by_hand(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    return (x - mean.view(1, -1, 1)) / torch.sqrt(variance.view(1, -1, 1) + 1e-5)


MATRIX, VECTOR = (24, 24), (24,)
CASES: list[tuple[str, Forward, Forward, list[tuple[int, ...]]]] = [
    ("correction", lambda x: x.var(dim=1), lambda x: x.var(dim=1, correction=0), [(64, 20)]),
    ("correction", lambda x: x.std(dim=0, correction=0), lambda x: x.std(dim=0), [(20, 64)]),
    ("other-gelu", F.gelu, lambda x: F.gelu(x, approximate="tanh"), [MATRIX]),
    ("other-gelu", lambda x: F.gelu(x, approximate="tanh"), F.gelu, [MATRIX]),
    ("transposed-factor", lambda x, w: F.linear(x, w), lambda x, w: x @ w, [(5, 24), MATRIX]),
    ("transposed-factor", lambda x, w, b: F.linear(x, w, b), lambda x, w, b: x @ w.reshape(24, 8) + b,
     [(5, 24), (8, 24), (8,)]),
    ("transposed-factor", torch.matmul, lambda a, b: a.t() @ b, [MATRIX, MATRIX]),
    ("other-axis", lambda x, b: x + b.view(1, -1, 1, 1), lambda x, b: x + b, [(2, 8, 8, 8), (8,)]),
    ("other-axis", lambda x, b: x * b[:, None], lambda x, b: x * b, [MATRIX, VECTOR]),
    ("other-axis", lambda x, b: x + b.view(1, -1, 1, 1),
     lambda x, b: (x.reshape(-1) + b[torch.arange(x.numel()) % 8]).reshape(x.shape), [(2, 8, 6, 5), (8,)]),
    ("reduced-along-other", lambda x: x.softmax(1), lambda x: x.softmax(0), [(6, 9)]),
    ("reduced-along-other", lambda x: x.sum(1), lambda x: x.sum(0), [MATRIX]),
    ("read-linearly", lambda x: torch.relu(x.t()), lambda x: torch.relu(x.reshape(9, 6)), [(6, 9)]),
    ("batch-statistics", lambda x: F.batch_norm(x, torch.zeros(8, dtype=x.dtype), torch.ones(8, dtype=x.dtype),
                                                training=True),
     lambda x: by_hand(x, torch.zeros(8), torch.ones(8)), [(4, 8, 6)]),
    ("batch-statistics", lambda x: F.batch_norm(x, torch.zeros(8, dtype=x.dtype), torch.ones(8, dtype=x.dtype)),
     lambda x: by_hand(x, x.mean((0, 2)), x.var((0, 2), correction=0)), [(4, 8, 6)]),
    ("started-from-zero", lambda x: x.amax(1), lambda x: x.amax(1).clamp(min=0), [(64, 3)]),
    ("started-from-zero", lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2).clamp(min=0), [(2, 3, 8, 8)]),
    ("counted-padding", lambda x: F.avg_pool2d(x, 3, 1, 1),
     lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), [(2, 3, 8, 8)]),
    ("flipped-kernel", F.conv2d, lambda x, w: F.conv2d(x, w.flip(2, 3)), [(2, 3, 8, 8), (4, 3, 3, 3)]),
    ("sum-for-mean", lambda x: x.mean(1), lambda x: x.sum(1), [(6, 9)]),
    ("sum-for-mean", lambda x: x.sum(), lambda x: x.mean(), [(6, 9)]),
    ("left-out", lambda x, w, b: F.relu(F.linear(x, w, b)), lambda x, w, b: F.linear(x, w, b), [(5, 6), (7, 6), (7,)]),
    ("left-out", lambda x, w, b: F.relu(F.linear(x, w, b)), lambda x, w, b: F.relu(F.linear(x, w)),
     [(5, 6), (7, 6), (7,)]),
    ("left-out", lambda x: torch.sigmoid(x) * 0.5, torch.sigmoid, [(6, 9)]),
    ("left-out", lambda x, y: torch.relu(x) + y, lambda x, y: torch.relu(x), [(6, 9), (6, 9)]),
    ("left-out", lambda x, w: F.layer_norm(x, (9,), w), lambda x, w: F.layer_norm(x, (9,)), [(6, 9), (9,)]),
]  # fmt: skip


@pytest.mark.parametrize(("variant", "reference", "wrong", "shapes"), CASES)
def test_a_variant_is_found_by_its_outputs(
    variant: str, reference: Forward, wrong: Forward, shapes: list[tuple[int, ...]]
) -> None:
    assert shown(reference, wrong, *(torch.randn(shape) for shape in shapes)) == variant


def test_a_softmax_without_its_maximum_is_found_by_where_it_is_not_a_number() -> None:
    (found,) = tried(lambda x: x.softmax(1), lambda x: x.exp() / x.exp().sum(1, keepdim=True), torch.randn(64, 99) * 60)
    assert found.variant == "no-maximum"
    assert "the row's maximum not taken off" in found.said


def test_a_sigmoid_of_infinite_exponentials_is_found() -> None:
    assert shown(torch.sigmoid, lambda x: x.exp() / (1 + x.exp()), torch.randn(9, 99) * 60) == "naive-exponential"


def test_squares_in_half_precision_are_found_where_they_overflow() -> None:
    def norm(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True))

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.half().pow(2).float().mean(1, keepdim=True))

    x = (torch.randn(16, 64) * 120).half().float()
    assert shown(norm, wrong, x) == "half-product"


@pytest.mark.parametrize("bits", [8, 11])
def test_rounded_factors_are_told_apart_by_their_bits(bits: int) -> None:
    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().float() if bits == 8 else x.half().float()

    found = tried(torch.matmul, lambda a, b: rounded(a) @ rounded(b), torch.randn(32, 64), torch.randn(64, 32))
    said = {one.said.rpartition(" ")[2] for one in found}
    assert said == {"BF16"} if bits == 8 else "FP16" in said and "BF16" not in said


def test_a_cancelled_variance_is_found_by_the_number_and_size_of_its_errors() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        return (x - mean) * torch.rsqrt((x * x).sum(1, keepdim=True) / x.size(1) - mean * mean + 1e-5)

    (found,) = tried(lambda x: F.layer_norm(x, (x.size(1),)), wrong, torch.randn(256, 768) * 0.05 + 300)
    assert (found.variant, found.exact) == ("difference-of-squares", False)


@pytest.mark.parametrize(
    "wrong", [torch.zeros_like, torch.rand_like, lambda x: x.softmax(1) * 1.01, lambda x: x.softmax(1) + 1e-3 * x]
)
def test_nothing_is_found_for_what_no_variant_computes(wrong: Forward) -> None:
    assert tried(lambda x: x.softmax(1), wrong, torch.randn(64, 99)) == ()


def test_an_output_filled_in_rows_under_other_strides_is_read_off_its_memory() -> None:
    right = torch.randn(6, 9)
    filled = torch.empty(9, 6).t()
    filled.as_strided((54,), (1,)).copy_(right.reshape(-1))
    found = reinterpreted([filled], [right], atol=1e-4, rtol=1e-4)
    assert found is not None
    assert "strides are (1, 6)" in found.said
    assert reinterpreted([right.t().contiguous().t() + 1], [right], atol=1e-4, rtol=1e-4) is None


def test_an_input_with_other_strides_is_read_off_its_memory() -> None:
    x = torch.randn(9, 6).t()
    wide = [x.double()]

    def run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.relu(inputs[0])]

    filled = torch.relu(x.as_strided((6, 9), (9, 1)))
    found = experiments(
        [filled], lambda: run(wide), run(wide), [0.0], atol=1e-4, rtol=1e-4, unchanged=on_other_inputs(wide, run)
    ).found
    assert [(one.variant, one.said) for one in found] == [
        ("input-strides", "the memory of input 0 read in rows, although its strides are (1, 6)")
    ]
    assert list(on_other_inputs([torch.randn(3, 4), 5], run)) == []


def test_what_is_slow_the_first_time_only_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.25)
    x = torch.randn(8, 8, dtype=torch.float64)
    waits = iter([0.3])

    def run() -> list[torch.Tensor]:
        time.sleep(next(waits, 0.0))
        return [F.gelu(x)]

    made = experiments([F.gelu(x, approximate="tanh")], run, [F.gelu(x)], [0.0], atol=1e-6, rtol=1e-6)
    assert [found.variant for found in made.found] == ["other-gelu"]


def test_what_was_not_tried_in_time_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", -1.0)
    x = torch.randn(8, 8, dtype=torch.float64)
    made = experiments([x.sigmoid()], lambda: [F.gelu(x)], [F.gelu(x)], [0.0], atol=1e-6, rtol=1e-6)
    assert made.found == ()
    assert made.left == made.of > 1


def test_every_variant_is_explained_and_every_explanation_has_a_variant() -> None:
    assert set(ROWS) == {*VARIANTS, "output-strides", "input-strides"}
    assert {row.cause for row in ROWS.values()} <= set(CAUSES)
