"""The doctor's findings as a list: what was found, what is missing, how to get it."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from kernelwright.doctor import FOR_GPU, INFORMATION, NEEDED, OPTIONAL, Health, Item
from kernelwright.report.page import hang

_NEEDS = {NEEDED: "needed", FOR_GPU: "for a GPU", OPTIONAL: "optional", INFORMATION: ""}


def render_health(health: Health, console: Console) -> None:
    """One row a thing, then what works."""
    widest = max(len(item.name) for item in health.items)
    for item in health.items:
        word, style = _mark(item)
        lead = Text.assemble((word.ljust(9), style), item.name.ljust(widest + 2), (_NEEDS[item.need].ljust(11), "dim"))
        hang(console, lead, item.value + (f"; {item.get}" if item.get and not item.found else ""))
    console.print()
    console.print(
        "emulated device: " + ("works" if health.emulated_device_works else "does NOT work: see MISSING above")
    )
    console.print("real GPU:        " + ("works" if health.gpu_works else "not on this machine"))


def _mark(item: Item) -> tuple[str, str]:
    if item.found:
        return "ok", "green"
    return ("MISSING", "bold red") if item.need == NEEDED else ("no", "yellow")
