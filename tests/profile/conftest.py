"""An H200's recording: five kernels through ncu 2025.3.1, raw and source pages trimmed to what is read of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.counters.records import KernelCounters
from kernelwright.measure.records import Ceiling, Ceilings
from kernelwright.profile.pages import kernels

RECORDED = Path(__file__).parent / "recorded"


def page(name: str) -> str:
    return (RECORDED / f"{name}.csv").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def source_text() -> str:
    """The recorded program."""
    return (RECORDED / "kernels.cu").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def counted(source_text: str) -> dict[str, KernelCounters]:
    """The recorded kernels by short name."""
    made = kernels(
        page("raw"), page("sass"), page("source"), candidate_file="dir/kernels.cu", candidate_text=source_text
    )
    return {one.kernel.split("(")[0]: one for one in made}


@pytest.fixture(scope="session")
def ceilings() -> Ceilings:
    """Round figures of such a card."""

    def one(name: str, best: float, unit: str = "TFLOP/s") -> Ceiling:
        return Ceiling(name, unit, best, None, "test")

    found = [one("read", 4600, "GB/s"), one("write", 4200, "GB/s"), one("copy", 4300, "GB/s"), one("fp32", 50.0)]
    return Ceilings("NVIDIA H200", "580", 60 << 20, {c.name: c for c in [*found, one("fp16", 770.0)]})
