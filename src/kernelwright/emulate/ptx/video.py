"""The video instructions, taken apart: what they compute on which bytes or halves of their operands.

The rule: one reading of the opcode for every reader. Source: PTX ISA 9.0, sections 9.7.16 (scalar) and 9.7.17 (SIMD),
https://docs.nvidia.com/cuda/parallel-thread-execution/#scalar-video-instructions
"""

from __future__ import annotations

from dataclasses import dataclass

from .ir import Instruction, Operand, Part

SCALAR = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad", "vset")
SIMD = ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset")
MNEMONICS = (*SCALAR, *(f"{name}{lanes}" for name in SIMD for lanes in (2, 4)))
_RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge")


@dataclass(frozen=True)
class Video:
    """One video instruction."""

    operation: str
    """Without its number of lanes: ``vabsdiff``."""
    lanes: int
    """1, 2 or 4."""
    signed: tuple[bool, bool, bool]
    """Destination (of ``vset``: False), a, b."""
    saturates: bool
    second: str
    """``add``, ``min`` or ``max`` with c; empty for none."""
    relation: str
    """Of ``vset``: ``eq``, ``lt`` …"""
    wraps: bool
    """Of shifts: the amount is taken modulo 32, not cut at it."""
    shift: int
    """Of ``vmad``: the bits that its result is moved down."""
    one: bool
    """Of ``vmad``: ``.po``, one more."""

    @property
    def bits(self) -> int:
        """Of one lane."""
        return 32 // self.lanes


def video(instruction: Instruction) -> Video:
    """``instruction`` taken apart. Raises ``ValueError`` for a form that is none."""
    name, mods = instruction.op, instruction.mods
    lanes = int(name[-1]) if name[-1].isdigit() else 1
    types = [mod for mod in mods if mod in ("u32", "s32")]
    operation = name.rstrip("24")
    wanted = 2 if operation == "vset" else 3
    if len(types) != wanted:
        raise ValueError(f"{instruction.opcode} has {len(types)} types")
    signs = [type_ == "s32" for type_ in types]
    return Video(
        operation=operation,
        lanes=lanes,
        signed=(False, signs[0], signs[1]) if wanted == 2 else (signs[0], signs[1], signs[2]),
        saturates="sat" in mods,
        second=next((mod for mod in mods if mod in ("add", "min", "max")), ""),
        relation=next((mod for mod in mods if mod in _RELATIONS), ""),
        wraps="wrap" in mods,
        shift=next((int(mod[3:]) for mod in mods if mod in ("shr7", "shr15")), 0),
        one="po" in mods,
    )


def places(operand: Operand, lanes: int, *, second: bool = False) -> list[tuple[int, int]]:
    """For each lane the first bit and the width that a source operand gives it, or a scalar destination takes.

    Lanes of SIMD sources are chosen from both registers: from bit 32 on they are b's. ``second``: the operand is b.
    """
    selector = operand.selector if isinstance(operand, Part) else ""
    if lanes == 1:
        if not selector:
            return [(0, 32)]
        width = 8 if selector[0] == "b" else 16
        return [(width * int(selector[1:]), width)]
    width = 32 // lanes
    # Written from the highest lane down.
    first = lanes if second else 0
    digits = [int(digit) for digit in reversed(selector[1:])] if selector else list(range(first, first + lanes))
    return [(width * digit, width) for digit in digits]


def written(operand: Operand, lanes: int) -> list[int]:
    """The lanes that the destination names; of a scalar instruction its one byte or half, as ``places`` gives it."""
    if not isinstance(operand, Part):
        return list(range(lanes))
    return sorted({int(digit) for digit in operand.selector[1:]})


def unlike_the_manual(form: Video, operands: tuple[Operand, ...]) -> str:
    """Why the manual does not tell what a GPU computes here; empty where it does.

    No GPU since Maxwell has these instructions: ptxas puts others in their place, and on an H200 (driver 13.0,
    2026-11-29) their results are not the manual's in the forms below. What they are instead follows no rule we know.
    """
    if form.lanes > 1:
        return ""
    sources = zip(form.signed[1:], operands[1:3], strict=True)
    whole = {signed for signed, operand in sources if not isinstance(operand, Part)}
    differs = {
        "vmad with an unsigned operand": form.operation == "vmad" and not (form.signed[1] and form.signed[2]),
        "vshl with .sat": form.operation == "vshl" and form.saturates,
        "a saturated part of a register": form.saturates and isinstance(operands[0], Part),
        ".sat of a signed and an unsigned operand": (
            form.saturates and form.operation in ("vadd", "vsub", "vabsdiff") and whole == {True, False}
        ),
        "vadd.sat of unsigned numbers": form.operation == "vadd" and form.saturates and whole == {False},
        "vabsdiff with .min or .max": form.operation == "vabsdiff" and form.second in ("min", "max"),
        "a part of a register, from a signed and an unsigned operand": (
            isinstance(operands[0], Part) and whole == {True, False}
        ),
        ".min and .max of unsigned numbers": (
            form.second in ("min", "max") and form.operation != "vset" and not form.signed[0]
        ),
    }
    named = next((name for name, holds in differs.items() if holds), "")
    return f"{named}: an H200's result is not the manual's" if named else ""
