"""Where a kernel's variables and registers lie: what a name, an address and a faulting site mean.

The rule: addresses in the shared and local windows are 32-bit offsets, all others are host addresses; addresses of
module variables are read from the launch's table, so that machine code is the same in every process.
"""

from __future__ import annotations

from kernelwright.emulate.analysis import Analysis, analyse
from kernelwright.emulate.flatten import function_address
from kernelwright.emulate.hints import hints
from kernelwright.emulate.provenance import Root, of_address, roots
from kernelwright.emulate.ptx.ir import Function, Imm, Mem, Module, Reg, Sym, Variable

from . import layout
from .lane import ELEMENT, ELSEWHERE, Lanes, RefusedInstruction, Site
from .memory import ATOMIC, SPACES
from .scalars import scalar_registers
from .special import special_register
from .text import BITS, Text, Value, constant

_STRONG = frozenset({"relaxed", "acquire", "release", "acq_rel", "mmio"})
_WEAKLY_STRONG = frozenset({"volatile", "cg", "cv", "wt"})
"""Volatile accesses, and those that go past the first-level cache, by which older look-back code reads its flags."""


class Variables(Lanes):
    """A kernel in the making that knows its variables."""

    def __init__(self, module: Module, function: Function) -> None:
        super().__init__(Text())
        self.module = module
        self.function = function
        self.analysis: Analysis = analyse(function, split_at_converging=True)
        self.scalars = scalar_registers(self.analysis)
        self._spaces = {variable.name: variable.space for variable in module.variables.values()}
        self._roots: dict[str, Root] = roots(self.analysis, self._spaces)
        self._hints = hints(self.analysis)
        self._params = {param.name: param.offset for param in function.params}
        self._shared, self.static_shared = _lay_out(_shared_variables(module, function))
        self._locals, self.local_bytes = _lay_out([v for v in function.locals if v.space == "local"])
        self.register_bytes = self._place_registers()
        self.granule = 4
        """Bytes that accesses of shared memory are told apart by: those of the narrowest."""
        self._read = {
            register.name
            for index, effect in enumerate(self.analysis.effects)
            if index not in self.analysis.dead
            for register in effect.uses
        }

    @property
    def shared_arrays(self) -> tuple[tuple[str, int, int], ...]:
        """Name, start in the window and bytes of each shared array; 0 bytes: dynamic, to the window's end."""
        placed = self._shared.items()
        return tuple((name, start if size else self.static_shared, size) for name, (start, size) in placed)

    def _place_registers(self) -> int:
        """A slot for each register that is live into some block; the bytes they take."""
        live = sorted(set().union(*self.analysis.live_in))
        types = {**{name: reg.type for name, reg in self.function.registers.items()}, "%cc": "pred"}
        sized = [(0 if name in self.scalars else BITS[ELEMENT[types[name]]], name) for name in live]
        offset = layout.REGISTERS
        for width, name in sorted(sized, reverse=True):
            self.slots[name] = offset
            offset += 8 if width <= 1 else layout.LANES * width // 8
            if width <= 1 and ELEMENT[types[name]] == "i128":
                offset += 8
        return -(-(offset - layout.REGISTERS) // 64) * 64

    # ---- what emitters ask for

    def special(self, name: str) -> Value:
        value = special_register(self.text, name)
        if value is None:
            raise RefusedInstruction(self.instruction, f"special register {name}")
        return value

    def _variable_space(self, name: str) -> str:
        if name in self._params:
            return "param"
        if name in self._locals:
            return "local"
        if name in self._shared:
            return "shared"
        if name in self.module.variables:
            return self.module.variables[name].space
        raise RefusedInstruction(self.instruction, f"the address of {name}")

    def symbol(self, symbol: Sym) -> Value:
        if symbol.name in self.module.functions:
            return constant("i64", function_address(self.module, symbol.name))
        t, space = self.text, self._variable_space(symbol.name)
        if space == "local":
            return constant("i64", self._locals[symbol.name][0] + symbol.offset)
        if space == "shared":
            start, size = self._shared[symbol.name]
            if size:
                return constant("i64", start + symbol.offset)
            base = t.load(t.at("%w", layout.DYNAMIC_SHARED), "i64", align=8)
        elif space == "param":
            base = t.load(t.at("%w", layout.PARAMS), "i64", align=8)
            return t.op("add", base, constant("i64", self._params[symbol.name] + symbol.offset))
        else:
            number = self.symbols.setdefault(symbol.name, len(self.symbols))
            table = t.fresh("p")
            t.emit(f"{table} = load ptr, ptr {t.at('%w', layout.SYMBOLS)}, align 8")
            base = t.load(t.at(table, 8 * number), "i64", align=8)
        return t.op("add", base, constant("i64", symbol.offset)) if symbol.offset else base

    def address(self, memory: Mem, *, narrow: bool) -> Value:
        t = self.text
        if isinstance(memory.base, Imm):
            return constant("i32" if narrow else "i64", memory.base.bits + memory.offset)
        if isinstance(memory.base, Sym):
            value = self.symbol(Sym(memory.base.name, memory.base.offset + memory.offset))
            return t.resize(value, "i32") if narrow else value
        value = self.register(memory.base)
        value = t.as_type(value, f"i{value.bits}")
        if not narrow:
            value = t.resize(value, "i64")
        if memory.offset:
            value = t.op("add", value, constant(value.element, memory.offset))
        if narrow and value.bits == 64:
            # An offset beyond the window must not come back into it.
            limit = constant("i64", 0xFFFFFFFF)
            value = t.select(t.compare("icmp ugt", value, limit), limit, value)
            value = t.resize(value, "i32")
        return value

    def is_read(self, reg: Reg) -> bool:
        return reg.name in self._read

    def site(
        self, access: int, space: int, *, size: int = 0, operand: Mem | None = None, step: int = 0, parts: int = 1
    ) -> int:
        parameter, low, high, variable = -1, -1, -1, -1
        if operand is not None:
            kind, where = of_address(operand, self._roots, self._spaces)
            if kind == "parameter" and isinstance(where, int):
                parameter = where
            elif kind == "shared" and isinstance(where, str) and where in self._shared and space == SPACES["shared"]:
                start, length = self._shared[where]
                low, high = (start, start + length) if length else (self.static_shared, -1)
            variable = self._variable_number(kind, where)
        if size and space in (SPACES["shared"], SPACES["generic"]):
            self.granule = min(self.granule, step or size)
        mods = self.instruction.mods
        strong = int(not _WEAKLY_STRONG.isdisjoint(mods))
        if access == ATOMIC or not _STRONG.isdisjoint(mods) or self.index in self._hints:
            strong = 2
        granule = min(step or size, 4)
        made = Site(
            self.index, space, access, size, parameter, low, high, strong, parts, variable, granule, int("nc" in mods)
        )
        self.sites.append(made)
        return len(self.sites) - 1

    def _variable_number(self, kind: str, where: str | int) -> int:
        """``kw_site.variable`` of an address derived so."""
        if kind in ("shared", "local"):
            return ELSEWHERE
        if kind == "variable" and isinstance(where, str):
            return self.symbols.setdefault(where, len(self.symbols))
        return -1


def _lay_out(variables: list[Variable]) -> tuple[dict[str, tuple[int, int]], int]:
    """Name to (offset, size), and the bytes taken. Of size 0: dynamic shared memory, behind all others."""
    placed: dict[str, tuple[int, int]] = {}
    offset = 0
    for variable in variables:
        if not variable.size:
            placed[variable.name] = (0, 0)
            continue
        align = max(variable.align, 1)
        offset = -(-offset // align) * align
        placed[variable.name] = (offset, variable.size)
        offset += variable.size
    # Dynamic shared memory begins on 16 bytes, as ptxas has it.
    if any(not v.size for v in variables):
        offset = -(-offset // 16) * 16
    return placed, offset


def _shared_variables(module: Module, function: Function) -> list[Variable]:
    """The function's own shared variables and those of the module that it names."""
    named: set[str] = set()
    for instruction in function.instructions:
        for operand in instruction.operands:
            base = operand.base if isinstance(operand, Mem) else operand
            if isinstance(base, Sym):
                named.add(base.name)
    own = [v for v in function.locals if v.space == "shared"]
    return own + [v for v in module.variables.values() if v.space == "shared" and v.name in named]
