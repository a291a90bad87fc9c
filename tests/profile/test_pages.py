"""ncu's pages as counted kernels: values of the recording, checked against the kernels' own arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.counters import metrics as m
from kernelwright.counters import reading
from kernelwright.counters.records import NCU, KernelCounters
from kernelwright.profile import metrics as p
from kernelwright.profile.pages import kernels, number

pytestmark = pytest.mark.tiny

WARPS = (1 << 20) // 32
"""Of a kernel with a thread for each of 2^20 elements."""


def page(name: str) -> str:
    return (Path(__file__).parent / "recorded" / f"{name}.csv").read_text(encoding="utf-8")


def test_each_kernel_has_its_launch_and_who_counted(counted: dict[str, KernelCounters]) -> None:
    assert list(counted) == ["copy_unit", "copy_strided", "transpose_conflict", "matmul", "histogram"]
    one = counted["transpose_conflict"]
    assert (one.grid, one.block, one.source, one.launches) == ((32, 32, 1), (32, 32, 1), NCU, 1)
    assert one.metrics[m.REGISTERS] == 16
    assert one.metrics[m.OCCUPANCY] == 100
    assert one.metrics[m.LIMIT_WARPS] == 2
    assert one.metrics[m.SHARED_STATIC] == 4096


def test_units_are_brought_to_bytes_and_nanoseconds(counted: dict[str, KernelCounters]) -> None:
    metrics = counted["copy_unit"].metrics
    assert metrics[p.TIME] == pytest.approx(5024)
    assert metrics[p.DRAM_READ] == pytest.approx(4_197_120)
    assert metrics[p.CLOCK] == pytest.approx(1.970943e9)


def test_a_kernel_without_branches_has_no_share_of_uniform_ones(counted: dict[str, KernelCounters]) -> None:
    assert m.BRANCH_UNIFORMITY not in counted["copy_unit"].metrics
    assert reading.divergence(counted["copy_unit"].metrics) is None
    assert counted["matmul"].metrics[m.BRANCHES_DIVERGENT] == 0


def test_a_strided_load_touches_a_sector_for_each_thread(counted: dict[str, KernelCounters]) -> None:
    one = counted["copy_strided"]
    (load, store) = list(reading.traffic(one.metrics))
    assert (load.op, load.requests, load.units, load.ideal) == ("ld", WARPS, 32 * WARPS, 4 * WARPS)
    assert (store.op, store.requests, store.units, store.ideal) == ("st", WARPS, 4 * WARPS, 4 * WARPS)
    (costly,) = reading.costly_lines(one)
    assert (costly.line.file, costly.line.line, costly.line.text) == (
        "kernels.cu",
        11,
        "if (i < n) out[i] = in[j];",
    )


def test_a_columns_read_of_a_tile_takes_32_passes(counted: dict[str, KernelCounters]) -> None:
    (costly,) = reading.costly_lines(counted["transpose_conflict"])
    assert (costly.line.line, costly.traffic.space, costly.traffic.op) == (19, "shared", "ld")
    assert (costly.traffic.per_request, costly.traffic.ideal_per_request) == (32, 1)


def test_repeated_rows_of_the_page_count_once(counted: dict[str, KernelCounters]) -> None:
    one = counted["copy_unit"]
    assert sum(line.metrics[m.INST] for line in one.lines) == one.metrics[m.INST] == 557_056
    assert sum(one.instructions.values()) == 557_056
    assert one.instructions["LDG.E"] == one.instructions["STG.E"] == WARPS


def test_lines_have_their_samples_and_stalls(counted: dict[str, KernelCounters]) -> None:
    one = counted["copy_strided"]
    samples = {line.frames[0].line: line.metrics.get(p.SAMPLES) for line in one.lines}
    assert samples == {8: 26, 9: 26, 10: 6, 11: 823, 12: 87}
    (line,) = [line for line in one.lines if line.frames[0].line == 11]
    assert line.metrics["smsp__pcsamp_warps_issue_stalled_long_scoreboard"] == 795


def test_an_instruction_of_a_header_stays_at_the_headers_line(counted: dict[str, KernelCounters]) -> None:
    one = counted["histogram"]
    (header,) = [line for line in one.lines if line.frames[0].file.endswith("device_atomic_functions.hpp")]
    assert header.frames[0].line == 107
    assert header.metrics[m.requests("global", "red")] == WARPS
    assert {line.frames[0].line for line in one.lines if line is not header} == {34, 35, 36, 37}


def test_a_kernel_without_a_line_table_says_so_and_has_its_instructions(counted: dict[str, KernelCounters]) -> None:
    one = counted["matmul"]
    assert one.lines == ()
    assert "built without -lineinfo" in one.not_checked[0]
    assert one.metrics[m.INST] == sum(one.instructions.values()) == 99_483_648
    # 1024^3 products, one FMA a thread.
    assert one.instructions["FFMA"] == 2**30 // 32
    loads = {found.op: found for found in reading.traffic(one.metrics) if found.space == "global"}
    assert loads["ld"].ideal == loads["ld"].units == 16_777_216


def test_lines_are_found_by_address_whatever_the_page_calls_the_kernel(
    counted: dict[str, KernelCounters], source_text: str
) -> None:
    renamed = page("source").replace("copy_strided(const float *, float *, int)", "void copy_strided<int=8>")
    made = kernels(page("raw"), page("sass"), renamed, candidate_file="kernels.cu", candidate_text=source_text)
    assert made[1] == counted["copy_strided"]
    assert made[1].lines[3].frames[0].function == "copy_strided(const float *, float *, int)"


def test_a_launch_without_instructions_leaves_the_next_ones_theirs(
    counted: dict[str, KernelCounters], source_text: str
) -> None:
    sass = page("sass")
    second = sass[sass.index('"Kernel Name","copy_strided') :]
    made = kernels(page("raw"), second, page("source"), candidate_file="kernels.cu", candidate_text=source_text)
    assert made[0].instructions == {}
    assert "has none of this launch" in made[0].not_checked[0]
    assert made[1] == counted["copy_strided"]


def test_an_hfma2_that_moves_a_constant_is_no_flop() -> None:
    names = [m.flops("hfma"), m.flops("ffma")]
    raw = "\n".join(
        [
            '"ID","Kernel Name","Block Size","Grid Size",' + ",".join(f'"{name}"' for name in names),
            '"","","","","inst","inst"',
            '"0","k(float *)","(32, 1, 1)","(2, 1, 1)","256","64"',
        ]
    )
    header = '"Address","Source","Instructions Executed","Predicated-On Thread Instructions Executed"'
    rows = [
        "HFMA2.MMA R9, -RZ, RZ, 0, 5.9604644775390625e-08",
        "@P0 HFMA2 R25, -RZ, RZ, 0, 0",
        "HFMA2.BF16_V2 R3, R4, R5, R6",
        "HFMA2.MMA R3, R4, RZ.H0_H0, R6",
        "FFMA R1, R2, R3, R4",
    ]
    page = "\n".join(f'"0x{n:x}","      {sass}","2","64"' for n, sass in enumerate(rows))
    (one,) = kernels(
        raw, f'"Kernel Name","k(float *)",\n{header}\n{page}\n', "", candidate_file="c.py", candidate_text=""
    )
    assert one.metrics[m.flops("hfma")] == 256
    assert one.metrics[m.flop("fp16")] == 2 * 2 * (256 - 2 * 64)
    assert one.metrics[m.flop("fp32")] == 2 * 64


def test_a_kernel_that_only_moves_constants_has_no_flop_of_halves(
    counted: dict[str, KernelCounters], source_text: str
) -> None:
    rows = page("raw").splitlines()
    # The recorded product has one HFMA2.MMA R25, -RZ, RZ, 0, 0, which each of its 2^20 threads runs.
    with_halves = [rows[0] + f',"{m.flops("hfma")}"', rows[1] + ',"inst"', *(f'{row},"1,048,576"' for row in rows[2:])]
    made = kernels("\n".join(with_halves), page("sass"), "", candidate_file="kernels.cu", candidate_text=source_text)
    assert made[3].kernel.startswith("matmul")
    assert reading.operations(made[3].metrics).get("fp16") is None


def test_equal_launches_are_added_and_their_rates_are_kept(source_text: str) -> None:
    raw = page("raw").splitlines()
    twice = "\n".join([*raw[:3], *raw[2:]])
    sass = page("sass")
    first = sass[: sass.index('"Kernel Name","copy_strided')]
    made = kernels(twice, first + sass, page("source"), candidate_file="kernels.cu", candidate_text=source_text)
    one = made[0]
    assert (one.kernel.split("(")[0], one.launches, len(made)) == ("copy_unit", 2, 5)
    assert one.metrics[m.INST] == 2 * 557_056
    assert one.metrics[p.ACHIEVED] == pytest.approx(68.740564)
    assert one.metrics[m.REGISTERS] == 16
    assert one.metrics[m.sectors_per_request("global", "ld")] == 4
    assert sum(line.metrics[p.SAMPLES] for line in one.lines) == 2 * 451


def test_floating_point_work_follows_from_instructions() -> None:
    names = [m.flops("ffma"), m.flops("fadd"), m.flops("hfma"), p.TENSOR_OPS["fp16"]]
    raw = "==PROF== words before\n" + "\n".join(
        [
            '"ID","Kernel Name","Block Size","Grid Size",' + ",".join(f'"{name}"' for name in names),
            '"","","","","inst","inst","inst",""',
            '"0","k(float *)","(32, 1, 1)","(2, 1, 1)","1,000","10","5","4,096"',
        ]
    )
    (one,) = kernels(raw, "", "", candidate_file="c.py", candidate_text="")
    assert one.metrics[m.flop("fp32")] == 2010
    # An HFMA2 is two FMAs.
    assert one.metrics[m.flop("fp16")] == 20
    assert one.metrics[m.flop("tensor")] == 4096


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1,024", "", 1024.0),
        ("5.024000", "us", 5024.0),
        ("4.197120", "Mbyte", 4_197_120.0),
        ("1.97", "Ghz", 1.97e9),
        ("1.024", "Kbyte/block", 1024.0),
        ("835.4", "Gbyte/s", 835.4e9),
        ("nan", "", None),
        ("", "%", None),
        ("CachePreferNone", "", None),
    ],
)
def test_cells_become_numbers_in_base_units(text: str, unit: str, value: float | None) -> None:
    assert number(text, unit) == (pytest.approx(value) if value is not None else None)
