"""Inputs as a recipe: what another process draws from it is what ``get_inputs()`` made, or there is no recipe."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy
import pytest
import torch

from kernelwright.worker import parameters
from kernelwright.worker.inputs import Drawn, copied
from kernelwright.worker.recipe import NoRecipe, Recipe, drawn, replayed
from kernelwright.worker.seeds import seed_all
from kernelwright.worker.tree import leaves

OUTSIDE = torch.ones(3)


def made(get_inputs: Callable[[], Any], seed: int) -> Any:
    seed_all(seed)
    return get_inputs()


def crossed(recipe: Recipe) -> Recipe:
    return Recipe(**json.loads(json.dumps(asdict(recipe))))


def filled() -> Any:
    x = torch.empty(3, 3)
    x.normal_()
    return [x, x.t()]


def branching() -> Any:
    x = torch.rand(4)
    return [x * 2 if float(x[0]) > 0.5 else -x]


@pytest.mark.parametrize(
    "get_inputs",
    [
        lambda: [torch.rand(64, 32), torch.rand(32, 1)],
        lambda: [torch.randn(8, 8).t() * 2 - 1, 3, {"k": (torch.randint(0, 10, (5,)), None)}],
        lambda: [torch.tensor([1, 2, 3]), torch.tensor(2.5), torch.triu(torch.ones(4, 4)).bool()],
        lambda: [torch.linspace(0, 1, 5).expand(4, 5), torch.softmax(torch.randn(4, 4), -1)],
        lambda: list(torch.split(torch.arange(10), 5)),
        lambda: [torch.randn(4, dtype=torch.bfloat16), torch.randn(2, 2, dtype=torch.complex64), torch.randperm(7)],
        lambda: [torch.rand(3) + numpy.random.rand()],
        filled,
        branching,
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", [0, 7])
def test_another_process_draws_what_get_inputs_made(get_inputs: Callable[[], Any], seed: int) -> None:
    recipe = drawn(get_inputs, device="cpu", seed=seed)
    ours, theirs = made(get_inputs, seed), replayed(crossed(recipe))
    for (name, one), (same, other) in zip(leaves(list(ours), ""), leaves(theirs, ""), strict=True):
        assert name == same
        if isinstance(one, torch.Tensor):
            assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
            assert torch.equal(one, other)
        else:
            assert one == other


def test_a_default_dtype_that_the_candidate_changed_changes_no_input() -> None:
    recipe = drawn(lambda: [torch.rand(4), torch.arange(3.0)], device="cpu", seed=0)
    torch.set_default_dtype(torch.float64)
    try:
        assert [tensor.dtype for tensor in replayed(recipe)] == [torch.float32, torch.float32]
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("get_inputs", "why"),
    [
        (lambda: [torch.from_numpy(numpy.random.rand(100_000))], "large tensor"),
        (lambda: [torch.randn(4, generator=torch.Generator())], "Generator"),
        (lambda: [OUTSIDE], "outside of get_inputs"),
        (lambda: 5, "returned a int"),
        (lambda: [sum(torch.rand(2) for _ in range(600))], "more than 500 operations"),
    ],
)
def test_what_a_list_of_operations_cannot_tell_has_no_recipe(get_inputs: Callable[[], Any], why: str) -> None:
    with pytest.raises(NoRecipe, match=why):
        drawn(get_inputs, device="cpu", seed=0)


def test_what_was_written_past_pytorch_has_no_recipe() -> None:
    def get_inputs() -> Any:
        x = torch.zeros(4)
        x.numpy()[2] = 5
        return [x]

    with pytest.raises(NoRecipe, match="other inputs"):
        drawn(get_inputs, device="cpu", seed=0)


def test_a_recipe_runs_operators_of_aten_only() -> None:
    recipe = Recipe("cpu", 0, [["prim.print.default", [1], {"named": {}}, []]], {"list": []}, [])
    with pytest.raises(ValueError, match="no operator of ATen"):
        replayed(recipe)


def test_a_changed_input_is_told_and_comes_back_as_it_was() -> None:
    inputs = Drawn(drawn(lambda: [torch.rand(5), torch.rand(5)], device="cpu", seed=0))
    first = [tensor.clone() for tensor in inputs.values]
    assert inputs.changed() == []
    inputs.values[1][3] += 1
    assert inputs.changed() == [1]
    assert all(torch.equal(a, b) for a, b in zip(inputs.renewed(), first, strict=True))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.float64, torch.complex64, torch.bool, torch.int64]
)
def test_a_checksum_sees_one_element_and_is_the_same_on_either_side(dtype: torch.dtype) -> None:
    x = torch.randint(0, 2, (3, 100_001)).to(dtype)
    flat = (torch.view_as_real(x) if x.is_complex() else x).reshape(-1)
    bits = flat.view(parameters._INTEGERS[flat.element_size()])
    assert parameters._on_the_gpu(bits) % 2**64 == parameters._on_the_host(bits.numpy()) % 2**64
    assert parameters.checksum(x.t().contiguous().t()) == parameters.checksum(x)
    changed = x.clone()
    changed[2, 100_000] = 1 - int(x[2, 100_000].real)
    assert parameters.checksum(changed) != parameters.checksum(x)
    swapped = x.clone()
    swapped[0, 0], swapped[0, 1] = 0, 1
    other = x.clone()
    other[0, 0], other[0, 1] = 1, 0
    assert parameters.checksum(swapped) != parameters.checksum(other)


def test_a_copy_keeps_strides_that_share_memory() -> None:
    x = torch.arange(5.0).expand(4, 5)
    assert copied(x, "cpu").stride() == (0, 1)
    assert torch.equal(copied(x[:, ::2], "cpu"), x[:, ::2])
