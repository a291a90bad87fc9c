"""The gallery on a screen: its kernels, which of their variants run and why, and what a tuner found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelwright.report.page import hang


def render_list(kernels: Sequence[Mapping[str, str]], console: Console) -> None:
    """A name and what it does, one kernel a paragraph."""
    width = max(len(kernel["name"]) for kernel in kernels) + 2
    for kernel in kernels:
        hang(console, Text(kernel["name"].ljust(width), style="bold"), " ".join(kernel["does"].split()))


def render_choices(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """What runs at each shape, its reason beneath."""
    for row in rows:
        layout = ", transposed" if row["transposed"] else ""
        told = f"{row['kernel']} {' x '.join(map(str, row['shape']))} {row['dtype']}{layout} on {row['device']}"
        console.print(Text(told, style="bold"), soft_wrap=True)
        for choice in row["runs"]:
            hang(console, Text("  "), choice["plan"])
            hang(console, Text("      "), choice["why"])


def render_table(table: Mapping[str, Any], console: Console) -> None:
    """A tuner's table: shape, choice, and PyTorch beside it."""
    console.print(f"{table['device']}, driver {table['driver']}: {table['how']}", soft_wrap=True)
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("kernel", "at", "plan"):
        shown.add_column(name)
    for name in ("us", "PyTorch us", "speed-up"):
        shown.add_column(name, justify="right")
    for kernel, rows in table["kernels"].items():
        for row in rows:
            us = row["us"][row["recipe"]]
            torch = row["us"].get("torch")
            shown.add_row(
                kernel,
                " ".join(map(str, row["at"])),
                row["recipe"],
                f"{us:.1f}",
                f"{torch:.1f}" if torch else "-",
                f"{torch / us:.2f}" if torch else "-",
            )
    console.print(shown)
