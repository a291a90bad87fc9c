"""PTX literals to bit patterns.

Source: PTX ISA 9.0, section 4.5, https://docs.nvidia.com/cuda/parallel-thread-execution/#constants
"""

from __future__ import annotations

import struct

from .ir import Imm

_MASK64 = (1 << 64) - 1


def is_number(word: str) -> bool:
    """Whether a token starts like a literal."""
    return word[:1].isdigit()


def parse_number(word: str, *, negative: bool = False) -> Imm:
    """A literal token as an immediate; raises ``ValueError`` for a malformed one."""
    kind = word[1:2]
    if kind and kind in "fF" and word[0] == "0":
        bits = int(word[2:], 16)
        return Imm((bits ^ (1 << 31 if negative else 0)) & 0xFFFFFFFF, "f32")
    if kind and kind in "dD" and word[0] == "0":
        bits = int(word[2:], 16)
        return Imm((bits ^ (1 << 63 if negative else 0)) & _MASK64, "f64")
    if kind not in "xX" and ("." in word or "e" in word or "E" in word):
        value = -float(word) if negative else float(word)
        return Imm(struct.unpack("<Q", struct.pack("<d", value))[0], "f64")
    integer = _integer(word.rstrip("U")) if kind else int(word)
    return Imm((-integer if negative else integer) & _MASK64, "s64")


def _integer(word: str) -> int:
    if word[:2] in ("0x", "0X"):
        return int(word, 16)
    if word[:2] in ("0b", "0B"):
        return int(word, 2)
    if len(word) > 1 and word[0] == "0":
        return int(word, 8)
    return int(word)
