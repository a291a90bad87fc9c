"""Plain loads that only look before an atomic decides: the first guess of a compare-and-swap loop, a test before a max.

Why: by the CUDA model such a load races with the atomics of other threads, yet its value may be stale without harm,
since the atomic of the same thread on the same word looks again; the CUDA programming guide's own atomicAdd for doubles
begins with one. The rule: the address is the same by the code alone (one register or variable plus one constant), the
atomic stands behind the load, and no barrier lies between: a sum that is read once all have added to it is no hint.
"""

from __future__ import annotations

from collections import defaultdict

from .analysis import Analysis
from .ptx.ir import Imm, Instruction, Mem, Operand, Reg, Sym

Place = tuple[str, int]
"""A register or variable, and bytes behind it."""

_BARRIERS = frozenset({"bar", "barrier"})
_STEPS = 16
"""Definitions that are followed from an address back; nvcc's chains have two or three."""


def hints(analysis: Analysis) -> frozenset[int]:
    """The indices of the loads that are followed by an atomic of the same address."""
    function = analysis.function
    definitions: dict[str, list[Instruction]] = defaultdict(list)
    for instruction, effect in zip(function.instructions, analysis.effects, strict=True):
        for register in effect.defs:
            definitions[register.name].append(instruction)
    found: set[int] = set()
    waiting: dict[Place, list[int]] = defaultdict(list)
    for index, instruction in enumerate(function.instructions):
        if instruction.op in _BARRIERS:
            waiting.clear()
        elif instruction.op == "ld" and isinstance(instruction.operands[1], Mem):
            waiting[_place(instruction.operands[1], definitions)].append(index)
        elif instruction.op in ("atom", "red"):
            memory = instruction.operands[instruction.op == "atom"]
            if isinstance(memory, Mem):
                found.update(waiting.pop(_place(memory, definitions), ()))
    return frozenset(found)


def _place(memory: Mem, definitions: dict[str, list[Instruction]]) -> Place:
    base: Operand = memory.base
    offset = memory.offset
    for _ in range(_STEPS):
        if not isinstance(base, Reg) or len(definitions[base.name]) != 1:
            break
        (made,) = definitions[base.name]
        operands = made.operands
        if made.guard is not None:
            break
        if made.op == "add" and isinstance(operands[2], Imm):
            base, offset = operands[1], offset + _signed(operands[2].bits)
        elif made.op in ("mov", "cvta") and isinstance(operands[1], (Reg, Sym)):
            base = operands[1]
        else:
            break
    if isinstance(base, Sym):
        return base.name, base.offset + offset
    return (base.name if isinstance(base, Reg) else "", offset)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 & 1 else bits
