"""From a counted launch's cells to the record of what the kernel did, in all and by source line.

The rule: every figure follows from cells by a table below. An instruction ran as often as its block did, with the
block's lanes; where it is guarded, its own cell says in how many lanes the guard was true.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from kernelwright.counters import metrics as m
from kernelwright.counters.records import KernelCounters, LineCounters
from kernelwright.counters.sums import in_order

from . import findings, runtime
from .codegen import counting as cell
from .codegen.kernel import Compiled
from .ptx.ir import Function, Instruction, Label, Position

_LETTERS = {"f32": "f", "f64": "d", "f16": "h", "bf16": "h", "f16x2": "h", "bf16x2": "h"}
_KINDS = {"f": "fp32", "d": "fp64", "h": "fp16"}
_OPERATIONS = {"add": ("add", 1), "sub": ("add", 1), "mul": ("mul", 1), "fma": ("fma", 2), "mad": ("fma", 2)}
"""PTX mnemonic to the SASS operation that it becomes, and its flop."""
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_GLOBAL_OP = {"ldmatrix": "ld", "inc": "red"}
_SHARED_OP = {"ldmatrix": "ldsm", "red": "atom", "inc": "atom"}
"""Operations whose shared traffic ncu counts under another's name."""


def counters(
    kernel: str,
    function: Function,
    code: Compiled,
    run: runtime.Run,
    *,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    dynamic_shared: int,
) -> KernelCounters:
    """The record of one counted launch; ``kernel`` is the demangled name."""
    if code.cells is None:
        raise ValueError(f"{kernel} was not compiled to count")
    values = run.cells[: code.cells.number]
    sums = _Sums(code.cells, values)
    sums.exits = frozenset(
        label
        for label, at in function.labels.items()
        if at == len(function.instructions) or function.instructions[at].op in ("ret", "exit")
    )
    for number, start in enumerate(code.block_instructions):
        for index in range(start, start + code.block_numbers[number]):
            instruction = function.instructions[index]
            if index not in code.dead and not instruction.op.startswith("kw_"):
                sums.instruction(index, instruction, number)
    for access in code.cells.accesses:
        sums.access(function.instructions[access.instruction].position, access)
    whole = dict.fromkeys(_ALWAYS, 0.0) | sums.whole
    whole[m.COMPULSORY_READ] = 32.0 * run.sectors_read
    whole[m.COMPULSORY_WRITE] = 32.0 * run.sectors_written
    whole[m.SHARED_STATIC] = float(code.static_shared)
    whole[m.SHARED_DYNAMIC] = float(dynamic_shared)
    if run.atomics:
        whole[m.ATOMICS] = float(run.atomics)
        whole[m.ATOMIC_HOTTEST] = float(run.hottest)
        whole[m.ATOMIC_ADDRESSES] = float(run.atomic_addresses)
    return KernelCounters(
        kernel=kernel,
        grid=grid,
        block=block,
        dynamic_shared_bytes=dynamic_shared,
        metrics=m.derived(whole),
        lines=_lines(sums.lines, kernel),
        instructions=dict(sorted(sums.opcodes.items())),
    )


_ALWAYS = (
    m.INST, m.THREAD_INST, m.THREAD_INST_ON, m.BRANCHES_DIVERGENT, m.BRANCHES_UNIFORM, m.SECTORS_GLOBAL,
    m.SECTORS_GLOBAL_IDEAL, m.WAVEFRONTS_SHARED, m.WAVEFRONTS_SHARED_IDEAL,
    *(m.requests("global", op) for op in ("ld", "st")), *(m.sectors("global", op) for op in ("ld", "st")),
    *(m.ideal_sectors(op) for op in ("ld", "st")), *(m.shared_requests(op) for op in ("ld", "st")),
    *(m.wavefronts(op) for op in ("ld", "st")), *(m.conflicts(op) for op in ("ld", "st")),
    *(m.ideal_wavefronts(op) for op in ("ld", "st")), *(m.requests("local", op) for op in m.LOCAL_OPS),
    *(m.sectors("local", op) for op in m.LOCAL_OPS), *(m.flop(kind) for kind in m.FLOP_KINDS),
)  # fmt: skip
"""Metrics that a kernel's record has even where there was nothing to count."""


class _Sums:
    """Sums in the making, of the whole kernel and of each position."""

    def __init__(self, cells: cell.Cells, values: Sequence[int]) -> None:
        self.cells = cells
        self.values = values
        self.whole: dict[str, float] = defaultdict(float)
        self.lines: dict[Position, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.exits: frozenset[str] = frozenset()
        """Labels of the kernel's end: ptxas makes an exit of a branch there."""
        self.opcodes: dict[str, float] = defaultdict(float)

    def _add(self, position: Position | None, figures: Mapping[str, float]) -> None:
        line = self.lines[position] if position is not None else None
        for name, value in figures.items():
            if value:
                self.whole[name] += value
                if line is not None:
                    line[name] += value

    def instruction(self, index: int, instruction: Instruction, block: int) -> None:
        """What the instruction at ``index``, in code block ``block``, amounts to."""
        first = self.cells.blocks[block]
        warps, lanes = self.values[first], self.values[first + 1]
        on = self.values[self.cells.guards[index]] if index in self.cells.guards else lanes
        figures: dict[str, float] = {m.INST: warps, m.THREAD_INST: lanes, m.THREAD_INST_ON: on}
        if instruction.op == "brx" or (instruction.op == "bra" and instruction.guard and not self._exits(instruction)):
            parted = self.values[self.cells.splits[index]] if index in self.cells.splits else 0
            figures |= {m.BRANCHES_DIVERGENT: parted, m.BRANCHES_UNIFORM: warps - parted}
        figures |= _arithmetic(instruction, warps, on)
        self._add(instruction.position, figures)
        if warps:
            self.opcodes[instruction.opcode] += warps

    def _exits(self, branch: Instruction) -> bool:
        return isinstance(branch.operands[-1], Label) and branch.operands[-1].name in self.exits

    def access(self, position: Position | None, access: cell.Access) -> None:
        """The traffic of one access."""
        found = self.values[access.cell : access.cell + cell.ACCESS_CELLS]
        op, shared = _GLOBAL_OP.get(access.op, access.op), _SHARED_OP.get(access.op, access.op)
        taken, needed = found[cell.SHARED_WAVEFRONTS], found[cell.SHARED_IDEAL]
        figures = {
            m.requests("global", op): found[cell.GLOBAL_REQUESTS],
            m.sectors("global", op): found[cell.GLOBAL_SECTORS],
            m.ideal_sectors(op): found[cell.GLOBAL_IDEAL],
            m.SECTORS_GLOBAL: found[cell.GLOBAL_DISTINCT],
            m.SECTORS_GLOBAL_IDEAL: found[cell.GLOBAL_IDEAL],
            m.shared_requests(shared): found[cell.SHARED_REQUESTS],
            m.wavefronts(shared): taken,
            m.ideal_wavefronts(shared): needed,
            m.conflicts(shared): taken - needed,
            m.WAVEFRONTS_SHARED: taken,
            m.WAVEFRONTS_SHARED_IDEAL: found[cell.SHARED_FILLED],
            m.requests("local", op): found[cell.LOCAL_REQUESTS],
            m.sectors("local", op): found[cell.LOCAL_SECTORS],
        }
        # The hardware counts copies and matrices among the loads.
        if op == "ldgsts":
            for counted in (m.requests, m.sectors):
                figures[counted("global", "ld")] = figures[counted("global", "ldgsts")]
            figures[m.ideal_sectors("ld")] = figures[m.ideal_sectors("ldgsts")]
        if shared == "ldsm":
            for of_op in (m.wavefronts, m.conflicts, m.ideal_wavefronts):
                figures[of_op("ld")] = figures[of_op("ldsm")]
        self._add(position, figures)


def _arithmetic(instruction: Instruction, warps: float, on: float) -> dict[str, float]:
    """Flop of one instruction that ``warps`` warps ran, in ``on`` lanes."""
    op, mods = instruction.op, instruction.mods
    if op == "mma" or (op == "wmma" and mods[:1] == ("mma",)):
        found = next((shape for mod in mods if (shape := _SHAPE.fullmatch(mod))), None)
        size = 2 * int(found[1]) * int(found[2]) * int(found[3]) if found else 0
        return {m.MMA: warps, m.flop("tensor"): size * warps}
    if op not in _OPERATIONS or not mods or mods[-1] not in _LETTERS:
        return {}
    name, operations = _OPERATIONS[op]
    letter, pair = _LETTERS[mods[-1]], 2 if mods[-1].endswith("x2") else 1
    return {m.flops(letter + name): on, m.flop(_KINDS[letter]): operations * pair * on}


def _lines(lines: Mapping[Position, Mapping[str, float]], kernel: str) -> tuple[LineCounters, ...]:
    """In the order of the kernel's own lines, then of what is inlined there."""
    made = [LineCounters(findings.frames(position, kernel), m.derived(sums)) for position, sums in lines.items()]
    return tuple(sorted(made, key=in_order))
