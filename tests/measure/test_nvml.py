"""What is read of a card, from a library that only pretends to be NVML."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kernelwright.measure import nvml
from kernelwright.measure.nvml import Card, Sampler, Unavailable
from kernelwright.measure.records import CardState

pytestmark = pytest.mark.tiny


class Library:
    """NVML's calls, answered from a table; one that is not in it is missing from the library."""

    def __init__(self, *, missing: tuple[str, ...] = (), failing: tuple[str, ...] = ()) -> None:
        self.asked: list[bytes] = []
        self._missing, self._failing = missing, failing

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("__") or name in self._missing:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            if name in self._failing:
                return 3
            if name == "nvmlDeviceGetHandleByUUID":
                self.asked.append(arguments[0])
            elif name == "nvmlDeviceGetClockInfo":
                arguments[-1]._obj.value = {1: 1980, 2: 3201}[arguments[1].value]
            elif name == "nvmlDeviceGetComputeRunningProcesses_v3":
                arguments[1]._obj.value = 2
                arguments[2][0].pid, arguments[2][1].pid = 71, 72
            elif name in _NUMBERS:
                arguments[-1]._obj.value = _NUMBERS[name]
            elif name in _TEXTS:
                arguments[-2].value = _TEXTS[name]
            return 0

        return call


_NUMBERS = {
    "nvmlDeviceGetTemperature": 41,
    "nvmlDeviceGetPowerUsage": 512_500,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
}
_TEXTS = {"nvmlDeviceGetName": b"NVIDIA H200", "nvmlSystemGetDriverVersion": b"580.159.04"}


def card(monkeypatch: pytest.MonkeyPatch, library: Library, uuid: str = "1234") -> Card:
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda name: library)
    return Card(uuid)


def test_a_reading_has_clocks_temperature_power_reasons_and_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    made = card(monkeypatch, library)
    assert library.asked == [b"GPU-1234"]
    assert (made.name(), made.driver()) == ("NVIDIA H200", "580.159.04")
    state = made.state(ours={71})
    assert (state.sm_mhz, state.memory_mhz, state.temperature_c, state.power_w) == (1980, 3201, 41, 512.5)
    assert (state.throttle, state.others) == (0x4, 1)
    assert state.at_ns > 0


def test_what_a_driver_does_not_support_reads_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(
        missing=("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetPowerUsage"),
        failing=("nvmlDeviceGetTemperature",),
    )
    state = card(monkeypatch, library).state(ours=())
    assert (state.power_w, state.temperature_c, state.others, state.sm_mhz) == (0.0, 0, 0, 1980)


def test_a_card_that_cannot_be_asked_says_which_call_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="nvmlInit_v2 failed with NVML status 3"):
        card(monkeypatch, Library(failing=("nvmlInit_v2",)))

    def refuses(name: str) -> Any:
        raise OSError("no such file")

    monkeypatch.setattr(nvml.ctypes, "CDLL", refuses)
    with pytest.raises(Unavailable, match="NVML cannot be loaded"):
        Card("1")


def test_a_card_is_read_from_entry_to_exit_and_summed_up() -> None:
    enough = threading.Event()

    class Pretended:
        def __init__(self) -> None:
            self.read = 0

        def name(self) -> str:
            return "a card"

        def driver(self) -> str:
            return "1"

        def state(self, ours: Any) -> CardState:
            self.read += 1
            if self.read == 3:
                enough.set()
            return CardState(self.read, 1900 + self.read, 3201, 40, 300.0, 0x40, 0)

    pretended: Any = Pretended()
    with Sampler(lambda: pretended) as sampler:
        assert enough.wait(10)
    summary = sampler.summary()
    assert summary.readings == len(sampler.states) >= 3
    assert (summary.name, summary.driver, summary.sm_mhz[0]) == ("a card", "1", 1901)
    assert summary.throttle == {"thermal (hardware)": 1.0}
