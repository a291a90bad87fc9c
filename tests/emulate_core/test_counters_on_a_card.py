"""The programs of benchmarks/counters count here what Nsight Compute counted on an H200 (driver 580.159.04, 2026-11).

``python benchmarks/counters.py --freeze tests/emulate_core/ncu-h200.json`` writes the figures anew, on a machine with a
GPU, or from what ncu printed elsewhere (``--measured``).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from emulated import needs_nvcc

ROOT = Path(__file__).parents[2]
FROZEN = json.loads((Path(__file__).with_name("ncu-h200.json")).read_text())
QUICK = ("copies", "transposes")

pytestmark = [pytest.mark.emu, needs_nvcc]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_counters", ROOT / "benchmarks" / "counters.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "program", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(FROZEN)]
)
def test_a_programs_counts_are_those_of_the_card(program: str, benchmark: ModuleType) -> None:
    measured: dict[Any, dict[str, float]] = {}
    for kernel, dynamic, metric, figure in FROZEN[program]:
        measured.setdefault((kernel, dynamic), {})[metric] = figure
    counted = benchmark.emulate(ROOT / "benchmarks" / "counters" / f"{program}.cu")
    shaped = {}
    for kernel in counted:
        name = benchmark._plain(kernel.kernel), kernel.dynamic_shared_bytes
        if name in measured:
            shaped[(name[0], kernel.grid, kernel.block, name[1])] = measured[name]
    assert len(shaped) == len(measured)
    rows = [row for row in benchmark.compare(program, counted, shaped) if row.measured]
    assert len(rows) == len(FROZEN[program])
    assert [row for row in rows if not row.equal] == []
