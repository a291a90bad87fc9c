"""Measured ceilings are kept per device, driver and method, and read back whole; no card is needed for that."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.build import toolchain
from kernelwright.errors import MachineError
from kernelwright.measure import ceilings, trials
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


@pytest.mark.parametrize(("capability", "instruction"), [((8, 0), "mma.sync"), ((9, 0), "wgmma.mma_async")])
def test_products_of_bytes_are_built_for_each_architecture(
    capability: tuple[int, int], instruction: str, tmp_path: Path
) -> None:
    to = tmp_path / "products.ptx"
    flags = [flag.replace("code=sm_", "code=compute_") for flag in trials.flags(*capability)]  # as PTX
    command = [str(toolchain.find().nvcc), "-O3", "-ptx", *flags, str(trials.BYTES), "-o", str(to)]
    subprocess.run(command, check=True, capture_output=True)
    assert f"{instruction}." in to.read_text() and ".s8.s8" in to.read_text()


class Kernels:
    """In the place of a library of ours: a launch does nothing, a pass is a thousand million operations."""

    def kw_ceiling(self, *_: object) -> int:
        return 0

    def kw_has_bulk(self) -> int:
        return 1

    def kw_products(self, passes: int, out: object, operations: Any) -> int:
        operations._obj.value = passes * 10**9
        return 0


def test_each_way_moves_or_computes_what_it_says_in_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rand", "randn", "zeros", "ones", "empty"):
        real = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, real=real, device=None, **k: real(*a, **k))
    device = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (64 << 20, 64 << 20))
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: device)
    monkeypatch.setattr(trials, "library_of", lambda _: Kernels())
    monkeypatch.setattr(trials, "spans", lambda run, count: [1.0])
    monkeypatch.setattr(trials, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(trials, "_SHAPES", ((64, 32, 16),))
    found = [*trials.memory(lambda _: None), *trials.products(lambda _: None)]
    told = {(one.name, one.unit): one.amount for one in found if "cuBLAS" in one.how or one.name != "int8"}
    buffer, product = (16 << 20) / 1e9, 2 * 64 * 32 * 16 / 1e12
    assert told == {
        ("launch", "ms"): 0,
        ("l2", "GB/s"): 132 * 2 * 400 * 4 * 1024 * 16 / 1e9,
        ("read", "GB/s"): buffer,
        ("write", "GB/s"): buffer,
        ("copy", "GB/s"): 2 * buffer,
        ("int8", "TOP/s"): product,
        **{(name, "TFLOP/s"): product for name in ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8")},
    }
    assert [one.amount for one in found if "signed bytes" in one.how] == [0.5, 2.0]


def test_measuring_without_a_gpu_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(MachineError, match="sees no GPU"):
        ceilings.measure()
