"""Functions that the runtime provides to kernels: printf, assert, malloc, free; and the barrier's result.

Source: CUDA C++ Programming Guide, "Formatted Output", "Assertion", "Dynamic Global Memory Allocation".
"""

from __future__ import annotations

from kernelwright.emulate.ptx.ir import Operand, Reg
from kernelwright.emulate.ptx.operands import call_parts

from . import layout
from .lane import ELEMENT, Lanes, RefusedInstruction, emits
from .text import constant

AT_ASSERT = 4
"""enum kw_access."""


def _argument(g: Lanes, operand: Operand) -> None:
    if not isinstance(operand, Reg):
        raise RefusedInstruction(g.instruction, "an argument that is no register")


def _print(g: Lanes, arguments: tuple[Operand, ...], returns: tuple[Operand, ...]) -> None:
    g.text.store(g.text.at("%w", layout.ADDRESSES), g.text.splat(g.read(arguments[0], "u64")), align=64)
    g.pass_lanes(0, g.read(arguments[1], "u64"))
    g.run("kw_vprintf", g.active())
    for register in returns:
        if isinstance(register, Reg):
            g.assign(register, g.text.splat(constant(ELEMENT[register.type], 1)))


def _assert(g: Lanes, arguments: tuple[Operand, ...], returns: tuple[Operand, ...]) -> None:
    for row, operand, type_ in zip((0, 2, 1, 3), arguments, ("u64", "u64", "u32", "u64"), strict=False):
        g.pass_lanes(row, g.text.resize(g.read(operand, type_), "i64"))
    g.run("kw_assert", g.active(), g.site(AT_ASSERT, 0))


def _malloc(g: Lanes, arguments: tuple[Operand, ...], returns: tuple[Operand, ...]) -> None:
    g.pass_lanes(0, g.read(arguments[0], "u64"))
    g.run("kw_malloc", g.active())
    if returns and isinstance(returns[0], Reg):
        g.assign(returns[0], g.take_lanes(0, "i64"))


def _free(g: Lanes, arguments: tuple[Operand, ...], returns: tuple[Operand, ...]) -> None:
    g.pass_lanes(0, g.read(arguments[0], "u64"))
    g.run("kw_heap_free", g.active())


_CALLS = {"vprintf": _print, "__assertfail": _assert, "malloc": _malloc, "free": _free}


@emits("call")
def _call(g: Lanes) -> None:
    parts = call_parts(g.instruction)
    name = getattr(parts.target, "name", "")
    if name not in _CALLS:
        raise RefusedInstruction(g.instruction, name)
    for operand in parts.arguments:
        _argument(g, operand)
    _CALLS[name](g, parts.arguments, parts.returns)


@emits("kw_red")
def _barrier_result(g: Lanes) -> None:
    """What bar.red combined, read after the barrier; flatten.py made it an instruction of its own."""
    t = g.text
    result = t.load(t.at("%w", layout.RED), "i32", align=4)
    if g.has("popc"):
        g.result(t.splat(t.op("lshr", result, constant("i32", 2))))
        return
    bit = constant("i32", 1 if g.has("and") else 2)
    g.result(t.splat(t.compare("icmp ne", t.op("and", result, bit), constant("i32", 0))))
