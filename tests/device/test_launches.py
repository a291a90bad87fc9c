"""Kernels launched from an extension: their effect on torch's memory, and what the record holds of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"

pytestmark = [pytest.mark.emu, pytest.mark.timeout(600)]

SOURCE = (PROGRAMS / "launches.cu").read_text().splitlines()
ILLEGAL = "AcceleratorError: CUDA error: an illegal memory access was encountered"


def line_of(text: str) -> int:
    """1-based line of launches.cu that holds ``text``."""
    return next(number for number, line in enumerate(SOURCE, 1) if text in line)


@pytest.fixture(scope="module")
def told(output: Callable[..., str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output("launches.py"))
    return found


def test_inputs_share_the_host_tensors_memory(told: dict[str, Any]) -> None:
    assert told["shares memory"]


def test_fresh_memory_holds_nan_poison(told: dict[str, Any]) -> None:
    assert told["poison"]


def test_kernel_reads_constants_and_managed_variables_and_writes_torch_memory(told: dict[str, Any]) -> None:
    assert told["right"]
    assert told["counts"] == [100, 200]


def test_printf_is_kept_in_order(told: dict[str, Any]) -> None:
    assert told["printed"] == "thread 0\nthread 1\n"


def test_equal_launches_are_one_fact_with_a_count_and_the_host_line(told: dict[str, Any]) -> None:
    fact = told["launches"][0]
    assert (fact["kernel"], fact["count"], fact["error"]) == ("scale(float*, float const*, int)", 2, 0)
    assert fact["site"]["line"] == line_of("// launch: scale")
    assert fact["thread_instructions"] > 0


def test_refused_launch_names_the_limit_and_the_numbers(told: dict[str, Any]) -> None:
    fact = next(f for f in told["launches"] if f["limit"])
    assert fact["limit"] == "launch.block-limit"
    assert fact["message"] == "block of 64 x 32 x 1 = 2048 threads; the device allows 1024"
    assert (fact["error"], fact["error_name"], told["large"]) == (1, "cudaErrorInvalidValue", 1)
    assert fact["site"]["line"] == line_of("// launch: large")


def test_refused_launch_is_no_fault(told: dict[str, Any]) -> None:
    assert told["no fault yet"] == ""


def test_illegal_address_is_found_and_named(told: dict[str, Any]) -> None:
    (finding,) = told["findings"]
    assert finding["cause"] == "memory.out-of-bounds"
    assert finding["frames"][-1]["line"] == line_of("if (i <= n) y[i] = 1.0f")
    assert (finding["offset"], finding["allocation"]["bytes"], finding["access"]) == (400, 400, "store")
    assert (finding["allocation"]["dtype"], finding["allocation"]["shape"]) == ("float32", [100])
    assert (finding["block"], finding["thread"]) == ([1, 0, 0], [36, 0, 0])


def test_fault_returns_700_and_sticks(told: dict[str, Any]) -> None:
    assert told["overrun"] == 700
    assert [told[f"{what} after"] for what in ("copy", "item", "synchronize")] == [ILLEGAL] * 3


def test_copy_past_an_allocations_end_is_refused_with_the_numbers(told: dict[str, Any]) -> None:
    assert told["copy"] == [0, 1]
    sentence = next(s for _, cause, s in told["refusals"] if cause == "memory.out-of-bounds")
    assert "allocation of 400 bytes, which 401 bytes overrun" in sentence


def test_copy_to_host_memory_as_if_it_were_the_devices_is_refused(told: dict[str, Any]) -> None:
    assert told["copy to host memory"] == 1
    assert any(cause == "interface.host-memory" for _, cause, _ in told["refusals"])


def test_unknown_api_is_refused_by_name(told: dict[str, Any]) -> None:
    assert told["array"] == 801
    assert [801, "unexplained", "the emulated device has no cudaMallocArray"] in told["refusals"]


def test_checked_error_speaks_torchs_words(told: dict[str, Any]) -> None:
    assert told["check"] == "AcceleratorError: CUDA error: invalid argument"


def test_hook_hears_of_each_launch_before_it_runs(told: dict[str, Any]) -> None:
    assert told["started"].count("scale(float*, float const*, int)") == 2


def test_fact_names_the_presented_device(told: dict[str, Any]) -> None:
    fact = told["fact"]
    assert (fact["kind"], fact["name"], fact["compute_capability"], fact["presents_as"]) == (
        "emulated",
        "NVIDIA H200",
        "9.0",
        "h200",
    )
    assert any(line.startswith("exact: ") for line in fact["fidelity"])


def test_nothing_was_kept_from_the_worker(told: dict[str, Any]) -> None:
    assert told["fault"] == "None"
