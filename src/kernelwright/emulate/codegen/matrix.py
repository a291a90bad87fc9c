"""Tensor-core instructions of sm_80: mma, wmma, ldmatrix.

Source: PTX ISA 9.0, 9.7.14. The arithmetic and the fragments' layouts are in native/runtime_matrix.c.
"""

from __future__ import annotations

import re

from kernelwright.emulate.ptx.ir import Mem

from . import layout
from .lane import Lanes, RefusedInstruction, emits
from .memory import LOAD, SPACES, STORE, pass_addresses, space_of
from .text import Value, constant

_TYPES = {"f16": 0, "bf16": 1, "tf32": 2, "f64": 3, "s8": 4, "u8": 5, "f32": 6, "s32": 7}
"""Element types as kw_mma numbers them."""
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "f32": 32, "s32": 32}
_A_AT, _B_AT, _C_AT = 0, 1024, 2048
_SHAPES = {
    "mma": {
        "f16": ("m16n8k8", "m16n8k16"), "bf16": ("m16n8k8", "m16n8k16"), "tf32": ("m16n8k4", "m16n8k8"),
        "f64": ("m8n8k4",), "s8": ("m8n8k16", "m16n8k16", "m16n8k32"), "u8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    },
    "wmma": {
        **dict.fromkeys(("f16", "bf16", "s8", "u8"), ("m16n16k16", "m8n32k16", "m32n8k16")),
        "tf32": ("m16n16k8",), "f64": ("m8n8k4",),
    },
}  # fmt: skip
"""Shapes that are known for each type of A."""


def _shape(g: Lanes) -> tuple[str, int, int, int]:
    for mod in g.instruction.mods:
        found = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", mod)
        if found:
            return mod, int(found[1]), int(found[2]), int(found[3])
    raise RefusedInstruction(g.instruction)


def _put_fragment(g: Lanes, position: int, type_: str, start: int) -> int:
    """The registers of a fragment into the scratch area; how many there are."""
    wide = type_ == "f64"
    items = g.components(position)
    for number, item in enumerate(items):
        value = g.read(item, "b64" if wide else "b32")
        pointer = g.text.at(g.scratch(), start + number * (256 if wide else 128))
        g.text.store(pointer, g.text.splat(value), align=64)
    return len(items)


@emits("mma")
def _multiply(g: Lanes) -> None:
    d_type, a_type, b_type, c_type = g.instruction.mods[-4:]
    _run(g, (a_type, b_type, c_type, d_type), by_rows=0)


def _run(g: Lanes, types: tuple[str, str, str, str], *, by_rows: int) -> None:
    t = g.text
    name, m, n, k = _shape(g)
    a_type, d_type = types[0], types[3]
    known = _SHAPES[g.instruction.op].get(a_type, ())
    if name not in known or any(type_ not in _TYPES for type_ in types):
        raise RefusedInstruction(g.instruction)
    if any(mod in ("sp", "xor", "and", "popc") for mod in g.instruction.mods):
        raise RefusedInstruction(g.instruction)
    starts = (_A_AT, _B_AT, _C_AT)
    counts = [_put_fragment(g, i + 1, types[i], start) for i, start in enumerate(starts)]
    results = len(g.components(0))
    coded = sum(_TYPES[type_] << 4 * i for i, type_ in enumerate(types))
    registers = counts[0] | counts[1] << 8 | counts[2] << 16 | results << 24
    numbers = (m << 16 | n << 8 | k, coded, registers, by_rows, int(g.has("satfinite")))
    given = "".join(f", i32 {number}" for number in numbers)
    t.call("kw_mma", "void", f"ptr %w, ptr {g.scratch()}{given}", "ptr, ptr" + ", i32" * len(numbers))
    wide = d_type == "f64"
    element, size = ("i64", 256) if wide else ("i32", 128)
    g.results([t.load(t.at(g.scratch(), _C_AT + i * size), element, wide=True, align=64) for i in range(results)])


@emits("wmma")
def _warp_matrix(g: Lanes) -> None:
    kind = g.instruction.mods[0]
    if kind == "load":
        _load_fragment(g)
    elif kind == "store":
        _store_fragment(g)
    else:
        types = [mod for mod in g.instruction.mods if mod in _TYPES]
        if len(types) == 2:  # f16 inputs are not named
            types = [types[0], "f16", "f16", types[1]]
        if len(types) != 4:
            raise RefusedInstruction(g.instruction)
        d_type, a_type, b_type, c_type = types
        _run(g, (a_type, b_type, c_type, d_type), by_rows=1)


def _element_addresses(g: Lanes, memory: Mem, stride: Value, role: str, space: str) -> list[Value]:
    """For each element that a lane holds, the 32 addresses: element i of lane l is number l * each + i in row order."""
    t = g.text
    rows, columns = _extent(g, role)
    each = rows * columns // layout.LANES
    size = _BITS[g.type] // 8
    narrow = space == "shared"
    element = "i32" if narrow else "i64"
    base = g.address(memory, narrow=narrow)
    stride = t.resize(stride, element)
    made = []
    for i in range(each):
        numbers = [lane * each + i for lane in range(layout.LANES)]
        row, column = ([x // columns for x in numbers], [x % columns for x in numbers])
        if g.has("col"):
            row, column = column, row
        line, along = (_constants(element, values) for values in (row, column))
        offset = t.op("mul", t.op("add", t.op("mul", line, stride), along), constant(element, size))
        made.append(t.op("add", base, offset))
    return made


def _constants(element: str, values: list[int]) -> Value:
    return Value("<" + ", ".join(f"{element} {value}" for value in values) + ">", element, True, True)


def _count_fragment(g: Lanes, op: str, memory: Mem, stride: Value, role: str, space: str) -> None:
    """A fragment's traffic as mma's layouts have it: 8 lines of 4 lanes with 4 bytes each, or two elements of a result.

    So nvcc's code loads and stores what lies in the order of k (A by rows, B by columns) or of n (C and D by rows).
    """
    if not g.counted:
        return
    t, size = g.text, _BITS[g.type] // 8
    rows, columns = _extent(g, role)
    along, lines = (rows, columns) if g.has("col") else (columns, rows)
    width = 2 if role in ("c", "d") else max(1, 4 // size)
    element = "i32" if space == "shared" else "i64"
    base, stride = g.address(memory, narrow=space == "shared"), t.resize(stride, element)
    if space == "shared" and op == "ld" and size == 2 and role in ("a", "b"):
        _count_matrices(g, base, stride, lines, along)
        return
    for first_line in range(0, lines, 8):
        for first in range(0, along, 4 * width):
            line = _constants(element, [first_line + lane // 4 for lane in range(layout.LANES)])
            place = _constants(element, [first + lane % 4 * width for lane in range(layout.LANES)])
            offset = t.op("mul", t.op("add", t.op("mul", line, stride), place), constant(element, size))
            t.store(t.at("%w", layout.ADDRESSES), t.splat(t.op("add", base, offset)), align=64)
            g.count_access(op, width * size, space)


def _count_matrices(g: Lanes, base: Value, stride: Value, lines: int, along: int) -> None:
    """A fragment of halves from shared memory: ptxas loads it with ldmatrix, four matrices of 8 rows at a time."""
    t, element = g.text, base.element
    starts = [(line, place) for line in range(0, lines, 8) for place in range(0, along, 8)]
    for first in range(0, len(starts), 4):
        some = starts[first : first + 4]
        rows = [some[min(lane // 8, len(some) - 1)] for lane in range(layout.LANES)]
        line = _constants(element, [start + lane % 8 for lane, (start, _) in enumerate(rows)])
        place = _constants(element, [start for _, start in rows])
        offset = t.op("mul", t.op("add", t.op("mul", line, stride), place), constant(element, 2))
        t.store(t.at("%w", layout.ADDRESSES), t.splat(t.op("add", base, offset)), align=64)
        g.count_access("ldmatrix", len(some), "shared")


def _extent(g: Lanes, role: str) -> tuple[int, int]:
    """Rows and columns of a fragment's matrix."""
    _, m, n, k = _shape(g)
    return {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[role]


def _stride(g: Lanes, position: int, role: str) -> Value:
    operands = g.instruction.operands
    if len(operands) > position:
        return g.read(operands[position], "u32")
    rows, columns = _extent(g, role)
    return constant("i32", rows if g.has("col") else columns)


def _load_fragment(g: Lanes) -> None:
    t = g.text
    role, space, type_ = g.instruction.mods[1], space_of(g), g.type
    memory = g.instruction.operands[1]
    if not isinstance(memory, Mem) or type_ not in _BITS or space not in ("global", "shared", "generic"):
        raise RefusedInstruction(g.instruction)
    bits = _BITS[type_]
    elements = []
    stride = _stride(g, 2, role)
    _count_fragment(g, "ld", memory, stride, role, space)
    for address in _element_addresses(g, memory, stride, role, space):
        t.store(t.at("%w", layout.ADDRESSES), t.splat(address), align=64)
        site = g.site(LOAD, SPACES[space], size=bits // 8, operand=memory)
        g.run(f"kw_ld_{space}_{bits}x1", g.active(), site)
        elements.append(g.take_lanes(0, f"i{bits}"))
    per = max(32 // bits, 1)
    registers = []
    for start in range(0, len(elements), per):
        whole = elements[start]
        if per > 1:
            whole = t.resize(whole, "i32")
            for i in range(1, per):
                part = t.op("shl", t.resize(elements[start + i], "i32"), constant("i32", bits * i))
                whole = t.op("or", whole, part)
        registers.append(whole)
    wanted = len(g.components(0))
    # f16 fragments of A and B have room for everything twice.
    g.results([registers[i % len(registers)] for i in range(wanted)])


def _store_fragment(g: Lanes) -> None:
    t = g.text
    space, type_ = space_of(g), g.type
    memory = g.instruction.operands[0]
    if not isinstance(memory, Mem) or type_ not in _BITS or space not in ("global", "shared", "generic"):
        raise RefusedInstruction(g.instruction)
    bits = _BITS[type_]
    per = max(32 // bits, 1)
    elements = []
    for item in g.components(1):
        value = g.read(item, "b64" if bits == 64 else "b32")
        for i in range(per):
            moved = t.op("lshr", value, constant(value.element, bits * i)) if i else value
            elements.append(t.resize(moved, f"i{bits}"))
    stride = _stride(g, 2, "d")
    _count_fragment(g, "st", memory, stride, "d", space)
    for address, value in zip(_element_addresses(g, memory, stride, "d", space), elements, strict=True):
        g.pass_lanes(0, value)
        t.store(t.at("%w", layout.ADDRESSES), t.splat(address), align=64)
        site = g.site(STORE, SPACES[space], size=bits // 8, operand=memory)
        g.run(f"kw_st_{space}_{bits}x1", g.active(), site)


@emits("ldmatrix")
def _load_matrix(g: Lanes) -> None:
    count = next((int(mod[1:]) for mod in g.instruction.mods if mod in ("x1", "x2", "x4")), 0)
    memory = g.instruction.operands[1]
    if not count or not isinstance(memory, Mem) or not g.has("m8n8") or g.type != "b16":
        raise RefusedInstruction(g.instruction)
    space = space_of(g)
    pass_addresses(g, memory, space)
    g.count_access("ldmatrix", count, space)
    site = g.site(LOAD, SPACES[space], size=16, operand=memory)
    g.run("kw_ldmatrix", site, SPACES[space], count, int(g.has("trans")))
    g.results([g.take_lanes(i, "i32") for i in range(count)])
