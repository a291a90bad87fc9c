"""Whether the outputs have the reference's form: nesting, number, shape, dtype, device.

Why: a comparison of values needs two tensors of one shape; everything else is a fact of its own. The rule: lists and
tuples are one (problems return either); strides are noted, since callers may depend on them, and do not fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.records import OutputFact
from kernelwright.worker.tree import leaves

SHAPE, DTYPE = "semantic.shape", "semantic.dtype"


@dataclass(frozen=True)
class Leaf:
    """One output of the candidate beside the reference's."""

    name: str
    number: int
    """Its place among the leaves of either."""
    out: torch.Tensor
    reference: torch.Tensor


@dataclass(frozen=True)
class Structure:
    """What can be compared, what cannot, and what is only worth a note."""

    leaves: tuple[Leaf, ...]
    facts: tuple[OutputFact, ...]
    notes: tuple[str, ...]


def match(out: Any, reference: Any, *, devices: list[str], expected_device: str) -> Structure:
    """Pair the leaves of both outputs. ``devices`` are those of the candidate's tensors, in order of its leaves."""
    ours, theirs = list(leaves(out, "output")), list(leaves(reference, "output"))
    facts: list[OutputFact] = []
    notes: list[str] = []
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        message = f"the reference returns {_form(reference)}, the candidate {_form(out)}"
        return Structure((), (OutputFact(SHAPE, "output", message),), ())
    pairs: list[Leaf] = []
    places = iter(devices)
    for number, ((name, mine), (_, right)) in enumerate(zip(ours, theirs, strict=True)):
        place = next(places, expected_device) if isinstance(mine, torch.Tensor) else expected_device
        if isinstance(mine, torch.Tensor) != isinstance(right, torch.Tensor):
            facts.append(OutputFact(SHAPE, name, f"the reference returns {_form(right)}, the candidate {_form(mine)}"))
            continue
        if not isinstance(right, torch.Tensor):
            mine, right = _as_tensor(mine), _as_tensor(right)
            if mine is None or right is None:
                continue
        facts += _facts(name, mine, right, place, expected_device)
        if mine.shape == right.shape:
            pairs.append(Leaf(name, number, mine, right))
            if mine.stride() != right.stride() and mine.numel() > 1:
                notes.append(f"{name} has strides {tuple(mine.stride())}, the reference's {tuple(right.stride())}")
        elif mine.numel() == right.numel():
            # Same elements in another shape: comparing them says whether only the shape is wrong.
            pairs.append(Leaf(name, number, mine.reshape(right.shape), right))
    return Structure(tuple(pairs), tuple(facts), tuple(notes))


def _facts(name: str, mine: torch.Tensor, right: torch.Tensor, place: str, expected: str) -> list[OutputFact]:
    found: list[OutputFact] = []
    if mine.shape != right.shape:
        text = f"{name} has shape {tuple(mine.shape)}, the reference's {tuple(right.shape)}"
        found.append(OutputFact(SHAPE, name, text))
    if mine.dtype != right.dtype:
        short = [str(t.dtype).removeprefix("torch.") for t in (mine, right)]
        found.append(OutputFact(DTYPE, name, f"{name} is {short[0]}, the reference's {short[1]}"))
    if place.partition(":")[0] != expected.partition(":")[0]:
        found.append(OutputFact(DTYPE, name, f"{name} is on {place}, the inputs are on {expected}"))
    return found


def _as_tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, (bool, int, float, complex)):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    return None


def _form(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return f"a dict with the keys {', '.join(map(repr, value))}"
    return "None" if value is None else f"a {type(value).__name__}"
