"""Mistakes with devices are answered in the words of a GPU: device_errors.txt is an H200's, with torch 2.11."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"

pytestmark = [pytest.mark.emu, pytest.mark.timeout(600)]

GPU = dict(line.split(" | ", 1) for line in (PROGRAMS / "device_errors.txt").read_text().splitlines())


@pytest.mark.parametrize("name", GPU)
def test_mistake_is_answered_as_on_a_gpu(name: str, output: Callable[..., str]) -> None:
    answers = dict(line.split(" | ", 1) for line in output("device_errors.py", "--emulated").splitlines())
    assert answers[name] == GPU[name]
