"""What runs one candidate's forward pass in a process of its own: the configuration, and the command that starts it.

Why: ncu and compute-sanitizer start a program themselves, and the supervisor, which imports no torch, tells them which.
The rule: plain data; the program is :mod:`kernelwright.worker.forward`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from kernelwright.records import to_json


@dataclass(frozen=True)
class Alone:
    """What to run, as JSON beside the program."""

    problem: str
    candidate: str
    text: str
    sets: dict[str, str]
    seed: int
    """Of the weights."""
    trial_seed: int
    """Of the inputs."""
    weights: str
    """``state_dict`` loads the reference's weights by name; any other constructs under the seed."""
    do: str
    """``forward`` | ``profiled``, or a module whose ``main(session)`` is run."""
    result: str
    """The file for what becomes known; absolute, as the candidate's own folder becomes the working one."""
    device: str = "cuda"


def command(config: Alone, folder: Path, *, python: str = sys.executable) -> list[str]:
    """The command line that runs ``config``, which is written into ``folder``."""
    file = folder / "alone.json"
    file.write_text(json.dumps(to_json(config)), encoding="utf-8")
    package = str(Path(__file__).parents[2])
    program = (
        f"import sys; sys.path.append({package!r}); from kernelwright.worker.forward import main; main({str(file)!r})"
    )
    # -P: neither the working folder nor a candidate's folder may shadow torch or the standard library.
    return [python, "-P", "-c", program]
