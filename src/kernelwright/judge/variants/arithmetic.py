"""Variants of the arithmetic itself: operations left out, and formulas that floating point does not carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernelwright.judge.precision import to_bf16, to_fp16, to_tf32
from kernelwright.judge.variants.variant import Call, Change, axis, broadcast, words

_UNARY = frozenset({
    "relu", "gelu", "silu", "sigmoid", "tanh", "hardtanh", "hardswish", "hardsigmoid", "leaky_relu", "elu", "softplus",
    "mish", "exp", "log", "sqrt", "rsqrt", "abs", "neg", "reciprocal", "pow", "clamp", "clamp_min", "clamp_max",
    "square", "_softmax", "_log_softmax",
})  # fmt: skip
_BINARY = {"add": "added", "sub": "subtracted", "mul": "multiplied", "div": "divided by"}
_AFFINE = ("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit")


def left_out(call: Call) -> Iterator[Change]:
    """One operation, or one operand of it, is not there at all."""
    first = call.first
    if call.name in _UNARY and first is not None:
        yield Change("left-out", f"{words(call.name)} left out", lambda: first)
    if call.name in _BINARY and len(call.args) > 1:
        one, other = call.args[:2]
        shapes = [side.shape if isinstance(side, torch.Tensor) else torch.Size() for side in (one, other)]
        said = f"what is {_BINARY[call.name]} ({_operand(other)}) left out"
        whole = broadcast(*shapes)
        if isinstance(one, torch.Tensor) and shapes[0] == whole:
            yield Change("left-out", said, lambda: one)
        if call.name in ("add", "mul") and shapes[0] != whole and shapes[1] == whole:
            said = f"what is {_BINARY[call.name]} ({_operand(one)}) left out"
            yield Change("left-out", said, lambda: other)
    if call.name == "addmm":
        yield Change("left-out", "the bias left out", lambda: torch.mm(call.argument("mat1"), call.argument("mat2")))
    if call.name == "convolution" and call.argument("bias") is not None:
        yield Change("left-out", "the bias left out", lambda: call.again(bias=None))
    if call.name in _AFFINE:
        for name in ("weight", "bias"):
            if call.argument(name) is not None:
                said = f"the {name} of {words(call.name)} left out"
                yield Change("left-out", said, lambda name=name: call.again(**{name: None}))  # type: ignore[misc]


def _operand(value: Any) -> str:
    if isinstance(value, torch.Tensor) and value.dim():
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{float(value):.6g}"


_CONTRACTIONS = {
    "mm": ("self", "mat2"), "bmm": ("self", "mat2"), "addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"), "addmv": ("mat", "vec"), "dot": ("self", "tensor"), "convolution": ("input", "weight"),
}  # fmt: skip
_FORMATS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"TF32": to_tf32, "FP16": to_fp16, "BF16": to_bf16}


def rounded_operands(call: Call) -> Iterator[Change]:
    """A product whose factors are rounded to a shorter format first, as tensor cores want them."""
    names = _CONTRACTIONS.get(call.name, ())
    factors = {name: call.argument(name) for name in names}
    if not factors or not all(isinstance(f, torch.Tensor) and f.dtype == torch.float64 for f in factors.values()):
        return
    for format, rounded in _FORMATS.items():

        def run(rounded: Callable[[torch.Tensor], torch.Tensor] = rounded) -> Any:
            return call.again(**{name: rounded(factor) for name, factor in factors.items()})

        yield Change("rounded-operands", f"the factors of the product rounded to {format}", run)


_EXP_OVERFLOWS = 88.7
"""exp() of more is infinite in float32."""
_HALF_OVERFLOWS = 65504.0
"""The largest half."""


def no_maximum(call: Call) -> Iterator[Change]:
    """Exponentials of float32 without the row's maximum taken off first."""
    x = call.first
    if x is None or call.name not in ("_softmax", "_log_softmax", "logsumexp") or not x.numel():
        return
    dim = axis(call.argument("dim"), x)
    highest = float(x.max())
    if dim is None or not highest > _EXP_OVERFLOWS:
        return

    def run() -> torch.Tensor:
        powers = x.float().exp()
        total = powers.sum(dim, keepdim=call.name != "logsumexp" or bool(call.argument("keepdim", False)))
        naive = {"_softmax": lambda: powers / total, "_log_softmax": lambda: x.float() - total.log()}
        return naive.get(call.name, total.log)().to(x.dtype)

    said = f"exp() of values up to {highest:.4g} in {words(call.name)}, the row's maximum not taken off (exp overflows "
    yield Change("no-maximum", said + f"float32 above {_EXP_OVERFLOWS})", run)


def naive_exponential(call: Call) -> Iterator[Change]:
    """Quotients of exponentials that are infinite over infinite in float32."""
    formulas: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "sigmoid": lambda e: e / (1 + e),
        "tanh": lambda e: (e * e - 1) / (e * e + 1),
        "softplus": lambda e: (1 + e).log(),
    }
    x = call.first
    if x is None or call.name not in formulas or not x.numel():
        return
    highest = float(x.max()) * (2 if call.name == "tanh" else 1)
    if highest > _EXP_OVERFLOWS:
        said = f"{call.name} from exp() of values up to {highest:.4g}, which overflows float32"
        yield Change("naive-exponential", said, lambda: formulas[call.name](x.float().exp()).to(x.dtype))


def half_product(call: Call) -> Iterator[Change]:
    """A product, or a square, that is formed in half precision, where it overflows."""
    x = call.first
    if x is None or not x.numel():
        return
    square = call.name == "square" or (call.name == "pow" and call.args[1] == 2)
    product = call.name == "mul" and isinstance(call.args[1], torch.Tensor)
    if not square and not product:
        return
    highest = float(call.func(*call.args, **call.kwargs).abs().max())
    if highest > _HALF_OVERFLOWS:
        said = f"{'squares' if square else 'products'} up to {highest:.4g} formed in FP16, which ends at 65504"
        yield Change("half-product", said, lambda: call.func(*call.args, **call.kwargs).half().to(x.dtype))


def difference_of_squares(call: Call) -> Iterator[Change]:
    """The variance as the mean square less the squared mean, in float32: equal in real arithmetic only."""
    x = call.first
    if x is None or call.name not in ("native_layer_norm", "var", "std"):
        return
    norm = call.name == "native_layer_norm"
    dims = list(range(-len(call.argument("normalized_shape")), 0)) if norm else call.argument("dim")
    if dims is None:
        return
    dims = dims if isinstance(dims, (list, tuple)) else [dims]

    def variance() -> tuple[torch.Tensor, torch.Tensor]:
        narrow = x.float()
        mean = narrow.mean(dims, keepdim=True)
        return mean, (narrow * narrow).mean(dims, keepdim=True) - mean * mean

    def run() -> Any:
        mean, squares = variance()
        if norm:
            rstd = torch.rsqrt(squares + float(call.argument("eps")))
            out = ((x.float() - mean) * rstd).to(x.dtype)
            weight, bias = call.argument("weight"), call.argument("bias")
            out = out * weight if weight is not None else out
            return (out + bias if bias is not None else out), mean.to(x.dtype), rstd.to(x.dtype)
        count = x.numel() // squares.numel()
        given = call.argument("correction")
        squares = squares * (count / max(1, count - (1 if given is None else given)))
        out = squares.sqrt() if call.name == "std" else squares
        return (out if call.argument("keepdim", False) else out.squeeze(tuple(dims))).to(x.dtype)

    yield Change("difference-of-squares", "the variance as E[x^2] - E[x]^2 in float32", run)
