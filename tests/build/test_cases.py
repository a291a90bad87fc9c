"""Known faulty candidates of the build kind: the first cause is the true one, at its line; repaired, they build."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parents[3] / "shared" / "cases"
ATTRIBUTE = "019"  # builds; the Python side is at fault

pytestmark = [pytest.mark.emu, pytest.mark.slow, pytest.mark.timeout(600)]


def cases() -> list[Path]:
    """The folders of build cases; empty where the set is not there."""
    folders = sorted(CASES.glob("*/case.json")) if CASES.is_dir() else []
    return [
        f.parent for f in folders if json.loads(f.read_text())["kind"] == "build" and ATTRIBUTE not in f.parent.name
    ]


FOLDERS = cases() or [pytest.param(CASES, marks=pytest.mark.skip(reason=f"the case set is not at {CASES}"))]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_first_cause_is_the_true_one(folder: Path, output: Callable[..., str]) -> None:
    case = json.loads((folder / "case.json").read_text())
    told: dict[str, Any] = json.loads(
        output("one_case.py", str(folder / "candidate.py"), json.dumps(case.get("env", {})))
    )
    first = told["causes"][0]
    assert first["id"] in [case["cause"], *case["also_right"]]
    assert abs(first["line"] - case["where"]["line"]) <= 1


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_repaired_candidate_builds_in_the_fast_tier(folder: Path, output: Callable[..., str]) -> None:
    if not (folder / "fixed.py").exists():
        pytest.skip("nothing to repair in the source")
    told = json.loads(output("one_case.py", str(folder / "fixed.py"), "{}"))
    assert not told["causes"]
    assert [(record["ok"], record["tier"]) for record in told["records"]] == [(True, "fast")]
