"""Measured choices: tables that ship, tables that this machine's tuner made, and how the kernels come to know them.

Why: a kernel's file chooses by a rule; where somebody has measured, that goes first. Tables are JSON, one device a
file: ``tables/`` holds what ships, ``gallery/`` in the cache what ``gallery.tune`` measured here. The rule: a table
says of itself whether it was measured and how; one of another driver is not taken; this machine's goes before a
shipped one.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from kernelwright import settings

SCHEMA = "kernelwright.gallery-table/1"
SHIPPED = Path(__file__).parent / "tables"
Table = dict[str, Any]


def shipped() -> tuple[Table, ...]:
    """The tables that come with the package."""
    return tuple(_read(path) for path in sorted(SHIPPED.glob("*.json")))


def own_file(device: str, driver: str) -> Path:
    """Where the tuner keeps what it measured on ``device`` under ``driver``."""
    name = "-".join("".join(c if c.isalnum() else " " for c in f"{device} {driver}").lower().split())
    return settings.cache_folder() / "gallery" / f"{name}.json"


def own() -> tuple[Table, ...]:
    """The tables that were measured on this machine, under the driver that runs now."""
    return tuple(
        table
        for path in sorted((settings.cache_folder() / "gallery").glob("*.json"))
        if (table := _read(path)).get("driver") == driver()
    )


@functools.cache
def driver() -> str:
    """The NVIDIA driver's version, or "" where there is none that PyTorch can use."""
    import torch

    from kernelwright.measure import ceilings

    return ceilings.driver() if torch.cuda.is_available() else ""


def rows_of(table: Table, kernel: str) -> tuple[tuple[Any, ...], ...]:
    """The rows of ``kernel`` as its ``TUNED`` wants them: one choice a measured shape."""
    return tuple((*row["at"], row["recipe"]) for row in table["kernels"].get(kernel, ()))


def entry(kernel: str, row: tuple[Any, ...], device: str) -> tuple[Table, dict[str, Any]]:
    """The table that a kernel's ``row`` for ``device`` came from, and what it holds beside the choice."""
    for table in (*reversed(own()), *shipped()):
        for found in table["kernels"].get(kernel, ()) if table["device"] in device else ():
            if (*found["at"], found["recipe"]) == row:
                return table, found
    raise KeyError(f"no table holds the row {row} of {kernel} for {device}")


def baked(kernel: str, device: str) -> dict[str, tuple[tuple[Any, ...], ...]]:
    """``TUNED`` of ``kernel`` for ``device`` alone, as a stand-alone file may hold it; empty where nothing is known."""
    install()
    held: dict[str, tuple[tuple[Any, ...], ...]] = _modules()[kernel].TUNED
    rows = held.get(device) or _rows_for(held, device)
    return {device: rows} if rows else {}


def _modules() -> dict[str, Any]:
    from kernelwright.gallery.kernels import linear, matvec, softmax

    return {"linear": linear, "matvec": matvec, "softmax": softmax}


@functools.cache
def install() -> None:
    """Give every kernel the tables of all devices; those of this machine last, as they go first."""
    for kernel, module in _modules().items():
        module.TUNED = {}
        for table in (*shipped(), *own()):
            rows = rows_of(table, kernel)
            if rows:
                # A tuner's table covers the shapes it was asked for; the shipped one stays for the others.
                module.TUNED[table["device"]] = merged(rows, _rows_for(module.TUNED, table["device"]))
        module.forget_plans()


def merged(first: tuple[tuple[Any, ...], ...], others: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
    """``first``, and of ``others`` the rows of shapes that it does not have."""
    held = {row[:-1] for row in first}
    return first + tuple(row for row in others if row[:-1] not in held)


def _rows_for(tuned: dict[str, tuple[tuple[Any, ...], ...]], device: str) -> tuple[tuple[Any, ...], ...]:
    return next((rows for name, rows in tuned.items() if name in device), ())


def reinstall() -> None:
    """Read all tables anew: after the tuner has written one."""
    install.cache_clear()
    install()


def _read(path: Path) -> Table:
    table: Table = json.loads(path.read_text(encoding="utf-8"))
    if table.get("schema") != SCHEMA:
        raise ValueError(f"{path} is not a table of the gallery: its schema is {table.get('schema')!r}, not {SCHEMA!r}")
    return table
