"""Bit patterns as PTX types: widths, views, extension and immediates.

The rule: a register holds unsigned bits; only a typed view gives them a sign or a fraction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernelwright.emulate.ptx.ir import Imm
from kernelwright.emulate.ptx.types import TYPE_BYTES

from .formats import FORMATS, Bits, decode, encode

DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
"""Bytes to the dtype that holds a pattern of so many bytes."""

PACKED = {"f16x2": "f16", "bf16x2": "bf16", "u16x2": "u16", "s16x2": "s16"}
"""Packed pair to the type of its halves."""


def dtype_of(type_: str) -> np.dtype[Any]:
    """The unsigned dtype that holds bits of ``type_``."""
    return DTYPES[TYPE_BYTES[type_]]


def is_float(type_: str) -> bool:
    """Whether arithmetic on ``type_`` is floating-point."""
    return type_ in FORMATS or PACKED.get(type_) in FORMATS


def signed(bits: Bits) -> npt.NDArray[Any]:
    """The same bits as two's complement."""
    return np.ascontiguousarray(bits).view(np.dtype(f"i{bits.dtype.itemsize}"))


def typed(bits: Bits, type_: str) -> npt.NDArray[Any]:
    """Integer bits with the sign that ``type_`` gives them."""
    return signed(bits) if type_.startswith("s") else bits


def resize(bits: Bits, type_: str, size: int) -> Bits:
    """``bits`` of ``type_`` in ``size`` bytes: cut off, or extended by sign or zeros."""
    return typed(bits, type_).astype(DTYPES[size])


def immediate(value: Imm, type_: str) -> int:
    """The bits of a literal where ``type_`` is expected."""
    size = TYPE_BYTES[type_]
    if value.type == "f64" and type_ in ("f32", "f16", "bf16"):
        wide = decode(FORMATS["f64"], np.array([value.bits], np.uint64))
        return int(encode(FORMATS[type_], wide, "rn")[0])
    if value.type == "f32" and type_ == "f64":
        wide = decode(FORMATS["f32"], np.array([value.bits], np.uint32))
        return int(encode(FORMATS["f64"], wide, "rn")[0])
    return value.bits & ((1 << 8 * size) - 1)


def halves(bits: Bits) -> tuple[Bits, Bits]:
    """Low and high half of packed pairs."""
    size = bits.dtype.itemsize // 2
    return bits.astype(DTYPES[size]), (bits >> bits.dtype.type(8 * size)).astype(DTYPES[size])


def join(low: Bits, high: Bits) -> Bits:
    """The reverse of ``halves``."""
    wide = DTYPES[2 * low.dtype.itemsize]
    joined: Bits = low.astype(wide) | (high.astype(wide) << wide.type(8 * low.dtype.itemsize))
    return joined
