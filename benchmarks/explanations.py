"""How well failures are explained: runs `kernelwright check` over a folder of known cases and prints one table.

Why: a wrong cause is worse than none, so the share of right first causes, of honest "unexplained" ones and of wrong
ones is measured, not believed. A case is a folder with `problem.py`, `candidate.py`, `case.json` (`cause`,
`also_right`, `where.line`, `env`: the environment it fails in) and, where one makes sense, `fixed.py`. The rule: a case
counts as explained only when the first cause is the true one (or in `also_right`) within one line; a fixed twin must be
correct with no cause. Advice on a candidate that is right here counts as causes do (what is slow is checked with
counters); its twin must not get that advice again.

    python benchmarks/explanations.py ../shared/cases [--only 030,050] [--jobs 1] [--json out.json]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Row:
    """One candidate of one case."""

    case: str
    file: str
    outcome: str
    """``explained`` | ``line off`` | ``unexplained`` | ``wrong cause`` | ``clean`` | ``false alarm`` | ``broken``."""
    verdict: str
    cause: str
    expected: str
    line: int
    expected_line: int
    seconds: float
    sentence: str


def check(
    problem: Path, candidate: Path, *, environment: dict[str, str], timeout_s: float, counted: bool = False
) -> tuple[dict[str, Any], float]:
    """The verdict of one check as JSON, and its wall seconds. A crash of ours becomes the verdict ``broken``."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "kernelwright", "check", str(problem), str(candidate), "--json"]
    command += ["--counters"] if counted else []
    environment = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment)
    seconds = time.perf_counter() - start
    try:
        return json.loads(done.stdout), seconds
    except json.JSONDecodeError:
        return {"verdict": "broken", "causes": [], "stderr": done.stderr[-2000:]}, seconds


def judge_faulty(case: dict[str, Any], verdict: dict[str, Any]) -> str:
    """What to call the explanation of a faulty candidate."""
    named = [c for c in (*verdict["causes"], *verdict.get("advice", ())) if c["id"] != "unexplained"]
    if verdict["verdict"] == "broken":
        return "broken"
    if not named:
        return "unexplained"
    first = named[0]
    if first["id"] != case["cause"] and first["id"] not in case["also_right"]:
        return "wrong cause"
    return "explained" if abs(first["line"] - (case["where"].get("line") or 0)) <= 1 else "line off"


def run_case(folder: Path, *, timeout_s: float) -> list[Row]:
    """Both candidates of one case."""
    case = json.loads((folder / "case.json").read_text())
    rows = []
    slow = case["cause"].startswith("performance.")
    for name in ("candidate.py", "fixed.py"):
        if not (folder / name).exists():
            continue
        verdict, seconds = check(
            folder / "problem.py", folder / name, environment=case.get("env", {}), timeout_s=timeout_s, counted=slow
        )
        nothing = {"id": "", "line": 0, "sentence": verdict.get("stderr", "")}
        advice = verdict.get("advice", ())
        first = next(iter((*verdict["causes"], *advice)), nothing)
        if name == "candidate.py":
            outcome = judge_faulty(case, verdict)
        else:
            # Counters may find another corner slow in a twin; anything else that is advised is a false alarm.
            again = any(r["id"] == case["cause"] or not r["id"].startswith("performance.") for r in advice)
            good = verdict["verdict"] == "correct" and not verdict["causes"] and not again
            outcome = "clean" if good else "false alarm"
            outcome = "broken" if verdict["verdict"] == "broken" else outcome
        rows.append(
            Row(
                case=folder.name,
                file=name,
                outcome=outcome,
                verdict=verdict["verdict"],
                cause=first["id"],
                expected=case["cause"] if name == "candidate.py" else "",
                line=first["line"],
                expected_line=(case["where"].get("line") or 0) if name == "candidate.py" else 0,
                seconds=round(seconds, 2),
                sentence=first["sentence"],
            )
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="comma-separated beginnings of case names")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=400)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    wanted = tuple(part for part in arguments.only.split(",") if part)
    folders = sorted(p.parent for p in arguments.folder.glob("*/case.json"))
    folders = [f for f in folders if not wanted or f.name.startswith(wanted)]
    rows: list[Row] = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for case_rows in pool.map(lambda f: run_case(f, timeout_s=arguments.timeout), folders):
            for row in case_rows:
                rows.append(row)
                print(
                    f"{row.case[:34]:34} {row.file:12} {row.outcome:12} {row.verdict:9} {row.cause or '-':27} "
                    f"{row.expected:27} {row.line:4d}/{row.expected_line:<4d} {row.seconds:6.1f} s",
                    flush=True,
                )
    for file in ("candidate.py", "fixed.py"):
        counts: dict[str, int] = {}
        for row in rows:
            if row.file == file:
                counts[row.outcome] = counts.get(row.outcome, 0) + 1
        print(file, ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 1 if any(row.outcome in ("wrong cause", "false alarm", "broken") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
