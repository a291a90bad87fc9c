"""A dispatch mode that does not load PyTorch's compiler.

Why: PyTorch wraps each mode's handler to keep Dynamo out, and the wrapper imports Dynamo and SymPy: 1.4 s in every
check (torch 2.13). Nothing is compiled in the oracle's process, so there is nothing to keep out.
Remove when: entering a plain ``TorchDispatchMode`` no longer imports ``torch._dynamo``.
"""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class EagerMode(TorchDispatchMode):
    """Base of our modes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
