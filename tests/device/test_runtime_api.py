"""The CUDA runtime shim answers wrong calls as an H200 does (driver 580, CUDA 13.0): api_probe.txt is its text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"

pytestmark = [pytest.mark.emu, pytest.mark.timeout(600)]

GPU = (PROGRAMS / "api_probe.txt").read_text().splitlines()


@pytest.mark.parametrize(
    "number", range(len(GPU)), ids=[f"{n} {line.split(':')[0][:60]}" for n, line in enumerate(GPU)]
)
def test_call_answers_as_on_a_gpu(number: int, output: Callable[..., str]) -> None:
    assert output("api_probe.py").splitlines()[number] == GPU[number]
