"""How far the clock can be trusted: repeats in separate processes, equal candidates, true differences of 2 %.

Needs an NVIDIA GPU. The work is a sum over a few gigabytes, so a true difference is one of length.

    python benchmarks/clock.py [--out FOLDER] [--comparisons 50] [--processes 10] [--only ceilings,processes,words]

With --out everything measured goes there as JSON; the tests of the statistics run on such files.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from kernelwright.measure import statistics
from kernelwright.measure.records import ComparisonWord
from kernelwright.measure.statistics import StoppingRule
from kernelwright.measure.verdicts import CANDIDATE, pairs
from kernelwright.records import to_json

MILLISECONDS = 2.0
DIFFERENCE = 1.02


def summing(share: float, data: Any) -> Any:
    """A callable that sums the first ``share`` of ``data``."""
    import torch

    part = data[: int(len(data) * share) >> 20 << 20]
    return lambda inputs: torch.sum(part)


def contest(clock: Any, shares: dict[str, float], data: Any, *, seed: int, most: int = 60) -> Any:
    """One contest between sums of different shares of ``data``."""
    from kernelwright.measure.contest import Contest, Entrant

    entrants = [Entrant(name, summing(share, data)) for name, share in shares.items()]
    made = Contest(clock, lambda number: [], entrants, keep=lambda *arguments: None, seed=seed)
    for entrant in entrants:
        made.warm_up(entrant)
    made.run(StoppingRule(most=most, budget_s=5.0))
    return made


def material() -> tuple[Any, Any]:
    """A clock, and data whose sum takes about ``MILLISECONDS`` at full length."""
    import torch

    from kernelwright.measure.clock import Clock

    clock = Clock()
    # float64: torch.sum splits lengths of 2^31 elements and more, at the cost of a tenth.
    data = torch.rand(1 << 27, device="cuda", dtype=torch.float64)
    span = statistics.median([clock.device(data.sum, enqueue_ms=1)[0].device_ms for _ in range(8)])
    count = int((1 << 27) * MILLISECONDS * DIFFERENCE / span) // 1024 * 1024
    return clock, torch.rand(count, device="cuda", dtype=torch.float64)


def words(comparisons: int) -> dict[str, Any]:
    """The word of many comparisons, of equal candidates and of truly different ones, either way round."""
    clock, data = material()
    full = 1 / DIFFERENCE
    cases = {
        "equal": ({"eager": full, CANDIDATE: full}, ComparisonWord.SAME),
        "faster": ({"eager": 1.0, CANDIDATE: full}, ComparisonWord.FASTER),
        "slower": ({"eager": full, CANDIDATE: 1.0}, ComparisonWord.SLOWER),
    }
    told: dict[str, Any] = {}
    for name, (shares, right) in cases.items():
        count = comparisons if name == "equal" else comparisons // 2
        said: dict[str, int] = {}
        rows = []
        began = time.perf_counter()
        for index in range(count):
            made = contest(clock, shares, data, seed=index)
            over, under = pairs(made.samples, "eager", CANDIDATE)
            speedup = statistics.ratio(over, under)
            decision = statistics.decide(speedup)
            said[decision.word] = said.get(decision.word, 0) + 1
            rows.append({"eager": over, CANDIDATE: under, "word": decision.word, "speedup": to_json(speedup)})
        seconds = time.perf_counter() - began
        ratios = [row["speedup"]["median"] for row in rows]
        told[name] = {"said": said, "right": right, "rows": rows, "seconds": seconds}
        print(
            f"{name}: {said} of {count}, {right} is right; speed-ups {min(ratios):.4f} to {max(ratios):.4f}, "
            f"{statistics.median([len(row['eager']) for row in rows]):.0f} rounds, {seconds / count:.2f} s each"
        )
    return told


def processes(count: int) -> list[dict[str, Any]]:
    """The same sum timed in separate processes, each with a context of its own.

    They are forked from here once PyTorch is imported, as a check forks its timing process.
    """
    import torch  # noqa: F401

    rows = []
    for _ in range(count):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            status = 1
            try:
                with os.fdopen(write, "w") as out:
                    out.write(json.dumps(once()))
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        with os.fdopen(read) as answer:
            text = answer.read()
        if os.waitpid(child, 0)[1] != 0:
            raise SystemExit(1)
        rows.append(json.loads(text))
    medians = [row["median"] for row in rows]
    spread = (max(medians) - min(medians)) / statistics.median(medians)
    print(f"{count} processes: medians {min(medians):.4f} to {max(medians):.4f} ms, {100 * spread:.2f} % apart")
    return rows


def once() -> dict[str, Any]:
    """Time one sum of a fixed length in this process; its median and interval."""
    import torch

    from kernelwright.measure.clock import Clock

    clock = Clock()
    data = torch.rand(1_050_000_000, device="cuda", dtype=torch.float64)
    made = contest(clock, {CANDIDATE: 1.0}, data, seed=0, most=100)
    told: dict[str, Any] = to_json(statistics.interval([sample.device_ms for sample in made.samples]))
    return told


def ceilings() -> dict[str, Any]:
    """This device's ceilings, measured anew."""
    from kernelwright.measure.ceilings import measure

    began = time.perf_counter()
    made = measure()
    for one in made.ceilings.values():
        late = f"{one.sustained:10.2f} sustained at {one.sm_mhz} MHz" if one.sustained is not None else ""
        print(f"{one.name:7} {one.best:10.4f} {one.unit:8} {late}  {one.how}")
    print(f"ceilings took {time.perf_counter() - began:.1f} s")
    told: dict[str, Any] = to_json(made)
    return told


def main() -> None:
    """Run the parts and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--comparisons", type=int, default=50)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--only", default="ceilings,processes,words")
    options = parser.parse_args()
    parts = {
        "ceilings": ceilings,
        "processes": lambda: processes(options.processes),
        "words": lambda: words(options.comparisons),
    }
    # Processes first: a process that has used CUDA cannot be forked.
    for name in sorted(options.only.split(","), key=lambda name: name != "processes"):
        found = parts[name]()
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
