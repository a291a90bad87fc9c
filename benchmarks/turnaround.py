"""From a saved edit to a full verdict on a GPU: how long, and where the time goes.

Each check is of a kernel that was just edited (a constant in it is another one), 5 trials, 100 rounds.

    python benchmarks/turnaround.py [--only first,cold,warm,wrong] [--examples matrix_vector,linear_gelu_softmax]

``first`` is the first check on a machine (headers are precompiled, ceilings measured), ``cold`` a
``kernelwright check`` in a fresh process, ``warm`` what ``kernelwright watch`` does after a save, ``wrong`` a candidate
that must not pass.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ("linear_gelu_softmax", "matrix_vector")
EDITS = {
    "matrix_vector": ("float total = ", "float total = {factor}f * "),
    "linear_gelu_softmax": ("1.f / total", "{factor}f / total"),
}
"""What is edited: the text in the candidate, and its replacement."""
TRIALS, SAMPLES = 5, 100


def edited(example: str, folder: Path, factor: float) -> Path:
    """The example's candidate with a factor put into its kernel; near 1 it is right, and other text each time."""
    text = (ROOT / "examples" / example / "candidate.py").read_text()
    old, new = EDITS[example]
    assert old in text
    path = folder / example / "candidate.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace(old, new.format(factor=repr(factor)), 1))
    return path


def checked(example: str, candidate: Path, *, shown: bool, device: str) -> tuple[float, dict[str, Any]]:
    """One ``kernelwright check`` in a process of its own: seconds, and its verdict. Steps are printed as they come."""
    command = [sys.executable, "-m", "kernelwright", "check", str(ROOT / "examples" / example / "problem.py")]
    command += [str(candidate), "--device", device, "--trials", str(TRIALS), "--samples", str(SAMPLES)]
    command += ["--min-samples", str(SAMPLES), "--json"]
    environment = {**os.environ, "KERNELWRIGHT_DEBUG": "2", "KERNELWRIGHT_HISTORY": os.devnull}
    began = time.perf_counter()
    # A file, not a pipe: nobody reads the verdict while the steps are read.
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stderr is not None
        for line in process.stderr:
            if shown:
                print(f"    {time.perf_counter() - began:6.2f}  {line.rstrip()}", flush=True)
        process.wait()
        seconds = time.perf_counter() - began
        out.seek(0)
        text = out.read()
    return seconds, json.loads(text) if text.strip() else {"verdict": f"exit {process.returncode}"}


def rechecked(example: str, folder: Path, factors: list[float], *, device: str) -> list[tuple[float, dict[str, Any]]]:
    """Checks after each of several edits in one session; the first, which warms it, is left out."""
    from kernelwright.check import CheckOptions
    from kernelwright.records import to_json
    from kernelwright.watch import Session

    os.environ["KERNELWRIGHT_DEBUG"] = "2"
    problem = ROOT / "examples" / example / "problem.py"
    options = CheckOptions(device=device, trials=TRIALS, samples=SAMPLES, min_samples=SAMPLES)
    rows = []
    with Session(problem, edited(example, folder, factors[0]), options=options) as session:
        session.check()
        for factor in factors[1:]:
            # An engineer thinks for longer than this.
            session.idle(4.0)
            edited(example, folder, factor)
            began = time.perf_counter()

            def progress(words: str, began: float = began) -> None:
                print(f"    {time.perf_counter() - began:6.2f}  {words}", flush=True)

            verdict = to_json(session.check(progress))
            rows.append((time.perf_counter() - began, verdict))
    return rows


def told(kind: str, example: str, seconds: float, verdict: dict[str, Any]) -> str:
    """One line about one check."""
    timing = verdict.get("timing") or {}
    words = [f"{c['word']} {c['speedup']['median']:.3f}" for c in timing.get("comparisons", [])]
    inputs = (verdict.get("numerics") or {}).get("inputs", "")
    build = [f"{b['tier']} {b['seconds']:.1f} s {b['fell_through']}" for b in verdict.get("build", [])]
    return (
        f"{kind:6} {example:20} {seconds:6.2f} s  {verdict['verdict']}  {' '.join(words)}  "
        f"rounds {timing.get('rounds')}  build {' '.join(build)}  inputs {inputs}  notes {verdict.get('notes')}"
    )


def main() -> None:
    """Run the parts and print a line for each check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="first,cold,wrong,warm")
    parser.add_argument("--examples", default=",".join(EXAMPLES))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--edits", type=int, default=2, help="of each example in a warm session")
    options = parser.parse_args()
    missed = []
    with tempfile.TemporaryDirectory() as work:
        steps = 0
        for kind in options.only.split(","):
            for number, example in enumerate(options.examples.split(",")):
                if kind == "first" and number:
                    continue
                steps += 1
                near = [1 + (10 * steps + n) / 2**23 for n in range(options.edits + 1)]
                if kind == "warm":
                    rows = rechecked(example, Path(work), near, device=options.device)
                else:
                    candidate = edited(example, Path(work), 1.25 if kind == "wrong" else near[0])
                    rows = [checked(example, candidate, shown=True, device=options.device)]
                for seconds, verdict in rows:
                    print(told(kind, example, seconds, verdict), flush=True)
                    if verdict["verdict"] != ("wrong" if kind == "wrong" else "correct"):
                        missed.append((kind, example, verdict["verdict"]))
    if missed:
        raise SystemExit(f"wrong words: {missed}")


if __name__ == "__main__":
    main()
