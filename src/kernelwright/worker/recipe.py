"""Inputs as a recipe: the tensor operations that ``get_inputs()`` ran, as data, to be run again from the same seed.

Why: at full size one input may have 8.6 GB; made on the CPU it takes half a minute and crosses two process borders, on
a GPU's own generator it takes ten milliseconds. The candidate's process must have the same inputs and must not have the
problem's code, so it gets the list of operations and draws them itself. The rule: nothing foreign is run by reading a
recipe, only ATen operators by name; what ``get_inputs()`` does beyond them (a file, numpy's arrays, another device)
ends in :class:`NoRecipe`, and its inputs are made once on the CPU and handed over.

The generator of a GPU is not the CPU's, so the numbers are others than on the CPU and of the same distribution, which
is all that ``get_inputs()`` promises: fresh numbers each time it is called.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from kernelwright.judge.eager import EagerMode
from kernelwright.worker.seeds import seed_all
from kernelwright.worker.tree import map_tensors, pack, unpack

MOST_STEPS = 500
"""Beyond that a loop fills small tensors one by one: it is not what takes long, and its list would be."""
MOST_CONSTANT_BYTES = 64 << 10
"""Of one tensor that is written down with its values, such as ``torch.tensor([1, 2, 3])``."""

Json = Any


class NoRecipe(Exception):
    """``get_inputs()`` does something that a list of tensor operations cannot tell; the message says what."""


@dataclass(frozen=True)
class Recipe:
    """The operations in order, and the inputs made of their results. Plain data: it crosses to another process."""

    device: str
    seed: int
    steps: list[Json]
    """``[operator, arguments, keywords, numbers of its results]``."""
    inputs: Json
    """The nested value, its tensors by their place in ``tensors``."""
    tensors: list[int]
    """Numbers of the results that the inputs are."""


def drawn(get_inputs: Callable[[], Any], *, device: str, seed: int) -> Recipe:
    """The recipe of what ``get_inputs()`` makes from ``seed`` where ``device`` is torch's default.

    Raises ``NoRecipe``; what the problem's code raises passes through.
    """
    seed_all(seed)
    with torch.device(device), _Recorder(device) as recorder:
        values = get_inputs()
    if not isinstance(values, (list, tuple)):
        raise NoRecipe(f"it returned a {type(values).__name__}")
    tensors: list[torch.Tensor] = []
    packed = pack(list(values), tensors)
    numbers = [recorder.number(tensor) for tensor in tensors]
    recipe = Recipe(device, seed, recorder.steps, packed, numbers)
    again = replayed(recipe)
    mine: list[torch.Tensor] = []
    pack(again, mine)
    for own, theirs in zip(mine, tensors, strict=True):
        if not _alike(own, theirs):
            raise NoRecipe("run again it gives other inputs")
    return recipe


def replayed(recipe: Recipe) -> list[Any]:
    """The inputs. Seeds every generator on the way."""
    seed_all(recipe.seed)
    last = _last_uses(recipe)
    made: dict[int, torch.Tensor] = {}
    with torch.no_grad():
        for place, (name, args, kwargs, results) in enumerate(recipe.steps):
            out = _operator(name)(*_read(args, made), **_read(kwargs, made))
            given = out if isinstance(out, (list, tuple)) else (out,)
            tensors = [item for item in given if isinstance(item, torch.Tensor)]
            made.update(zip(results, tensors, strict=True))
            for number in last.get(place, ()):
                made.pop(number, None)
    values: list[Any] = unpack(recipe.inputs, [made[number] for number in recipe.tensors])
    return values


def _last_uses(recipe: Recipe) -> dict[int, list[int]]:
    """For each step the results that nothing after it needs: memory is for inputs, not for what they were made of."""
    last: dict[int, int] = {}
    for place, (_, args, kwargs, results) in enumerate(recipe.steps):
        for number in (*results, *_numbers(args), *_numbers(kwargs)):
            last[number] = place
    ends: dict[int, list[int]] = {}
    for number, place in last.items():
        if number not in recipe.tensors:
            ends.setdefault(place, []).append(number)
    return ends


class _Recorder(EagerMode):
    """Writes down each operation of one call."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.steps: list[Json] = []
        self._device = torch.device(device)
        self._numbers = WeakTensorKeyDictionary()
        self._count = 0

    def number(self, tensor: torch.Tensor) -> int:
        """The number of a result. Raises ``NoRecipe`` for a tensor that no operation made."""
        found = self._known(tensor)
        if found is None:
            raise NoRecipe("an input was made outside of get_inputs()")
        if tensor.device != self._device:
            raise NoRecipe(f"an input is on {tensor.device}")
        return found

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        given = out if isinstance(out, (list, tuple)) else (out,)
        tensors = [item for item in given if isinstance(item, torch.Tensor)]
        if not tensors and not func._schema.is_mutable:
            # A number read off a tensor: what follows from it is written down as it came.
            return out
        if len(self.steps) >= MOST_STEPS:
            raise NoRecipe(f"it takes more than {MOST_STEPS} operations")
        named = dict(kwargs or {})
        for argument in func._schema.arguments:
            # What defaults would decide is the process's to change: say it.
            if argument.name == "dtype" and argument.kwarg_only and tensors and named.get("dtype") is None:
                named["dtype"] = tensors[0].dtype
        step = [str(func), self._written(list(args)), self._written(named)]
        results = []
        for tensor in tensors:
            if tensor not in self._numbers:
                self._numbers[tensor] = self._count
                self._count += 1
            results.append(self._numbers[tensor])
        self.steps.append([*step, results])
        return out

    def _known(self, tensor: torch.Tensor) -> int | None:
        return int(self._numbers[tensor]) if tensor in self._numbers else None

    def _written(self, value: Any) -> Json:
        if isinstance(value, torch.Tensor):
            number = self._known(value)
            return {"result": number} if number is not None else {"constant": _constant(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, (list, tuple)):
            return [self._written(item) for item in value]
        if isinstance(value, dict):
            return {"named": {str(key): self._written(item) for key, item in value.items()}}
        for kind in (torch.dtype, torch.layout, torch.memory_format):
            if isinstance(value, kind):
                return {"torch": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        raise NoRecipe(f"an operation takes a {type(value).__name__}")


def _constant(tensor: torch.Tensor) -> Json:
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        raise NoRecipe("an operation takes a tensor of an odd kind that was made before")
    if tensor.numel() * tensor.element_size() > MOST_CONSTANT_BYTES:
        raise NoRecipe("an operation takes a large tensor that none made, such as an array of numpy's")
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return {
        "bytes": base64.b64encode(bytes(raw.tolist())).decode(),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "device": str(tensor.device),
    }


def _read(value: Json, made: dict[int, torch.Tensor]) -> Any:
    """An argument as it was."""
    if isinstance(value, list):
        return [_read(item, made) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, body),) = value.items()
    if kind == "result":
        return made[body]
    if kind == "constant":
        raw = torch.frombuffer(bytearray(base64.b64decode(body["bytes"])) or bytearray(1), dtype=torch.uint8)
        dtype: torch.dtype = getattr(torch, body["dtype"])
        shape = [int(n) for n in body["shape"]]
        whole = raw.view(dtype).reshape(shape) if body["bytes"] else torch.empty(shape, dtype=dtype)
        return whole.to(body["device"])
    if kind == "named":
        return {key: _read(item, made) for key, item in body.items()}
    readers: dict[str, Callable[[Any], Any]] = {
        "complex": lambda pair: complex(*pair),
        "torch": lambda name: getattr(torch, name),
        "device": torch.device,
    }
    return readers[kind](body)


def _numbers(value: Json) -> Iterator[int]:
    """The results that an argument names."""
    if isinstance(value, list):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, dict):
        ((kind, body),) = value.items()
        if kind == "result":
            yield body
        elif kind == "named":
            yield from _numbers(list(body.values()))


def _operator(name: str) -> Any:
    """``aten.rand.default``. Raises ``ValueError`` for what is no ATen operator."""
    space, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    if space != "aten":
        raise ValueError(f"a recipe holds {name!r:.60}, which is no operator of ATen")
    return getattr(getattr(torch.ops.aten, packet), overload)


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal in form and bit for bit."""
    form = (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
    return form and checksums([one]) == checksums([other])


def checksums(value: Any) -> list[int]:
    """A checksum of each tensor of a nested value, computed where the tensor is."""
    from kernelwright.worker.parameters import checksum

    found: list[int] = []
    map_tensors(value, lambda tensor: found.append(checksum(tensor)))
    return found
