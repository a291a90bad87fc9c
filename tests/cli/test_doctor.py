"""The doctor: what it reads, with stand-ins for the programs that this machine may not have."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from kernelwright import doctor
from kernelwright.doctor import FOR_GPU, NEEDED, Health, Item
from kernelwright.report.doctor import render_health

pytestmark = pytest.mark.tiny


def program(folder: Path, name: str, prints: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_gpus_are_what_nvidia_smi_lists(tools: Path) -> None:
    program(tools, "nvidia-smi", "NVIDIA H200, 580.159.04, 143771, 9.0\nNVIDIA L4, 580.159.04, 23034, 8.9")
    first, second = doctor.gpus()
    assert (first.name, first.driver, first.memory_mib, first.compute_capability) == (
        "NVIDIA H200", "580.159.04", 143771, "9.0",
    )  # fmt: skip
    assert second.name == "NVIDIA L4"


def test_a_driver_that_answers_with_an_error_is_no_gpu(tools: Path) -> None:
    program(tools, "nvidia-smi", "No devices were found")
    assert doctor.gpus() == ()
    item = next(item for item in doctor.examine().items if item.name == "GPU")
    assert not item.found and item.value == "nvidia-smi is here, but sees no GPU"


def test_a_missing_host_compiler_keeps_the_emulated_device_from_working(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    health = doctor.examine()
    assert not health.emulated_device_works
    assert any(item.name == "host compiler" and not item.found and item.get for item in health.items)


def test_the_cache_folder_is_measured(tools: Path) -> None:
    (tools / "cache").mkdir()
    (tools / "cache" / "built.so").write_bytes(b"x" * 3 * 2**20)
    item = next(item for item in doctor.examine().items if item.name == "cache folder")
    assert item.found and ", 3 MiB held, " in item.value


def test_only_a_missing_needed_thing_is_shouted() -> None:
    items = (Item("nvcc", NEEDED, False, "not found", "install it"), Item("GPU", FOR_GPU, False, "none"))
    out = io.StringIO()
    render_health(Health(False, False, items), Console(file=out, width=60))
    assert out.getvalue().splitlines() == [
        "MISSING  nvcc  needed     not found; install it",
        "no       GPU   for a GPU  none",
        "",
        "emulated device: does NOT work: see MISSING above",
        "real GPU:        not on this machine",
    ]
