"""Which registers need one value for the whole warp instead of 32.

Why: addresses and bounds computed from kernel parameters are most of a kernel's integer work; done once instead of 32
times they cost nothing, at run time and in the compiler. The rule: a register is scalar only if its value can never
differ between lanes *and* a lane group that runs ahead cannot overwrite what another still needs: it is written once
from what never changes, or only in blocks that every living lane enters together.
"""

from __future__ import annotations

from kernelwright.emulate.analysis import Analysis
from kernelwright.emulate.ptx.ir import Imm, Instruction, Mem, Not, Operand, Reg, Special, Sym

from .half import HALVES
from .real import MODES
from .special import INVARIANT

_ELEMENTWISE = frozenset({
    "mov", "add", "sub", "mul", "mad", "neg", "abs", "min", "max", "and", "or", "xor", "not", "shl", "shr", "shf",
    "setp", "selp", "div", "rem", "fma", "lop3", "popc", "clz", "bfe", "bfi", "prmt", "set", "sqrt", "rcp", "cvt",
    "cvta", "ld",
})  # fmt: skip
"""Mnemonics whose emitters keep scalars scalar."""


def scalar_registers(analysis: Analysis) -> frozenset[str]:
    """Names of the registers kept as one value."""
    function = analysis.function
    defining: dict[str, list[tuple[int, int]]] = {}
    for block in analysis.blocks:
        for index in range(block.start, block.end):
            for register in analysis.effects[index].defs:
                defining.setdefault(register.name, []).append((index, block.index))
    invariant = {name for name, places in defining.items() if len(places) == 1}
    together = {
        name
        for name, places in defining.items()
        if name not in analysis.divergent_registers
        and not any(block in analysis.reachable_diverged for _, block in places)
    }
    chosen = invariant | together
    changed = True
    while changed:
        changed = False
        # Both sets only shrink, and whatever leaves one asks for another round: in the last one this is exact.
        fixed = invariant & chosen
        for name in list(chosen):
            for index, _ in defining[name]:
                instruction = function.instructions[index]
                good = _stays_scalar(instruction, chosen if name in together else fixed)
                if name not in together and instruction.guard is not None:
                    good = False
                if not good:
                    if name in together and name in invariant:
                        # It may still be kept for one of the two reasons.
                        reasons = _stays_scalar(instruction, fixed) and instruction.guard is None
                        if reasons:
                            together.discard(name)
                            changed = True
                            break
                    chosen.discard(name)
                    invariant.discard(name)
                    changed = True
                    break
                if (
                    name in together
                    and name in invariant
                    and not (_stays_scalar(instruction, fixed) and instruction.guard is None)
                ):
                    invariant.discard(name)
                    changed = True
    return frozenset(chosen)


def _stays_scalar(instruction: Instruction, scalars: set[str]) -> bool:
    mods = instruction.mods
    if instruction.op not in _ELEMENTWISE or any(mod in HALVES for mod in mods):
        return False
    if any(mod in MODES and mod != "rn" for mod in mods) and instruction.op != "shf":
        return False
    if instruction.op == "ld" and not (mods[0] == "param" and mods[-1] != "b128"):
        return False
    if instruction.op == "cvta" and "local" in mods:
        return False
    if instruction.guard is not None and instruction.guard.register.name not in scalars:
        return False
    return all(_is_scalar(operand, scalars) for operand in instruction.operands[1:])


def _is_scalar(operand: Operand, scalars: set[str]) -> bool:
    if isinstance(operand, Reg):
        return operand.name in scalars
    if isinstance(operand, Not):
        return operand.operand.name in scalars
    if isinstance(operand, Special):
        return operand.name in INVARIANT
    if isinstance(operand, Mem):
        return isinstance(operand.base, (Sym, Imm)) or operand.base.name in scalars
    return isinstance(operand, (Imm, Sym))
