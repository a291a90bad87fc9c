"""A GPU that is asked for and cannot be had: the machine's fault, in one line, whoever meets it first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.check import CheckOptions, check
from kernelwright.errors import MachineError
from kernelwright.worker import gpu

EXAMPLE = Path(__file__).parents[2] / "examples" / "matrix_vector"


@pytest.mark.emu
def test_a_check_on_a_gpu_that_is_not_there_says_so_and_blames_nobody() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    options = CheckOptions(device="cuda", sets={"M": "64", "K": "4096"}, trials=1)
    with pytest.raises(MachineError, match="no GPU that this torch can use") as raised:
        check(EXAMPLE / "problem.py", EXAMPLE / "candidate.py", options=options, progress=lambda words: None)
    assert raised.value.hint == "--device emulated needs none"


@pytest.mark.tiny
def test_a_gpu_that_has_no_room_for_a_context_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(share: float, device: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nmore")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", full)
    with pytest.raises(MachineError) as raised:
        gpu.open("cuda:0")
    assert str(raised.value) == "the GPU cannot be used: CUDA out of memory. Tried to allocate 20.00 MiB."
