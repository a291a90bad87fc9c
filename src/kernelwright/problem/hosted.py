"""A problem that asks for a GPU by name, run on the CPU.

Why: many a ``get_inputs()`` says ``device="cuda"``, and the oracle of a check on the emulated device runs where there
is no GPU; what the values are does not depend on where they lie. The rule: only where tensors are made or moved to
changes; what a tensor says of itself stays true.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Hosted(TorchFunctionMode):
    """Has whatever would be made on, or moved to, a GPU stay on the CPU while it is entered."""

    def enter(self) -> None:
        """Enter it for the rest of the process."""
        self.__enter__()  # type: ignore[no-untyped-call]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            # Moving makes a copy, which may be written to.
            return args[0].clone()
        if func is torch.Tensor.pin_memory:
            return args[0]
        if isinstance(named.get("device"), int):
            named["device"] = "cpu"
        if "pin_memory" in named:
            named["pin_memory"] = False
        return func(*map(_here, args), **{name: _here(value) for name, value in named.items()})


def _here(value: Any) -> Any:
    """The CPU for a GPU, as a device or as the word for one; anything else as it is."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return value


def names_a_gpu(text: str) -> bool:
    """Whether a problem's text may ask for a GPU by name."""
    return "cuda" in text
