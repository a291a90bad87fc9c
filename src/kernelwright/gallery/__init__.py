"""Kernels near the hardware's limit, usable as functions, as candidates for ``check`` and as stand-alone files.

``matvec``, ``softmax``, ``gelu_softmax``, ``linear`` and ``linear_gelu_softmax`` run on an NVIDIA GPU and compile on
first use; ``names``, ``describe`` and ``export`` need neither a GPU nor PyTorch. Inside torch.compile the functions
are custom operators (``kernelwright::…``), so that a graph keeps them whole. The rule: a kernel's file says what it
can do; nothing here adds to it.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kernelwright.errors import UsageError
from kernelwright.gallery._export import FOLDER, exported

if TYPE_CHECKING:
    import torch

__all__ = [
    "UnknownKernel",
    "describe",
    "explain",
    "export",
    "forget",
    "gelu_softmax",
    "linear",
    "linear_gelu_softmax",
    "matvec",
    "names",
    "softmax",
]


class UnknownKernel(UsageError):
    """A kernel name that the gallery does not hold."""

    message = "the gallery has no kernel {name!r}"
    advice = "it has: {known}"


def names() -> tuple[str, ...]:
    """The kernels' names, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("[!_]*.py")))


def export(name: str) -> str:
    """The text of a stand-alone file with kernel ``name``: a candidate as it is, with no import of Kernelwright."""
    _known(name)
    return exported(name)


def describe(name: str) -> str:
    """What kernel ``name`` does, how, and where its limits are: its file's docstring."""
    _known(name)
    return ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())) or ""


def _known(name: str) -> None:
    if name not in names():
        raise UnknownKernel(name=name, known=", ".join(names()))


def explain(name: str, *shape: int, dtype: str = "float32", transposed: bool = False, device: str = "h200") -> str:
    """Which variant of kernel ``name`` runs at ``shape`` on ``device``, in one line for each kernel that is launched.

    ``shape``: (M, K) for matvec, (M, N) for softmax, (M, N, K) for linear and linear_gelu_softmax, contiguous and
    aligned.
    """
    from kernelwright.gallery import _explain

    _known(name)
    return _explain.explanation(name, shape, dtype=dtype, transposed=transposed, device=device)


def matvec(A: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A [M, K] @ x ([K] or [K, 1]) for float32, float16, bfloat16; see kernels/matvec.py."""
    from kernelwright.gallery import _operators

    return _operators.matvec(A, x)


def softmax(
    z: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    scale: float = 1.0,
    activation: str | None = None,
) -> torch.Tensor:
    """softmax(activation(z + bias) * scale + mask) over the last dimension; see kernels/softmax.py."""
    from kernelwright.gallery import _operators

    return _operators.softmax(z, bias, mask, scale, activation)


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
    from kernelwright.gallery import _operators

    return _operators.linear(x, weight, bias, activation, scale, residual)


def linear_gelu_softmax(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(gelu(x @ weight.T + bias)) over the last dimension, float32; see kernels/linear_gelu_softmax.py."""
    from kernelwright.gallery import _operators

    return _operators.linear_gelu_softmax(x, weight, bias)


def forget(weight: torch.Tensor | None = None) -> None:
    """Drop what ``linear`` keeps of ``weight`` (of all weights): needed after writes that PyTorch does not count."""
    from kernelwright.gallery.kernels import linear as kernel

    kernel.forget(weight)
