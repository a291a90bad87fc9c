"""A module laid out for execution: one instruction list for all functions, frame layouts, variables at addresses.

The rule: a program counter is an index into the one list, and ``rank`` orders counters as ``cfg`` orders blocks, so
that the lowest rank first is the schedule the compiled emulator uses too.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.emulate.cfg import build_blocks
from kernelwright.emulate.ptx.ir import Function, Instruction, Module, Sym
from kernelwright.emulate.ptx.types import align_up

from .errors import InterpreterError
from .memory import Memory

FUNCTION_ADDRESSES = 1 << 40
"""Where made-up function addresses start: function n is at this plus 16 n."""


@dataclass(frozen=True)
class Code:
    """One function in the program."""

    function: Function
    number: int
    start: int
    """Program counter of its first instruction."""
    slots: dict[str, int]
    """Byte offset in a lane's frame of each parameter, return value, local and call-scratch variable."""
    frame_bytes: int


class Program:
    """All functions of a module, and its variables in memory."""

    def __init__(self, module: Module, memory: Memory) -> None:
        self.module = module
        self.memory = memory
        self.instructions: list[Instruction] = []
        self.rank: list[int] = []
        self.starts_block: list[bool] = []
        self.code: dict[str, Code] = {}
        self.owner: list[Code] = []
        self.shared: dict[str, int] = {}
        self.shared_bytes = 0
        self.addresses: dict[str, int] = {}
        self.const_ranges: list[tuple[int, int]] = []
        for function in module.functions.values():
            self._add(function)
        self._place_shared()
        self._place_variables()

    def resolve(self, name: str) -> str:
        """The function that ``name`` stands for, aliases followed."""
        return self.module.aliases.get(name, name)

    def by_address(self, address: int) -> Code:
        """The function at a made-up address."""
        number, rest = divmod(address - FUNCTION_ADDRESSES, 16)
        for code in self.code.values():
            if rest == 0 and code.number == number:
                return code
        raise InterpreterError(f"call of {address:#x}, which is no function of this module")

    def _add(self, function: Function) -> None:
        start = len(self.instructions)
        slots: dict[str, int] = {}
        offset = 0
        variables = [
            (p.name, p.align, p.size) for p in (() if function.entry else (*function.params, *function.returns))
        ]
        variables += [(v.name, v.align, v.size) for v in function.locals if v.space in ("local", "param")]
        for name, align, size in variables:
            offset = align_up(offset, max(align, 16))
            slots[name] = offset
            offset += size
        code = Code(function, len(self.code), start, slots, align_up(offset, 256))
        self.code[function.name] = code
        count = len(function.instructions)
        ranks = [0] * count
        starts = [False] * count
        position = 0
        for block in build_blocks(function):
            starts[block.start] = count > 0
            for index in range(block.start, block.end):
                ranks[index] = start + position
                position += 1
        # Whoever runs off the end of the text returns.
        end = Instruction("ret", (), (), None, function.ptx_line, None)
        self.instructions += [*function.instructions, end]
        self.rank += [*ranks, start + position]
        self.starts_block += [*starts, True]
        self.owner += [code] * (count + 1)

    def _place_shared(self) -> None:
        offset = 0
        dynamic: list[str] = []
        groups = [self.module.variables.values(), *(f.locals for f in self.module.functions.values())]
        for variable in (v for group in groups for v in group if v.space == "shared"):
            if variable.size == 0:
                dynamic.append(variable.name)
                continue
            offset = align_up(offset, variable.align)
            self.shared[variable.name] = offset
            offset += variable.size
        offset = align_up(offset, 16)
        self.shared.update((name, offset) for name in dynamic)
        self.shared_bytes = offset

    def _place_variables(self) -> None:
        placed = [v for v in self.module.variables.values() if v.space in ("global", "const")]
        for variable in placed:
            address = self.memory.allocate(max(variable.size, 1), align=max(variable.align, 256))
            self.addresses[variable.name] = address
            if variable.space == "const":
                self.const_ranges.append((address, address + variable.size))
            if variable.initial:
                self.memory.write(address, variable.initial)
        for variable in placed:
            size = 4 if variable.type.endswith("32") else 8
            for offset, symbol in variable.relocations:
                value = self.address_of(symbol)
                self.memory.write(self.addresses[variable.name] + offset, value.to_bytes(8, "little")[:size])

    def address_of(self, symbol: Sym) -> int:
        """The address of a module-level variable or function."""
        name = self.resolve(symbol.name)
        if name in self.code:
            return FUNCTION_ADDRESSES + 16 * self.code[name].number
        if name in self.addresses:
            return self.addresses[name] + symbol.offset
        raise InterpreterError(f"'{symbol.name}' has no address: it is declared, but not defined in this module")
