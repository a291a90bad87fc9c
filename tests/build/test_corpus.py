"""The facade against torch's own headers: the same wrapper code, the same answers, the same messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.emu


def answers(text: str) -> dict[str, Any]:
    """What each call of the corpus gave."""
    return dict(json.loads(line) for line in text.splitlines())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_facade_takes_the_corpus_and_computes(output: Callable[..., str]) -> None:
    got = answers(output("corpus.py", "fast"))
    assert got["m.scale_packed(x, 3)"][3] == [[-6.0, -3.0, 0.0], [3.0, 6.0, 9.0]]
    assert got["m.negate_any(x.half())"] == ["torch.float16", "cuda:0", [2, 3], [[2.0, 1.0, 0.0], [-1.0, -2.0, -3.0]]]
    assert got["m.take_vector([1, 2])"] == ["list", 1, 2, 9]
    assert got["m.take_byte(256)"][0] == "TypeError"
    assert got["m.check_kinds(1)"] == ["ValueError", "value 1"]
    assert got["m.check_plain(4)"] == ["ValueError", "invalid"]
    assert got["m.first_double(cpu)"] == ["RuntimeError", "expected scalar type Double but found Float"]
    assert got["m.through_pointer(7)"] == 7.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_answer_is_the_real_headers_answer(output: Callable[..., str]) -> None:
    assert answers(output("corpus.py", "fast")) == answers(output("corpus.py", "full"))
