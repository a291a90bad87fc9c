"""What the measure tests share: the recorded samples, and whether there is a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def recorded() -> Any:
    """``recorded(name)`` is a file of tests/measure/samples: what an H200 gave, as the timing process sent it."""

    def read(name: str) -> Any:
        return json.loads((SAMPLES / f"{name}.json").read_text(encoding="utf-8"))

    return read
