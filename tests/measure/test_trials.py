"""Each way of reaching a ceiling moves or computes what it says; no card is needed for that."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.build import toolchain
from kernelwright.errors import MachineError
from kernelwright.measure import trials


@pytest.mark.emu
@pytest.mark.parametrize(("capability", "instruction"), [((8, 0), "mma.sync"), ((9, 0), "wgmma.mma_async")])
def test_products_of_bytes_are_built_for_each_architecture(
    capability: tuple[int, int], instruction: str, tmp_path: Path
) -> None:
    to = tmp_path / "products.ptx"
    flags = [flag.replace("code=sm_", "code=compute_") for flag in trials.flags(*capability)]  # as PTX
    try:
        nvcc = toolchain.find().nvcc
    except MachineError as error:
        pytest.skip(f"{error}; {error.hint}")
    command = [str(nvcc), "-O3", "-ptx", *flags, str(trials.BYTES), "-o", str(to)]
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
