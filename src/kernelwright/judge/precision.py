"""The precision grade: which number format explains a candidate's error against the oracle.

Why: a candidate that rounds its operands to TF32 or keeps its sums in half precision may pass a tolerance and still not
be what was asked for; an honest float32 kernel that sums in another order than PyTorch must not be suspected. The rule:
no fixed error limits. The reference itself is run in float64 with one format's rounding put in, which gives the rms
error that this format *would* have on this problem (its yardstick); the grade is the format with the smallest
yardstick that reaches the candidate's rms error.

Two kinds of rounding are put in (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 3 and 4.2):
operands, rounded before each contraction; and a sequential accumulator, whose partial sums grow to the result while
each addition rounds by u/sqrt(3) at most: for n terms an rms relative error of about u*sqrt(n)/3, injected as noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.judge.eager import EagerMode
from kernelwright.records import Precision

MARGIN = math.sqrt(8)
"""How far above a yardstick an error may lie: half-way, on a log scale, between the nearest formats (8 bits of bf16
and 11 bits of tf32 and fp16, a factor of 8)."""


@dataclass(frozen=True)
class Format:
    """One way to lose precision."""

    grade: Precision
    unit: float
    """Unit roundoff of the accumulator."""
    operands: Callable[[torch.Tensor], torch.Tensor] | None
    """Rounds float64 operands; None leaves them."""


def to_tf32(x: torch.Tensor) -> torch.Tensor:
    """Round to 10 stored mantissa bits, ties away from zero, as ``cvt.rna.tf32.f32`` does."""
    bits = x.to(torch.float32).view(torch.int32)
    rounded = ((bits + 0x1000) & ~0x1FFF).view(torch.float32).to(torch.float64)
    return torch.where(x.isfinite(), rounded, x)


def to_bf16(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16).to(torch.float64)


def to_fp16(x: torch.Tensor) -> torch.Tensor:
    """Round to half; what would overflow is left alone, since no half candidate could have passed there."""
    rounded = x.to(torch.float16).to(torch.float64)
    return torch.where(rounded.isfinite(), rounded, x)


FORMATS = (
    Format(Precision.FP32, 2.0**-24, None),
    Format(Precision.TF32, 2.0**-24, to_tf32),
    Format(Precision.FP16, 2.0**-24, to_fp16),
    Format(Precision.BF16, 2.0**-24, to_bf16),
    Format(Precision.FP16, 2.0**-11, to_fp16),
    Format(Precision.BF16, 2.0**-8, to_bf16),
)
"""Tensor cores first (narrow operands, float32 sums), then narrow sums. TF32 and FP16 round alike where half's range
suffices; the tie goes to the one listed first, so TF32 stands for "11 bits of mantissa"."""


class Lossy(EagerMode):
    """Runs ATen operators in float64 with one format's rounding put in."""

    def __init__(self, format: Format, seed: int) -> None:
        super().__init__()
        self.format = format
        self._seed = seed
        self._noise: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        length = _terms(func, args)
        if name in _CONTRACTIONS and self.format.operands is not None:
            args = tuple(self._rounded(item) for item in args)
        out = func(*args, **(kwargs or {}))
        if length > 1 and isinstance(out, torch.Tensor) and out.dtype == torch.float64:
            spread = self.format.unit * math.sqrt(length) / 3
            generator = self._noise.get(out.device)
            if generator is None:
                generator = self._noise[out.device] = torch.Generator(out.device).manual_seed(self._seed)
            noise = torch.randn(out.shape, dtype=torch.float32, generator=generator, device=out.device)
            out = out * (1 + spread * noise)
        return out

    def _rounded(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor) and item.dtype == torch.float64 and self.format.operands is not None:
            return self.format.operands(item)
        return item


def yardsticks(
    run: Callable[[], list[torch.Tensor]], exact: list[torch.Tensor], like: list[torch.Tensor]
) -> list[list[tuple[Precision, float]]]:
    """For each output: the rms error of every format, smallest first.

    ``run`` gives the reference's outputs in float64 and is run once a format; ``exact`` are those without rounding, and
    ``like`` are outputs of the problem's own dtype, whose rounding every candidate has.
    """
    table: list[list[tuple[Precision, float]]] = [[] for _ in exact]
    floor = [
        _rms(e.to(own.dtype).to(e.dtype) - e) if own.is_floating_point() else 0.0
        for e, own in zip(exact, like, strict=True)
    ]
    for number, format in enumerate(FORMATS):
        with Lossy(format, seed=number):
            outputs = run()
        for row, out, right, least in zip(table, outputs, exact, floor, strict=True):
            if right.is_floating_point() or right.is_complex():
                row.append((format.grade, math.hypot(_rms(out - right), least)))
    return [sorted(row, key=lambda entry: entry[1]) for row in table]


def grade(rms: float, reference_rms: float, table: list[tuple[Precision, float]], *, dtype: str) -> Precision:
    """The grade of an output with this rms error; ``reference_rms`` is the reference's own, which is always enough."""
    if dtype == "float64" and rms <= MARGIN * max(reference_rms, _of(table, Precision.FP32) * 2.0**-29):
        # Float64's unit roundoff is 2^-29 of float32's.
        return Precision.FP64
    return Precision.FP32 if rms <= MARGIN * reference_rms else _pick(rms, table)


def _pick(rms: float, table: list[tuple[Precision, float]]) -> Precision:
    return next((name for name, yardstick in table if rms <= MARGIN * yardstick), Precision.WORSE)


ORDER = (Precision.FP64, Precision.FP32, Precision.TF32, Precision.FP16, Precision.BF16, Precision.WORSE)
"""Best to worst."""


def worst(grades: list[Precision]) -> Precision | None:
    """The worst of several grades; None where there are none."""
    return max(grades, key=ORDER.index) if grades else None


def _of(table: list[tuple[Precision, float]], name: Precision) -> float:
    return next((yardstick for grade, yardstick in table if grade == name), 0.0)


def _rms(error: torch.Tensor) -> float:
    finite = error.abs()
    finite = finite[finite.isfinite()]
    return math.sqrt(float(finite.square().mean())) if finite.numel() else 0.0


_CONTRACTIONS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "linear"}
_FACTORS = {"addmm": 1, "baddbmm": 1, "addmv": 1}
"""Position of the left factor, where it is not the first argument."""
_REDUCTIONS = {"sum", "mean", "cumsum", "var", "std", "norm", "linalg_vector_norm", "prod", "logsumexp"}
_ROWS = {"_softmax", "_log_softmax", "native_layer_norm", "native_group_norm", "native_batch_norm"}


def _terms(func: Any, args: tuple[Any, ...]) -> int:
    """How many terms each result of the ATen operator ``func`` sums; 1 for all others."""
    name: str = func.overloadpacket.__name__
    tensors = [item for item in args if isinstance(item, torch.Tensor)]
    if not tensors or not tensors[0].is_floating_point():
        return 1
    if name == "convolution":
        weight: torch.Tensor = args[1]
        return max(1, weight.numel() // max(1, weight.size(0)))
    if name in _CONTRACTIONS:
        left: torch.Tensor = args[_FACTORS.get(name, 0)]
        return left.size(-1) if left.dim() else 1
    if name in _REDUCTIONS:
        dims = dict(zip((a.name for a in func._schema.arguments), args, strict=False)).get("dim")
        if isinstance(dims, int):
            dims = [dims]
        if isinstance(dims, (list, tuple)) and dims:
            return math.prod([int(tensors[0].shape[d]) for d in dims])
        return tensors[0].numel()
    if name in _ROWS:
        return tensors[0].size(-1) if tensors[0].dim() else 1
    return 1
