"""What to time, as the check asks for it.

Why: the check decides whether there is anything to time before it pays for numpy or a GPU. The rule: plain data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class MeasurePlan:
    """What to time, and how long it may take."""

    problem: Path
    candidate: Path
    text: str
    """The candidate's source, as it was judged."""
    problem_text: str
    """The problem's source; with ``sets`` it names kept baselines."""
    sets: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    """Of weights, as the judge used it."""
    weights: str = "rng"
    """How the judge gave both models equal weights: ``rng`` | ``state_dict`` | ``none``."""
    atol: float = 1e-4
    rtol: float = 1e-4
    baselines: tuple[str, ...] = ("eager",)
    samples: int = 100
    """Most rounds."""
    min_samples: int = 20
    """Fewest rounds, however precise they are."""
    require_speedup: float | None = None
    """What the candidate must be shown to reach against each baseline."""
    budget_s: float = 20.0
    """Longest time for the timed rounds."""
    timeout_s: float = 300.0
    """Longest time for each request to the timing process, compiling included."""
