"""``kernelwright watch`` as a user sees it: a report after each save, and a clean end on Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.worker.conftest import CANDIDATE, PROBLEM

from kernelwright.worker.limits import descendants

SOURCES = Path(__file__).parents[2] / "src"


@pytest.mark.emu
@pytest.mark.slow
def test_each_save_is_reported_and_ctrl_c_ends_everything(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    candidate = tmp_path / "candidate.py"
    candidate.write_text(CANDIDATE.format(body="pass"))
    environment = {
        **os.environ,
        "PYTHONPATH": f"{SOURCES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "KERNELWRIGHT_HISTORY": os.devnull,
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "kernelwright", "watch", str(tmp_path / "problem.py"), str(candidate)]
    with subprocess.Popen(
        [*command, "--device", "emulated", "--trials", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        seen: list[str] = []

        def until(words: str) -> None:
            for line in process.stdout or ():
                seen.append(line)
                if words in line:
                    return
            raise AssertionError("".join(seen))

        until("waiting for the next save")
        assert any(line.startswith("CORRECT") for line in seen)
        candidate.write_text(CANDIDATE.format(body="x = x * 1.5"))
        until("waiting for the next save")
        assert any(line.startswith("WRONG") for line in seen)
        below = descendants(process.pid)
        assert below
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert "Traceback" not in rest
    assert process.returncode == 1
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]


def test_a_file_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    from kernelwright.cli.main import main

    (tmp_path / "problem.py").write_text(PROBLEM)
    assert main(["watch", str(tmp_path / "problem.py"), str(tmp_path / "nowhere.py")]) == 2
