"""Writes the figures in docs/gallery.md from a run of benchmarks/gallery.py.

    python scripts/gallery_figures.py [RUN.json [COMPILED.json]] [--counters EMULATED.json NCU.json]

RUN is what ``--json`` kept, COMPILED another run with ``--compile``; the counters are benchmarks/gallery_counters.py's.
Between the markers ``<!-- figures: NAME -->`` and ``<!-- end -->`` everything is replaced, nothing else is touched.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"

Record = dict[str, Any]


def us(record: Record, name: str) -> float:
    """The median of one contestant."""
    return float(record["device_us"][name][0])


def plan_of(record: Record) -> str:
    """The variant's name."""
    split, _, kernel = str(record["plan"]).split(":")[0].rpartition(", then ")
    return kernel + split.removeprefix("split x")


def mean(ratios: Iterable[float]) -> float:
    values = list(ratios)
    return math.exp(sum(map(math.log, values)) / len(values))


def summary(title: str, ratios: dict[str, float]) -> str:
    least = min(ratios, key=lambda name: ratios[name])
    below = sum(ratio < 0.97 for ratio in ratios.values())
    return f"| {title} | {len(ratios)} | {mean(ratios.values()):.2f}x | {ratios[least]:.2f}x ({least}) | {below} |"


HEAD = "| | shapes | geometric mean | least | below 0.97x |\n|---|---|---|---|---|"


def wide(records: list[Record]) -> str:
    """The public matrix-vector problem."""
    [record] = [r for r in records if r["kernel"] == "matvec" and r["shape"] == [2048, 1 << 20]]
    size, best = 4 * 2048 * (1 << 20), min(us(record, name) for name in record["device_us"] if name.startswith("read"))
    lines = ["| 2048 x 2^20 float32 | ms (95 % interval) | GB/s | of the best reader |", "|---|---|---|---|"]
    for name, (median, low, high) in record["device_us"].items():
        lines.append(
            f"| {name} | {median / 1e3:.3f} ({low / 1e3:.3f} to {high / 1e3:.3f}) | {size / median / 1e3:.0f} | "
            f"{best / median:.1%} |"
        )
    return "\n".join(lines)


def matvec(records: list[Record]) -> str:
    """The grid: ours / torch.mv, speed-up and variant, for each layout and dtype."""
    cells: dict[tuple[int, int], dict[tuple[str, str], str]] = {}
    ratios: dict[str, dict[str, float]] = {}
    ends: dict[str, float] = {}
    for r in records:
        if r["kernel"] != "matvec" or "layout" not in r:
            continue
        ratio = us(r, "torch") / us(r, "ours")
        name = f"{r['shape'][0]} x {r['shape'][1]} {r['dtype']} {r['layout']}"
        ratios.setdefault(f"{r['layout']}, {r['dtype']}", {})[name] = ratio
        cells.setdefault(tuple(r["shape"]), {})[r["layout"], r["dtype"]] = (
            f"{plan_of(r)} {us(r, 'ours'):.1f} / {us(r, 'torch'):.1f} ({ratio:.2f}x)"
        )
        if "host_us" in r:
            ends[name] = r["host_us"]["torch"] / r["host_us"]["ours"]
    half = "bfloat16" if any("bfloat16" in title for title in ratios) else "float16"
    columns = [(layout, dtype) for dtype in ("float32", half) for layout in ("A @ x", "A.T @ x")]
    lines = [HEAD, *(summary(title, each) for title, each in ratios.items())]
    lines.append(summary("all", {name: ratio for each in ratios.values() for name, ratio in each.items()}))
    if ends:
        lines.append(summary("all, end to end", ends))
    lines += ["", "| stored A | " + " | ".join(f"{layout} {dtype}" for layout, dtype in columns) + " |"]
    lines.append("|---" * 5 + "|")
    for shape, row in cells.items():
        lines.append(f"| {shape[0]} x {shape[1]} | " + " | ".join(row.get(column, "") for column in columns) + " |")
    return "\n".join(lines)


def moved(r: Record) -> float:
    """Bytes that a softmax reads and writes."""
    return 2 * r["shape"][0] * r["shape"][1] * (4 if r["dtype"] == "float32" else 2)


def softmax(records: list[Record], compiled: list[Record]) -> str:
    [copy] = [r for r in records if r["kernel"] == "copy"]
    shapes = [r for r in records if r["kernel"] == "softmax"]
    ceiling = max(2 * 4 * (1 << 29) / us(copy, "copy"), *(moved(r) / us(r, "copy") for r in shapes)) / 1e3
    beside = {(*r["shape"], r["gelu"]): r for r in compiled if r["kernel"] == "softmax" and "compile" in r["device_us"]}
    ratios: dict[str, dict[str, float]] = {}
    rows: dict[tuple[int, int], list[str]] = {}
    for r in shapes:
        what = "with bias and GELU" if r["gelu"] else "plain"
        name = f"{r['shape'][0]} x {r['shape'][1]}"
        ratio = us(r, "eager") / us(r, "ours")
        ratios.setdefault(f"{what}, {r['dtype']}", {})[name] = ratio
        if r["dtype"] == "float32":
            rate = moved(r) / us(r, "ours") / 1e3
            other = beside.get((*r["shape"], r["gelu"]))
            told = f", compile {us(other, 'compile'):.1f}" if other else ""
            rows.setdefault(tuple(r["shape"]), []).append(
                f"{plan_of(r)} {us(r, 'ours'):.1f}, eager {us(r, 'eager'):.1f}{told} ({ratio:.2f}x) | "
                f"{rate:.0f} ({rate / ceiling:.0%}, {us(r, 'copy') / us(r, 'ours'):.0%})"
            )
    lines = [
        f"Copy ceiling of the run: {ceiling:.0f} GB/s (torch's fastest device copy, read and written bytes). A shape's",
        "own copy is torch's of as many bytes as the shape has, timed beside it.",
        "",
        HEAD,
    ]
    lines += [summary(title, each) for title, each in ratios.items()]
    if beside:
        fastest = {
            f"{r['shape'][0]} x {r['shape'][1]}{' gelu' if r['gelu'] else ''}": min(us(r, "eager"), us(r, "compile"))
            / us(r, "ours")
            for r in beside.values()
        }
        lines.append(summary("against the faster of eager and torch.compile, float32", fastest))
    lines += [
        "",
        "| M x N, float32 | plain: us | GB/s (of the ceiling, of its own copy) | with bias and GELU: us | the same |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {shape[0]} x {shape[1]} | " + " | ".join(row) + " |" for shape, row in rows.items()]
    return "\n".join(lines)


def linear(records: list[Record], compiled: list[Record]) -> str:
    beside = {tuple(r["shape"]): r for r in compiled if r["kernel"] == "linear_gelu_softmax"}
    ratios: dict[str, float] = {}
    ends: dict[str, float] = {}
    lines = []
    for r in records:
        if r["kernel"] != "linear_gelu_softmax":
            continue
        name = " x ".join(map(str, r["shape"]))
        ratios[name] = us(r, "eager") / us(r, "ours")
        if "host_us" in r:
            ends[name] = r["host_us"]["eager"] / r["host_us"]["ours"]
        other = beside.get(tuple(r["shape"]), {"device_us": {}})["device_us"]
        told = "".join(f", {key} {other[key][0]:.1f}" for key in ("compile", "max-autotune") if key in other)
        lines.append(
            f"| {name} | {plan_of(r)}:{r['plan'].partition(':')[2]} | {us(r, 'ours'):.1f} | "
            f"{us(r, 'W split in the call'):.1f} | {us(r, 'eager'):.1f}{told} | {ratios[name]:.2f}x |"
        )
    head = [HEAD, summary("prepared, against eager", ratios)]
    if ends:
        head.append(summary("prepared, end to end", ends))
    head += [
        "",
        "| M x N x K | product | prepared, us | W split in the call, us | eager, us | prepared against eager |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *lines])


def errors(records: list[Record]) -> str:
    lines = ["| data, M x N x K | ours: rms, max | eager float32: rms, max |", "|---|---|---|"]
    for r in records:
        if r["kernel"] == "linear-error":
            a, b, c, d = r["errors"]
            lines.append(f"| {r['kind']}, {' x '.join(map(str, r['shape']))} | {a:.1e}, {b:.1e} | {c:.1e}, {d:.1e} |")
    return "\n".join(lines)


def counters(emulated: Path, ncu: Path) -> str:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import gallery_counters

    with contextlib.redirect_stdout(io.StringIO()) as told:
        gallery_counters.print_table(json.loads(emulated.read_text()), json.loads(ncu.read_text()))
    return told.getvalue().rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("compiled", type=Path, nargs="?")
    parser.add_argument("--counters", type=Path, nargs=2)
    given = parser.parse_args()
    texts: dict[str, str] = {}
    if given.run:
        records = json.loads(given.run.read_text())
        compiled = json.loads(given.compiled.read_text()) if given.compiled else []
        texts = {
            "wide": wide(records),
            "matvec": matvec(records),
            "softmax": softmax(records, compiled),
            "linear": linear(records, compiled),
            "errors": errors(records),
        }
    if given.counters:
        texts["counters"] = counters(*given.counters)
    page = PAGE.read_text()
    for name, text in texts.items():
        marked = re.compile(rf"(<!-- figures: {name} -->\n).*?(<!-- end -->)", re.S)
        if not marked.search(page):
            raise SystemExit(f"{PAGE} has no place for the figures of {name}")
        page = marked.sub(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
