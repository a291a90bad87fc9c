"""A device as a run uses it: where tensors are put, whether inputs changed, and what is told to the supervisor.

Why: a run reads the same whether the device is emulated, a GPU, or the host alone. The rule: opened only inside a
candidate process; ``cuda`` makes its context here and nowhere else. ``host`` has no GPU at all: it serves candidates in
plain PyTorch, and tests. What a device is lies in :mod:`kernelwright.device`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernelwright import build
from kernelwright.build import sass, toolchain
from kernelwright.counters.records import KernelCounters
from kernelwright.device import cuda, emulated
from kernelwright.device.checks import watches_races
from kernelwright.emulate import runtime
from kernelwright.records import DeviceFact, LaunchFact, to_json
from kernelwright.worker.inputs import copied

Event = Callable[[dict[str, Any]], None]
"""Sends a fact to the supervisor at once, so that it survives a crash."""

PTX_TARGET = "sm_80"
"""What the emulated device's kernels are compiled for where the candidate chooses nothing."""


@dataclass(frozen=True)
class Opening:
    """What a device needs to know to open."""

    presents_as: str
    memory_bytes: int | None
    send: Event
    checks: str = "all"
    """What the emulated device looks for."""


class Place(Protocol):
    """What a run asks of a device."""

    name: str
    """``cpu`` | ``cuda:0``: where inputs lie, as torch writes it."""
    copies: bool
    """Whether ``to_device`` copies."""

    def expect(self, candidate_file: str, candidate_text: str) -> None:
        """A candidate comes: its extensions are built for this device from now on."""

    def to_device(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """``tensor`` (on the CPU) on the device; not copied where the device can share it."""

    def module(self, module: Any) -> Any:
        """A module with its parameters and buffers on the device."""

    def synchronize(self) -> None:
        """Wait for all work; raises what the work ran into."""

    def fact(self) -> DeviceFact:
        """What it is."""

    def flush(self) -> None:
        """Send what it saw since the last time."""

    def fault(self) -> Exception | None:
        """What the device itself could not do: nothing may be said of the candidate then."""

    def suspicions(self) -> list[Any]:
        """Patterns in the code of the kernels that ran, to be asked for beside a wrong result."""

    def count(self, counted: bool) -> None:
        """Count what kernels do from here on, or no longer; where the device can."""

    def counters(self) -> list[KernelCounters]:
        """What was counted."""

    def interrupt(self) -> None:
        """End the running kernel, where that can be, and have it say where it was. Called on another thread."""


class Host:
    """No GPU: tensors stay where they are."""

    name = "cpu"
    copies = False

    def __init__(self, opening: Opening) -> None:
        self.opening = opening

    def expect(self, candidate_file: str, candidate_text: str) -> None:
        """Nothing is built for a host without a GPU but what PyTorch itself builds."""

    def to_device(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        return tensor

    def module(self, module: Any) -> Any:
        return module.to(self.name) if isinstance(module, torch.nn.Module) else module

    def synchronize(self) -> None:
        """Host work is done when it returns."""

    def fact(self) -> DeviceFact:
        return DeviceFact("host", "CPU", "")

    def flush(self) -> None:
        """Nothing is seen."""

    def fault(self) -> Exception | None:
        return None

    def suspicions(self) -> list[Any]:
        return []

    def count(self, counted: bool) -> None:
        """Nothing can be counted."""

    def counters(self) -> list[KernelCounters]:
        return []

    def interrupt(self) -> None:
        """Nothing that could be interrupted runs."""


class Cuda(Host):
    """An NVIDIA GPU through PyTorch."""

    name = "cuda:0"
    copies = True

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self.device = cuda.Cuda()
        self.device.prepare()
        # What a candidate's first build would import: in a process that waits for one, nobody waits for this.
        importlib.import_module("torch.utils.cpp_extension")
        importlib.import_module("kernelwright.build.gpu")

    def expect(self, candidate_file: str, candidate_text: str) -> None:
        major, minor = torch.cuda.get_device_capability(0)
        arch = f"sm_{major}{minor}"
        build.install(_build_context(self.opening, candidate_file, candidate_text, device=None, arch=arch))

    def to_device(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        return copied(tensor, self.name)

    def synchronize(self) -> None:
        self.device.synchronize()

    def fact(self) -> DeviceFact:
        return self.device.fact()


class Emulated(Host):
    """The emulated device: a ``cuda:0`` whose addresses are host addresses, so inputs are shared, not copied."""

    name = "cuda:0"

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._adapter = emulated.Emulated(opening.presents_as, memory_limit_bytes=opening.memory_bytes)
        self._adapter.prepare()
        self.device = self._adapter.device
        self.device.on_launch = self._on_launch
        self.device.races = watches_races(opening.checks)
        self._sent = {"findings": 0, "observations": 0}
        self._printed = 0

    def expect(self, candidate_file: str, candidate_text: str) -> None:
        context = _build_context(self.opening, candidate_file, candidate_text, device=self.device, arch=PTX_TARGET)
        build.install(context)

    def to_device(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        return self._adapter.to_device(tensor, name=name)

    def synchronize(self) -> None:
        self._adapter.synchronize()

    def fact(self) -> DeviceFact:
        return self._adapter.fact()

    def fault(self) -> Exception | None:
        return self._adapter.fault()

    def suspicions(self) -> list[Any]:
        return list(self.device.suspicions())

    def count(self, counted: bool) -> None:
        self.device.counted = counted

    def counters(self) -> list[KernelCounters]:
        device = self.device
        if not device.counters:
            return []
        sm = device.spec.architecture
        return sass.attached(device.counters, device.ptx, toolchain.find(), sm=sm, registers=device.registers)

    def interrupt(self) -> None:
        runtime.interrupt()

    def flush(self) -> None:
        """Findings as they come; launches whole, since equal ones are counted; kernels' printf to stdout."""
        self._flush_findings()
        if self.device.stopped_at:
            self.opening.send({"stopped_at": to_json(self.device.stopped_at[0])})
        self.opening.send({"launches": to_json(self.device.launches), "device": to_json(self.fact())})
        fresh, self._printed = self.device.printed[self._printed :], len(self.device.printed)
        if fresh:
            sys.stdout.write(fresh)

    def _flush_findings(self) -> None:
        for kind, seen in (("findings", self.device.findings), ("observations", self.device.observations)):
            fresh = seen[self._sent[kind] :]
            self._sent[kind] = len(seen)
            if fresh:
                self.opening.send({kind: to_json(fresh)})

    def _on_launch(self, fact: LaunchFact) -> None:
        self._flush_findings()
        shape = f"<<<{_triple(fact.grid)}, {_triple(fact.block)}>>>"
        self.opening.send({"during": f"kernel {fact.kernel}{shape}"})


DEVICES: dict[str, Callable[[Opening], Place]] = {"host": Host, "cuda": Cuda, "emulated": Emulated}


def _build_context(
    opening: Opening, candidate_file: str, candidate_text: str, *, device: Any, arch: str
) -> build.BuildContext:
    return build.BuildContext(
        candidate_file=candidate_file,
        candidate_text=candidate_text,
        device=device,
        arch=arch,
        on_record=lambda record: opening.send({"build": to_json(record)}),
        on_confirm_request=lambda request: opening.send({"confirm": to_json(request)}),
    )


def _triple(numbers: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, numbers)) + ")"
