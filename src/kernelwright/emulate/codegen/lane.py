"""A kernel in the making, as the instruction emitters see it: operands in, results out, lanes masked.

Why: an emitter should say what its instruction computes and nothing else. The rule: inside a basic block registers are
SSA values and lanes that do not run compute garbage nobody sees; what outlives the block is stored at its end, blended
with the old value in the lanes that do not run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.emulate.ptx.ir import Imm, Instruction, Mem, Not, Operand, Pair, Reg, Sink, Special, Sym, Vec
from kernelwright.emulate.ptx.types import TYPE_BYTES

from . import layout
from .text import BITS, Text, Value, constant


class RefusedInstruction(Exception):
    """An instruction that this emulator does not know: refused by name, never guessed."""

    def __init__(self, instruction: Instruction, why: str = "") -> None:
        self.instruction = instruction
        self.what, self.why = instruction.opcode, why
        self.kernel = ""
        """Mangled; known once the refusal leaves the module."""
        place = f"PTX line {instruction.ptx_line}"
        if instruction.position is not None:
            place += f", {instruction.position.file}:{instruction.position.line}"
        super().__init__(f"{instruction.opcode} is not emulated ({place})" + (f": {why}" if why else ""))


ELEMENT: dict[str, str] = {
    "pred": "i1", "b8": "i8", "u8": "i8", "s8": "i8", "b16": "i16", "u16": "i16", "s16": "i16",
    "b32": "i32", "u32": "i32", "s32": "i32", "b64": "i64", "u64": "i64", "s64": "i64", "b128": "i128",
    "f16": "half", "bf16": "i16", "f32": "float", "f64": "double",
    "f16x2": "i32", "bf16x2": "i32", "u16x2": "i32", "s16x2": "i32", "f32x2": "i64", "tf32": "float",
    "e4m3": "i8", "e5m2": "i8", "e4m3x2": "i16", "e5m2x2": "i16",
}  # fmt: skip
"""PTX type to the LLVM type that holds it."""


@dataclass(frozen=True)
class Site:
    """A place in the code that may fault; see ``kw_site``."""

    instruction: int
    space: int
    access: int
    bytes: int = 0
    parameter: int = -1
    low: int = -1
    high: int = -1
    strong: int = 0
    """0 plain, 1 volatile, 2 atomic, relaxed and above; see ``kw_site``."""
    parts: int = 1
    """Bit j: some instruction uses component j of what is loaded."""
    variable: int = -1
    """Index of the module's variable in the launch's symbols; :data:`ELSEWHERE`: certain to be no global memory."""
    granule: int = 4
    """Bytes of one element."""
    read_only: int = 0
    """1: a load through the read-only cache (``ld.global.nc``)."""


ELSEWHERE = -2


class Lanes:
    """The emitters' interface. :class:`~.kernel.KernelCode` completes it with control flow."""

    counted = False
    """Whether what is emitted counts; see counting.py."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.instruction: Instruction
        self.index = 0
        self.guard: Value | None = None
        self.sites: list[Site] = []
        self.uses_scratch = False
        self.symbols: dict[str, int] = {}
        self.scalars: frozenset[str] = frozenset()
        self.slots: dict[str, int] = {}
        self.flushed: dict[str, Value] = {}
        """Names of this block's values that ``.ftz`` has asked for, to what they are without subnormals."""
        self._known: dict[str, Value] = {}
        self._dirty: dict[str, str] = {}
        self._mask: Value | None = None
        self._lanes: Value | None = None

    # ---- registers

    def begin_block(self) -> None:
        """Forget what belongs to the block before."""
        self._known.clear()
        self._dirty.clear()
        self.flushed.clear()
        self._mask = self._lanes = None
        self.text.forget()

    def register(self, reg: Reg) -> Value:
        """The register's value, in its own type."""
        value = self._known.get(reg.name)
        if value is None:
            value = self._load_slot(reg)
            self._known[reg.name] = value
        return value

    def _load_slot(self, reg: Reg) -> Value:
        element = ELEMENT[reg.type]
        wide = reg.name not in self.scalars
        if reg.name not in self.slots:
            return constant(element, 0)
        pointer = self.text.at("%w", self.slots[reg.name])
        if element != "i1":
            return self.text.load(pointer, element, wide=wide, align=64 if wide else 4)
        bits = self.text.load(pointer, "i32", align=4)
        if not wide:
            return self.text.compare("icmp ne", bits, constant("i32", 0))
        return self.bits_to_lanes(bits)

    def bits_to_lanes(self, bits: Value) -> Value:
        """A 32-bit mask as 32 booleans."""
        name = self.text.fresh()
        self.text.emit(f"{name} = bitcast i32 {bits.text} to <{layout.LANES} x i1>")
        return Value(name, "i1", True)

    def lanes_to_bits(self, lanes: Value) -> Value:
        """32 booleans as a mask."""
        lanes = self.text.splat(lanes)
        name = self.text.fresh()
        self.text.emit(f"{name} = bitcast <{layout.LANES} x i1> {lanes.text} to i32")
        return Value(name, "i32")

    def assign(self, reg: Reg, value: Value, *, signed: bool = False) -> None:
        """Give ``reg`` a value of its own or a narrower width, under the guard."""
        element = ELEMENT[reg.type]
        if value.element != element:
            if value.bits != BITS[element]:
                value = self.text.resize(self.text.as_type(value, f"i{value.bits}"), f"i{BITS[element]}", signed=signed)
            value = self.text.as_type(value, element)
        if self.guard is not None:
            value = self.text.select(self.guard, value, self.register(reg))
        self._known[reg.name] = value
        self._dirty[reg.name] = element

    def end_block(self, live_out: frozenset[str], *, whole: bool) -> None:
        """Store what outlives the block. ``whole``: no lane that lives can be missing here."""
        for name, element in self._dirty.items():
            if name not in live_out or name not in self.slots:
                continue
            value = self._known[name]
            pointer = self.text.at("%w", self.slots[name])
            if name in self.scalars:
                if value.wide:
                    raise AssertionError(f"{name} was promised to be the same in all lanes")
                self.text.store(pointer, self.text.resize(value, "i32") if element == "i1" else value, align=4)
                continue
            value = self.text.splat(value)
            if element == "i1":
                bits = self.lanes_to_bits(value)
                if not whole:
                    old = self.text.load(pointer, "i32", align=4)
                    changed = self.text.op("and", self.text.op("xor", bits, old), self.mask)
                    bits = self.text.op("xor", old, changed)
                self.text.store(pointer, bits, align=4)
                continue
            if not whole:
                old = self.text.load(pointer, element, wide=True, align=64)
                value = self.text.select(self.running, value, old)
            self.text.store(pointer, value, align=64)

    # ---- lanes

    @property
    def mask(self) -> Value:
        """i32: the lanes that run this block."""
        if self._mask is None:
            self._mask = self.text.load(self.text.at("%w", layout.MASK), "i32", align=4)
        return self._mask

    @property
    def running(self) -> Value:
        """The same as 32 booleans."""
        if self._lanes is None:
            self._lanes = self.bits_to_lanes(self.mask)
        return self._lanes

    def active(self) -> Value:
        """i32: the lanes that run and whose guard is true."""
        if self.guard is None:
            return self.mask
        if not self.guard.wide:
            return self.text.select(self.guard, self.mask, constant("i32", 0))
        return self.text.op("and", self.mask, self.lanes_to_bits(self.guard))

    # ---- operands

    def read(self, operand: Operand, type_: str) -> Value:
        """An operand as a value of PTX type ``type_``; wider registers give their low bits."""
        element = ELEMENT[type_]
        if isinstance(operand, Reg):
            value = self.register(operand)
            if value.bits > BITS[element] or value.bits < BITS[element]:
                value = self.text.resize(self.text.as_type(value, f"i{value.bits}"), f"i{BITS[element]}")
            return self.text.as_type(value, element)
        if isinstance(operand, Imm):
            return constant(element, self._immediate_bits(operand, type_))
        if isinstance(operand, Special):
            value = self.special(operand.name)
            return self.text.as_type(self.text.resize(value, f"i{BITS[element]}"), element)
        if isinstance(operand, Sym):
            return self.text.resize(self.symbol(operand), f"i{BITS[element]}")
        if isinstance(operand, Not):
            return self.text.op("xor", self.register(operand.operand), constant("i1", 1))
        raise RefusedInstruction(self.instruction, f"operand {operand} where a {type_} value is needed")

    @staticmethod
    def _immediate_bits(operand: Imm, type_: str) -> int:
        import struct

        if type_ == "f32" and operand.type == "f64":
            real = struct.unpack("<d", operand.bits.to_bytes(8, "little"))[0]
            return int.from_bytes(struct.pack("<f", real), "little")
        if type_ == "f64" and operand.type == "f32":
            real = struct.unpack("<f", operand.bits.to_bytes(4, "little"))[0]
            return int.from_bytes(struct.pack("<d", real), "little")
        return operand.bits & ((1 << 8 * TYPE_BYTES[type_]) - 1) if type_ != "pred" else int(operand.bits != 0)

    def source(self, position: int, type_: str) -> Value:
        """Operand ``position`` (0 is the destination) as ``type_``."""
        return self.read(self.instruction.operands[position], type_)

    def sources(self, type_: str, *positions: int) -> tuple[Value, ...]:
        """Several operands of one type, all scalar or all wide."""
        return self.text.even(*(self.source(position, type_) for position in positions))

    def result(self, value: Value, *, signed: bool = False, predicate: Value | None = None) -> None:
        """The instruction's result; ``predicate`` is the second destination of ``d|p``."""
        destination = self.instruction.operands[0]
        if isinstance(destination, Pair):
            self._put(destination.first, value, signed)
            if destination.second is not None and predicate is not None:
                self._put(destination.second, predicate, False)
        else:
            self._put(destination, value, signed)

    def _put(self, destination: Operand, value: Value, signed: bool) -> None:
        if isinstance(destination, Reg):
            self.assign(destination, value, signed=signed)
        elif not isinstance(destination, Sink):
            raise RefusedInstruction(self.instruction, "the destination is no register")

    def results(self, values: list[Value], *, signed: bool = False) -> None:
        """One value for each component of a vector destination."""
        destination = self.instruction.operands[0]
        items = destination.items if isinstance(destination, Vec) else (destination,)
        for item, value in zip(items, values, strict=True):
            self._put(item, value, signed)

    def used_parts(self) -> int:
        """Bit j: component j of the instruction's result is read somewhere."""
        items = self.components(0)
        return sum(1 << j for j, item in enumerate(items) if isinstance(item, Reg) and self.is_read(item))

    def is_read(self, reg: Reg) -> bool:
        """Whether some instruction reads the register."""
        raise NotImplementedError

    def components(self, position: int) -> tuple[Operand, ...]:
        """The items of a vector operand, or the operand itself."""
        operand = self.instruction.operands[position]
        return operand.items if isinstance(operand, Vec) else (operand,)

    def has(self, modifier: str) -> bool:
        """Whether the instruction carries ``.modifier``."""
        return modifier in self.instruction.mods

    @property
    def type(self) -> str:
        """The last modifier, ``.relu`` behind it aside: most instructions' operand type."""
        mods = self.instruction.mods
        return mods[-2] if mods[-1] == "relu" and len(mods) > 1 else mods[-1]

    # ---- what other files provide

    def special(self, name: str) -> Value:
        """A special register; see special.py."""
        raise NotImplementedError

    def symbol(self, symbol: Sym) -> Value:
        """The address of a variable in its own space; see kernel.py."""
        raise NotImplementedError

    def address(self, memory: Mem, *, narrow: bool) -> Value:
        """``[base+offset]`` as i32 (shared and local windows) or i64."""
        raise NotImplementedError

    def site(
        self, access: int, space: int, *, size: int = 0, operand: Mem | None = None, step: int = 0, parts: int = 1
    ) -> int:
        """Register this instruction as a place that may fault; its number.

        ``size``: bytes of one lane's access; ``step``: of one component of it; ``parts``: see :class:`Site`.
        """
        raise NotImplementedError

    def count_access(self, op: str, size: int, space: str) -> None:
        """Count the traffic of the addresses that were just passed; see counting.py.

        ``size``: bytes of one lane's access; for ``ldmatrix`` the number of matrices.
        """
        raise NotImplementedError

    def scratch(self) -> str:
        """A pointer to 4 KiB on the stack, for fragments on their way to the runtime."""
        self.uses_scratch = True
        return "%scratch"

    # ---- the warp's scratch rows

    def pass_lanes(self, row: int, value: Value, *, offset: int = 0) -> None:
        """Put 32 lanes into data row ``row`` for a runtime function."""
        pointer = self.text.at("%w", layout.DATA + row * layout.DATA_ROW + offset)
        self.text.store(pointer, self.text.splat(value), align=32)

    def take_lanes(self, row: int, element: str, *, offset: int = 0) -> Value:
        """32 lanes that a runtime function left in data row ``row``."""
        pointer = self.text.at("%w", layout.DATA + row * layout.DATA_ROW + offset)
        return self.text.load(pointer, element, wide=True, align=32)

    def run(self, name: str, *numbers: int | Value) -> None:
        """Call a runtime function ``void name(warp, i32…)``."""
        given = "".join(f", i32 {n.text if isinstance(n, Value) else n}" for n in numbers)
        self.text.call(name, "void", f"ptr %w{given}", "ptr" + ", i32" * len(numbers))

    def ask(self, name: str, *numbers: int | Value) -> Value:
        """Call a runtime function ``i32 name(warp, i32…)``."""
        given = "".join(f", i32 {n.text if isinstance(n, Value) else n}" for n in numbers)
        return Value(self.text.call(name, "i32", f"ptr %w{given}", "ptr" + ", i32" * len(numbers)), "i32")


Emitter = Callable[[Lanes], None]
EMITTERS: dict[str, Emitter] = {}
"""Mnemonic to its emitter; filled by the files of this folder."""


def emits(*mnemonics: str) -> Callable[[Emitter], Emitter]:
    """Enter a function into :data:`EMITTERS`."""

    def enter(function: Emitter) -> Emitter:
        for mnemonic in mnemonics:
            if mnemonic in EMITTERS:
                raise AssertionError(f"{mnemonic} has two emitters")
            EMITTERS[mnemonic] = function
        return function

    return enter
