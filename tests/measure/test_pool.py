"""Fresh contents in rotating sets."""

from __future__ import annotations

import time

import numpy
import pytest
import torch

from kernelwright.measure.pool import Pool

pytestmark = pytest.mark.tiny


def test_each_run_has_contents_of_its_own_that_can_be_made_again() -> None:
    pool = Pool(lambda: [torch.randn(4, 4), 3], seed=5, device="cpu")
    seen = []
    for number in range(1, 9):
        tensor, scalar = pool.take(number)
        assert scalar == 3
        assert torch.equal(tensor, pool.contents(number)[0])
        seen.append(tensor.clone())
    assert all(not torch.equal(a, b) for i, a in enumerate(seen) for b in seen[:i])
    assert pool.how.startswith("drawn anew")


def test_addresses_rotate_and_come_back() -> None:
    pool = Pool(lambda: [torch.randn(4, 4)], seed=5, device="cpu")
    addresses = [pool.take(number)[0].data_ptr() for number in range(9)]
    assert len(set(addresses)) == pool.sets == 3
    assert addresses[:3] == addresses[3:6] == addresses[6:9]


def test_contents_made_by_numpy_are_drawn_anew_too() -> None:
    pool = Pool(lambda: [torch.from_numpy(numpy.random.rand(4))], seed=5, device="cpu")
    assert not torch.equal(pool.take(1)[0], pool.take(2)[0])
    assert torch.equal(pool.contents(1)[0], pool.contents(1)[0])


def test_slow_inputs_are_made_once_and_scaled_and_keep_their_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.measure.pool.SLOW_SECONDS", -1.0)
    calls = []

    def triangle() -> list[torch.Tensor]:
        calls.append(time.monotonic())
        return [torch.triu(torch.rand(8, 8)), torch.arange(8)]

    pool = Pool(triangle, seed=5, device="cpu")
    made = len(calls)
    first, second = pool.take(1)[0].clone(), pool.take(2)[0].clone()
    assert len(calls) == made
    assert not torch.equal(first, second)
    assert torch.equal(first, first.triu())
    assert torch.equal(pool.contents(1)[0], first)
    assert torch.equal(pool.take(3)[1], torch.arange(8))
    assert pool.how.startswith("made once, scaled anew")


def test_a_problem_that_does_not_run_with_another_default_device_is_asked_plainly() -> None:
    def refuses() -> list[torch.Tensor]:
        if torch.empty(0).device.type == "meta":
            raise RuntimeError("not there")
        return [torch.rand(4)]

    pool = Pool(refuses, seed=5, device="cpu")
    assert pool.take(1)[0].shape == (4,)


def test_expanded_inputs_are_not_copied_into() -> None:
    pool = Pool(lambda: [torch.rand(1, 4).expand(8, 4)], seed=5, device="cpu")
    assert torch.equal(pool.take(4)[0], pool.contents(4)[0])
    assert pool.take(4)[0].stride() == (0, 1)
