"""The doctor's findings as a list: what was found, what is missing, how to get it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelwright.doctor import FOR_GPU, INFORMATION, NEEDED, OPTIONAL, Health

_NEEDS = {NEEDED: "needed", FOR_GPU: "for a GPU", OPTIONAL: "optional", INFORMATION: ""}


def render_health(health: Health, console: Console) -> None:
    """One row a thing, then what works."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for item in health.items:
        if item.found:
            mark = Text("ok", style="green")
        else:
            mark = Text("MISSING", style="bold red") if item.need == NEEDED else Text("no", style="yellow")
        value = item.value + (f"; {item.get}" if item.get and not item.found else "")
        table.add_row(mark, item.name, _NEEDS[item.need], value)
    console.print(table)
    console.print()
    console.print(
        "emulated device: " + ("works" if health.emulated_device_works else "does NOT work: see MISSING above")
    )
    console.print("real GPU:        " + ("works" if health.gpu_works else "not on this machine"))
