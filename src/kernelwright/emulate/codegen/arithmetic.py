"""Chooses, by type, between the integer, real and half emitters of the mnemonics they share."""

from __future__ import annotations

from . import half, integer, real
from .lane import EMITTERS, Emitter, Lanes, RefusedInstruction


def _by_type(mnemonic: str) -> Emitter:
    def emit(g: Lanes) -> None:
        if real.is_real(g.type):
            table = {**real.REAL, "ex2": real.function, "tanh": real.function}
        elif g.type in half.HALVES:
            table = half.HALF
        else:
            table = integer.INTEGER
        if mnemonic not in table:
            raise RefusedInstruction(g.instruction)
        table[mnemonic](g)

    return emit


for _mnemonic in {*integer.INTEGER, *real.REAL, *half.HALF}:
    EMITTERS[_mnemonic] = _by_type(_mnemonic)
EMITTERS.update(integer.ONLY_INTEGER)
EMITTERS.update(real.ONLY_REAL)
