"""What a problem demands of any implementation: bytes that must be read and written, and flops by dtype.

Why: a limit is only a limit if nobody can do with less. The rule: counted while the reference runs once, never more
than is compulsory: each byte of an input or parameter counts once, only where some operation reads it, and a lookup
(embedding, gather, indexing) counts the rows it takes rather than the table. Flops are those of matrix products,
convolutions and attention, by PyTorch's own formulas (``torch.utils.flop_counter``); elementwise work is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from kernelwright.measure.pool import tensors
from kernelwright.measure.records import Work

aten = torch.ops.aten

_LOOKUPS = frozenset(
    {aten.embedding, aten.index, aten.index_select, aten.gather, aten.take, aten._embedding_bag, aten.take_along_dim}
)
"""Operations that read of their first argument as much as they return."""

_NAMES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
    torch.complex64: "fp32",
    torch.complex128: "fp64",
}

_VECTOR_FLOPS: dict[Any, Callable[..., int]] = {
    aten.mv: lambda args, out: 2 * args[0].numel(),
    aten.addmv: lambda args, out: 2 * args[1].numel(),
    aten.dot: lambda args, out: 2 * args[0].numel(),
    aten.vdot: lambda args, out: 2 * args[0].numel(),
}
"""Products that the registry does not know."""


def count(reference: Callable[[], Any], inputs: Any, parameters: list[torch.Tensor]) -> Work:
    """Run ``reference()`` once and count. ``inputs`` is what it is given, ``parameters`` what its model holds."""
    counter = _Counter([*tensors(inputs), *parameters])
    with torch.no_grad(), counter:
        value = reference()
    given = {tensor.untyped_storage().data_ptr() for tensor in tensors(inputs)}
    written = 0
    for tensor in tensors(value):
        # A view of an input needs no write.
        if tensor.untyped_storage().data_ptr() not in given:
            written += tensor.numel() * tensor.element_size()
    return Work(counter.read_bytes(), written, dict(counter.flops), _note(counter))


def _note(counter: _Counter) -> str:
    if not counter.mixed:
        return ""
    return f"products of {', '.join(sorted(counter.mixed))} are not counted"


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, sources: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: dict[str, int] = {}
        self.mixed: set[str] = set()
        """Dtypes of products that no ceiling is known for."""
        self._whole = {t.untyped_storage().data_ptr(): _reach(t) for t in sources}
        for tensor in sources:
            key = tensor.untyped_storage().data_ptr()
            self._whole[key] = max(self._whole[key], _reach(tensor))
        self._views: dict[int, dict[tuple[Any, ...], int]] = {}

    def read_bytes(self) -> int:
        """Bytes that operations read of the sources: of each storage at most all of it."""
        return sum(min(self._whole[key], sum(views.values())) for key, views in self._views.items())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and keeping Dynamo out costs loading it: 5 s (2.11 and 2.13)."""
        return False

    # Composite operations arrive taken apart, as autograd's key is left on under no_grad(). Asking each operation to
    # decompose itself, as PyTorch's own counter does, is for inference mode only.
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func.overloadpacket
        if not _is_view(func):
            self._note_reads(packet, args, kwargs, out)
        self._note_flops(packet, args, kwargs, out)
        return out

    def _note_reads(self, packet: Any, args: Any, kwargs: Any, out: Any) -> None:
        touched = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        for position, tensor in enumerate(touched):
            key = tensor.untyped_storage().data_ptr()
            if key not in self._whole:
                continue
            size = _reach(tensor)
            if packet in _LOOKUPS and position == 0:
                size = min(size, sum(t.numel() * t.element_size() for t in tensors(out)))
            view = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
            views = self._views.setdefault(key, {})
            views[view] = max(views.get(view, 0), size)

    def _note_flops(self, packet: Any, args: Any, kwargs: Any, out: Any) -> None:
        if packet in flop_registry:
            flops = int(flop_registry[packet](*args, **kwargs, out_val=out))
        elif packet in _VECTOR_FLOPS:
            flops = _VECTOR_FLOPS[packet](args, out)
        else:
            return
        dtype = next(leaf.dtype for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor))
        name = _NAMES.get(dtype)
        if name is None:
            self.mixed.add(str(dtype).removeprefix("torch."))
        else:
            self.flops[name] = self.flops.get(name, 0) + flops


def _is_view(func: Any) -> bool:
    """Whether an operation only looks at memory in another way: some output aliases an input that is not written."""
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


def _reach(tensor: torch.Tensor) -> int:
    """Bytes of distinct elements: broadcast dimensions count once."""
    count = 1
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if step != 0 else min(size, 1)
    return int(count * tensor.element_size())
