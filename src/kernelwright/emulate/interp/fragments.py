"""wmma: fragments whose layout PTX leaves open; here element i of lane l is number l * each + i in row order.

The arithmetic is that of mma. Source: PTX ISA 9.0, section 9.7.14.4.
"""

from __future__ import annotations

import re

import numpy as np

from kernelwright.emulate.ptx.ir import Instruction, Operand

from .errors import UnknownInstruction
from .lanes import Handler, Lanes
from .matrix import WIDTH, dot, items_of
from .transfer import check, space_of
from .warp import WARP


def warp_matrix(lanes: Lanes, instruction: Instruction) -> None:
    """wmma.load, wmma.mma and wmma.store, for each warp whose lanes are all here."""
    if lanes.count % WARP:
        raise UnknownInstruction(instruction)
    kind = instruction.mods[0]
    if kind == "load":
        _load_fragment(lanes, instruction)
    elif kind == "store":
        _store_fragment(lanes, instruction)
    else:
        _multiply_fragments(lanes, instruction)


def _sizes(instruction: Instruction) -> dict[str, tuple[int, int]]:
    shape = next((found for mod in instruction.mods if (found := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", mod))), None)
    if shape is None:
        raise UnknownInstruction(instruction)
    m, n, k = (int(number) for number in shape.groups())
    return {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}


def _numbers(rows: int, columns: int, lane: int) -> list[tuple[int, int]]:
    each = rows * columns // WARP
    return [divmod(number, columns) for number in range(lane * each, lane * each + each)]


def _cells(lanes: Lanes, instruction: Instruction, role: str, position: int) -> list[list[int]]:
    """For each lane the addresses of its elements."""
    rows, columns = _sizes(instruction)[role]
    by_columns = "col" in instruction.mods
    operands = instruction.operands
    bases = lanes.addresses(operands[position], space_of(instruction)).tolist()
    default = rows if by_columns else columns
    given = operands[2] if len(operands) > 2 else None
    strides = [default] * lanes.count if given is None else lanes.value(given, "u32").tolist()
    size = WIDTH[instruction.mods[-1]] // 8
    made = []
    for index, (base, stride) in enumerate(zip(bases, strides, strict=True)):
        places = _numbers(rows, columns, index % WARP)
        made.append([base + ((c * stride + r) if by_columns else (r * stride + c)) * size for r, c in places])
    return made


def _load_fragment(lanes: Lanes, instruction: Instruction) -> None:
    width, memory = WIDTH[instruction.mods[-1]], lanes.machine.memory
    cells = _cells(lanes, instruction, instruction.mods[1], 1)
    items = items_of(instruction.operands[0])
    per, size = max(32 // width, 1), width // 8
    made = np.zeros((len(items), lanes.count), np.uint64 if width == 64 else np.uint32)
    for lane, addresses in enumerate(cells):
        check(lanes.subset(np.arange(lanes.count) == lane), np.array(addresses, np.uint64), size)
        values = [int.from_bytes(memory.read(address, size), "little") for address in addresses]
        for register in range(len(items)):
            # f16 fragments of A and B have room for everything twice.
            parts = [values[(register * per + e) % len(values)] << e * width for e in range(per)]
            made[register, lane] = sum(parts)
    for item, row in zip(items, made, strict=True):
        lanes.store(item, row, f"b{8 * made.dtype.itemsize}")


def _elements(lanes: Lanes, operand: Operand, type_: str, count: int) -> list[list[int]]:
    """For each lane its elements."""
    width = WIDTH[type_]
    per = max(32 // width, 1)
    columns = [lanes.value(item, f"b{max(32, width)}").tolist() for item in items_of(operand)]
    return [
        [columns[e // per][lane] >> e % per * width & (1 << width) - 1 for e in range(count)]
        for lane in range(lanes.count)
    ]


def _store_fragment(lanes: Lanes, instruction: Instruction) -> None:
    type_, memory = instruction.mods[-1], lanes.machine.memory
    cells = _cells(lanes, instruction, "d", 0)
    size = WIDTH[type_] // 8
    for lane, values in enumerate(_elements(lanes, instruction.operands[1], type_, len(cells[0]))):
        check(lanes.subset(np.arange(lanes.count) == lane), np.array(cells[lane], np.uint64), size)
        for address, value in zip(cells[lane], values, strict=True):
            memory.write(address, value.to_bytes(size, "little"))


def _multiply_fragments(lanes: Lanes, instruction: Instruction) -> None:
    types = [mod for mod in instruction.mods if mod in WIDTH]
    if len(types) == 2:  # f16 operands are not named
        types = [types[0], "f16", "f16", types[1]]
    if len(types) != 4:
        raise UnknownInstruction(instruction)
    sizes, operands = _sizes(instruction), instruction.operands
    named = dict(zip("abc", types[1:], strict=True))
    items, width = items_of(operands[0]), WIDTH[types[0]]
    made = np.zeros((len(items), lanes.count), np.uint64 if width == 64 else np.uint32)
    held = {
        role: _elements(lanes, operands[1 + at], named[role], sizes[role][0] * sizes[role][1] // WARP)
        for at, role in enumerate("abc")
    }
    for start in range(0, lanes.count, WARP):
        matrix = {
            role: {
                place: value
                for lane in range(WARP)
                for place, value in zip(_numbers(*sizes[role], lane), held[role][start + lane], strict=True)
            }
            for role in "abc"
        }
        (m, n), k = sizes["d"], sizes["a"][1]
        d = {
            (i, j): _in_steps(
                [matrix["a"][i, x] for x in range(k)],
                [matrix["b"][x, j] for x in range(k)],
                matrix["c"][i, j],
                tuple(types),
                instruction,
            )
            for i in range(m)
            for j in range(n)
        }
        per = max(32 // width, 1)
        for lane in range(WARP):
            for e, place in enumerate(_numbers(m, n, lane)):
                made[e // per, start + lane] |= made.dtype.type(d[place] << e % per * width)
    for item, row in zip(items, made, strict=True):
        lanes.store(item, row, f"b{8 * made.dtype.itemsize}")


def _in_steps(a: list[int], b: list[int], c: int, types: tuple[str, ...], instruction: Instruction) -> int:
    """``dot``; of tf32 four terms at a time, as an H200 does (driver 13.0, 2026-11-29), where mma takes all eight."""
    step = 4 if types[1] == "tf32" else len(a)
    for start in range(0, len(a), step):
        c = dot(a[start : start + step], b[start : start + step], c, types, instruction)
    return c


HANDLERS: dict[str, Handler] = {"wmma": warp_matrix}
