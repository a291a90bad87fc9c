"""Says which variant the gallery chooses for a shape on a device and why, without running or compiling anything.

Why: a choice that cannot be asked about cannot be doubted. The rule: the answer comes from the very functions that
choose at run time, and a reason names the measurement, or says that there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelwright.device.specs import DeviceSpec, spec
from kernelwright.errors import UsageError
from kernelwright.gallery import _tables
from kernelwright.gallery.kernels import linear, matvec, softmax

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
SHAPES = {"matvec": "M K", "softmax": "M N", "linear": "M N K", "linear_gelu_softmax": "M N K"}


class BadShape(UsageError):
    """A shape or dtype that does not belong to the kernel."""

    message = "{name} takes the shape {wanted} in {dtypes}, got {shape} in {dtype}"


def dtypes_of(name: str) -> tuple[str, ...]:
    """What kernel ``name`` takes."""
    return tuple(ITEM_BYTES) if name in ("matvec", "softmax") else ("float32",)


@dataclass(frozen=True)
class Choice:
    """One kernel that would be launched, and why this one."""

    kernel: str
    """The gallery's file that it is in."""
    variant: str
    plan: str
    """Variant and parameters, as a sentence."""
    why: str


def choices(name: str, shape: tuple[int, ...], *, dtype: str, transposed: bool, device: str) -> tuple[Choice, ...]:
    """What runs for kernel ``name`` at ``shape`` (contiguous, aligned) on ``device``, one after another.

    Raises ``BadShape`` or ``UnknownDevice``.
    """
    dtypes = dtypes_of(name)
    if len(shape) != len(SHAPES[name].split()) or dtype not in dtypes or min(shape) < 1:
        raise BadShape(
            name=name, wanted=SHAPES[name], dtypes=", ".join(dtypes), shape=" ".join(map(str, shape)), dtype=dtype
        )
    _tables.install()
    facts = spec(device)
    if name == "matvec":
        return (_matvec(shape[0], shape[1], ITEM_BYTES[dtype], transposed, facts),)
    if name == "softmax":
        return (_softmax(shape[0], shape[1], ITEM_BYTES[dtype], True, facts),)
    M, N, K = shape
    hopper = facts.compute_capability == (9, 0)
    plan = linear.choose(M, N, K, facts.multiprocessors, hopper, facts.name)
    row = linear.measured(M, N, K, facts.name)
    first = Choice("linear", linear.VARIANTS[plan.variant], str(plan), _why("linear", row, facts))
    return (first,) if name == "linear" else (first, _softmax(M, N, 4, False, facts))


def _matvec(M: int, K: int, itemsize: int, transposed: bool, facts: DeviceSpec) -> Choice:
    hopper, aligned = facts.compute_capability == (9, 0), (M if transposed else K) * itemsize % 16 == 0
    plan = matvec.choose(M, K, itemsize, aligned, transposed, facts.multiprocessors, hopper, facts.name)
    row = matvec.measured(M, K, itemsize, transposed, aligned, facts.name)
    return Choice("matvec", matvec.VARIANTS[plan.variant], str(plan), _why("matvec", row, facts))


def _softmax(M: int, N: int, itemsize: int, plain: bool, facts: DeviceSpec) -> Choice:
    hopper, aligned = facts.compute_capability == (9, 0), softmax.ROWS if N * itemsize % 16 == 0 else softmax.WHOLE
    plan = softmax.choose(M, N, itemsize, aligned, hopper, False, plain, facts.name)
    row = softmax.measured(M, N, itemsize, False, facts.name)
    return Choice("softmax", softmax.VARIANTS[plan.variant], str(plan), _why("softmax", row, facts))


def _why(kernel: str, row: tuple[Any, ...] | None, facts: DeviceSpec) -> str:
    """The table's row behind a choice, in words."""
    if row is None:
        return f"the rule: nothing near was measured on {facts.name}"
    table, entry = _tables.entry(kernel, row, facts.name)
    at = {"matvec": row[2:4], "softmax": row[2:4], "linear": row[0:3]}[kernel]
    shape, us = " x ".join(map(str, at)), entry.get("us", {})
    if not table["measured"]:
        return f"not measured on {facts.name}: {table['how']}; from {shape}"
    beside = f", PyTorch {us['torch']:.1f} us" if "torch" in us else ""
    return f"fastest on {table['device']} at {shape}: '{row[-1]}' took {us[row[-1]]:.1f} us{beside}"


def explanation(name: str, shape: tuple[int, ...], *, dtype: str, transposed: bool, device: str) -> str:
    """``choices`` as text: one line a kernel, and its reason below it."""
    found = choices(name, shape, dtype=dtype, transposed=transposed, device=device)
    return "\n".join(f"{choice.plan}\n  {choice.why}" for choice in found)
