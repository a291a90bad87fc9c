"""What a candidate runs on, as the worker sees it: one protocol, an emulated device and a GPU behind it.

Why: the worker must not know which of the two it drives. The rule: whatever differs between them is here and nowhere
else in the worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kernelwright.records import DeviceFact, Finding, LaunchFact

if TYPE_CHECKING:
    import torch


class Device(Protocol):
    """A device in the process that runs a candidate."""

    def prepare(self) -> None:
        """Makes ``torch.device("cuda")`` usable in this process. Called once, before the candidate is imported.

        Raises :class:`kernelwright.errors.MachineError` where that cannot be.
        """

    def to_device(self, tensor: torch.Tensor, *, name: str) -> torch.Tensor:
        """The CPU tensor on the device, of equal shape, strides and dtype; reports call its memory ``name``.

        The device may use the tensor's own memory: hand over a tensor that nobody else needs unchanged.
        """

    def synchronize(self) -> None:
        """Waits for the device; raises torch's error where a kernel failed."""

    def launches(self) -> tuple[LaunchFact, ...]:
        """Every launch so far, where the device can tell; else none."""

    def findings(self) -> tuple[Finding, ...]:
        """What the device saw kernels do wrong, where it looks; else none."""

    def printed(self) -> str:
        """What kernels printed, where it did not go to standard output."""

    def fault(self) -> Exception | None:
        """What the device itself could not do: nothing may be said of the candidate then."""

    def fact(self) -> DeviceFact:
        """What the candidate ran on."""
