"""What one activation of a recursive function keeps in local memory, and where.

The rule: all that another activation of the same function could overwrite has a place in the frame: parameters, the
result, local variables, what recursive calls pass, and the registers that are still read behind such a call.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from .analysis import Analysis, analyse
from .call_memory import named_symbols
from .calls import RefusedCall, callee
from .ptx.ir import Function, Instruction, Module, Reg
from .ptx.operands import call_parts
from .ptx.types import TYPE_BYTES


@dataclass
class Activation:
    """A function's frame. Offsets are bytes from its start; the first four bytes hold where to return to."""

    places: dict[str, int] = field(default_factory=dict)
    """Parameters, results and variables by name."""
    registers: dict[str, int] = field(default_factory=dict)
    """Registers that some recursive call must not lose, by name."""
    kept: dict[int, list[str]] = field(default_factory=dict)
    """Instruction index of each recursive call to the registers that are read behind it."""
    size: int = 4
    """Bytes, a multiple of 16."""

    def take(self, size: int, align: int) -> int:
        """The offset of ``size`` further bytes."""
        start = -(-self.size // max(align, 1)) * max(align, 1)
        self.size = start + size
        return start


def activation(module: Module, function: Function, ring: Collection[str]) -> Activation:
    """The frame of ``function``, in which calls of the functions named in ``ring`` are recursive.

    Raises :class:`RefusedCall` for a parameter that two kinds of calls share, and for a register too wide to keep.
    """
    frame, analysis = Activation(), analyse(function)
    for param in (*function.params, *function.returns):
        frame.places[param.name] = frame.take(param.size, param.align)
    calls = [(index, one) for index, one in enumerate(function.instructions) if one.op == "call"]
    recursive = [(index, one) for index, one in calls if callee(module, one) in ring]
    passed = _passed([one for _, one in recursive])
    shared = passed & _passed([one for _, one in calls if callee(module, one) not in ring])
    for index, call in recursive:
        if shared:
            raise RefusedCall(call, f"{min(shared)} is a parameter of another call, too")
        frame.kept[index] = sorted(_live_behind(analysis, index) & function.registers.keys())
        for name in frame.kept[index]:
            if name not in frame.registers:
                size = _bytes(function.registers[name], call)
                frame.registers[name] = frame.take(size, size)
    for variable in function.locals:
        if variable.space == "local" or variable.name in passed:
            frame.places[variable.name] = frame.take(variable.size, variable.align)
    frame.size = -(-frame.size // 16) * 16
    return frame


def _passed(calls: list[Instruction]) -> set[str]:
    """The variables that carry the calls' arguments and results."""
    found: set[str] = set()
    for call in calls:
        parts = call_parts(call)
        for operand in (*parts.arguments, *parts.returns):
            found |= named_symbols(operand)
    return found


def _bytes(register: Reg, call: Instruction) -> int:
    size = 4 if register.type == "pred" else TYPE_BYTES[register.type]
    if size > 8:
        raise RefusedCall(call, f"a recursive call across a .{register.type} register")
    return size


def _live_behind(analysis: Analysis, index: int) -> frozenset[str]:
    """The registers that are read behind the instruction at ``index``; none where it is never reached."""
    block = next((block for block in analysis.blocks if block.start <= index < block.end), None)
    if block is None:
        return frozenset()
    return analysis.live_out[block.index] if index + 1 == block.end else analysis.live_before(index + 1)
