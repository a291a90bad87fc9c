"""Kernels near the hardware's limit, usable as functions, as candidates for ``check`` and as stand-alone files.

``matvec``, ``softmax``, ``gelu_softmax``, ``linear`` and ``linear_gelu_softmax`` run on an NVIDIA GPU and compile on
first use; ``tune`` measures there which of their plans is fastest. ``names``, ``describe`` and ``export`` need neither
a GPU nor PyTorch, ``explain`` no GPU. Inside torch.compile the functions
are custom operators (``kernelwright::…``), so that a graph keeps them whole. The rule: a kernel's file says what it
can do; nothing here adds to it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.errors import UsageError
from kernelwright.gallery._export import FOLDER, exported

if TYPE_CHECKING:
    import torch

__all__ = [
    "UnknownKernel",
    "describe",
    "explain",
    "explanations",
    "export",
    "forget",
    "gelu_softmax",
    "linear",
    "linear_gelu_softmax",
    "matvec",
    "names",
    "softmax",
    "tune",
]


class UnknownKernel(UsageError):
    """A kernel name that the gallery does not hold."""

    message = "the gallery has no kernel {name!r}"
    advice = "it has: {known}"


def names() -> tuple[str, ...]:
    """The kernels' names, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("[!_]*.py")))


def export(name: str, *, device: str = "") -> str:
    """The text of a stand-alone file with kernel ``name``: a candidate as it is, with no import of Kernelwright.

    ``device``: a data sheet's name (``h200``) or a driver's, whose table of measured choices the file shall hold.
    """
    _known(name)
    if not device:
        return exported(name)
    from kernelwright.device.specs import spec
    from kernelwright.gallery import _tables

    called = spec(device).name
    return exported(name, lambda kernel: _tables.baked(kernel, called))


def describe(name: str) -> str:
    """What kernel ``name`` does, how, and where its limits are: its file's docstring."""
    _known(name)
    return ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())) or ""


def _known(name: str) -> None:
    if name not in names():
        raise UnknownKernel(name=name, known=", ".join(names()))


def explain(name: str, *shape: int, dtype: str = "float32", transposed: bool = False, device: str = "h200") -> str:
    """Which variant of kernel ``name`` runs at ``shape`` on ``device`` and why: two lines a kernel that is launched.

    ``shape``: (M, K) for matvec, (M, N) for softmax, (M, N, K) for linear and linear_gelu_softmax, contiguous and
    aligned.
    """
    from kernelwright.gallery import _explain

    _known(name)
    return _explain.explanation(name, shape, dtype=dtype, transposed=transposed, device=device)


def explanations(
    names: Sequence[str],
    shape: tuple[int, ...] | None,
    *,
    dtype: str = "float32",
    transposed: bool = False,
    device: str = "h200",
) -> list[dict[str, Any]]:
    """``explain`` as records: kernel, shape, dtype, transposed, device, and what runs with its plan and reason.

    Without ``shape``: the shapes that the shipped tables cover, of the kernels that take ``dtype``.
    """
    import dataclasses

    from kernelwright.gallery import _explain, _tune

    found = []
    for name in names:
        _known(name)
        if shape is None and dtype not in _explain.dtypes_of(name):
            continue
        usual: dict[str, tuple[tuple[int, ...], ...]] = {"matvec": _tune.MATVEC, "softmax": _tune.SOFTMAX}
        for at in (shape,) if shape is not None else usual.get(name, _tune.LINEAR):
            runs = _explain.choices(name, at, dtype=dtype, transposed=transposed, device=device)
            found.append(
                {
                    "kernel": name,
                    "shape": at,
                    "dtype": dtype,
                    "transposed": transposed,
                    "device": device,
                    "runs": [dataclasses.asdict(choice) for choice in runs],
                }
            )
    return found


_side: Any = None


def _torch_side() -> Any:
    """The module with the operators: it imports PyTorch, so not before it is needed. (torch.compile traces this.)"""
    global _side
    if _side is None:
        from kernelwright.gallery import _operators

        _side = _operators
    return _side


def matvec(A: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A [M, K] @ x ([K] or [K, 1]) for float32, float16, bfloat16; see kernels/matvec.py."""
    y: torch.Tensor = (_side or _torch_side()).matvec(A, x)
    return y


def softmax(
    z: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    scale: float = 1.0,
    activation: str | None = None,
) -> torch.Tensor:
    """softmax(activation(z + bias) * scale + mask) over the last dimension; see kernels/softmax.py."""
    y: torch.Tensor = (_side or _torch_side()).softmax(z, bias, mask, scale, activation)
    return y


def gelu_softmax(z: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(gelu(z + bias)) over the last dimension, with PyTorch's erf GELU."""
    return softmax(z, bias=bias, activation="gelu")


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str | None = None,
    scale: float = 1.0,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """activation(x @ weight.T + bias) * scale + residual in float32 on the tensor cores; see kernels/linear.py."""
    y: torch.Tensor = (_side or _torch_side()).linear(x, weight, bias, activation, scale, residual)
    return y


def linear_gelu_softmax(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(gelu(x @ weight.T + bias)) over the last dimension, float32; see kernels/linear_gelu_softmax.py."""
    y: torch.Tensor = (_side or _torch_side()).linear_gelu_softmax(x, weight, bias)
    return y


def tune(
    name: str,
    *shape: int,
    dtype: str = "float32",
    transposed: bool = False,
    activation: str | None = None,
    tell: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """Measure every plan of kernel ``name`` on this machine's GPU, use the fastest from now on, and return the table.

    ``shape`` as for ``explain``; none: all shapes that the shipped tables cover. The table is kept in the cache folder,
    for this device and driver. ``tell`` hears of each shape. Raises ``MachineError`` without a GPU.
    """
    from kernelwright.gallery import _tune

    _known(name)
    return _tune.tune(
        _tune.asked_for(name, shape, dtype=dtype, transposed=transposed, activation=activation), tell=tell
    )


def forget(weight: torch.Tensor | None = None) -> None:
    """Drop what ``linear`` keeps of ``weight`` (of all weights): needed after writes that PyTorch does not count."""
    from kernelwright.gallery.kernels import linear as kernel

    kernel.forget(weight)
