"""Which handler executes an instruction: by mnemonic, and by type where one mnemonic serves integers and floats."""

from __future__ import annotations

from kernelwright.emulate.ptx.ir import Instruction
from kernelwright.emulate.ptx.types import TYPE_BYTES

from . import (
    approximate,
    asynchronous,
    atomics,
    compare,
    convert,
    floating,
    fragments,
    integer,
    matrix,
    transfer,
    video,
    warp,
)
from .errors import UnknownInstruction
from .lanes import Handler
from .values import is_float

_ALONE: dict[str, Handler] = {
    **integer.HANDLERS,
    **floating.HANDLERS,
    **approximate.HANDLERS,
    **compare.HANDLERS,
    **convert.HANDLERS,
    **transfer.HANDLERS,
    **atomics.HANDLERS,
    **asynchronous.HANDLERS,
    **video.HANDLERS,
    **matrix.HANDLERS,
    **fragments.HANDLERS,
    **warp.HANDLERS,
    "bar": warp.wait,
}
_FLOATS: dict[str, Handler] = {**floating.SHARED_HANDLERS, **approximate.SHARED_HANDLERS}
_INTEGERS: dict[str, Handler] = {**integer.SHARED_HANDLERS}


def handler_of(instruction: Instruction) -> Handler:
    """The handler of ``instruction``; raises ``UnknownInstruction`` with its name and PTX line."""
    op = instruction.op
    if op in _FLOATS:
        type_ = next((mod for mod in reversed(instruction.mods) if mod in TYPE_BYTES), "")
        handler = _FLOATS[op] if is_float(type_) else _INTEGERS.get(op)
    else:
        handler = _ALONE.get(op)
    if handler is None:
        raise UnknownInstruction(instruction)
    return handler
