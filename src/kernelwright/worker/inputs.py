"""One trial's inputs in one process: drawn there from a recipe, or mapped from memory files that came over.

Why: both processes ask the same of inputs, wherever they came from: the values, which of them a forward pass changed,
and the values once more as they were. The rule: whoever holds them tells changes by content, never by trust; two
processes that drew the same recipe compare checksums before anything runs on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

import torch

from kernelwright.worker import memory
from kernelwright.worker.parameters import checksum
from kernelwright.worker.recipe import Recipe, replayed
from kernelwright.worker.tree import pack, unpack

Put = Callable[[torch.Tensor, int], torch.Tensor]
"""Places a tensor of the host, of that number, where the process computes."""


class Inputs(Protocol):
    """What a process asks of a trial's inputs."""

    values: list[Any]
    how: str

    def sums(self) -> list[int]:
        """A checksum of each tensor as it was given."""

    def changed(self) -> list[int]:
        """Numbers of the tensors that no longer hold what they held."""

    def renewed(self) -> list[Any]:
        """The values once more, as they were."""

    def on_host(self) -> Inputs:
        """The same on the CPU; these are let go of."""

    def close(self) -> None:
        """Let go of everything."""


class Drawn:
    """Inputs that this process drew itself."""

    how = "drawn on the device from the trial's seed"

    def __init__(self, recipe: Recipe, put: Put | None = None) -> None:
        self._recipe, self._put = recipe, put
        self.values = self.renewed()
        self._held: list[torch.Tensor] = []
        pack(self.values, self._held)
        self._sums = [checksum(tensor) for tensor in self._held]

    @property
    def bytes(self) -> int:
        """Of the tensors' elements."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._held)

    def sums(self) -> list[int]:
        """A checksum of each tensor as it was drawn."""
        return self._sums

    def changed(self) -> list[int]:
        """Numbers of the tensors whose checksum is another one now."""
        now = [checksum(tensor) for tensor in self._held]
        return [number for number, (a, b) in enumerate(zip(self._sums, now, strict=True)) if a != b]

    def renewed(self) -> list[Any]:
        """Drawn again from the same seed."""
        values = replayed(self._recipe)
        if self._put is None:
            return values
        tensors: list[torch.Tensor] = []
        packed = pack(values, tensors)
        placed: list[Any] = unpack(packed, [self._put(tensor, number) for number, tensor in enumerate(tensors)])
        return placed

    def on_host(self) -> Inputs:
        """Drawn again where they were, and copied."""
        self.close()
        return Drawn(self._recipe, put_on("cpu"))

    def close(self) -> None:
        """Drop the tensors."""
        self.values, self._held = [], []


class Handed:
    """Inputs in memory files; takes over the descriptors.

    ``copies`` says that ``put`` copies them away: then only contents tell a change, else the kernel, page by page.
    """

    how = "made by get_inputs() on the CPU"

    def __init__(
        self, packed: Any, mapped: list[memory.Mapped], put: Put | None = None, *, copies: bool = False
    ) -> None:
        self._packed, self._mapped, self._put, self._copies = packed, mapped, put, copies
        self._placed = self._place(mapped)
        self.values: list[Any] = unpack(packed, self._placed)
        self._sums = [checksum(tensor) for tensor in self._placed] if copies else []

    def _place(self, mapped: list[memory.Mapped]) -> list[torch.Tensor]:
        if self._put is None:
            return [item.tensor for item in mapped]
        return [self._put(item.tensor, number) for number, item in enumerate(mapped)]

    def sums(self) -> list[int]:
        """Nothing was drawn that would have to agree."""
        return []

    def changed(self) -> list[int]:
        """Numbers of the tensors that this process wrote to."""
        if not self._copies:
            return [number for number, item in enumerate(self._mapped) if item.changed()]
        now = [checksum(tensor) for tensor in self._placed]
        return [number for number, (a, b) in enumerate(zip(self._sums, now, strict=True)) if a != b]

    def renewed(self) -> list[Any]:
        """Mapped again."""
        fresh = [memory.attach(os.dup(item.fd), item.spec) for item in self._mapped]
        self.close()
        self._mapped = fresh
        self._placed = self._place(fresh)
        values: list[Any] = unpack(self._packed, self._placed)
        return values

    def on_host(self) -> Inputs:
        """Mapped again, and not copied."""
        fresh = [memory.attach(os.dup(item.fd), item.spec) for item in self._mapped]
        self.close()
        return Handed(self._packed, fresh)

    def close(self) -> None:
        """Close the files; mapped memory goes with the last tensor on it."""
        for item in self._mapped:
            item.close()
        self._mapped, self._placed, self.values = [], [], []


def put_on(device: str) -> Put:
    """Copies to ``device``; strides are kept, also those that make elements share memory."""

    def put(tensor: torch.Tensor, number: int) -> torch.Tensor:
        return copied(tensor, device)

    return put


def copied(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """``tensor`` on ``device`` with its strides. Copies the memory that they reach, once."""
    if tensor.layout != torch.strided or not tensor.numel():
        return tensor.to(device)
    size = memory.extent_bytes(tensor) // tensor.element_size()
    flat = tensor.as_strided((size,), (1,))
    return flat.to(device).as_strided(tensor.shape, tensor.stride())
