"""Data sheets: figures that must agree with one another, names, and a real device's own report."""

from types import SimpleNamespace

import pytest

from kernelwright.device.specs import CAPABILITIES, SPECS, DeviceSpec, from_cuda, spec
from kernelwright.errors import MachineError, UsageError

pytestmark = pytest.mark.tiny

# What torch.cuda.get_device_properties(0) said on an H200 (driver 580.159.04, 2026-11-29).
H200_AS_REPORTED = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    total_memory=150109880320,
    multi_processor_count=132,
    L2_cache_size=62914560,
    clock_rate=1980000,
    memory_clock_rate=3201000,
    memory_bus_width=6016,
    regs_per_multiprocessor=65536,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    max_threads_per_multi_processor=2048,
)


@pytest.mark.parametrize("sheet", SPECS, ids=lambda sheet: sheet.key)
def test_bandwidth_follows_from_memory_clock_and_bus(sheet: DeviceSpec) -> None:
    computed = sheet.memory_clock_mhz * 1e6 * 2 * sheet.memory_bus_bits / 8 / 1e9
    assert computed == pytest.approx(sheet.bandwidth_gb_s, rel=0.005)


@pytest.mark.parametrize("sheet", SPECS, ids=lambda sheet: sheet.key)
def test_fp32_peak_follows_from_multiprocessors_and_clock(sheet: DeviceSpec) -> None:
    lanes = 64 if sheet.compute_capability == (8, 0) else 128
    computed = sheet.multiprocessors * lanes * 2 * sheet.clock_mhz * 1e6 / 1e12
    assert computed == pytest.approx(sheet.vector_tflops["fp32"], rel=0.02)


@pytest.mark.parametrize("sheet", SPECS, ids=lambda sheet: sheet.key)
def test_a_block_with_all_opted_in_shared_memory_and_its_reserve_fills_a_multiprocessor(sheet: DeviceSpec) -> None:
    assert sheet.shared_per_block_optin + sheet.reserved_shared_per_block == sheet.shared_per_sm
    assert sheet.max_threads_per_sm % sheet.warp_size == 0


def test_ridge_of_h200_is_peak_over_bandwidth() -> None:
    assert spec("h200").ridges["fp32"] == pytest.approx(66.9e12 / 4.8e12)
    assert spec("h200").ridges["bf16"] == pytest.approx(206.125)
    assert "fp8" not in spec("a100").ridges


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("H200", "h200"),
        ("NVIDIA H200", "h200"),
        ("RTX 4090", "rtx4090"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("sm_90", "h200"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA H100 80GB HBM3", "h100"),
    ],
)
def test_names_that_people_and_drivers_use_find_the_sheet(name: str, key: str) -> None:
    assert spec(name).key == key


@pytest.mark.parametrize("sheet", SPECS, ids=lambda sheet: sheet.key)
def test_key_and_driver_name_both_find_the_sheet(sheet: DeviceSpec) -> None:
    assert spec(sheet.key) is sheet
    assert spec(sheet.name) is sheet


def test_an_unknown_name_is_a_usage_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no data sheet for the GPU 'k80'") as caught:
        spec("k80")
    assert all(sheet.key in caught.value.hint for sheet in SPECS)


def test_the_table_agrees_with_what_a_real_h200_reports() -> None:
    real = from_cuda(H200_AS_REPORTED)
    table = spec("h200")
    for name in (
        "memory_bytes",
        "l2_bytes",
        "multiprocessors",
        "clock_mhz",
        "memory_clock_mhz",
        "memory_bus_bits",
        "shared_per_block_optin",
        "shared_per_sm",
        "max_threads_per_sm",
        "max_blocks_per_sm",
    ):
        assert getattr(real, name) == getattr(table, name), name
    assert real.bandwidth_gb_s == pytest.approx(4814.3, abs=0.1)
    assert real.tensor_tflops == table.tensor_tflops


def test_a_gpu_without_a_sheet_gets_its_limits_and_no_peaks() -> None:
    card = SimpleNamespace(
        **{**vars(H200_AS_REPORTED), "name": "NVIDIA RTX 6000 Ada Generation", "major": 8, "minor": 9}
    )
    sheet = from_cuda(card)
    assert sheet.key == "rtx-6000-ada-generation"
    assert sheet.max_blocks_per_sm == CAPABILITIES[8, 9].max_blocks_per_sm == 24
    assert sheet.peaks == {}


def test_an_unknown_compute_capability_is_refused_rather_than_guessed() -> None:
    card = SimpleNamespace(**{**vars(H200_AS_REPORTED), "name": "NVIDIA X1", "major": 13, "minor": 7})
    with pytest.raises(MachineError, match=r"13\.7"):
        from_cuda(card)
