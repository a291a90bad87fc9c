"""Measured ceilings are kept per device, driver and method, and read back whole; no card is needed for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.errors import MachineError
from kernelwright.measure import ceilings
from kernelwright.measure.records import Ceiling, Ceilings

pytestmark = pytest.mark.tiny

MADE = Ceilings(
    "NVIDIA H200",
    "580.1",
    60 << 20,
    {"read": Ceiling("read", "GB/s", 4700.0, 4690.0, "bulk copy ring", 1980)},
    versions={"torch": "2.11"},
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ceilings, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(ceilings, "_uuid", lambda: "GPU-1")
    monkeypatch.setattr(ceilings, "driver", lambda: "580.1")
    return tmp_path


def test_kept_ceilings_come_back_whole(place: Path) -> None:
    assert ceilings.kept() is None
    ceilings._keep(ceilings._file("GPU-1", "580.1"), MADE)
    assert ceilings.kept() == MADE
    assert [path.suffix for path in (place / "ceilings").iterdir()] == [".json"]


def test_another_device_or_driver_has_its_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ceilings._keep(ceilings._file("GPU-1", "580.1"), MADE)
    monkeypatch.setattr(ceilings, "driver", lambda: "581.0")
    assert ceilings.kept() is None
    monkeypatch.setattr(ceilings, "driver", lambda: "580.1")
    monkeypatch.setattr(ceilings, "_uuid", lambda: "GPU-2")
    assert ceilings.kept() is None


def test_a_damaged_file_is_as_good_as_none(place: Path) -> None:
    path = ceilings._file("GPU-1", "580.1")
    ceilings._keep(path, MADE)
    path.write_text(path.read_text()[:40])
    assert ceilings.kept() is None


def test_measuring_without_a_gpu_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(MachineError, match="sees no GPU"):
        ceilings.measure()
