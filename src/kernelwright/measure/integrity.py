"""What the clock and the baseline rest on, remembered before any candidate code runs, and compared afterwards.

Why: candidates share the timing process with the baseline, and known exploits replace ``Event.elapsed_time``,
``time.perf_counter``, ``torch.nn.functional`` or a backend's flags (KernelBench PR 161). The rule: names are only
looked up before the candidate is loaded; whatever differs afterwards is named in the record, and no run in which
something differs can end in a win. Hooks below Python are not seen here: the wall clock and the checks of the timed
outputs stand against those.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

_NAMESPACES: tuple[tuple[str, Any], ...] = (
    ("torch", torch),
    ("torch.nn.functional", torch.nn.functional),
    ("torch.Tensor", torch.Tensor),
    ("torch.nn.Module", torch.nn.Module),
    ("torch.cuda", torch.cuda),
    ("torch.cuda.Event", torch.cuda.Event),
    ("torch.cuda.Stream", torch.cuda.Stream),
    ("torch.cuda.CUDAGraph", torch.cuda.CUDAGraph),
    ("torch.autograd.grad_mode.no_grad", torch.no_grad),
    ("torch.linalg", torch.linalg),
    ("torch.special", torch.special),
    ("time", time),
    ("gc", gc),
    ("random", random),
)
_LAYERS = torch.nn.modules
"""Every layer's ``forward`` is remembered, too."""

_LIVELY = frozenset(
    {
        "torch.classes",
        "torch.ops",
        "torch.manual_seed",
        "torch.nn.Module.__init__",
        "torch.nn.Module.__setstate__",
    }
)
"""What PyTorch itself fills or replaces on use; the last three when anything is compiled (2.11, 2.13). None of them is
called by name while a candidate is timed."""


def snapshot() -> dict[str, int]:
    """Name to identity of every function and class that a measurement or a reference may call."""
    return {name: id(value) for name, value in _functions()}


def replaced(before: dict[str, int]) -> tuple[str, ...]:
    """Names whose function is another one now, sorted. New names are no fault; lost ones are."""
    now = snapshot()
    return tuple(sorted(name for name, identity in before.items() if now.get(name) != identity))


def _functions() -> Iterator[tuple[str, Any]]:
    for prefix, space in _NAMESPACES:
        for name, value in _attributes(space).items():
            full = f"{prefix}.{name}"
            # Modules are loaded lazily, and numbers and caches may change; functions and classes may not.
            if full not in _LIVELY and (callable(value) or isinstance(value, (property, staticmethod, classmethod))):
                yield full, value
    for name, layer in list(vars(_LAYERS).items()):
        if isinstance(layer, type) and issubclass(layer, torch.nn.Module) and "forward" in vars(layer):
            yield f"torch.nn.{name}.forward", vars(layer)["forward"]


def _attributes(space: Any) -> dict[str, Any]:
    """A module's names, or a class's with what it inherits: a name set on a class may hide one of its base."""
    if not isinstance(space, type):
        return dict(vars(space))
    found: dict[str, Any] = {}
    for kind in reversed(space.__mro__):
        found.update(vars(kind))
    return found


_SWITCHES: tuple[tuple[str, Callable[[], Any], Callable[[Any], None]], ...] = (
    ("float32 matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (
        "cudnn.allow_tf32",
        lambda: torch.backends.cudnn.allow_tf32,
        lambda on: setattr(torch.backends.cudnn, "allow_tf32", on),
    ),
    ("cudnn.enabled", lambda: torch.backends.cudnn.enabled, lambda on: setattr(torch.backends.cudnn, "enabled", on)),
    (
        "cudnn.benchmark",
        lambda: torch.backends.cudnn.benchmark,
        lambda on: setattr(torch.backends.cudnn, "benchmark", on),
    ),
    (
        "cuda.matmul.allow_fp16_reduced_precision_reduction",
        lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        lambda on: setattr(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", on),
    ),
    (
        "cuda.matmul.allow_bf16_reduced_precision_reduction",
        lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        lambda on: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", on),
    ),
    ("deterministic algorithms", torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    ("default dtype", torch.get_default_dtype, torch.set_default_dtype),
)
"""Global switches that change what a reference computes or how fast: name, how to read it, how to set it."""
_TF32 = {"float32 matmul precision": "high", "cudnn.allow_tf32": True}


class Flags:
    """The switches as they were before the candidate; restored before each run."""

    def __init__(self) -> None:
        self._before = {name: _value(get) for name, get, _ in _SWITCHES}

    def restore(self, *, tf32: bool = False) -> None:
        """Set every switch as it was; with ``tf32`` fp32 products and convolutions may round their inputs to TF32."""
        wanted = {**self._before, **(_TF32 if tf32 else {})}
        for name, get, put in _SWITCHES:
            if _value(get) != wanted[name]:
                put(wanted[name])

    def changed(self) -> tuple[str, ...]:
        """Names of switches that are not as they were."""
        return tuple(name for name, get, _ in _SWITCHES if _value(get) != self._before[name])


def _value(get: Callable[[], Any]) -> Any:
    """A switch's value; PyTorch refuses to tell some once old and new ways of setting them were mixed."""
    try:
        return get()
    except RuntimeError as error:
        return str(error)
