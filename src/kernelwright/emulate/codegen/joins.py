"""Which neighbouring accesses of shared memory ptxas makes one wide access of, as far as PTX shows it.

Why: four scalar loads side by side may clash in banks where one load of 16 bytes does not, so counting them apart would
call for a cure that nothing needs. The rule, as ptxas 13.0 was seen to have it for sm_90: accesses of one type in one
block of code, from one base, with nothing between that orders them, become one of twice or four times their width where
its start is known to be that aligned; a load may have one of the four parts missing, a store none. Shared variables
begin aligned, since ptxas itself places them.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.emulate.analysis import Analysis
from kernelwright.emulate.ptx.ir import Imm, Instruction, Mem, Operand, Reg, Sym
from kernelwright.emulate.ptx.types import TYPE_BYTES

WIDEST = 16
_ORDERED = frozenset({"bar", "barrier", "membar", "fence", "call", "cp", "wmma", "ldmatrix", "atom", "red"})
"""What accesses are not moved across, beside each other's kind."""

_Base = Reg | Imm | Sym
_Access = tuple[int, int, int]
"""Offset, bytes, instruction."""


def joined_accesses(analysis: Analysis) -> dict[int, int]:
    """Instruction to the bytes a lane moves there: more than its own where it stands for others, which move 0."""
    found: dict[int, int] = {}
    alignment = _Alignment(analysis)
    for block in analysis.blocks:
        for op, base, accesses in _groups(analysis, range(block.start, block.end)):
            found |= _joined(accesses, alignment.of(base), spare=int(op == "ld"))
    return found


def _groups(analysis: Analysis, indices: range) -> Iterator[tuple[str, _Base, list[_Access]]]:
    """Accesses that may be joined, by what their addresses are offsets from."""
    groups: dict[tuple[str, str, str], tuple[str, _Base, list[_Access]]] = {}
    for index in indices:
        instruction = analysis.function.instructions[index]
        closes = _closes(instruction)
        for key in [key for key, (op, _, _) in groups.items() if op in closes]:
            yield groups.pop(key)
        access = _access(instruction)
        if access is not None and index not in analysis.dead:
            memory, size = access
            base = memory.base
            name, offset = (base.name, base.offset) if isinstance(base, Sym) else (str(base), 0)
            key = (name, instruction.opcode, str(instruction.guard))
            groups.setdefault(key, (instruction.op, base, []))[2].append((offset + memory.offset, size, index))
        for register in analysis.effects[index].defs:
            for key in [key for key, (_, base, _) in groups.items() if base == register]:
                yield groups.pop(key)
    yield from groups.values()


def _closes(instruction: Instruction) -> tuple[str, ...]:
    """Kinds of access that end before the instruction."""
    if instruction.op in _ORDERED:
        return ("ld", "st")
    spaces = [mod.split("::")[0] for mod in instruction.mods]
    apart = any(space in ("global", "local", "param", "const") for space in spaces)
    if instruction.op not in ("ld", "st") or apart:
        return ()
    return ("st",) if instruction.op == "ld" else ("ld",)


def _access(instruction: Instruction) -> tuple[Mem, int] | None:
    """Its address and the bytes of a lane, where it may be joined at all."""
    if instruction.op not in ("ld", "st") or "volatile" in instruction.mods:
        return None
    if instruction.mods[0].split("::")[0] != "shared":
        return None
    memory = instruction.operands[1 if instruction.op == "ld" else 0]
    count = next((int(mod[1:]) for mod in instruction.mods if mod in ("v2", "v4")), 1)
    size = TYPE_BYTES[instruction.mods[-1]] * count
    return (memory, size) if isinstance(memory, Mem) and size < WIDEST else None


def _joined(accesses: list[_Access], alignment: int, *, spare: int) -> dict[int, int]:
    """``spare``: how many of four parts may be missing."""
    found: dict[int, int] = {}
    at = {offset: (size, index) for offset, size, index in reversed(accesses)}
    for parts, missing in ((4, spare), (2, 0)):
        for size in {size for size, _ in at.values()}:
            width = parts * size
            if width > min(WIDEST, alignment):
                continue
            for start in sorted({offset - offset % width for offset in at}):
                here = [at[part] for part in range(start, start + width, size) if part in at and at[part][0] == size]
                free = [index for _, index in here if index not in found]
                if len(free) >= max(2, parts - missing):
                    found |= dict.fromkeys(free, 0)
                    found[free[0]] = width
    return found


class _Alignment:
    """The power of two, 16 at most, that divides a register's value for certain: the greatest fixpoint."""

    def __init__(self, analysis: Analysis) -> None:
        defined = [
            (instruction, register.name)
            for instruction, effect in zip(analysis.function.instructions, analysis.effects, strict=True)
            for register in effect.defs
        ]
        self._known = {name: WIDEST for _, name in defined}
        changed = True
        while changed:
            changed = False
            for instruction, name in defined:
                least = min(self._known[name], self._result(instruction))
                changed |= least < self._known[name]
                self._known[name] = least

    def of(self, operand: Operand) -> int:
        """That of an operand."""
        if isinstance(operand, Imm):
            return _power(operand.bits)
        if isinstance(operand, Sym):
            return _power(operand.offset)
        return self._known.get(operand.name, 1) if isinstance(operand, Reg) else 1

    def _result(self, instruction: Instruction) -> int:
        op, operands = instruction.op, instruction.operands[1:]
        if op in ("mov", "cvt", "cvta") and len(operands) == 1:
            return self.of(operands[0])
        if op in ("add", "sub", "or", "xor"):
            return min(self.of(operand) for operand in operands)
        if op == "and":
            return max(self.of(operand) for operand in operands)
        if op == "selp":
            return min(self.of(operands[0]), self.of(operands[1]))
        if op == "shl" and isinstance(operands[1], Imm):
            return self.of(operands[0]) << min(operands[1].bits, 8)
        if op == "mul" and "hi" not in instruction.mods:
            return self.of(operands[0]) * self.of(operands[1])
        if op == "mad" and "hi" not in instruction.mods:
            return min(self.of(operands[0]) * self.of(operands[1]), self.of(operands[2]))
        return 1


def _power(value: int) -> int:
    return min(WIDEST, value & -value) if value else WIDEST
