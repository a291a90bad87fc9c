"""What every test has: a history that keeps nothing, so that tests never write into the user's own."""

from __future__ import annotations

import os

os.environ.setdefault("KERNELWRIGHT_HISTORY", os.devnull)
