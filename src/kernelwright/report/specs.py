"""Data sheets as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from kernelwright.device.specs import DeviceSpec
from kernelwright.report import wording
from kernelwright.report.page import labelled


def render_table(sheets: Sequence[DeviceSpec], console: Console) -> None:
    """One line a GPU: what decides which limit a kernel meets."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("GPU", "target"):
        table.add_column(name, no_wrap=True)
    for name in ("SMs", "memory", "GB/s", "L2", "shared", "fp32", "bf16", "ridge fp32", "ridge bf16"):
        table.add_column(name, justify="right", no_wrap=True)
    for sheet in sheets:
        table.add_row(
            sheet.key,
            sheet.architecture,
            str(sheet.multiprocessors),
            f"{sheet.memory_bytes / 2**30:.0f} GiB",
            f"{sheet.bandwidth_gb_s:.0f}",
            f"{sheet.l2_bytes / 2**20:.0f} MiB",
            f"{sheet.shared_per_block_optin // 1024} KiB",
            *(f"{sheet.peaks[dtype]:.0f}" if dtype in sheet.peaks else "-" for dtype in ("fp32", "bf16")),
            *(f"{sheet.ridges[dtype]:.0f}" if dtype in sheet.ridges else "-" for dtype in ("fp32", "bf16")),
        )
    console.print(table)
    console.print("shared: most for one block; fp32, bf16: dense TFLOP/s; ridge: flop for each byte of device memory")


def render_sheet(sheet: DeviceSpec, console: Console) -> None:
    """Every figure of one GPU."""
    console.print(
        f"{sheet.name} ({sheet.key}), compute capability {'.'.join(map(str, sheet.compute_capability))}", style="bold"
    )
    rows = (
        ("chip", f"{sheet.multiprocessors} multiprocessors at up to {sheet.clock_mhz} MHz"),
        (
            "memory",
            f"{wording.bytes_of(sheet.memory_bytes)}, {sheet.bandwidth_gb_s:.0f} GB/s "
            f"({sheet.memory_clock_mhz} MHz x 2 x {sheet.memory_bus_bits} bits), L2 {wording.bytes_of(sheet.l2_bytes)}",
        ),
        (
            "shared",
            f"{wording.bytes_of(sheet.shared_per_sm)} a multiprocessor; a block may have "
            f"{wording.bytes_of(sheet.shared_per_block)}, "
            f"{wording.bytes_of(sheet.shared_per_block_optin)} after opting in",
        ),
        (
            "threads",
            f"{sheet.max_threads_per_block} a block, {sheet.max_threads_per_sm} and {sheet.max_blocks_per_sm} blocks "
            f"a multiprocessor",
        ),
        ("registers", f"{sheet.registers_per_sm} a multiprocessor, {sheet.max_registers_per_thread} a thread"),
        ("block", "at most " + " x ".join(map(str, sheet.max_block))),
        ("grid", "at most " + " x ".join(map(str, sheet.max_grid))),
    )
    for label, text in rows:
        labelled(console, label, [text])
    if not sheet.peaks:
        labelled(console, "peaks", ["not known: this GPU has no data sheet here"])
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("dtype")
    for name in ("vector TFLOP/s", "tensor TFLOP/s", "ridge flop/byte"):
        table.add_column(name, justify="right")
    for dtype in sheet.peaks:
        table.add_row(
            dtype,
            *(f"{peaks[dtype]:g}" if dtype in peaks else "-" for peaks in (sheet.vector_tflops, sheet.tensor_tflops)),
            f"{sheet.ridges[dtype]:.1f}",
        )
    console.print()
    console.print(table)
