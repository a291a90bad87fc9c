"""Host objects: compiled once for a text, moved to wherever the text now stands.

The rule of :mod:`kernelwright.build.placed`: the store keeps the assembly and the places of its source; an edit that
only moves lines costs an assembler run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kernelwright.build import cache, placed
from kernelwright.build.nvcc import clean_environment, run_command


def compile_text(text: str, name: str, command: Sequence[str], place: Path, *, salt: str) -> Path:
    """The object of ``text`` in ``place``. ``command`` is the compiler and its flags; ``salt`` what else matters.

    ``place`` holds what the text includes by quoted name. Raises :class:`kernelwright.build.nvcc.CommandFailed`.
    """
    stripped, places = placed.separate(text)
    fixed = [json.dumps(places)] if placed.names_lines(stripped) else []
    key = cache.digest("object", stripped, name, *command, *fixed, salt)

    def make(folder: Path) -> None:
        (place / name).write_text(text)
        run_command([*command, "-S", name, "-o", str(folder / "unit.s")], folder=place, environment=clean_environment())
        # The scratch folder is no place that anyone can open.
        assembly = (folder / "unit.s").read_text()
        (folder / "unit.s").write_text(assembly.replace(f"{place}/", "").replace(str(place), "."))
        (folder / "places.json").write_text(json.dumps(places))

    entry, _ = cache.obtain("object", key, make)
    old = [(str(file), int(line)) for file, line in json.loads((entry / "places.json").read_text())]
    (place / "unit.s").write_text(placed.moved((entry / "unit.s").read_text(), old, places))
    run_command(["as", "unit.s", "-o", "unit.o"], folder=place, environment=clean_environment())
    return place / "unit.o"
