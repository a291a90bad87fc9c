"""Instructions in which the lanes of a warp exchange values: shfl, vote, match, redux, activemask, elect.

The machine calls these once every member of each lane's mask has arrived, so ``lanes`` holds whole groups.
Source: PTX ISA 9.0, sections 9.7.9.6 and 9.7.13,
https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-shfl-sync
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernelwright.emulate.ptx.ir import Instruction, Reg

from .errors import UnknownInstruction
from .formats import Bits
from .lanes import Handler, Lanes
from .values import signed

WARP = 32


def member_masks(lanes: Lanes, instruction: Instruction) -> npt.NDArray[np.uint32]:
    """The member mask of each lane; all ones for forms without one (``mma``, ``vote`` without ``.sync``)."""
    has_mask = "sync" in instruction.mods and instruction.op in ("shfl", "vote", "match", "redux", "elect")
    if has_mask or (instruction.op == "bar" and instruction.mods[0] == "warp"):
        masks: npt.NDArray[np.uint32] = lanes.read(len(instruction.operands) - 1, "b32")
        return masks
    return np.full(lanes.count, 0xFFFFFFFF, np.uint32)


def _rows(lanes: Lanes) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Each warp's first lane, and the positions in ``lanes`` of its executing lanes."""
    warps = lanes.indices // WARP
    return [(int(warp) * WARP, np.flatnonzero(warps == warp)) for warp in np.unique(warps)]


def shuffle(lanes: Lanes, instruction: Instruction) -> None:
    """shfl.sync.up/down/bfly/idx, by the manual's code. A lane whose source is out of range gets its own value."""
    mode = instruction.mods[1] if instruction.mods[0] == "sync" else instruction.mods[0]
    own = lanes.read(1, "b32")
    b = lanes.read(2, "b32").astype(np.int64) & 31
    c = lanes.read(3, "b32").astype(np.int64)
    lane = lanes.indices % WARP
    clamp, segment = c & 31, (c >> 8) & 31
    lowest = lane & segment
    highest = lowest | (clamp & ~segment)
    match mode:
        case "up":
            source = lane - b
            valid = source >= highest
        case "down":
            source = lane + b
            valid = source <= highest
        case "bfly":
            source = lane ^ b
            valid = source <= highest
        case "idx":
            source = lowest | (b & ~segment)
            valid = source <= highest
        case _:
            raise UnknownInstruction(instruction)
    source = np.where(valid, source, lane)
    # The source operand as it stands in every lane of the warp: an inactive lane's value is undefined by PTX, and is
    # whatever its register holds.
    everywhere = np.zeros(len(lanes.machine.shared_base), np.uint32)
    register = lanes.operand(1)
    if isinstance(register, Reg):
        everywhere[:] = lanes.frame.register(register)
    everywhere[lanes.indices] = own
    lanes.write_pair(0, everywhere[lanes.indices - lane + source], "b32", valid, "pred")


def vote(lanes: Lanes, instruction: Instruction) -> None:
    """vote.all/any/uni/ballot among the members of each lane's mask."""
    mode = instruction.mods[1] if instruction.mods[0] == "sync" else instruction.mods[0]
    predicate = lanes.read(1, "pred")
    masks = member_masks(lanes, instruction)
    ballots = np.zeros(lanes.count, np.uint32)
    present = np.zeros(lanes.count, np.uint32)
    for first, row in _rows(lanes):
        bits = (np.uint32(1) << (lanes.indices[row] - first).astype(np.uint32)).astype(np.uint32)
        ballots[row] = np.bitwise_or.reduce(np.where(predicate[row], bits, np.uint32(0))) & masks[row]
        present[row] = np.bitwise_or.reduce(bits) & masks[row]
    match mode:
        case "ballot":
            lanes.write(0, ballots, "b32")
        case "any":
            lanes.write(0, ballots != 0, "pred")
        case "all":
            lanes.write(0, ballots == present, "pred")
        case "uni":
            lanes.write(0, (ballots == present) | (ballots == 0), "pred")
        case _:
            raise UnknownInstruction(instruction)


def match_value(lanes: Lanes, instruction: Instruction) -> None:
    """match.any and match.all among the members of each lane's mask."""
    mode, type_ = instruction.mods[0], instruction.mods[-1]
    values = lanes.read(1, type_)
    masks = member_masks(lanes, instruction)
    result = np.zeros(lanes.count, np.uint32)
    agreed = np.zeros(lanes.count, bool)
    for first, row in _rows(lanes):
        numbers = lanes.indices[row] - first
        for position in row:
            member = [bool(int(masks[position]) >> int(n) & 1) for n in numbers]
            same = [
                int(n)
                for n, other, inside in zip(numbers, row, member, strict=True)
                if inside and values[other] == values[position]
            ]
            together = sum(1 << n for n in same)
            agreed[position] = len(same) == sum(member)
            result[position] = together if mode == "any" or agreed[position] else 0
    if mode == "all":
        lanes.write_pair(0, result, "b32", agreed, "pred")
    elif mode == "any":
        lanes.write(0, result, "b32")
    else:
        raise UnknownInstruction(instruction)


def reduce(lanes: Lanes, instruction: Instruction) -> None:
    """redux.sync among the members of each lane's mask."""
    operation, type_ = instruction.mods[1], instruction.mods[-1]
    if type_ not in ("u32", "s32", "b32"):
        raise UnknownInstruction(instruction)
    values = lanes.read(1, type_)
    masks = member_masks(lanes, instruction)
    result = np.zeros(lanes.count, np.uint32)
    for first, row in _rows(lanes):
        numbers = lanes.indices[row] - first
        for position in row:
            members = [other for other, n in zip(row, numbers, strict=True) if int(masks[position]) >> int(n) & 1]
            taken = values[members]
            match operation:
                case "add":
                    result[position] = np.add.reduce(taken, dtype=np.uint32)
                case "min" | "max":
                    ordered = np.sort(signed(taken) if type_ == "s32" else taken)
                    result[position] = np.asarray(ordered[0 if operation == "min" else -1]).view(np.uint32)
                case "and":
                    result[position] = np.bitwise_and.reduce(taken)
                case "or":
                    result[position] = np.bitwise_or.reduce(taken)
                case "xor":
                    result[position] = np.bitwise_xor.reduce(taken)
                case _:
                    raise UnknownInstruction(instruction)
    lanes.write(0, result, type_)


def active_mask(lanes: Lanes, instruction: Instruction) -> None:
    """activemask: the lanes of the warp that execute this together."""
    result: Bits = np.zeros(lanes.count, np.uint32)
    for first, row in _rows(lanes):
        result[row] = sum(1 << int(index - first) for index in lanes.indices[row])
    lanes.write(0, result, "b32")


def elect(lanes: Lanes, instruction: Instruction) -> None:
    """elect.sync: the lowest member leads."""
    masks = member_masks(lanes, instruction)
    leader = np.array([(int(mask) & -int(mask)).bit_length() - 1 for mask in masks], np.uint32)
    lanes.write_pair(0, leader, "b32", leader == (lanes.indices % WARP), "pred")


def wait(lanes: Lanes, instruction: Instruction) -> None:
    """bar.warp.sync: waiting was all."""


HANDLERS: dict[str, Handler] = {
    "shfl": shuffle, "vote": vote, "match": match_value, "redux": reduce, "activemask": active_mask, "elect": elect,
}  # fmt: skip
