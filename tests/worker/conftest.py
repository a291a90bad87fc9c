"""Problems and candidates written into a folder, checked on the host, and the proof that nothing stays behind."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelwright.check import CheckOptions, check
from kernelwright.records import Verdict
from kernelwright.worker.limits import descendants

PROBLEM = """
import torch
import torch.nn as nn

N = 16


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, 8)

    def forward(self, x):
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.randn(32, N)]


def get_init_inputs():
    return [N]
"""

CANDIDATE = """
import ctypes, os, signal, sys, time
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, 8)

    def forward(self, x):
        {body}
        return torch.relu(self.fc(x))
"""
"""The line of ``{body}`` is 13."""
BODY_LINE = 13

Run = Callable[..., Verdict]


def shared_memory_files() -> set[str]:
    """Descriptors of this process that are memory files, pipes or sockets."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name}:{entry.readlink()}")
        except OSError:
            continue
    return found


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Fails where a check leaves a process, a descriptor or a file."""
    before = shared_memory_files(), set(descendants(os.getpid()))
    yield
    assert shared_memory_files() - before[0] == set()
    assert set(descendants(os.getpid())) - before[1] == set()
    left = {path.name for path in tmp_path.rglob("*")} - {"problem.py", "candidate.py", "__pycache__"}
    assert left == set()


@pytest.fixture
def run(tmp_path: Path, nothing_left: None) -> Run:
    """``run(candidate_text, problem_text=..., **options)``: a check on the host with one trial."""

    def checked(candidate: str, problem: str = PROBLEM, **options: object) -> Verdict:
        (tmp_path / "problem.py").write_text(textwrap.dedent(problem))
        (tmp_path / "candidate.py").write_text(textwrap.dedent(candidate))
        chosen = CheckOptions(**{"device": "host", "trials": 1, "timeout_s": 60.0, **options})  # type: ignore[arg-type]
        return check(tmp_path / "problem.py", tmp_path / "candidate.py", options=chosen, progress=lambda text: None)

    return checked


@pytest.fixture
def run_body(run: Run) -> Run:
    """The same with one line put at the start of ``forward``."""
    return lambda body, **options: run(CANDIDATE.format(body=body), **options)
