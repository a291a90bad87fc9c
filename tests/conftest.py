"""What every test has: a history that keeps nothing, so that tests never write into the user's own; and a GPU, for
those that need one."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("KERNELWRIGHT_HISTORY", os.devnull)


@pytest.fixture(scope="session")
def gpu() -> None:
    """Skips where PyTorch sees no GPU."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU that PyTorch can use")
