"""The emulated device's counters beside Nsight Compute's, kernel by kernel, for the programs in benchmarks/counters.

    python benchmarks/counters.py                          # count here; with a GPU and ncu, measure too and compare
    python benchmarks/counters.py --json out.json          # the same, kept
    python benchmarks/counters.py --measured FOLDER        # compare with what ncu printed elsewhere (--keep)
    python benchmarks/counters.py --markdown               # a table for docs/counters.md, a line a kernel
    python benchmarks/counters.py --freeze FILE            # keep what agrees, for tests/emulate_core

ncu runs with ``--clock-control none`` and multiplies nothing: each launch is replayed until every metric is there. A
program's contents are the same on every machine, so its counts must be, too. The rule: a difference is printed, and
either falls under a reason that is stated below or stands as unexplained.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelwright import program
from kernelwright.counters import metrics as m
from kernelwright.counters.records import KernelCounters
from kernelwright.explain.access import kernel as short
from kernelwright.records import from_json, to_json

PROGRAMS = Path(__file__).with_name("counters")
APART = (
    m.INST, m.THREAD_INST, m.THREAD_INST_ON, m.THREADS_PER_INST, m.COMPULSORY_READ, m.BRANCHES_DIVERGENT,
    m.BRANCHES_UNIFORM, m.REGISTERS, m.OCCUPANCY, m.WAVES,
)  # fmt: skip
"""What agrees by chance or nearly, or is tested elsewhere."""
LOADS_ALONE = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
"""Without ldmatrix, which the hardware's metric of loads holds, too."""
OVERHEAD_BYTES = 20_000
"""Most that a launch read from memory beside its data: 2.5 kB for a small kernel, 20 kB for the longest code."""
_PIPES = "smsp__ops_path_tensor_op_hmma_src_"

ALSO: dict[str, tuple[str, ...]] = {
    m.INST: (m.INST,),
    m.THREAD_INST: (m.THREAD_INST,),
    m.THREAD_INST_ON: (m.THREAD_INST_ON,),
    m.THREADS_PER_INST: (m.THREADS_PER_INST,),
    m.BRANCHES_DIVERGENT: (m.BRANCHES_DIVERGENT,),
    m.BRANCHES_UNIFORM: (m.BRANCHES_UNIFORM,),
    **{m.requests("global", op): (m.requests("global", op),) for op in m.GLOBAL_OPS},
    **{m.sectors("global", op): (m.sectors("global", op),) for op in m.GLOBAL_OPS},
    **{m.requests("local", op): (m.requests("local", op),) for op in m.LOCAL_OPS},
    **{m.sectors("local", op): (m.sectors("local", op),) for op in m.LOCAL_OPS},
    m.SECTORS_GLOBAL: (m.SECTORS_GLOBAL,),
    m.SECTORS_GLOBAL_IDEAL: (m.SECTORS_GLOBAL_IDEAL,),
    **{m.shared_requests(op): (m.shared_requests(op),) for op in m.SHARED_OPS},
    **{
        m.wavefronts(op): (f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum", m.wavefronts(op))
        for op in m.SHARED_OPS
    },
    **{m.conflicts(op): (m.conflicts(op),) for op in m.SHARED_OPS},
    m.WAVEFRONTS_SHARED: (m.WAVEFRONTS_SHARED,),
    m.WAVEFRONTS_SHARED_IDEAL: (m.WAVEFRONTS_SHARED_IDEAL,),
    **{m.flops(op): (m.flops(op),) for op in m.FLOP_OPS},
    m.flop("tensor"): (f"{_PIPES}fp16_dst_fp32.sum",),
    m.COMPULSORY_READ: ("dram__bytes_read.sum",),
    m.REGISTERS: (m.REGISTERS,),
    m.LIMIT_REGISTERS: (m.LIMIT_REGISTERS,),
    m.LIMIT_WARPS: (m.LIMIT_WARPS,),
    m.OCCUPANCY: (m.OCCUPANCY,),
    m.WAVES: (m.WAVES,),
}
"""Our metric to ncu's that it is held against, the instrumented one before the hardware's."""

EXPLAINED = (
    (".*", r"smsp__(thread_)?inst_executed", "SASS is not PTX: addresses, constants and conversions differ in number"),
    (".*", r"op_hfma_pred_on", "ptxas makes constants and half products with HFMA2"),
    ("halves", r"op_hmul_pred_on", "ptxas makes constants and half products with HFMA2"),
    (".*", r"branch_targets", "ptxas unrolls and predicates"),
    ("reduce_shuffle|gemv", r"op_fadd_pred_on", "ptxas predicates what follows a shuffle"),
    ("two_ways", r"op_f(fma|mul|add)_pred_on", "a division is one PTX instruction and about a dozen of SASS"),
    ("gemm_.*", r"shared", "ptxas joins neighbouring loads of shared memory to LDS.128"),
    ("reduce_interleaved", r"shared", "ptxas keeps a thread's own partial sum in a register"),
    ("local_array", r"local", "ptxas keeps the array in registers, with selects for its index"),
    ("one_counter", r"_op_red", "ptxas adds up a warp's atomics on one address, one lane sends the sum"),
    ("copy_strided", r"dram__bytes_read", "the card's memory is read in 64 bytes, two sectors"),
)
"""Kernel, ncu's metric, and why the two may differ: SASS, which runs, is what ptxas makes of PTX, which is counted."""

Shape = tuple[str, tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True)
class Row:
    """One metric of one kernel."""

    program: str
    kernel: str
    dynamic_shared_bytes: int
    metric: str
    against: str
    """ncu's name of it."""
    emulated: float
    measured: float

    @property
    def equal(self) -> bool:
        """Within rounding of what ncu prints; memory read within what code, parameters and other launches add."""
        if self.metric == m.COMPULSORY_READ:
            return math.isclose(self.emulated, self.measured, rel_tol=0.01, abs_tol=OVERHEAD_BYTES)
        return math.isclose(self.emulated, self.measured, rel_tol=2e-3, abs_tol=0.5 if self.measured > 100 else 1e-2)

    @property
    def reason(self) -> str:
        """Why it differs; empty where nobody knows, or it does not."""
        if self.equal:
            return ""
        known = (why for kernel, metric, why in EXPLAINED if re.fullmatch(kernel, self.kernel.split("<")[0])
                 and re.search(metric, self.against))  # fmt: skip
        return next(known, "")


def emulate(source: Path) -> list[KernelCounters]:
    """What the emulated device counts in a program. Raises ``SystemExit`` where it fails or finds a fault."""
    options = program.RunOptions(counted=True, captured=True, flags=("-std=c++17",))
    report = program.run(source, options=options, progress=lambda step: None)
    if report.returncode or report.causes or report.counters is None:
        raise SystemExit(f"{source.name}: exit status {report.returncode}, {report.causes}\n{report.stderr}")
    return list(report.counters)


def measure(source: Path, ncu: str, keep: Path | None) -> dict[Shape, dict[str, float]]:
    """The same program under ncu, sums over equal launches."""
    wanted = sorted({name for names in ALSO.values() for name in names if not name.startswith(("launch_", "memory_"))})
    wanted.remove(m.OCCUPANCY)
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / source.stem
        build = ["nvcc", "-arch=native", "-lineinfo", "-std=c++17", str(source), "-o", str(binary)]
        subprocess.run(build, check=True)
        command = [
            *(ncu, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"),
            *("--section", "SourceCounters", "--section", "Occupancy", "--section", "LaunchStats"),
            *("--metrics", ",".join(wanted), str(binary)),
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode:
        raise SystemExit(f"ncu failed on {source.name}:\n{said.stdout[-2000:]}{said.stderr[-2000:]}")
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"raw-{source.stem}.csv").write_text(said.stdout)
    return read(said.stdout)


def read(text: str) -> dict[Shape, dict[str, float]]:
    """ncu's raw page as CSV: metrics by kernel and shape, sums over equal launches."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))[1:]  # the first holds the units
    found: dict[Shape, dict[str, float]] = {}
    for row in rows:
        grid = tuple(int(row[f"launch__grid_dim_{axis}"].replace(",", "")) for axis in "xyz")
        block = tuple(int(row[f"launch__block_dim_{axis}"].replace(",", "")) for axis in "xyz")
        dynamic = int(_number(row["launch__shared_mem_per_block_dynamic"]))
        shape = (_plain(row["Kernel Name"]), grid, block, dynamic)
        figures = {name: _number(value) for name, value in row.items() if name and _is_number(value)}
        found[shape] = m.added(found[shape], figures) if shape in found else figures
    return found


def _plain(kernel: str) -> str:
    return re.sub(r"\((?:int|unsigned int|bool)\)", "", short(kernel.replace("(int)", ""))).replace(" ", "")


def _is_number(value: str | None) -> bool:
    return bool(value) and re.fullmatch(r"-?[\d,]+(\.\d+)?(e[+-]?\d+)?", value or "") is not None


def _number(value: str) -> float:
    return float(value.replace(",", ""))


def compare(name: str, counted: Iterable[KernelCounters], measured: dict[Shape, dict[str, float]]) -> Iterator[Row]:
    """Every metric that either has something of."""
    for kernel in counted:
        shape = (_plain(kernel.kernel), kernel.grid, kernel.block, kernel.dynamic_shared_bytes)
        theirs = measured.get(shape)
        if theirs is None:
            print(f"{name}: {shape} was not measured")
            continue
        for metric, others in ALSO.items():
            ours = kernel.metrics.get(metric, 0.0)
            for other in others:
                if other in theirs and (ours or theirs[other]):
                    without = kernel.metrics.get(m.wavefronts("ldsm"), 0.0) if other == LOADS_ALONE else 0.0
                    yield Row(name, shape[0], shape[3], metric, other, ours - without, theirs[other])


def table(rows: list[Row], *, everything: bool) -> Iterator[str]:
    """Lines of text: by kernel, those that differ, or all."""
    seen = ""
    for row in rows:
        extra = f" [{row.dynamic_shared_bytes} B]" if row.dynamic_shared_bytes else ""
        title = f"{row.program}: {row.kernel}{extra}"
        if title != seen:
            of = [other for other in rows if (other.program, other.kernel) == (row.program, row.kernel)]
            of = [other for other in of if other.dynamic_shared_bytes == row.dynamic_shared_bytes]
            yield f"{title}: {sum(other.equal for other in of)} of {len(of)} equal"
            seen = title
        if everything or not row.equal:
            ratio = row.emulated / row.measured if row.measured else math.inf
            mark = "=" if row.equal else "~" if row.reason else "!"
            yield f"  {mark} {row.against:<78} {row.emulated:>14,.6g} {row.measured:>14,.6g} {ratio:>8.4g}"


def markdown(rows: list[Row]) -> Iterator[str]:
    """A table with a line a kernel; launches that only differ in their pattern are one line."""
    yield "| kernel | launches | PTX to SASS | other figures | equal | what differs, and why |"
    yield "|---|---|---|---|---|---|"
    kernels: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        kernels.setdefault((row.program, row.kernel), []).append(row)
    for (name, kernel), of in kernels.items():
        launches = len({row.dynamic_shared_bytes for row in of})
        instructions = [row for row in of if row.metric == m.INST]
        ratio = sum(row.emulated for row in instructions) / sum(row.measured for row in instructions)
        others = [row for row in of if row.metric not in (m.INST, m.THREAD_INST, m.THREAD_INST_ON, m.THREADS_PER_INST)]
        reasons: dict[str, list[str]] = {}
        for row in others:
            if not row.equal:
                reasons.setdefault(row.reason or "not explained", []).append(_short(row.against))
        why = "; ".join(f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items())
        equal = sum(row.equal for row in others)
        yield f"| {name}: `{kernel}` | {launches} | {ratio:.2f} | {len(others)} | {equal} | {why} |"


_WORDS = (
    ("branch_targets", "branches"),
    ("op_(.)(add|mul|fma)_pred_on", r"\1\2"),
    ("mem_local", "local"),
    ("dram", "memory read"),
    ("op_red", "reductions' sectors"),
    ("shared", "shared"),
)


def _short(metric: str) -> str:
    """What of a metric's name tells it from its neighbours."""
    for pattern, word in _WORDS:
        found = re.search(pattern, metric)
        if found:
            return found.expand(word)
    return metric


def freeze(rows: list[Row]) -> dict[str, list[list[object]]]:
    """By program: kernel, dynamic shared memory, ncu's metric and its figure, of memory and flop that agree."""
    kept: dict[str, list[list[object]]] = {}
    for row in rows:
        if row.equal and row.measured and row.metric not in APART and "occupancy" not in row.metric:
            kept.setdefault(row.program, []).append([row.kernel, row.dynamic_shared_bytes, row.against, row.measured])
    return kept


def _lines(kept: dict[str, list[list[object]]]) -> str:
    """As JSON with a line a figure."""
    programs = [
        f" {json.dumps(name)}: [\n" + ",\n".join(f"  {json.dumps(figure)}" for figure in figures) + "\n ]"
        for name, figures in kept.items()
    ]
    return "{\n" + ",\n".join(programs) + "\n}\n"


def main() -> None:
    """See the module's docstring."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("programs", nargs="*", help="names of programs, e.g. copies; all of them where none is given")
    asked.add_argument("--json", type=Path, metavar="FILE", help="keep every figure")
    asked.add_argument("--emulated", type=Path, metavar="FILE", help="take the emulated figures from such a file")
    asked.add_argument("--measured", type=Path, metavar="FOLDER", help="take ncu's from raw-NAME.csv there")
    asked.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what ncu prints as raw-NAME.csv")
    asked.add_argument("--all", action="store_true", help="print equal rows, too")
    asked.add_argument("--markdown", action="store_true", help="print a table with a line a kernel instead")
    asked.add_argument("--freeze", type=Path, metavar="FILE", help="keep the figures that agree, for tests")
    given = asked.parse_args()
    known = json.loads(given.emulated.read_text())["emulated"] if given.emulated else {}
    ncu = shutil.which("ncu")
    kept: dict[str, object] = {}
    rows: list[Row] = []
    for source in sorted(PROGRAMS.glob("*.cu")):
        if given.programs and source.stem not in given.programs:
            continue
        counted = [from_json(KernelCounters, item) for item in known.get(source.stem, ())] or emulate(source)
        kept[source.stem] = to_json(counted)
        measured = None
        if given.measured:
            measured = read((given.measured / f"raw-{source.stem}.csv").read_text())
        elif ncu:
            measured = measure(source, ncu, given.keep)
        if measured is not None:
            rows += compare(source.stem, counted, measured)
        else:
            print(f"{source.stem}: {len(counted)} kernels counted; not measured (no ncu here)")
    for line in markdown(rows) if given.markdown else table(rows, everything=given.all):
        print(line)
    if rows:
        equal, explained = sum(row.equal for row in rows), sum(bool(row.reason) for row in rows)
        print(f"{equal} of {len(rows)} figures equal, {explained} explained, {len(rows) - equal - explained} not")
    if given.freeze:
        given.freeze.write_text(_lines(freeze(rows)))
    if given.json:
        given.json.write_text(json.dumps({"emulated": kept, "rows": [to_json(row) for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
