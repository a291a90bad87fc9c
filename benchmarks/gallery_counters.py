"""The emulated device's counters beside Nsight Compute's, for the gallery's portable kernels.

    python benchmarks/gallery_counters.py --emulated FILE     # count there, keep as JSON
    python benchmarks/gallery_counters.py --ncu FILE          # measure on a GPU with ncu, keep as JSON
    python benchmarks/gallery_counters.py --table FILE FILE   # the two side by side, as in docs/gallery.md

Both run the exported file on its problem in tests/gallery/problems, at one size, built without Hopper's
kernels (``TORCH_CUDA_ARCH_LIST`` without 9.0). Counts do not depend on the data.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernelwright import gallery
from kernelwright.counters import metrics as m

PROBLEMS = Path(__file__).resolve().parents[1] / "tests" / "gallery" / "problems"
CASES: dict[str, tuple[str, str, dict[str, str]]] = {
    "matvec 300 x 96": ("matvec", "matvec", {"M": "300", "K": "96"}),
    "matvec 37 x 2052": ("matvec", "matvec", {}),
    "matvec 8 x 65536": ("matvec", "matvec", {"M": "8", "K": "65536"}),
    "matvec 512 x 512, transposed": ("matvec_transposed", "matvec", {"M": "512", "K": "512"}),
    "softmax 16 x 1024": ("softmax", "softmax", {"M": "16", "N": "1024"}),
    "softmax 8 x 8192": ("softmax", "softmax", {"M": "8", "N": "8192"}),
    "linear 1 x 512 x 512": ("linear", "linear", {"M": "1", "N": "512", "K": "512"}),
    "linear 128 x 256 x 512": ("linear", "linear", {"M": "128", "N": "256", "K": "512"}),
    "linear 160 x 256 x 512": ("linear", "linear", {"M": "160", "N": "256", "K": "512"}),
}
METRICS = (
    m.INST,
    m.sectors("global", "ld"), m.requests("global", "ld"),
    m.sectors("global", "st"), m.requests("global", "st"),
    m.wavefronts("ld"), m.shared_requests("ld"), m.conflicts("ld"),
    m.wavefronts("st"), m.shared_requests("st"), m.conflicts("st"),
    m.REGISTERS, m.OCCUPANCY,
)  # fmt: skip
SHOWN = {
    "warp instructions": lambda k: k.get(m.INST),
    "sectors/request loaded": lambda k: ratio(k, m.sectors("global", "ld"), m.requests("global", "ld")),
    "stored": lambda k: ratio(k, m.sectors("global", "st"), m.requests("global", "st")),
    "wavefronts/request, shared loads": lambda k: ratio(k, m.wavefronts("ld"), m.shared_requests("ld")),
    "shared stores": lambda k: ratio(k, m.wavefronts("st"), m.shared_requests("st")),
    "occupancy %": lambda k: k.get(m.OCCUPANCY),
}


def ratio(metrics: dict[str, float], part: str, whole: str) -> float | None:
    return metrics[part] / metrics[whole] if metrics.get(whole) else None


def short(name: str) -> str:
    """A kernel's bare name: no template arguments, no namespace."""
    return re.split(r"[<(]", name.replace("void ", ""))[0].split("::")[-1].strip()


def own_kernels() -> set[str]:
    """Names of the gallery's kernels."""
    return {name for each in gallery.names() for name in re.findall(r"\b(\w+_kernel)\(", gallery.export(each))}


def count_emulated() -> dict[str, Any]:
    from kernelwright.check import CheckOptions, check

    os.environ["TORCH_CUDA_ARCH_LIST"] = "8.0+PTX"
    found: dict[str, Any] = {}
    for case, (problem, name, sets) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            candidate = Path(folder, f"{name}.py")
            candidate.write_text(gallery.export(name))
            options = CheckOptions(sets=sets, device="emulated", confirm=False, counted=True, timeout_s=900)
            verdict = check(PROBLEMS / f"{problem}.py", candidate, options=options, progress=lambda _: None)
        if verdict.verdict != "correct" or verdict.counters is None:
            raise SystemExit(f"{case}: {verdict.verdict}; {verdict.causes}")
        found[case] = [
            {"kernel": short(k.kernel), "grid": k.grid, "metrics": {n: v for n, v in k.metrics.items() if n in METRICS}}
            for k in verdict.counters
        ]
        print(case, [k["kernel"] for k in found[case]], flush=True)
    return found


def run_case(case: str) -> None:
    """One forward pass on the GPU, and the mark: what ncu watches."""
    import torch

    problem, name, sets = CASES[case]
    folder = Path(tempfile.gettempdir(), "gallery-counters")
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(gallery.export(name))
    modules = {}
    for key, file in (("problem", PROBLEMS / f"{problem}.py"), ("candidate", path)):
        spec = importlib.util.spec_from_file_location(key, file)
        assert spec is not None and spec.loader is not None
        modules[key] = importlib.util.module_from_spec(spec)
        sys.modules[key] = modules[key]
        spec.loader.exec_module(modules[key])
        if key == "problem":
            for constant, value in sets.items():
                setattr(modules[key], constant, int(value))
    model = modules["candidate"].ModelNew(*modules["problem"].get_init_inputs()).cuda()
    inputs = [tensor.cuda() for tensor in modules["problem"].get_inputs()]
    with torch.no_grad():
        model(*inputs)
        torch.arange(7, device="cuda").flip(0)
    torch.cuda.synchronize()


MARK = "flip"
"""In the name of the kernel that ends a case."""


def count_ncu() -> dict[str, Any]:
    own, found = own_kernels(), {case: [] for case in CASES}
    environment = {**os.environ, "TORCH_CUDA_ARCH_LIST": "8.0+PTX"}
    code = "from kernelwright.gallery.kernels import {0}; {0}.extension()"
    jobs = [
        subprocess.Popen([sys.executable, "-c", code.format(name)], env=environment)
        for name in ("matvec", "softmax", "linear")
    ]
    if sum(job.wait() for job in jobs):
        raise SystemExit("a kernel's file does not build; see above")
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(METRICS)]
    answer = subprocess.run(
        [*command, sys.executable, __file__, "--run"], env=environment, capture_output=True, text=True
    )
    start = answer.stdout.find('"ID"')
    if start < 0:
        raise SystemExit(f"ncu printed no table:\n{answer.stdout[-2000:]}\n{answer.stderr[-2000:]}")
    left = list(CASES)
    for row in csv.DictReader(io.StringIO(answer.stdout[start:])):
        if row.get("Kernel Name") and short(row["Kernel Name"]) in own:
            found[left[0]].append(
                {"kernel": short(row["Kernel Name"]), "grid": row["Grid Size"], "metrics": numbers(row)}
            )
        elif MARK in (row.get("Kernel Name") or ""):
            left.pop(0)
    print({case: [kernel["kernel"] for kernel in kernels] for case, kernels in found.items()}, flush=True)
    return found


def numbers(row: dict[str, str]) -> dict[str, float]:
    read = {}
    for name in METRICS:
        try:
            read[name] = float(row[name].replace(",", ""))
        except (KeyError, ValueError):
            continue
    return read


def print_table(emulated: dict[str, Any], ncu: dict[str, Any]) -> None:
    """Figures of the emulated device / of ncu."""
    print("| case | kernel | " + " | ".join(SHOWN) + " |")
    print("|---" * (len(SHOWN) + 2) + "|")
    for case, kernels in emulated.items():
        for ours, theirs in zip(kernels, ncu.get(case, [{}] * len(kernels)), strict=False):
            cells = []
            for read in SHOWN.values():
                pair = [read(each.get("metrics", {})) for each in (ours, theirs)]
                cells.append(" / ".join("-" if value is None else f"{value:.4g}" for value in pair))
            print(f"| {case} | {ours['kernel']} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulated", type=Path)
    parser.add_argument("--ncu", type=Path)
    parser.add_argument("--table", type=Path, nargs=2, metavar=("EMULATED", "NCU"))
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    for case in CASES if given.run else ():
        run_case(case)
    if given.emulated:
        given.emulated.write_text(json.dumps(count_emulated(), indent=1))
    if given.ncu:
        given.ncu.write_text(json.dumps(count_ncu(), indent=1))
    if given.table:
        print_table(*(json.loads(path.read_text()) for path in given.table))


if __name__ == "__main__":
    main()
