"""call and ret: parameters through frame memory, indirect targets, and the few functions of the device runtime.

Source: PTX ISA 9.0, section 7.1 (ABI) and CUDA's printf, assert and malloc,
https://docs.nvidia.com/cuda/parallel-thread-execution/#abstracting-the-abi
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kernelwright.emulate.ptx.ir import Instruction, Operand, Param, Sym
from kernelwright.emulate.ptx.operands import Call, call_parts

from .errors import KernelAssertion, UnknownInstruction
from .formats import Bits
from .lanes import Indices, Lanes
from .program import Code

if TYPE_CHECKING:
    from .machine import Machine

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t)?([diouxXcsfFeEgGaAp%])")


class Calls:
    """The calls of one machine."""

    def __init__(self, machine: Machine, printed: list[str]) -> None:
        self._machine = machine
        self._printed = printed
        self._runtime: dict[str, Callable[[Lanes, Call], None]] = {
            "vprintf": self._vprintf,
            "__assertfail": self._assertfail,
            "malloc": self._malloc,
            "free": self._free,
        }

    def call(self, lanes: Lanes, instruction: Instruction, pc: int, depth: int) -> None:
        """Send ``lanes`` into the called function (or do what the runtime's function does)."""
        parts = call_parts(instruction)
        program = self._machine.program
        if isinstance(parts.target, Sym):
            name = program.resolve(parts.target.name)
            if name in program.code:
                self._enter(lanes, parts, program.code[name], pc, depth)
            elif name in self._runtime:
                self._runtime[name](lanes, parts)
            else:
                raise UnknownInstruction(instruction, f"'{name}' is neither in this module nor known")
            return
        targets = lanes.value(parts.target, "b64")
        for target in np.unique(targets):
            self._enter(lanes.subset(targets == target), parts, program.by_address(int(target)), pc, depth)

    def _enter(self, lanes: Lanes, parts: Call, code: Code, pc: int, depth: int) -> None:
        machine = self._machine
        callee = machine.frame(depth + 1, code)
        if len(parts.arguments) != len(code.function.params):
            raise lanes.error(f"{code.function.name} takes {len(code.function.params)} arguments")
        for argument, param in zip(parts.arguments, code.function.params, strict=True):
            self._pass(lanes, argument, param, callee.slot(param.name, lanes.indices))
        while len(machine.returns) <= depth:
            machine.returns.append(np.zeros(machine.count, np.int64))
        machine.returns[depth][lanes.indices] = pc + 1
        machine.depth[lanes.indices] = depth + 1
        machine.pc[lanes.indices] = code.start
        if not code.function.instructions:
            self.returned(lanes.indices, depth + 1)

    def _pass(self, lanes: Lanes, argument: Operand, param: Param, to: Bits) -> None:
        memory = self._machine.memory
        if isinstance(argument, Sym):
            for source, target in zip(self._machine.symbol(lanes, argument).tolist(), to.tolist(), strict=True):
                memory.write(target, memory.read(source, param.size))
        else:
            memory.store(to, lanes.value(argument, param.type))

    def returned(self, indices: Indices, depth: int) -> None:
        """Bring lanes back from ``depth``: copy what they return, and go on behind their call."""
        machine = self._machine
        back = machine.returns[depth - 1][indices]
        for pc in np.unique(back):
            lanes = indices[back == pc]
            instruction = machine.program.instructions[int(pc) - 1]
            caller = machine.frame(depth - 1, machine.program.owner[int(pc) - 1])
            machine.depth[lanes] = depth - 1
            parts = call_parts(instruction)
            if parts.returns:
                self._copy_returns(Lanes(machine, caller, lanes, instruction), parts, depth)
            machine.pc[lanes] = pc

    def _copy_returns(self, lanes: Lanes, parts: Call, depth: int) -> None:
        machine = self._machine
        memory = machine.memory
        # The lanes may come back from different functions when the call was indirect.
        for index in range(lanes.count):
            one = Lanes(machine, lanes.frame, lanes.indices[index : index + 1], lanes.instruction)
            code = self._callee(one, parts)
            param = code.function.returns[0]
            source = int(machine.frame(depth, code).slot(param.name, one.indices)[0])
            target = parts.returns[0]
            if isinstance(target, Sym):
                memory.write(int(machine.symbol(one, target)[0]), memory.read(source, param.size))
            else:
                one.store(target, memory.load(np.array([source], np.uint64), param.size), param.type)

    def _callee(self, lanes: Lanes, parts: Call) -> Code:
        program = self._machine.program
        if isinstance(parts.target, Sym):
            return program.code[program.resolve(parts.target.name)]
        return program.by_address(int(lanes.value(parts.target, "b64")[0]))

    # ---- the runtime's functions ------------------------------------------------------------------------------

    def _argument(self, lanes: Lanes, operand: Operand, size: int) -> list[int]:
        if isinstance(operand, Sym):
            values: list[int] = self._machine.memory.load(self._machine.symbol(lanes, operand), size).tolist()
        else:
            values = lanes.value(operand, f"b{8 * size}").tolist()
        return values

    def _give(self, lanes: Lanes, parts: Call, values: list[int], size: int) -> None:
        bits = np.array(values, np.dtype(f"u{size}"))
        for target in parts.returns:
            if isinstance(target, Sym):
                self._machine.memory.store(self._machine.symbol(lanes, target), bits)
            else:
                lanes.store(target, bits, f"b{8 * size}")

    def _vprintf(self, lanes: Lanes, parts: Call) -> None:
        formats = self._argument(lanes, parts.arguments[0], 8)
        buffers = self._argument(lanes, parts.arguments[1], 8)
        results = []
        for format_, buffer in zip(formats, buffers, strict=True):
            text, count = self._formatted(self._machine.memory.text(format_), buffer)
            self._printed.append(text)
            results.append(count)
        self._give(lanes, parts, results, 4)

    def _formatted(self, format_: str, buffer: int) -> tuple[str, int]:
        """C's printf on an argument buffer in which every argument is aligned to its size."""
        memory = self._machine.memory
        place = buffer
        count = 0

        def take(size: int) -> int:
            nonlocal place, count
            place = -(-place // size) * size
            value = int.from_bytes(memory.read(place, size), "little")
            place += size
            count += 1
            return value

        def replace(match: re.Match[str]) -> str:
            flags, width, precision, length, kind = match.groups()
            if kind == "%":
                return "%"
            if width == "*":
                width = str(_signed(take(4), 4))
            if precision == "*":
                precision = str(_signed(take(4), 4))
            spec = f"%{flags}{width or ''}{'.' + precision if precision is not None else ''}"
            if kind == "s":
                return (spec + "s") % memory.text(take(8))
            if kind == "p":
                return (spec + "s") % hex(take(8))
            if kind in "fFeEgGaA":
                value = np.array([take(8)], np.uint64).view(np.float64)[0]
                return float(value).hex() if kind in "aA" else (spec + kind) % float(value)
            size = 8 if length in ("l", "ll", "j", "z", "t") else 4
            raw = take(size)
            if kind == "c":
                return (spec + "c") % chr(raw & 255)
            return (spec + kind.replace("u", "d")) % (_signed(raw, size) if kind in "di" else raw)

        return _CONVERSION.sub(replace, format_), count

    def _assertfail(self, lanes: Lanes, parts: Call) -> None:
        memory = self._machine.memory
        message, file, function = (memory.text(self._argument(lanes, parts.arguments[i], 8)[0]) for i in (0, 1, 3))
        line = self._argument(lanes, parts.arguments[2], 4)[0]
        where = (
            f"block {int(self._machine.block[lanes.indices[0]])}, thread {int(self._machine.thread[lanes.indices[0]])}"
        )
        raise KernelAssertion(lanes.instruction, f"{file}:{line}: {function}: {where}: Assertion `{message}` failed.")

    def _malloc(self, lanes: Lanes, parts: Call) -> None:
        sizes = self._argument(lanes, parts.arguments[0], 8)
        self._give(lanes, parts, [self._machine.memory.allocate(size, align=16) for size in sizes], 8)

    def _free(self, lanes: Lanes, parts: Call) -> None:
        for address in self._argument(lanes, parts.arguments[0], 8):
            if address:
                self._machine.memory.release(address)


def _signed(value: int, size: int) -> int:
    return value - (1 << 8 * size) if value >> (8 * size - 1) else value
