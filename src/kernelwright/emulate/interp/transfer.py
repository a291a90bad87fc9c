"""Data movement: mov, ld, st, cvta, isspacep, and the hints that move nothing.

Source: PTX ISA 9.0, section 9.7.9,
https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernelwright.emulate.ptx.ir import Instruction, Operand, Sink, Vec
from kernelwright.emulate.ptx.types import TYPE_BYTES

from .errors import MemoryFault, UnknownInstruction
from .formats import Bits
from .lanes import Handler, Lanes
from .values import dtype_of

_SPACES = ("global", "shared", "local", "const", "param")
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def space_of(instruction: Instruction) -> str:
    """The state space among the modifiers, without its ``::cta``; empty for generic."""
    for mod in instruction.mods:
        space, _, part = mod.partition("::")
        if space in _SPACES and part in ("", "cta", "entry", "func"):
            return space
        if space in _SPACES:
            raise UnknownInstruction(instruction)
    return ""


def check(lanes: Lanes, addresses: npt.NDArray[np.uint64], size: int) -> None:
    """Raise ``MemoryFault`` for the first lane whose access is not allowed."""
    bad = lanes.machine.memory.bad(addresses, size)
    if bad is not None:
        index, what = bad
        raise MemoryFault(lanes.instruction, what, int(addresses[index]), int(lanes.indices[index]))


def _shape(instruction: Instruction) -> tuple[int, str]:
    count = next((_VECTORS[mod] for mod in instruction.mods if mod in _VECTORS), 1)
    type_ = instruction.mods[-1]
    if type_ not in TYPE_BYTES or type_ in ("pred", "b128"):
        raise UnknownInstruction(instruction)
    return count, type_


def _items(operand: Operand, count: int) -> tuple[Operand, ...]:
    return operand.items if count > 1 and isinstance(operand, Vec) else (operand,)


def load(lanes: Lanes, instruction: Instruction) -> None:
    """ld and ldu; cache operators and levels change nothing here."""
    count, type_ = _shape(instruction)
    size = TYPE_BYTES[type_]
    addresses = lanes.addresses(lanes.operand(1), space_of(instruction))
    check(lanes, addresses, size * count)
    # All parts are read before any is written: a destination may be the address register.
    parts = [lanes.machine.memory.load(addresses + np.uint64(size * index), size) for index in range(count)]
    for item, bits in zip(_items(lanes.operand(0), count), parts, strict=True):
        lanes.store(item, bits, type_)


def store(lanes: Lanes, instruction: Instruction) -> None:
    """st."""
    count, type_ = _shape(instruction)
    size = TYPE_BYTES[type_]
    addresses = lanes.addresses(lanes.operand(0), space_of(instruction))
    check(lanes, addresses, size * count)
    for index, item in enumerate(_items(lanes.operand(1), count)):
        if not isinstance(item, Sink):
            lanes.machine.memory.store(addresses + np.uint64(size * index), lanes.value(item, type_))


def move(lanes: Lanes, instruction: Instruction) -> None:
    """mov, with packing and unpacking."""
    type_ = instruction.mods[-1]
    if type_ == "b128":
        _move_128(lanes)
        return
    lanes.write(0, lanes.read(1, type_), type_)


def _move_128(lanes: Lanes) -> None:
    """A 128-bit register is a row of two 64-bit words."""
    destination, source = lanes.operand(0), lanes.operand(1)
    if isinstance(source, Vec):
        words = [lanes.value(item, "b64") for item in source.items]
        lanes.store(destination, np.stack(words, axis=1), "b128")
        return
    held = lanes.frame.wide_register(lanes, source)
    if isinstance(destination, Vec):
        for index, item in enumerate(destination.items):
            lanes.store(item, np.ascontiguousarray(held[:, index]), "b64")
    else:
        lanes.store(destination, held, "b128")


def convert_address(lanes: Lanes, instruction: Instruction) -> None:
    """cvta: only shared addresses differ between their window and generic space."""
    size = instruction.mods[-1]
    address = lanes.read(1, size)
    if space_of(instruction) == "shared":
        base = lanes.machine.shared_base[lanes.indices].astype(dtype_of(size))
        address = address - base if instruction.mods[0] == "to" else address + base
    lanes.write(0, address, size)


def is_space(lanes: Lanes, instruction: Instruction) -> None:
    """isspacep."""
    address = lanes.read(1, "b64")
    machine = lanes.machine
    inside: dict[str, Bits] = {
        "shared": machine.is_shared(lanes.indices, address),
        "local": machine.is_local(address),
        "const": machine.is_const(address),
        "param": machine.is_param(address),
    }
    space = space_of(instruction)
    if space == "global":
        lanes.write(0, ~np.logical_or.reduce(list(inside.values())), "pred")
    else:
        lanes.write(0, inside[space], "pred")


def allocate(lanes: Lanes, instruction: Instruction) -> None:
    """alloca: memory of each lane's own, which lives as long as the launch."""
    sizes = lanes.read(1, instruction.mods[-1])
    machine, size = lanes.machine, max(int(sizes.max()), 1) + 255 & ~255
    base = machine.memory.allocate(size * lanes.count)
    machine.frame_ranges.append((base, base + size * lanes.count))
    lanes.write(0, np.uint64(base) + np.arange(lanes.count, dtype=np.uint64) * np.uint64(size), instruction.mods[-1])


def save_stack(lanes: Lanes, instruction: Instruction) -> None:
    """stacksave: nothing is ever given back, so any number will do."""
    lanes.write(0, np.zeros(lanes.count, np.uint64), "u64")


def nothing(lanes: Lanes, instruction: Instruction) -> None:
    """Fences order nothing that the interpreter reorders; prefetches, hints and waits change no value."""


HANDLERS: dict[str, Handler] = {
    "ld": load, "ldu": load, "st": store, "mov": move, "cvta": convert_address, "isspacep": is_space,
    "alloca": allocate, "stacksave": save_stack, "stackrestore": nothing,
    "membar": nothing, "fence": nothing, "prefetch": nothing, "prefetchu": nothing, "nanosleep": nothing,
    "discard": nothing, "applypriority": nothing, "pmevent": nothing, "setmaxnreg": nothing,
    "griddepcontrol": nothing,
}  # fmt: skip
