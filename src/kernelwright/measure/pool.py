"""Inputs for timed runs: new contents for every run, in a few sets of tensors whose addresses rotate.

Why: a candidate that is timed on one input again and again may remember its answer, by address or by content, and finds
its data in the cache. The rule: before each run one set is refilled, on the device and outside the timed span, with
contents that no earlier run saw; contents are named by a number and can be made again to check that run's output.

How contents are made: where ``get_inputs()`` draws with torch's factory functions, it is called anew with the device
as torch's default, so the generator runs on the GPU and the distribution is the problem's own. Where it is slow or does
not run that way, it is called once, and floating-point contents are scaled by a little less than one each time: zeros,
triangles and ranges stay what they are.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch

from kernelwright.worker.tree import leaves, map_tensors

SETS = 3
SLOW_SECONDS = 0.05
"""Drawing anew for each run may take this long."""
SHARE_OF_MEMORY = 0.5
"""Of the device's free memory, for the sets and one more."""
SCALES = 61
"""Different factors below one; a prime, so that it shares no period with the number of sets."""


class Pool:
    """Input sets on ``device``. ``sets`` and ``how`` say what it came to."""

    def __init__(self, get_inputs: Callable[[], Any], *, seed: int, device: str = "cuda:0") -> None:
        self._get, self._seed, self._device = get_inputs, seed, torch.device(device)
        # Looked up now: a candidate that replaces one later would make contents come twice.
        self._seeders = (torch.manual_seed, random.seed, numpy.random.seed)
        self._base: list[Any] | None = None
        first = self._first()
        size = sum(_bytes(tensor) for tensor in tensors(first))
        room = _free_bytes(self._device) * SHARE_OF_MEMORY
        self.sets = max(1, min(SETS, int(room // max(size, 1)) - 1))
        self._sets: list[list[Any] | None] = [first, *([None] * (self.sets - 1))]
        changing = any(tensor.is_floating_point() for tensor in tensors(first))
        self.how = (
            f"drawn anew on the device for each run, {self.sets} rotating sets"
            if self._base is None
            else f"made once, scaled anew for each run, {self.sets} rotating sets"
            if changing
            else f"made once, unchanged: they hold no floating-point numbers; {self.sets} rotating sets"
        )

    def take(self, number: int) -> list[Any]:
        """The inputs of run ``number``, in the set whose turn it is."""
        index = number % self.sets
        fresh = self.contents(number)
        old = self._sets[index]
        self._sets[index] = fresh if old is None else _refilled(old, fresh)
        return list(self._sets[index] or [])

    def contents(self, number: int) -> list[Any]:
        """The contents of run ``number`` once more, in tensors of their own."""
        if self._base is None:
            return self._drawn(self._seed + number)
        factor = 1 - (number % SCALES + 1) / 1024
        scaled: list[Any] = map_tensors(
            self._base, lambda t: t * factor if t.is_floating_point() or t.is_complex() else t.clone()
        )
        return scaled

    def _first(self) -> list[Any]:
        """The first set; decides whether to draw each time."""
        try:
            self._drawn(self._seed)
            _wait(self._device)
            started = time.perf_counter()
            first = self._drawn(self._seed)
            _wait(self._device)
            if time.perf_counter() - started <= SLOW_SECONDS:
                return first
        # Whatever the problem's code raises when torch's default device is the GPU: it was not written for that.
        except Exception:
            first = self._made(self._seed, None)
        self._base = first
        return self.contents(0)

    def _drawn(self, seed: int) -> list[Any]:
        return self._made(seed, self._device)

    def _made(self, seed: int, default: torch.device | None) -> list[Any]:
        for seed_one in self._seeders:
            seed_one(seed % (1 << 32))
        if default is None:
            values = self._get()
        else:
            with default:
                values = self._get()
        moved: list[Any] = map_tensors(list(values), lambda t: t.detach().to(self._device))
        return moved


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested value, in order."""
    return [leaf for _, leaf in leaves(value, "") if isinstance(leaf, torch.Tensor)]


def _refilled(old: list[Any], fresh: list[Any]) -> list[Any]:
    """``fresh`` with each tensor's contents copied into the old set's tensor where that fits."""
    theirs = iter(tensors(old))

    def refill(tensor: torch.Tensor) -> torch.Tensor:
        target = next(theirs, None)
        fits = (
            target is not None
            and target.shape == tensor.shape
            and target.dtype == tensor.dtype
            and target.stride() == tensor.stride()
            # Overlapping memory, as of an expanded tensor, cannot be copied into.
            and all(step != 0 for size, step in zip(target.shape, target.stride(), strict=True) if size > 1)
        )
        if target is None or not fits:
            return tensor
        return target.copy_(tensor)

    return list(map_tensors(fresh, refill))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def _free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 1 << 30


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
