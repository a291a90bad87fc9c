"""Runs the programs of tests/device/programs, each once a session, in processes of their own.

The emulated device stays in a process for good, so no test may install it in pytest's.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
SOURCES = Path(__file__).parents[2] / "src"


@functools.cache
def _output(program: str, *arguments: str) -> str:
    """What the program prints; fails the test with its last words when it fails."""
    environment = {**os.environ, "PYTHONPATH": f"{SOURCES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert answer.returncode == 0, f"{program} ended with {answer.returncode}:\n{answer.stderr[-3000:]}"
    return answer.stdout


@pytest.fixture(scope="session")
def output() -> Callable[..., str]:
    """What a program prints, by its file name and arguments; run once."""
    return _output
