"""The kernels as PyTorch operators, so that torch.compile keeps them whole and knows their results' shapes.

Why: a compiled graph may hold registered operators only. The rule: outside torch.compile the kernel files' functions
are called directly, first those that answer where a plan is remembered; an operator's own dispatch would cost more
than a small kernel, and to ask whether a graph is being traced a tenth of one. (They answer plain tensors only, which
what is traced without torch.compile is not.) The operators have no gradient; a backward pass through one raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelwright.gallery import _tables
from kernelwright.gallery.kernels import linear as _linear
from kernelwright.gallery.kernels import linear_gelu_softmax as _linear_gelu_softmax
from kernelwright.gallery.kernels import matvec as _matvec
from kernelwright.gallery.kernels import softmax as _softmax

_tables.install()
_in_dynamo = torch.compiler.is_dynamo_compiling


def _operator(name: str, function: Callable[..., torch.Tensor], fake: Callable[..., torch.Tensor]) -> Any:
    made = torch.library.custom_op(f"kernelwright::{name}", function, mutates_args=())
    made.register_fake(fake)
    return made


def _run_matvec(A: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return _matvec.matvec(A, x)


def _run_softmax(
    z: torch.Tensor, bias: torch.Tensor | None, mask: torch.Tensor | None, scale: float, activation: str | None
) -> torch.Tensor:
    return _softmax.softmax(z, bias=bias, mask=mask, scale=scale, activation=activation)


def _run_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    scale: float,
    residual: torch.Tensor | None,
) -> torch.Tensor:
    return _linear.linear(x, weight, bias, activation=activation, scale=scale, residual=residual)


def _run_linear_gelu_softmax(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return _linear_gelu_softmax.linear_gelu_softmax(x, weight, bias)


def _row_of(x: torch.Tensor, weight: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


_FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "matvec": (_run_matvec, lambda A, x: A.new_empty((A.shape[0], *x.shape[1:]))),
    "softmax": (_run_softmax, lambda z, *_: z.new_empty(z.shape)),
    "linear": (_run_linear, _row_of),
    "linear_gelu_softmax": (_run_linear_gelu_softmax, _row_of),
}
_OPERATORS = {name: _operator(name, run, fake) for name, (run, fake) in _FUNCTIONS.items()}


def matvec(A: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """See :func:`kernelwright.gallery.matvec`."""
    made: torch.Tensor | None = None if _in_dynamo() else _matvec.known(A, x)
    if made is None:
        made = _OPERATORS["matvec"](A, x) if torch.compiler.is_compiling() else _matvec.matvec(A, x)
    return made


def softmax(
    z: torch.Tensor, bias: torch.Tensor | None, mask: torch.Tensor | None, scale: float, activation: str | None
) -> torch.Tensor:
    """See :func:`kernelwright.gallery.softmax`."""
    if torch.compiler.is_compiling():
        made: torch.Tensor = _OPERATORS["softmax"](z, bias, mask, scale, activation)
        return made
    return _softmax.softmax(z, bias=bias, mask=mask, scale=scale, activation=activation)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    scale: float,
    residual: torch.Tensor | None,
) -> torch.Tensor:
    """See :func:`kernelwright.gallery.linear`."""
    number = _linear.ACTIVATIONS.get(activation)
    if not (_in_dynamo() or residual is not None or number is None):
        known: torch.Tensor | None = _linear.known(x, weight, bias, scale, number)
        if known is not None:
            return known
    if torch.compiler.is_compiling():
        made: torch.Tensor = _OPERATORS["linear"](x, weight, bias, activation, scale, residual)
        return made
    return _linear.linear(x, weight, bias, activation=activation, scale=scale, residual=residual)


_GELU = _linear.ACTIVATIONS["gelu"]


def linear_gelu_softmax(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """See :func:`kernelwright.gallery.linear_gelu_softmax`."""
    if not _in_dynamo():
        z: torch.Tensor | None = _linear.known(x, weight, bias, 1.0, _GELU)
        if z is not None:
            return _softmax.softmax(z, in_place=True)
    if torch.compiler.is_compiling():
        made: torch.Tensor = _OPERATORS["linear_gelu_softmax"](x, weight, bias)
        return made
    return _linear_gelu_softmax.linear_gelu_softmax(x, weight, bias)
