"""The card's state while something is timed: clocks, throttle reasons, temperature, power, other processes.

Why: a median means nothing if the card slowed down or was shared meanwhile. The rule: read through NVML by ctypes, from
the supervising process, where no candidate can reach it; nothing is ever set. Where NVML is not there, the summary says
so and nothing is made up.

Source of names, structures and bits: nvml.h of CUDA 13.0.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Callable, Collection, Sequence
from types import TracebackType

from kernelwright.measure.records import CardState, CardSummary

EVERY_SECONDS = 0.02
"""NVML's own figures are renewed every 10 to 100 ms."""

THROTTLE_REASONS: dict[int, str] = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slow-down",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake (hardware)",
    0x100: "display clocks",
}
"""NVML's clock event reasons, bit to name."""
HARMFUL = 0x8 | 0x20 | 0x40 | 0x80
"""Reasons that make a sample unusable. A power cap is not among them: matrix products always run into it."""

_SM, _MEMORY = 1, 2
_TEMPERATURE_GPU = 0
_MOST_PROCESSES = 64


class Unavailable(Exception):
    """NVML or the device cannot be asked; the message says why."""


class _Process(ctypes.Structure):
    """nvmlProcessInfo_v2_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Card:
    """One GPU, by its UUID (``GPU-…``, as torch gives it, with or without the prefix)."""

    def __init__(self, uuid: str) -> None:
        try:
            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise Unavailable(f"NVML cannot be loaded: {error}") from None
        self._ask("nvmlInit_v2")
        self._handle = ctypes.c_void_p()
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._ask("nvmlDeviceGetHandleByUUID", name.encode(), ctypes.byref(self._handle))

    def name(self) -> str:
        return self._text("nvmlDeviceGetName", self._handle)

    def driver(self) -> str:
        return self._text("nvmlSystemGetDriverVersion")

    def state(self, ours: Collection[int]) -> CardState:
        """A reading now; processes in ``ours`` are not counted as others. What NVML does not support reads as 0."""
        at = time.monotonic_ns()
        return CardState(
            at_ns=at,
            sm_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(_SM)),
            memory_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(_MEMORY)),
            temperature_c=self._number("nvmlDeviceGetTemperature", ctypes.c_uint(_TEMPERATURE_GPU)),
            power_w=self._number("nvmlDeviceGetPowerUsage") / 1000,
            throttle=self._long("nvmlDeviceGetCurrentClocksThrottleReasons"),
            others=others(self._processes(), ours),
        )

    def _processes(self) -> list[int]:
        count = ctypes.c_uint(_MOST_PROCESSES)
        found = (_Process * _MOST_PROCESSES)()
        function = getattr(self._nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if function is None or function(self._handle, ctypes.byref(count), found) != 0:
            return []
        return [int(found[index].pid) for index in range(count.value)]

    def _number(self, call: str, *arguments: ctypes.c_uint) -> int:
        value = ctypes.c_uint()
        return int(value.value) if self._status(call, self._handle, *arguments, ctypes.byref(value)) == 0 else 0

    def _long(self, call: str) -> int:
        value = ctypes.c_ulonglong()
        return int(value.value) if self._status(call, self._handle, ctypes.byref(value)) == 0 else 0

    def _text(self, call: str, *arguments: ctypes.c_void_p) -> str:
        buffer = ctypes.create_string_buffer(96)
        return buffer.value.decode() if self._status(call, *arguments, buffer, ctypes.c_uint(96)) == 0 else ""

    def _status(self, call: str, *arguments: object) -> int:
        function = getattr(self._nvml, call, None)
        return 1 if function is None else int(function(*arguments))

    def _ask(self, call: str, *arguments: object) -> None:
        status = self._status(call, *arguments)
        if status != 0:
            raise Unavailable(f"{call} failed with NVML status {status}")


def others(running: Collection[int], ours: Collection[int]) -> int:
    """How many of the processes on the card are not ``ours``.

    In a container the driver tells the host's numbers, which name none of ours: then as many as ours are ours all the
    same.
    """
    strangers = [pid for pid in running if pid not in ours]
    if len(strangers) == len(running):
        return max(0, len(strangers) - len(ours))
    return len(strangers)


class Sampler:
    """Reads the card in a thread from entry to exit. ``open_card`` may fail with ``Unavailable``; that is kept."""

    def __init__(self, open_card: Callable[[], Card], ours: Collection[int] = ()) -> None:
        self.states: list[CardState] = []
        self._open, self._ours = open_card, ours
        self._name = self._driver = self._note = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            card = self._open()
        except Unavailable as error:
            self._note = str(error)
            return
        self._name, self._driver = card.name(), card.driver()
        while not self._stop.wait(EVERY_SECONDS):
            self.states.append(card.state(self._ours))

    def summary(self) -> CardSummary:
        """The readings so far in figures."""
        return summarise(self.states, name=self._name, driver=self._driver, note=self._note)


def summarise(states: Sequence[CardState], *, name: str, driver: str, note: str = "") -> CardSummary:
    """Figures of a run's readings."""
    if not states:
        return CardSummary(name, driver, 0, (0, 0, 0), 0, (0, 0), (0.0, 0.0), note=note or "no reading was taken")
    clocks = [state.sm_mhz for state in states]
    shares = {
        reason: sum(bool(state.throttle & bit) for state in states) / len(states)
        for bit, reason in THROTTLE_REASONS.items()
    }
    return CardSummary(
        name=name,
        driver=driver,
        readings=len(states),
        sm_mhz=(min(clocks), int(statistics.median(clocks)), max(clocks)),
        memory_mhz=int(statistics.median(state.memory_mhz for state in states)),
        temperature_c=(min(s.temperature_c for s in states), max(s.temperature_c for s in states)),
        power_w=(statistics.median(s.power_w for s in states), max(s.power_w for s in states)),
        throttle={reason: share for reason, share in shares.items() if share},
        others=max(state.others for state in states),
        note=note,
    )
