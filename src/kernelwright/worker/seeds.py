"""Seeding, alike in both processes: weights agree between reference and candidate only by equal random draws.

Why: KernelBench seeds before ``get_init_inputs``, before each constructor and before ``get_inputs``. The rule: whatever
generator a problem or candidate may draw from starts the same.
"""

from __future__ import annotations

import random

import numpy
import torch


def seed_all(seed: int) -> None:
    """Seed every generator that a problem or candidate may draw from."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % (1 << 32))
