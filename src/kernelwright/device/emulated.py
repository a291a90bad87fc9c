"""The emulated device behind the worker's protocol.

The rule: everything is in :mod:`kernelwright.emulate.device`; this only fits it to the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.device.specs import spec
from kernelwright.errors import InternalError
from kernelwright.records import DeviceFact, Finding, LaunchFact

if TYPE_CHECKING:
    import torch

    from kernelwright.emulate.device import EmulatedDevice


class Emulated:
    """``cuda:0`` on the CPU, presenting one data sheet."""

    def __init__(self, presents_as: str = "h200", *, memory_limit_bytes: int | None = None) -> None:
        self._spec = spec(presents_as)
        self._memory_limit_bytes = memory_limit_bytes
        self._device: EmulatedDevice | None = None

    @property
    def device(self) -> EmulatedDevice:
        """The installed device; for the build, which provides PTX to it."""
        if self._device is None:
            raise InternalError("the device is asked before prepare()")
        return self._device

    def prepare(self) -> None:
        """Installs the device in this process, for good."""
        from kernelwright.emulate.device import install

        self._device = install(self._spec, memory_limit_bytes=self._memory_limit_bytes)

    def to_device(self, tensor: torch.Tensor, *, name: str) -> torch.Tensor:
        """Shares the tensor's memory."""
        return self.device.wrap(tensor, name=name)

    def synchronize(self) -> None:
        """Work is done already; raises for a fault of an earlier kernel."""
        self.device.synchronize()

    def launches(self) -> tuple[LaunchFact, ...]:
        """Equal launches from one line are one fact with a count."""
        return tuple(self.device.launches)

    def findings(self) -> tuple[Finding, ...]:
        """In order of occurrence."""
        return tuple(self.device.findings)

    def printed(self) -> str:
        """What kernels printed."""
        return self.device.printed

    def fault(self) -> Exception | None:
        """What could not be emulated."""
        return self.device.fault

    def fact(self) -> DeviceFact:
        """The presented data sheet, and how faithfully instructions ran."""
        return self.device.fact() if self._device else DeviceFact("emulated", self._spec.name, "", self._spec.key)
