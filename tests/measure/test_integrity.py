"""What is noticed of replaced functions and switches."""

from __future__ import annotations

import time

import pytest
import torch

from kernelwright.measure import integrity

pytestmark = pytest.mark.tiny


def test_nothing_is_replaced_at_first() -> None:
    assert integrity.replaced(integrity.snapshot()) == ()


@pytest.mark.parametrize(
    ("space", "name", "told"),
    [
        (torch.cuda.Event, "elapsed_time", "torch.cuda.Event.elapsed_time"),
        (torch.cuda, "synchronize", "torch.cuda.synchronize"),
        (torch.nn.functional, "softmax", "torch.nn.functional.softmax"),
        (torch.Tensor, "clone", "torch.Tensor.clone"),
        (torch.nn.Linear, "forward", "torch.nn.Linear.forward"),
        (time, "perf_counter_ns", "time.perf_counter_ns"),
    ],
)
def test_a_replaced_function_is_named(monkeypatch: pytest.MonkeyPatch, space: object, name: str, told: str) -> None:
    before = integrity.snapshot()
    monkeypatch.setattr(space, name, lambda *arguments: None)
    assert told in integrity.replaced(before)


def test_compiling_a_model_is_no_tampering() -> None:
    before = integrity.snapshot()
    torch.compile(torch.nn.Linear(4, 4), backend="eager")(torch.randn(2, 4))
    assert integrity.replaced(before) == ()


def test_switches_are_restored_and_their_change_is_told() -> None:
    flags = integrity.Flags()
    try:
        torch.set_float32_matmul_precision("high")
        assert flags.changed() == ("float32 matmul precision",)
        flags.restore()
        assert torch.get_float32_matmul_precision() == "highest"
        flags.restore(tf32=True)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        flags.restore()
    assert flags.changed() == ()
