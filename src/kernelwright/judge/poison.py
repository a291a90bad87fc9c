"""Bits that device memory holds before anybody writes it, and what becomes of them in arithmetic.

Why: memory nobody wrote and values computed from it look like any NaN to a comparison, and have quite other causes. The
rule: recognised by exact bits (``KW_POISON16`` in ``kw_runtime.h``), never by being NaN; types too narrow to tell are
not asked.
"""

from __future__ import annotations

import torch

POISON16 = 0x7FA5
"""Every 16-bit half of untouched memory: ``KW_POISON16``."""


def _signed(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) else bits


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_POISON = {size: _signed(int(f"{POISON16:04x}" * (size // 2), 16), 8 * size) for size in _BITS}
_TAINT = {torch.float32: 0x7FE57FA5, torch.bfloat16: 0x7FE5}
"""Poison after arithmetic: the quiet bit is set and the payload kept (IEEE 754-2019, 6.2.3, as x86 does it). Half's
poison is quiet already, and in float64 the pattern is a number (5.6e306): for both, "read" and "unwritten" are one."""
_SIGNLESS = {torch.float32: 0x7FFFFFFF, torch.bfloat16: 0x7FFF}


def unwritten(flat: torch.Tensor) -> torch.Tensor | None:
    """Which elements of a contiguous tensor hold exactly the poison; None for one-byte and complex types."""
    if flat.is_complex() or flat.element_size() not in _BITS:
        return None
    return flat.view(_BITS[flat.element_size()]) == _POISON[flat.element_size()]


def tainted(flat: torch.Tensor) -> torch.Tensor | None:
    """Which elements hold a NaN that arithmetic made of poison, of either sign; None where the type cannot tell."""
    if flat.dtype not in _TAINT:
        return None
    return (flat.view(_BITS[flat.element_size()]) & _SIGNLESS[flat.dtype]) == _TAINT[flat.dtype]
