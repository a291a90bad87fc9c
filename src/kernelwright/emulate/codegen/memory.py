"""Loads, stores, atomics, and what concerns addresses.

Source: PTX ISA 9.0, 9.7.9 (data movement) and 9.7.13 (atom, red, membar). Every access of global, shared, local or
generic memory goes through the runtime, which admits it or makes a finding; only kernel parameters are read directly.
"""

from __future__ import annotations

from dataclasses import replace

from kernelwright.emulate.ptx.ir import Imm, Mem, Operand, Reg
from kernelwright.emulate.ptx.types import TYPE_BYTES

from . import layout
from .integer import is_signed
from .lane import ELEMENT, Lanes, RefusedInstruction, emits
from .text import Value, constant

SPACES = {"global": 0, "shared": 1, "local": 2, "generic": 3, "const": 4, "param": 5}
"""State spaces as enum kw_space numbers them."""
LOAD, STORE, ATOMIC = 0, 1, 2
_HELPERS = {"global": "global", "const": "global", "shared": "shared", "local": "local", "generic": "generic"}


def space_of(g: Lanes) -> str:
    """The state space in the opcode; generic where there is none. Sub-qualifiers (``shared::cta``) are dropped."""
    for mod in g.instruction.mods:
        name = mod.split("::")[0]
        if name in SPACES and name != "generic":
            if mod == "shared::cluster":
                return "shared"
            return name
    return "generic"


def is_narrow(space: str) -> bool:
    """Whether addresses are 32-bit offsets into a window."""
    return space in ("shared", "local")


def pass_addresses(g: Lanes, memory: Mem, space: str) -> None:
    """Put the 32 addresses where the runtime looks for them."""
    value = g.text.splat(g.address(memory, narrow=is_narrow(space)))
    g.text.store(g.text.at("%w", layout.ADDRESSES), value, align=64)


def _shape(g: Lanes) -> tuple[str, int]:
    count = next((int(m[1:]) for m in g.instruction.mods if m in ("v2", "v4", "v8")), 1)
    return g.type, count


def _memory(g: Lanes, position: int) -> Mem:
    operand = g.instruction.operands[position]
    if not isinstance(operand, Mem):
        raise RefusedInstruction(g.instruction, "no address")
    return operand


@emits("ld", "ldu")
def _load(g: Lanes) -> None:
    space = space_of(g)
    memory = _memory(g, 1)
    if space == "param":
        if not g.address(memory, narrow=False).wide:
            _load_parameter(g, memory)
            return
        space = "generic"  # an index that differs between lanes; the runtime knows where the parameters lie
    type_, count = _shape(g)
    if type_ == "b128":
        raise RefusedInstruction(g.instruction)
    size = TYPE_BYTES[type_]
    pass_addresses(g, memory, space)
    g.count_access("ld", size * count, space)
    site = g.site(LOAD, SPACES[space], size=size * count, operand=memory, step=size, parts=g.used_parts())
    g.run(f"kw_ld_{_HELPERS[space]}_{8 * size}x{count}", g.active(), site)
    _order(g)
    integer = f"i{8 * size}"
    values = [g.text.as_type(_row(g, integer, size, j), ELEMENT[type_]) for j in range(count)]
    g.results(values, signed=is_signed(type_))


def _row(g: Lanes, element: str, size: int, part: int) -> Value:
    return g.take_lanes(0, element, offset=part * layout.LANES * size)


def _load_parameter(g: Lanes, memory: Mem) -> None:
    """A kernel parameter: the same for all lanes where the address is."""
    t = g.text
    type_, count = _shape(g)
    size = TYPE_BYTES[type_]
    address = g.address(memory, narrow=False)
    values = []
    for j in range(count):
        pointer = t.fresh("p")
        t.emit(f"{pointer} = inttoptr i64 {address.text} to ptr")
        values.append(t.load(t.at(pointer, j * size), ELEMENT[type_], align=1))
    g.results(values, signed=is_signed(type_))


@emits("st")
def _store(g: Lanes) -> None:
    space = space_of(g)
    memory = _memory(g, 0)
    type_, count = _shape(g)
    if type_ == "b128" or space == "param":
        raise RefusedInstruction(g.instruction)
    size = TYPE_BYTES[type_]
    # A store to constant memory is checked like a global one, and the allocation's kind refuses it.
    for j, item in enumerate(g.components(1)):
        value = g.text.as_type(g.read(item, type_), f"i{8 * size}")
        g.pass_lanes(0, value, offset=j * layout.LANES * size)
    pass_addresses(g, memory, space)
    g.count_access("st", size * count, space)
    _order(g)
    site = g.site(STORE, SPACES[space], size=size * count, operand=memory, step=size)
    g.run(f"kw_st_{_HELPERS[space]}_{8 * size}x{count}", g.active(), site)


def _order(g: Lanes) -> None:
    """An access that acquires or releases is a fence too."""
    if not _ORDERS.isdisjoint(g.instruction.mods):
        _run_fence(g)


def _run_fence(g: Lanes) -> None:
    """A fence of the block, or of the whole device."""
    inner = g.has("cta") or g.has("proxy")
    g.run("kw_fence" if inner else "kw_fence_device")


_ORDERS = frozenset({"acquire", "release", "acq_rel"})
_OPERATIONS = {"add": 0, "min": 1, "max": 2, "and": 3, "or": 4, "xor": 5, "exch": 6, "cas": 7, "inc": 8, "dec": 9}
_TYPES = {
    "u32": 0, "b32": 0, "s32": 1, "u64": 2, "b64": 2, "s64": 3, "f32": 4, "f64": 5, "f16": 6, "bf16": 7,
    "f16x2": 8, "bf16x2": 9, "b16": 10,
}  # fmt: skip
"""Types as kw_atomic numbers them."""


@emits("atom", "red")
def _atomic(g: Lanes) -> None:
    returns = g.instruction.op == "atom"
    mods = g.instruction.mods
    # In ``atom.global.v4.f32.add`` the operation comes last.
    type_ = next((mod for mod in reversed(mods) if mod in _TYPES), "")
    operation = next((m for m in mods if m in _OPERATIONS), "")
    if not type_ or not operation or "async" in mods:
        raise RefusedInstruction(g.instruction)
    memory = _memory(g, 1 if returns else 0)
    first = 2 if returns else 1
    # A cache policy behind the operands changes nothing here.
    sources = [g.components(position) for position in range(first, len(g.instruction.operands))][:2]
    old = [
        _atomic_part(g, replace(memory, offset=memory.offset + part * TYPE_BYTES[type_]), operation, type_, values)
        for part, values in enumerate(zip(*(s for s in sources if len(s) == len(sources[0])), strict=True))
    ]
    if returns:
        g.results(old, signed=is_signed(type_))


def _atomic_part(g: Lanes, memory: Mem, operation: str, type_: str, values: tuple[Operand, ...]) -> Value:
    """One operation a lane; what was there before. The parts of a vector are atomic each by itself."""
    t, space, size = g.text, space_of(g), TYPE_BYTES[type_]
    for row, operand in enumerate(values):
        g.pass_lanes(row, t.resize(t.as_type(g.read(operand, type_), f"i{8 * size}"), "i64"))
    pass_addresses(g, memory, space)
    returns = g.instruction.op == "atom"
    # ptxas makes a reduction of an atomic that nobody reads.
    read = returns and any(isinstance(item, Reg) and g.is_read(item) for item in g.components(0))
    g.count_access("atom" if read else "inc" if _is_increment(operation, type_, values) else "red", size, space)
    # What an exchange finds may be anything. Only who uses what an atomic returns has learnt from it.
    parts = int(operation != "exch") | 2 * int(read)
    site = g.site(ATOMIC, SPACES[space], size=size, operand=memory, parts=parts)
    active = g.active()
    _order(g)
    g.run("kw_atomic", active, site, SPACES[space] if space != "const" else 0, _OPERATIONS[operation], _TYPES[type_])
    _order(g)
    return t.as_type(t.resize(g.take_lanes(0, "i64"), f"i{8 * size}"), ELEMENT[type_])


def _is_increment(operation: str, type_: str, values: tuple[Operand, ...]) -> bool:
    """Whether one is added, which hardware counts for all lanes of an address in shared memory at once."""
    return operation == "add" and type_ in ("u32", "s32") and isinstance(values[0], Imm) and values[0].bits == 1


def window(g: Lanes, offset: int) -> Value:
    """A 64-bit field of the warp, such as where the shared window lies."""
    return g.text.load(g.text.at("%w", offset), "i64", align=8)


def _local_start(g: Lanes) -> Value:
    """Where each lane's local depot lies."""
    t = g.text
    lanes = Value("<" + ", ".join(f"i64 {i}" for i in range(layout.LANES)) + ">", "i64", True)
    return t.op("add", window(g, layout.LOCAL), t.op("mul", lanes, window(g, layout.LOCAL_STRIDE)))


@emits("cvta")
def _convert_address(g: Lanes) -> None:
    t = g.text
    mods = g.instruction.mods
    to_space = mods[0] == "to"
    space = mods[1 if to_space else 0].split("::")[0]
    value = g.source(1, g.type)
    if g.type == "u32" or space in ("global", "const", "param"):
        g.result(value)
        return
    start = window(g, layout.SHARED) if space == "shared" else _local_start(g)
    g.result(t.op("sub" if to_space else "add", value, start))


@emits("isspacep")
def _is_space(g: Lanes) -> None:
    t = g.text
    space = g.instruction.mods[0].split("::")[0]
    value = g.source(1, "u64")

    def within(start: Value, size: Value) -> Value:
        return t.compare("icmp ult", t.op("sub", value, start), size)

    total = t.resize(t.load(t.at("%w", layout.TOTAL_SHARED), "i32", align=4), "i64")
    in_shared = within(window(g, layout.SHARED), total)
    locals_ = t.op("mul", window(g, layout.LOCAL_STRIDE), constant("i64", layout.LANES))
    in_local = within(window(g, layout.LOCAL), locals_)
    if space == "shared":
        g.result(in_shared)
    elif space == "local":
        g.result(in_local)
    elif space == "global":
        g.result(t.op("xor", t.op("or", in_shared, in_local), constant("i1", 1)))
    else:
        raise RefusedInstruction(g.instruction)


@emits("membar", "fence")
def _fence(g: Lanes) -> None:
    """Values are in order already (warps of a block run one at a time); what is kept is which accesses it orders."""
    _run_fence(g)


@emits("prefetch", "prefetchu", "nanosleep", "pmevent", "discard", "applypriority", "setmaxnreg", "griddepcontrol")
def _nothing_to_do(g: Lanes) -> None:
    """Hints change no value."""


@emits("createpolicy")
def _policy(g: Lanes) -> None:
    """A cache policy is a number nobody looks into."""
    g.result(constant("i64", 0))
