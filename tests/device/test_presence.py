"""``torch.cuda`` answers Python as it does beside a GPU: streams, events, memory, seeds."""

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.emu

ANSWERS = {
    "available": "True",
    "devices": "(1, 0)",
    "name": "NVIDIA H200",
    "capability": "(9, 0)",
    "multiprocessors": "132",
    "shared opt-in": "232448",
    "default stream": "(0, 0)",
    "timed": "True",
    "untimed": "Both events must be created with argument 'enable_timing=True'.",
    "unrecorded": "Both events must be recorded before calculating elapsed time.",
    "side stream": "(True, True, True)",
    "record_event": "True",
    "tensor": "(True, True, True, False, 0)",
    "to": "cuda:0",
    "module": "cuda:0",
    "context": "None",
    "memory": "(True, True)",
    "cache": "(None, None, None)",
    "free": "True",
    "seeds": "True",
    "tf32": "False",
    "autocast": "True",
    "capturing": "False",
    "version": "True",
}


@pytest.mark.parametrize("question", ANSWERS)
def test_question_is_answered_as_beside_a_gpu(output: Callable[..., str], question: str) -> None:
    answers = dict(line.split(": ", 1) for line in output("presence.py").splitlines())
    assert answers[question] == ANSWERS[question]
