"""Runs the programs of tests/build/programs, each once a session, in processes of their own."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.build import toolchain
from kernelwright.errors import MachineError

PROGRAMS = Path(__file__).parent / "programs"
SOURCES = Path(__file__).parents[2] / "src"


@functools.cache
def _output(program: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{SOURCES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert answer.returncode == 0, f"{program} ended with {answer.returncode}:\n{answer.stderr[-3000:]}"
    return answer.stdout


@pytest.fixture(scope="session")
def output() -> Callable[..., str]:
    """What a program prints, by its file name and arguments; run once. Skips where there is no nvcc."""
    try:
        toolchain.find()
    except MachineError as error:
        pytest.skip(f"{error}; {error.hint}")
    return _output
