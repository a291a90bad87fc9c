"""Ctrl-C and the supervisor's sudden death: everything below it goes, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.worker.conftest import CANDIDATE, PROBLEM

from kernelwright.worker.limits import descendants

PROGRAM = """
import sys
from pathlib import Path
from kernelwright.check import CheckOptions, check
check(Path("problem.py"), Path("candidate.py"), options=CheckOptions(device="host"), progress=print)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_supervisor(tmp_path: Path, sent: signal.Signals) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    body = "os.fork(); open('started', 'w').close(); time.sleep(1000)"
    (tmp_path / "candidate.py").write_text(CANDIDATE.format(body=body))
    supervisor = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    _until((tmp_path / "started").exists)
    below = descendants(supervisor.pid)
    assert len(below) >= 4
    supervisor.send_signal(sent)
    _, errors = supervisor.communicate(timeout=20)
    assert supervisor.returncode == (-signal.SIGKILL if sent is signal.SIGKILL else -signal.SIGINT)
    if sent is signal.SIGINT:
        assert b"KeyboardInterrupt" in errors
    _until(lambda: not any(_alive(pid) for pid in below))


def _until(true: object) -> None:
    deadline = time.monotonic() + 20
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        os.sched_yield()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
