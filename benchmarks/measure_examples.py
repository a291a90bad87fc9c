"""Times the two examples and prints what the verdict will say; needs an NVIDIA GPU.

python benchmarks/measure_examples.py [--out FOLDER] [--baseline NAME]... [PROBLEM CANDIDATE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from kernelwright.measure.plan import MeasurePlan
from kernelwright.measure.run import run
from kernelwright.records import to_json
from kernelwright.worker.supervisor import Supervisor

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = [("matrix_vector", "candidate.py"), ("linear_gelu_softmax", "candidate.py")]


def main() -> None:
    """Time each pair and print figures and words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--baseline", action="append", default=[])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("pair", nargs="*", type=Path)
    options = parser.parse_args()
    folder = ROOT / "examples"
    found = (
        [tuple(options.pair)] if options.pair else [(folder / n / "problem.py", folder / n / c) for n, c in EXAMPLES]
    )
    for problem, candidate in found:
        began = time.perf_counter()

        def progress(words: str, began: float = began) -> None:
            print(f"  {time.perf_counter() - began:6.1f} s  {words}", flush=True)

        plan = MeasurePlan(
            problem=problem,
            candidate=candidate,
            text=candidate.read_text(),
            problem_text=problem.read_text(),
            baselines=tuple(options.baseline),
            samples=options.samples,
        )
        with Supervisor() as supervisor:
            timing = run(supervisor, plan, progress)
        print(f"{candidate}: {timing.rounds} rounds ({timing.stopped}), {timing.seconds:.1f} s; inputs {timing.inputs}")
        for one in timing.contestants:
            launch = f"{one.with_launch.median:.4f}" if one.with_launch else "-"
            graph = f"{one.graph.median:.4f}" if one.graph else one.graph_note
            print(
                f"  {one.name:13} {one.device.median:.4f} ms [{one.device.low:.4f}, {one.device.high:.4f}] "
                f"n {one.device.n}, "
                f"with launch {launch}, graph {graph}; {one.wrong} of {one.checked} outputs wrong, "
                f"worst error {one.worst_error:.2e}"
            )
        for comparison in timing.comparisons:
            print(f"  {comparison.word} than {comparison.baseline}: {comparison.reason}: {comparison.sentence}")
        if timing.limit is not None:
            print(f"  limit {timing.limit.limit_ms:.4f} ms by {timing.limit.kind}: {to_json(timing.limit)}")
        print(f"  card {to_json(timing.card)}")
        print(f"  steps { {step: round(took, 2) for step, took in timing.steps.items()} }")
        marks = [mark for sample in timing.samples for mark in sample.marks]
        print(f"  marks { {mark: marks.count(mark) for mark in set(marks)} }, notes {timing.notes}")
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"timing-{problem.resolve().parent.name}.json").write_text(json.dumps(to_json(timing)))


if __name__ == "__main__":
    main()
