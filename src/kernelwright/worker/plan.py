"""What one check asks of its processes, in the supervisor's terms.

The rule: decided before anything runs, and the same for every process of the check.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """What to check, in the supervisor's terms."""

    problem: Path
    candidate: Path
    text: str
    """The candidate's source."""
    sets: dict[str, str]
    device: str
    presents_as: str
    trials: int
    seed: int
    atol: float | None
    rtol: float | None
    timeout_s: float
    memory_bytes: int
    weights: str
    inputs: str = "auto"
    """``drawn``: by each process from the seed; ``handed``: from one to the other; ``auto``: drawn on a GPU."""
    counted: bool = False
    """Count what kernels do in the first trial's forward pass."""
    checks: str = "all"
    """What the emulated device looks for (device/checks.py)."""


def trial_seed(seed: int, index: int) -> int:
    """Seed (32 bits) of trial ``index``'s inputs: far from ``seed``, which the weights are drawn from.

    Were they equal, row i of ``torch.rand(batch, features)`` would be row i of a linear layer's weights, and a product
    of the two the most unusual one there is. The mixing is SplitMix64's finaliser (Steele et al., 2014).
    """
    mixed = (seed + (index + 1) * 0x9E3779B97F4A7C15) % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return (mixed ^ (mixed >> 31)) % 2**32
