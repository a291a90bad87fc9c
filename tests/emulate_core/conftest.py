"""Lets the tests of this folder share ``emulated``, and the instruction cases of ``tests/emulate``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "emulate"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
