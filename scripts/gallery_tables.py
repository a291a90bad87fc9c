"""Makes the gallery's shipped tables from what its tuner measured on an H200.

    python scripts/gallery_tables.py MEASURED.json

MEASURED is the tuner's own table (``gallery.tune``, or ``benchmarks/gallery.py --tune``), which holds the time of every
plan. The H200's shipped table keeps each shape's choice with its time, the rule's and PyTorch's. The H100's and the
A100's are *derived*, by the rules below, and say so: nobody has measured there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kernelwright.gallery import _tables
from kernelwright.gallery.kernels import linear, matvec, softmax

H100_HOW = "taken over from the H200: the same architecture and as many multiprocessors, at 0.7 of its memory bandwidth"
A100_HOW = "the fastest on an H200 of the plans that need nothing of Hopper's, PyTorch's own left out"
A100_SMS = 108


def portable(kernel: str, at: list[Any]) -> set[str]:
    """The recipes that an A100 has at a shape, but for PyTorch's and the rule's (whose plan is another there)."""
    if kernel == "matvec":
        itemsize, transposed, M, K = at
        aligned = (M if transposed else K) * itemsize % 16 == 0
        found = set(matvec.recipes(M, K, itemsize, aligned, transposed, A100_SMS, False))
    elif kernel == "softmax":
        itemsize, gelu, M, N = at
        aligned = softmax.ROWS if N * itemsize % 16 == 0 else softmax.WHOLE
        found = set(softmax.recipes(M, N, itemsize, aligned, False, not gelu))
    else:
        found = set(linear.recipes(*at, A100_SMS, False))
    return found - {"torch", "rule"}


def table(device: str, *, measured: bool, how: str, source: dict[str, Any], kernels: dict[str, Any]) -> dict[str, Any]:
    head = {"schema": _tables.SCHEMA, "device": device, "measured": measured, "how": how}
    if measured:
        head |= {"driver": source["driver"], "torch": source["torch"]}
    return {**head, "kernels": kernels}


def rows_for(source: dict[str, Any], device: str) -> dict[str, list[dict[str, Any]]]:
    kernels: dict[str, list[dict[str, Any]]] = {}
    for kernel, rows in source["kernels"].items():
        made = []
        for row in sorted(rows, key=lambda row: row["at"]):
            us, recipe = row["us"], row["recipe"]
            if device == "A100":
                here = portable(kernel, row["at"])
                left = {name: time for name, time in us.items() if name in here}
                if left:
                    made.append({"at": row["at"], "recipe": min(left, key=lambda name: left[name])})
            elif device == "H100":
                made.append({"at": row["at"], "recipe": recipe})
            else:
                kept = {name: us[name] for name in dict.fromkeys((recipe, row["rule"], "torch")) if name in us}
                made.append({"at": row["at"], "recipe": recipe, "rule": row["rule"], "us": kept})
        kernels[kernel] = made
    return kernels


def written(made: dict[str, Any]) -> str:
    """JSON with a row a line."""
    head = json.dumps({key: value for key, value in made.items() if key != "kernels"}, indent=1)
    parts = []
    for kernel, rows in made["kernels"].items():
        lines = ",\n".join("   " + json.dumps(row) for row in rows)
        parts.append(f'  "{kernel}": [\n{lines}\n  ]')
    return head.removesuffix("\n}") + ',\n "kernels": {\n' + ",\n".join(parts) + "\n }\n}\n"


def main() -> None:
    source = json.loads(Path(sys.argv[1]).read_text())
    for key, device, measured, how in (
        ("h200", source["device"], True, source["how"]),
        ("h100", "H100", False, H100_HOW),
        ("a100", "A100", False, A100_HOW),
    ):
        kernels = rows_for(source, device)
        made = table(device, measured=measured, how=how, source=source, kernels=kernels)
        (_tables.SHIPPED / f"{key}.json").write_text(written(made))


if __name__ == "__main__":
    main()
