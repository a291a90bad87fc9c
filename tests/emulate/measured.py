"""How far a GPU's approximate instructions were from the exact values: ``python tests/emulate/measured.py RECORD``.

RECORD is what ``hardware.py --json`` wrote. One line a case: rows with a finite result, how many had the very bits, and
the largest difference in units in the last place, absolute and relative. The rule: it only reports; the bounds that
must hold are in the case files.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import instruction_case


def measure(column: instruction_case.Column, observed: list[str]) -> str:
    """The line of one result column."""
    rows = same = 0
    ulp = absolute = relative = 0.0
    for expected, got in zip(column.values, observed, strict=True):
        want = instruction_case.number(column.type, int(expected, 16))
        if not math.isfinite(want):
            continue
        rows += 1
        same += expected == got
        difference = abs(want - instruction_case.number(column.type, int(got, 16)))
        ulp = max(ulp, difference / instruction_case.unit(column.type, want))
        absolute = max(absolute, difference)
        relative = max(relative, difference / abs(want) if want else 0.0)
    return f"{rows:4} rows, {same:4} the same, {ulp:6.4g} ulp, absolute {power(absolute)}, relative {power(relative)}"


def power(value: float) -> str:
    """``value`` as a power of two."""
    return f"2**{math.log2(value):.1f}" if value else "0"


def main() -> None:
    """Print the line of every approximate case that the record holds."""
    record = json.loads(Path(sys.argv[1]).read_text())
    print(f"{record['device']}, sm_{record['capability']}, driver {record['driver']}")
    for name, columns in record["cases"].items():
        case = instruction_case.load(name)
        if case.approximate:
            print(f"{name:24} {measure(case.outputs[0], columns[case.outputs[0].name])}")


if __name__ == "__main__":
    main()
