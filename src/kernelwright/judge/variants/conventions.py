"""Variants of PyTorch's conventions: divisors, modes, paddings, and functions that have two definitions."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernelwright.judge.variants.variant import Call, Change, words


def other_gelu(call: Call) -> Iterator[Change]:
    """GELU has an exact form, with erf, and an approximation with tanh."""
    if call.name != "gelu":
        return
    exact = call.argument("approximate", "none") == "none"
    said = "the tanh approximation of GELU in place of the exact one" if exact else "the exact GELU (erf), not tanh's"
    yield Change("other-gelu", said, lambda: call.again(approximate="tanh" if exact else "none"))


def correction(call: Call) -> Iterator[Change]:
    """Variance divides by n - 1 unless told otherwise."""
    if call.name not in ("var", "std", "var_mean", "std_mean") or call.func._overloadname != "correction":
        return
    given = call.argument("correction")
    biased = given == 0
    said = "a divisor of n - 1 in the variance, not n" if biased else "a divisor of n in the variance, not n - 1"
    yield Change("correction", said, lambda: call.again(correction=1 if biased else 0))


def batch_statistics(call: Call) -> Iterator[Change]:
    """Batch normalisation takes the batch's statistics while training, and running ones when evaluating."""
    x = call.first
    training = call.argument("training")
    if x is None or not isinstance(training, bool) or x.dim() < 2:
        return
    channels = [1, -1] + [1] * (x.dim() - 2)
    weight, bias = call.argument("weight"), call.argument("bias")
    epsilon = float(call.argument("eps", 1e-5))

    def normalised(mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rstd = torch.rsqrt(variance + epsilon)
        out = (x - mean.view(channels)) * rstd.view(channels)
        out = out * weight.view(channels) if weight is not None else out
        out = out + bias.view(channels) if bias is not None else out
        more = len(call.func._schema.returns) - 3
        return (out, mean, rstd, *(x.new_empty(0, dtype=torch.uint8) for _ in range(more)))

    if training:
        said = "the running statistics as constructed (mean 0, variance 1), not the batch's"
        count = x.size(1)
        yield Change("batch-statistics", said, lambda: normalised(x.new_zeros(count), x.new_ones(count)))
    else:
        others = [axis for axis in range(x.dim()) if axis != 1]
        said = "the batch's statistics, not the running ones"
        yield Change("batch-statistics", said, lambda: normalised(x.mean(others), x.var(others, correction=0)))


def counted_padding(call: Call) -> Iterator[Change]:
    """Average pooling counts padding as elements unless told otherwise."""
    if not call.name.startswith("avg_pool") or not any(call.argument("padding", [0]) or [0]):
        return
    counts = bool(call.argument("count_include_pad", True))
    said = "padding left out of the average's count" if counts else "padding counted in the average"
    yield Change("counted-padding", said, lambda: call.again(count_include_pad=not counts))


def flipped_kernel(call: Call) -> Iterator[Change]:
    """What PyTorch calls a convolution is a correlation: its kernel is not flipped."""
    if call.name != "convolution":
        return
    weight = call.argument("weight")
    spatial = [axis for axis in range(2, weight.dim()) if weight.size(axis) > 1]
    if spatial:
        said = "the convolution's kernel flipped, as mathematicians have it"
        yield Change("flipped-kernel", said, lambda: call.again(weight=weight.flip(spatial)))


_IDENTITIES = {"amax": True, "max": True, "max_pool2d_with_indices": True, "max_pool3d_with_indices": True,
               "amin": False, "min": False}  # fmt: skip
"""Reductions, and whether zero is below what they start from."""


def started_from_zero(call: Call) -> Iterator[Change]:
    """The identity of a maximum is minus infinity, not zero."""
    if call.name not in _IDENTITIES or call.first is None:
        return
    largest = _IDENTITIES[call.name]

    def run() -> object:
        out = call.func(*call.args, **call.kwargs)
        values = out if isinstance(out, torch.Tensor) else out[0]
        values = values.clamp(min=0) if largest else values.clamp(max=0)
        return values if isinstance(out, torch.Tensor) else (values, *out[1:])

    what = "maximum" if largest else "minimum"
    yield Change("started-from-zero", f"a {what} that starts from 0, not from {'-' * largest}infinity", run)


def sum_for_mean(call: Call) -> Iterator[Change]:
    """A mean is a sum with a divisor."""
    x = call.first
    if x is None or call.name not in ("mean", "sum"):
        return
    dim, keepdim = call.argument("dim"), bool(call.argument("keepdim", False))
    other = "sum" if call.name == "mean" else "mean"
    make = torch.sum if call.name == "mean" else torch.mean

    def run() -> torch.Tensor:
        return make(x, dim, keepdim=keepdim) if dim is not None else make(x)

    yield Change("sum-for-mean", f"the {other} in place of the {words(call.name)}", run)
