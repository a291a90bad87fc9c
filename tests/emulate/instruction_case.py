"""One instruction, its operands and its expected bits: how a case file is read, laid out in memory, and judged.

Why: the interpreter, the compiled emulator and a real GPU replay the very same files through this module. The rule: it
needs numpy alone, so that it also runs where the package is not installed.

A case is ``instructions/NAME.ptx``, with the kernel ``t(.param .u64 in, .param .u64 out)``, and ``NAME.json``: columns
of operands and columns of expected results, one row a thread, 32 threads a block. Column k lies behind column k-1,
aligned to 256 bytes. An expected value is hexadecimal, or ``nan`` (any NaN), or ``any`` (undefined).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "instructions"
ALIGN = 256


@dataclass(frozen=True)
class Column:
    """One operand or result over all rows."""

    name: str
    type: str
    values: tuple[str, ...]
    tolerance: dict[str, float]
    """Empty for equal bits, or bounds named ``ulp``, ``absolute``, ``relative``, of which the widest holds."""

    @property
    def size(self) -> int:
        return max(int("".join(c for c in self.type.split("x")[0] if c.isdigit())) // 8, 1) * (
            2 if "x2" in self.type else 1
        )


@dataclass(frozen=True)
class Case:
    """One case file."""

    name: str
    ptx: str
    target: str
    source: str
    inputs: tuple[Column, ...]
    outputs: tuple[Column, ...]
    rows: int
    block: int
    initial: dict[str, str]
    """Output columns that memory holds before the launch: name to one hexadecimal value."""

    @property
    def grid(self) -> int:
        return self.rows // self.block

    @property
    def approximate(self) -> bool:
        return any(column.tolerance for column in self.outputs)


def names() -> list[str]:
    """All cases, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> Case:
    """Read case ``name``."""
    described: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())

    def columns(key: str) -> tuple[Column, ...]:
        return tuple(Column(c["name"], c["type"], tuple(c["values"]), c.get("tolerance", {})) for c in described[key])

    return Case(
        name=name,
        ptx=(FOLDER / f"{name}.ptx").read_text(),
        target=described["target"],
        source=described["source"],
        inputs=columns("inputs"),
        outputs=columns("outputs"),
        rows=described["rows"],
        block=described.get("block", 32),
        initial=described.get("initial", {}),
    )


def offsets(columns: tuple[Column, ...], rows: int) -> tuple[list[int], int]:
    """Byte offset of every column, and the bytes of them all."""
    found, place = [], 0
    for column in columns:
        found.append(place)
        place += -(-column.size * rows // ALIGN) * ALIGN
    return found, max(place, ALIGN)


def input_bytes(case: Case) -> np.ndarray[Any, Any]:
    """The memory that ``in`` points to."""
    places, size = offsets(case.inputs, case.rows)
    memory = np.zeros(size, np.uint8)
    for place, column in zip(places, case.inputs, strict=True):
        values = np.array([int(value, 16) for value in column.values], np.dtype(f"u{column.size}"))
        memory[place : place + values.nbytes] = values.view(np.uint8)
    return memory


def output_bytes(case: Case) -> np.ndarray[Any, Any]:
    """The memory that ``out`` points to before the launch: 0xa5 everywhere, but for ``initial`` columns."""
    places, size = offsets(case.outputs, case.rows)
    memory = np.full(size, 0xA5, np.uint8)
    for place, column in zip(places, case.outputs, strict=True):
        if column.name in case.initial:
            values = np.full(case.rows, int(case.initial[column.name], 16), np.dtype(f"u{column.size}"))
            memory[place : place + values.nbytes] = values.view(np.uint8)
    return memory


def results(case: Case, memory: np.ndarray[Any, Any]) -> list[list[int]]:
    """The output columns in ``memory`` after the launch."""
    places, _ = offsets(case.outputs, case.rows)
    return [
        memory[place : place + column.size * case.rows].view(np.dtype(f"u{column.size}")).tolist()
        for place, column in zip(places, case.outputs, strict=True)
    ]


@dataclass(frozen=True)
class Mismatch:
    """One wrong result."""

    case: str
    row: int
    column: str
    operands: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.case} row {self.row} {self.column}: expected {self.expected}, got {self.got}  ({self.operands})"


def mismatches(case: Case, memory: np.ndarray[Any, Any], *, any_nan: bool = False) -> list[Mismatch]:
    """Every result that differs from what is expected; with ``any_nan``, any NaN will do where one is expected."""
    found = []
    for column, got in zip(case.outputs, results(case, memory), strict=True):
        for row, (expected, value) in enumerate(zip(column.values, got, strict=True)):
            if not agrees(column, expected, value, any_nan=any_nan):
                operands = ", ".join(f"{c.name}={c.values[row]}" for c in case.inputs)
                found.append(Mismatch(case.name, row, column.name, operands, expected, f"{value:#x}"))
    return found


def agrees(column: Column, expected: str, got: int, *, any_nan: bool = False) -> bool:
    """Whether ``got`` is what ``expected`` asks for."""
    if expected == "any":
        return True
    if expected == "nan":
        return math.isnan(number(column.type, got))
    bits = int(expected, 16)
    if bits == got:
        return True
    if column.type.endswith("x2"):
        half = column.type[:-2]
        pairs = [((bits >> shift) & 0xFFFF, (got >> shift) & 0xFFFF) for shift in (0, 16)]
        return all(p == q or (any_nan and _both_nan(half, p, q)) for p, q in pairs)
    if any_nan and _both_nan(column.type, bits, got):
        return True
    if not column.tolerance:
        return False
    want, have = number(column.type, bits), number(column.type, got)
    if not math.isfinite(want) or not math.isfinite(have):
        return False
    difference = abs(want - have)
    # The expected value is itself rounded: half a unit more than the manual's bound.
    slack = 0.5 * unit(column.type, want)
    scale = {"ulp": unit(column.type, want), "absolute": 1.0, "relative": abs(want)}
    return difference <= max(bound * scale[kind] for kind, bound in column.tolerance.items()) + slack


def _both_nan(type_: str, first: int, second: int) -> bool:
    return math.isnan(number(type_, first)) and math.isnan(number(type_, second))


def number(type_: str, bits: int) -> float:
    """The value of a bit pattern."""
    if type_ == "bf16":
        return float(np.array([bits << 16], np.uint32).view(np.float32)[0])
    size = {"f16": 2, "f32": 4, "f64": 8}.get(type_)
    if size is None:
        return float(bits)
    return float(np.array([bits], np.dtype(f"u{size}")).view(np.dtype(f"f{size}"))[0])


def unit(type_: str, value: float) -> float:
    """One unit in the last place of ``value``."""
    fraction, smallest = {"f16": (10, -24), "bf16": (7, -133), "f32": (23, -149), "f64": (52, -1074)}[type_]
    exponent = math.frexp(value)[1] - 1 if value else smallest
    return math.ldexp(1.0, max(exponent - fraction, smallest))
