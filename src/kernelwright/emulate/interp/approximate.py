"""div, sqrt, rsqrt, rcp, ex2, lg2, sin, cos, tanh: exact where rounding is asked for, approximate where PTX is.

Why: the hardware's approximations are not published bit by bit. The rule: the approximate forms are computed in
double precision and rounded once, so they differ from hardware by at most the bounds in ``BOUNDS``; special values are
those of the manual's tables, exactly.
Source: PTX ISA 9.0, section 9.7.3, https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelwright.emulate.ptx.ir import Instruction

from .errors import UnknownInstruction
from .floating import Compute, Divide, Doubles, SquareRoot, mode_of, per_format
from .formats import FORMATS, Bits, Format, flush, from_double, to_double
from .lanes import Handler, Lanes

BOUNDS: dict[tuple[str, str], str] = {
    ("div.approx", "f32"): "2 ulp for |b| in [2**-126, 2**126]",
    ("div.full", "f32"): "2 ulp",
    ("rcp.approx", "f32"): "1 ulp",
    ("sqrt.approx", "f32"): "relative 2**-23",
    ("rsqrt.approx", "f32"): "relative 2**-22.9",
    ("ex2.approx", "f32"): "2 ulp",
    ("lg2.approx", "f32"): "absolute 2**-22 for x in (0.5, 2), else relative 2**-22",
    ("sin.approx", "f32"): "absolute 2**-20.5 for |x| <= 2 pi",
    ("cos.approx", "f32"): "absolute 2**-20.5 for |x| <= 2 pi",
    ("tanh.approx", "f32"): "relative 2**-11",
    ("tanh.approx", "f16"): "absolute 2**-10.987",
    ("tanh.approx", "bf16"): "absolute 2**-8",
    ("ex2.approx", "f16"): "relative 2**-9.9",
    ("ex2.approx", "bf16"): "relative 2**-7",
    ("rcp.approx", "f64"): "relative 2**-20",
    ("rsqrt.approx", "f64"): "relative 2**-20",
}
"""(operation, type) to the bound that the manual gives for the hardware against the exact value."""


class _Function(Compute):
    """A function of doubles, rounded to nearest into the format."""

    def __init__(self, function: Callable[[Doubles], Doubles]) -> None:
        self._function = function

    def __call__(self, format_: Format, values: list[Bits], mode: str, *, ftz: bool = False) -> Bits:
        return from_double(format_, self._function(to_double(format_, values[0])), "rn")


class _ApproximateDivide(Divide):
    """div.approx: for 2**126 < |b| < 2**128 the quotient is 0, or NaN when a is infinite."""

    def __call__(self, format_: Format, values: list[Bits], mode: str, *, ftz: bool = False) -> Bits:
        a, b = (to_double(format_, value) for value in values)
        huge = (np.abs(b) > 2.0**126) & (np.abs(b) < 2.0**128)
        quotient = a / b
        zero = np.where(np.isfinite(a), np.copysign(0.0, quotient), np.nan)
        return from_double(format_, np.where(huge, zero, quotient), "rn")


class _Reciprocal(Divide):
    def __call__(self, format_: Format, values: list[Bits], mode: str, *, ftz: bool = False) -> Bits:
        one = from_double(format_, np.ones(len(values[0])), "rn")
        return super().__call__(format_, [one, values[0]], mode, ftz=ftz)


_FUNCTIONS: dict[str, Callable[[Doubles], Doubles]] = {
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


def divide(lanes: Lanes, instruction: Instruction) -> None:
    """div.rn/.rz/.rm/.rp, div.approx, div.full."""
    approximate = "approx" in instruction.mods
    per_format(lanes, instruction, 2, _ApproximateDivide() if approximate else Divide())


def square_root(lanes: Lanes, instruction: Instruction) -> None:
    """sqrt.approx is the correctly rounded root, which lies within its bound."""
    per_format(lanes, instruction, 1, SquareRoot())


def reciprocal(lanes: Lanes, instruction: Instruction) -> None:
    """rcp; ``rcp.approx.ftz.f64`` reads and writes only the upper halves."""
    if instruction.mods[0] == "approx" and instruction.mods[-1] == "f64":
        _upper_half(lanes, lambda x: 1.0 / x)
        return
    per_format(lanes, instruction, 1, _Reciprocal())


def function(lanes: Lanes, instruction: Instruction) -> None:
    """rsqrt, ex2, lg2, sin, cos, tanh (all ``.approx``)."""
    if "approx" not in instruction.mods or mode_of(instruction, "") != "":
        raise UnknownInstruction(instruction, "exists only as .approx")
    compute = _FUNCTIONS[instruction.op]
    if instruction.mods[-1] == "f64":
        if instruction.op != "rsqrt":
            raise UnknownInstruction(instruction)
        _upper_half(lanes, compute)
        return
    per_format(lanes, instruction, 1, _Function(compute))


def _upper_half(lanes: Lanes, compute: Callable[[Doubles], Doubles]) -> None:
    upper = np.uint64(0xFFFFFFFF00000000)
    source = flush(FORMATS["f64"], lanes.read(1, "f64")) & upper
    result = compute(source.view(np.float64)).view(np.uint64)
    nan = np.isnan(result.view(np.float64))
    result = np.where(nan, np.uint64(0x7FFFFFFF00000000), result & upper)
    lanes.write(0, flush(FORMATS["f64"], result), "f64")


SHARED_HANDLERS: dict[str, Handler] = {"div": divide}
"""Mnemonics that also exist for integers."""

HANDLERS: dict[str, Handler] = {
    "sqrt": square_root, "rcp": reciprocal, "rsqrt": function, "ex2": function, "lg2": function, "sin": function,
    "cos": function, "tanh": function,
}  # fmt: skip
