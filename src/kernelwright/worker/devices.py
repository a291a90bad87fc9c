"""The three places a candidate's tensors can be, behind one set of verbs.

Why: a run reads the same whether the device is emulated, a GPU, or the host alone. The rule: opened only inside a
candidate process; ``cuda`` makes its context here and nowhere else. ``host`` has no GPU at all: it serves candidates in
plain PyTorch, and tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernelwright.errors import MachineError
from kernelwright.records import DeviceFact, to_json
from kernelwright.worker.memory import Mapped

Event = Callable[[dict[str, Any]], None]
"""Sends a fact to the supervisor at once, so that it survives a crash."""


@dataclass(frozen=True)
class Opening:
    """What a device needs to know to open."""

    candidate_file: str
    candidate_text: str
    presents_as: str
    memory_bytes: int | None
    send: Event


class Device(Protocol):
    """What a run asks of a device."""

    place: str
    """``cpu`` | ``cuda:0``: where inputs lie, as torch writes it."""

    def to_device(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """``tensor`` (on the CPU) on the device; not copied where the device can share it."""

    def module(self, module: Any) -> Any:
        """A module with its parameters and buffers on the device."""

    def changed(self, mapped: Mapped, on_device: torch.Tensor) -> bool:
        """Whether the candidate changed this input."""

    def synchronize(self) -> None:
        """Wait for all work; raises what the work ran into."""

    def fact(self) -> DeviceFact:
        """What it is."""

    def flush(self) -> None:
        """Send what it saw since the last time."""


class Host:
    """No GPU: tensors stay where they are."""

    place = "cpu"

    def __init__(self, opening: Opening) -> None:
        self.opening = opening

    def to_device(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        return tensor

    def module(self, module: Any) -> Any:
        return module

    def changed(self, mapped: Mapped, on_device: torch.Tensor) -> bool:
        return mapped.changed()

    def synchronize(self) -> None:
        """Host work is done when it returns."""

    def fact(self) -> DeviceFact:
        return DeviceFact("host", "CPU", "")

    def flush(self) -> None:
        """Nothing is seen."""


class Cuda(Host):
    """An NVIDIA GPU through PyTorch."""

    place = "cuda:0"

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        if not torch.cuda.is_available():
            raise MachineError("PyTorch sees no GPU on this machine", hint="--device emulated needs none")
        major, minor = torch.cuda.get_device_capability(0)
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
        from kernelwright import build

        build.install(_build_context(opening, device=None, arch=f"sm_{major}{minor}"))

    def to_device(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        return tensor.to(self.place)

    def module(self, module: Any) -> Any:
        return module.to(self.place) if isinstance(module, torch.nn.Module) else module

    def changed(self, mapped: Mapped, on_device: torch.Tensor) -> bool:
        if on_device.shape != mapped.tensor.shape:
            return True
        original, theirs = (t if t.dim() else t.reshape(1) for t in (mapped.tensor, on_device))
        # Rows of 64 MB: a whole second copy of the input may not fit on the GPU.
        rows = max(1, (64 << 20) // max(1, original[:1].numel() * original.element_size()))
        pairs = zip(torch.split(original, rows), torch.split(theirs, rows), strict=True)
        return not all(_same_bits(mine.to(self.place), part) for mine, part in pairs)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def fact(self) -> DeviceFact:
        major, minor = torch.cuda.get_device_capability(0)
        return DeviceFact("cuda", torch.cuda.get_device_name(0), f"{major}.{minor}")


class Emulated(Host):
    """The emulated device: a ``cuda:0`` whose addresses are host addresses, so inputs are shared, not copied."""

    place = "cuda:0"

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        from kernelwright import build
        from kernelwright.device.specs import spec
        from kernelwright.emulate import device as emulated

        self.device = emulated.install(spec(opening.presents_as), memory_limit_bytes=opening.memory_bytes)
        self._sent = {"findings": 0, "launches": 0}
        self.device.on_launch = self._on_launch
        build.install(_build_context(opening, device=self.device, arch="sm_80"))

    def to_device(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        wrapped: torch.Tensor = self.device.wrap(tensor, name=name)
        return wrapped

    def module(self, module: Any) -> Any:
        return module.to(self.place) if isinstance(module, torch.nn.Module) else module

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def fact(self) -> DeviceFact:
        described: DeviceFact = self.device.fact()
        return described

    def flush(self) -> None:
        for kind, seen in (("findings", self.device.findings), ("launches", self.device.launches)):
            fresh = list(seen)[self._sent[kind] :]
            self._sent[kind] += len(fresh)
            if fresh:
                self.opening.send({kind: to_json(fresh)})

    def _on_launch(self, fact: Any) -> None:
        self.flush()
        shape = f"<<<{_triple(fact.grid)}, {_triple(fact.block)}>>>"
        self.opening.send({"during": f"kernel {fact.kernel}{shape}"})


DEVICES: dict[str, Callable[[Opening], Device]] = {"host": Host, "cuda": Cuda, "emulated": Emulated}


def _build_context(opening: Opening, *, device: Any, arch: str) -> Any:
    from kernelwright.build import BuildContext

    return BuildContext(
        candidate_file=opening.candidate_file,
        candidate_text=opening.candidate_text,
        device=device,
        arch=arch,
        on_record=lambda record: opening.send({"build": to_json(record)}),
        on_confirm_request=lambda request: opening.send({"confirm": to_json(request)}),
    )


def _triple(numbers: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, numbers)) + ")"


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal, with NaN equal to NaN."""
    if one.is_floating_point() or one.is_complex():
        return bool(((one == other) | (one.isnan() & other.isnan())).all())
    return torch.equal(one, other)
