"""A kernel that counts what it does: which cells of the launch's counters its code adds to, and where.

Why: counters are asked for now and then, so a kernel that is not counted must hold nothing of them: the same code is
made with this class told not to count, and then every method here emits nothing. The rule: what can be derived is not
counted. Blocks count how often, and with how many lanes, they ran; instructions follow from that, and only guards,
divergence and memory have cells of their own. The cells of an access are those of native/runtime_count.h, in its order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import layout
from .joins import joined_accesses
from .memory import SPACES
from .text import Value, constant
from .variables import Variables

ACCESS_CELLS = 10
(
    GLOBAL_REQUESTS, GLOBAL_SECTORS, GLOBAL_IDEAL, SHARED_REQUESTS, SHARED_WAVEFRONTS, SHARED_IDEAL,
    LOCAL_REQUESTS, LOCAL_SECTORS, GLOBAL_DISTINCT, SHARED_FILLED,
) = range(ACCESS_CELLS)  # fmt: skip

_FUNCTIONS = {
    "ld": "kw_count_load", "st": "kw_count_store", "atom": "kw_count_atomic", "red": "kw_count_atomic",
    "inc": "kw_count_increment",
    "ldgsts": "kw_count_copy", "ldmatrix": "kw_count_matrix",
}  # fmt: skip


@dataclass(frozen=True)
class Access:
    """Where an instruction's memory traffic is counted."""

    instruction: int
    op: str
    """``ld`` | ``st`` | ``atom`` | ``red`` | ``inc`` | ``ldgsts`` | ``ldmatrix``."""
    cell: int
    """The first of its cells."""


@dataclass(frozen=True)
class Cells:
    """What each cell of a counted kernel means."""

    number: int
    """Cells in all."""
    blocks: tuple[int, ...]
    """For each code block two cells: how often a warp ran it, and with how many lanes in all."""
    guards: dict[int, int] = field(default_factory=dict)
    """Guarded instruction to the cell with its lanes whose guard was true."""
    splits: dict[int, int] = field(default_factory=dict)
    """Branch to the cell with how often lanes of a warp parted at it."""
    accesses: tuple[Access, ...] = ()


class Counting(Variables):
    """A kernel in the making that may count."""

    def start_counting(self) -> None:
        """From here on what is emitted counts."""
        self.counted = True
        self._blocks = tuple(2 * block.index for block in self.analysis.blocks)
        self._cells = 2 * len(self.analysis.blocks)
        self._guards: dict[int, int] = {}
        self._splits: dict[int, int] = {}
        self._accesses: list[Access] = []
        self._joined = joined_accesses(self.analysis)

    @property
    def cells(self) -> Cells | None:
        """What was counted; None where nothing was."""
        if not self.counted:
            return None
        return Cells(self._cells, self._blocks, self._guards, self._splits, tuple(self._accesses))

    def _take(self, number: int) -> int:
        self._cells += number
        return self._cells - number

    def _add(self, cell: int, by: Value) -> None:
        t = self.text
        table = t.fresh("p")
        t.emit(f"{table} = load ptr, ptr {t.at('%w', layout.CELLS)}, align 8")
        pointer = t.at(table, 8 * cell)
        t.store(pointer, t.op("add", t.load(pointer, "i64", align=8), by), align=8)

    def count_block(self, index: int, lanes: Value) -> None:
        """The code block ``index`` runs with ``lanes`` (i64) lanes."""
        if self.counted:
            self._add(self._blocks[index], constant("i64", 1))
            self._add(self._blocks[index] + 1, lanes)

    def count_guard(self) -> None:
        """The current instruction runs in the lanes of :meth:`active`."""
        if self.counted and self.index not in self._guards:
            cell = self._guards[self.index] = self._take(1)
            self._add(cell, self.text.resize(self.text.intrinsic("ctpop", self.active()), "i64"))

    def count_taken(self, true: Value) -> None:
        """The condition of the current branch is true in the lanes ``true`` (i32) of the mask."""
        guard = self.instruction.guard
        if self.counted and guard is not None:
            taken = self.text.op("xor", true, self.mask) if guard.negated else true
            cell = self._guards[self.index] = self._take(1)
            self._add(cell, self.text.resize(self.text.intrinsic("ctpop", taken), "i64"))

    def count_split(self) -> None:
        """Lanes of the warp part at the current branch."""
        if self.counted:
            cell = self._splits[self.index] = self._take(1)
            self._add(cell, constant("i64", 1))

    def count_targets(self) -> None:
        """Lanes of the warp jump by the indices in data row 0."""
        if self.counted:
            cell = self._splits[self.index] = self._take(1)
            self.run("kw_count_targets", self.mask, cell)

    def count_access(self, op: str, size: int, space: str) -> None:
        if self.counted and space != "const":
            if self.instruction.op in ("ld", "st") and space == "shared":
                size = self._joined.get(self.index, size)
            if not size:
                return
            access = Access(self.index, op, self._take(ACCESS_CELLS))
            self._accesses.append(access)
            number = len(self._accesses) - 1
            self.run(_FUNCTIONS[op], self.active(), number, access.cell, size, SPACES[space])
