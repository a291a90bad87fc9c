"""Runs of foreign tools: what they print, how they end, and that nothing of them is left."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from kernelwright.worker.tool import Patience, known, run

pytestmark = pytest.mark.tiny


def test_output_and_exit_status_are_kept(tmp_path: Path) -> None:
    program = "import os, sys; print(os.environ['MARK']); print('told', file=sys.stderr); sys.exit(7)"
    ended = run([sys.executable, "-c", program], tmp_path, timeout_s=30, environment={"MARK": "set"})
    assert sorted(ended.printed.split()) == ["set", "told"]
    assert ended.status == 7


def test_a_run_past_its_time_ends_with_all_that_it_started(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys, pathlib; "
        "child = subprocess.Popen([sys.executable, '-c', 'import os; os.read(os.pipe()[0], 1)']); "
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid)); child.wait()"
    )
    ended = run([sys.executable, "-c", program], tmp_path, timeout_s=3)
    assert ended.status is None
    child = int((tmp_path / "child").read_text())
    # A killed process goes when it is next scheduled; it would live for ever otherwise.
    deadline = time.monotonic() + 20
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def test_a_run_ends_when_patience_does(tmp_path: Path) -> None:
    patience = Patience()
    threading.Timer(0.3, patience.only, [0.2]).start()
    began = time.monotonic()
    ended = run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, timeout_s=60, patience=patience)
    assert ended.status is None
    assert time.monotonic() - began < 30


def alive(pid: int) -> bool:
    """Whether ``pid`` runs: ended, though perhaps not yet waited for by whoever inherited it, is not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_what_is_no_record_tells_nothing(text: str, tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    assert known(file) == {}
    file.write_text(text)
    assert known(file) == {}
