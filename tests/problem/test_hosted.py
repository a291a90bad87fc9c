"""A problem's own words for a GPU, where there is none: the values are those of the CPU, and so is the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from kernelwright.problem.hosted import Hosted, names_a_gpu

pytestmark = pytest.mark.tiny

MAKERS: list[Callable[[], torch.Tensor]] = [
    lambda: torch.ones(3, device="cuda"),
    lambda: torch.ones(3, device=torch.device("cuda", 0)),
    lambda: torch.ones(3, device=0),
    lambda: torch.tensor([1.0, 1.0, 1.0], device="cuda:0"),
    lambda: torch.ones(3).cuda(),
    lambda: torch.ones(3).to("cuda"),
    lambda: torch.ones(3, dtype=torch.float64).to("cuda", torch.float32),
    lambda: torch.ones(3).to(device="cuda", non_blocking=True),
    lambda: torch.ones(3, pin_memory=True).pin_memory().cuda(non_blocking=True),
    lambda: torch.zeros(3).new_ones(3, device="cuda"),
    lambda: torch.ones_like(torch.zeros(3), device="cuda"),
    lambda: nn.Linear(3, 1, device="cuda").weight.detach().fill_(1.0).reshape(3),
    lambda: nn.Linear(3, 1).cuda().to("cuda").weight.detach().fill_(1.0).reshape(3),
]


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_made_on_a_gpu_lies_on_the_cpu(make: Callable[[], torch.Tensor]) -> None:
    with Hosted():
        made = make()
    assert (made.device.type, made.dtype, made.tolist()) == ("cpu", torch.float32, [1.0, 1.0, 1.0])


def test_a_default_device_is_heeded_as_far_as_there_is_one() -> None:
    with Hosted(), torch.device("cuda"):
        assert torch.zeros(2).device.type == "cpu"


def test_what_is_moved_is_another_tensor_and_meta_stays_meta() -> None:
    x = torch.zeros(2)
    with Hosted():
        x.cuda().fill_(1.0)
        assert torch.ones(2, device="meta").device.type == "meta"
    assert x.tolist() == [0.0, 0.0]


def test_only_a_text_that_says_so_may_ask_for_a_gpu() -> None:
    assert names_a_gpu("torch.rand(3, device='cuda')")
    assert not names_a_gpu("torch.rand(3)")
