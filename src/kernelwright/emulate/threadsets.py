"""Which threads of a block can reach which part of a kernel, as far as thread numbers alone decide.

Why: "only warp 0 gets here" is what explains a wrong reduction, and it can be read off the code: a branch whose
predicate is computed from ``%tid`` and ``%ntid`` goes one known way for each thread. The rule: a predicate that depends
on anything else (memory, parameters, loop counters) is unknown, and an unknown branch lets every thread go both ways,
so the sets are never too small.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .analysis import Analysis
from .definitions import Definitions
from .ptx.ir import Imm, Instruction, Label, Not, Operand, Pair, Reg, Special

Threads = npt.NDArray[np.bool_]
Values = npt.NDArray[np.int64]

_BINARY: dict[str, Callable[[Values, Values], Values]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "min": np.minimum,
    "max": np.maximum,
}
_COMPARE: dict[str, Callable[[Values, Values], Threads]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_COPIES = frozenset({"mov", "cvt", "cvta"})


class ThreadSets:
    """Thread sets of one kernel for one block shape. Threads are numbered x fastest, as warps are formed."""

    def __init__(self, analysis: Analysis, block: tuple[int, int, int]) -> None:
        self._analysis = analysis
        self._instructions = analysis.function.instructions
        count = block[0] * block[1] * block[2]
        linear = np.arange(count, dtype=np.int64)
        self.warp = linear // 32
        self._special = {
            "%tid.x": linear % block[0],
            "%tid.y": linear // block[0] % block[1],
            "%tid.z": linear // (block[0] * block[1]),
            "%ntid.x": np.full(count, block[0]),
            "%ntid.y": np.full(count, block[1]),
            "%ntid.z": np.full(count, block[2]),
            "%laneid": linear % 32,
            "WARP_SZ": np.full(count, 32),
        }
        self.definitions = Definitions(analysis)
        self._values: dict[int, Values | None] = {}
        self._reach = self._propagate()

    def reaching(self, position: int) -> Threads:
        """Which threads may execute the instruction at ``position``; its own guard is taken into account."""
        block = self.definitions.block_of(position)
        if block is None:
            return np.zeros(len(self.warp), dtype=np.bool_)
        guard = self._guard(position)
        return self._reach[block] if guard is None else self._reach[block] & guard

    def value(self, operand: Operand, position: int) -> Values | None:
        """What each thread reads from ``operand`` at ``position``; None where thread numbers do not determine it."""
        if isinstance(operand, Imm):
            signed = operand.bits - (1 << 64) if operand.bits >> 63 else operand.bits
            return np.full(len(self.warp), signed, dtype=np.int64) if operand.type == "s64" else None
        if isinstance(operand, Special):
            return self._special.get(operand.name)
        if isinstance(operand, Not):
            inner = self.value(operand.operand, position)
            return None if inner is None else (inner == 0).astype(np.int64)
        if not isinstance(operand, Reg):
            return None
        origins = self.definitions.reaching(operand.name, position)
        if len(origins) != 1:
            return None
        if origins[0] not in self._values:
            self._values[origins[0]] = None  # a value that depends on itself is a loop's, hence unknown
            self._values[origins[0]] = self._result(origins[0])
        return self._values[origins[0]]

    def _result(self, position: int) -> Values | None:
        """What the instruction at ``position`` writes."""
        instruction = self._instructions[position]
        if instruction.guard is not None or isinstance(instruction.operands[0], Pair):
            return None
        sources = [self.value(operand, position) for operand in instruction.operands[1:]]
        known = [source for source in sources if source is not None]
        if len(known) != len(sources):
            return None
        return _evaluate(instruction, known)

    def _guard(self, position: int) -> Threads | None:
        guard = self._instructions[position].guard
        value = None if guard is None else self.value(guard.register, position)
        if guard is None or value is None:
            return None
        taken: Threads = (value == 0) if guard.negated else (value != 0)
        return taken

    def _propagate(self) -> list[Threads]:
        blocks = self._analysis.blocks
        reach: list[Threads] = [np.zeros(len(self.warp), dtype=np.bool_) for _ in blocks]
        reach[0] = np.ones(len(self.warp), dtype=np.bool_)
        pending = {0}
        while pending:
            index = min(pending)
            pending.discard(index)
            last = self._instructions[blocks[index].end - 1]
            taken = self._guard(blocks[index].end - 1) if last.op in ("bra", "ret", "exit") else None
            target = _target(self._analysis, last)
            for successor in blocks[index].successors:
                flow = reach[index]
                if taken is not None:
                    flow = flow & (taken if successor == target else ~taken)
                if np.any(flow & ~reach[successor]):
                    reach[successor] = reach[successor] | flow
                    pending.add(successor)
        return reach


def _target(analysis: Analysis, last: Instruction) -> int:
    """The block that a taken branch goes to; -1 for everything else, a taken ``ret`` or ``exit`` included."""
    if last.op != "bra" or not isinstance(last.operands[0], Label):
        return -1
    return analysis.block_of_label.get(last.operands[0].name, -1)


_WIDTH = {"8": 8, "16": 16, "32": 32}


def _as_type(values: Values, type: str) -> Values:
    """``values`` as the instruction's type reads them: ``tid - 1`` of thread 0 is 4294967295 to an unsigned compare."""
    width = _WIDTH.get(type[1:])
    if type[:1] not in ("u", "b", "s") or width is None:
        return values
    wrapped = values & ((1 << width) - 1)
    return np.where(wrapped >> (width - 1) != 0, wrapped - (1 << width), wrapped) if type[0] == "s" else wrapped


def _evaluate(instruction: Instruction, sources: list[Values]) -> Values | None:
    """One instruction on known values, which are read as its type says."""
    op, mods = instruction.op, instruction.mods
    sources = [_as_type(source, mods[-1] if mods else "") for source in sources]
    if op in _COPIES and len(sources) == 1:
        return sources[0]
    if op in _BINARY and len(sources) == 2 and "cc" not in mods and "hi" not in mods:
        return _BINARY[op](sources[0], sources[1])
    if op in ("div", "rem") and len(sources) == 2 and np.all(sources[1] > 0) and np.all(sources[0] >= 0):
        return sources[0] // sources[1] if op == "div" else sources[0] % sources[1]
    if op == "mad" and len(sources) == 3 and "hi" not in mods:
        return sources[0] * sources[1] + sources[2]
    if op == "not" and len(sources) == 1:
        return (sources[0] == 0).astype(np.int64) if "pred" in mods else ~sources[0]
    if op == "setp" and len(sources) == 2 and mods and mods[0] in _COMPARE:
        return _COMPARE[mods[0]](sources[0], sources[1]).astype(np.int64)
    if op == "selp" and len(sources) == 3:
        return np.where(sources[2] != 0, sources[0], sources[1])
    return None
