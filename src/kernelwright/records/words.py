"""The words of a verdict, and what is said in them: stages, and causes with how they are known."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class VerdictWord(enum.StrEnum):
    """The one word a check ends in."""

    CORRECT = "correct"
    WRONG = "wrong"
    FAILED = "failed"
    CHEATING = "cheating"
    UNSURE = "unsure"


class StageStatus(enum.StrEnum):
    """What became of one stage of the road."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"


class Stage(enum.StrEnum):
    """The stages of the road, in order."""

    LOAD = "load"
    BUILD = "build"
    RUN = "run"
    JUDGE = "judge"
    MEASURE = "measure"


class Confidence(enum.StrEnum):
    """How a cause is known: seen directly, derived from facts that allow no other reading, or the likeliest reading."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Precision(enum.StrEnum):
    """The narrowest format whose rounding explains the candidate's error against the oracle."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    WORSE = "worse"


@dataclass(frozen=True)
class StageResult:
    """One stage's outcome."""

    stage: Stage
    status: StageStatus
    seconds: float = 0.0
    note: str = ""
    """Why it failed or did not run, one sentence; empty when passed."""


@dataclass(frozen=True)
class Cause:
    """A named reason for a failure. Only made on evidence: a wrong cause is worse than none."""

    id: str
    """An id of the public list (docs/causes.md), or ``unexplained``."""
    stage: Stage
    sentence: str
    """What is wrong, with the numbers that show it."""
    file: str = ""
    line: int = 0
    text: str = ""
    evidence: tuple[str, ...] = ()
    """The facts the sentence rests on, one each."""
    fix: str = ""
    """What to do, one or two sentences; empty where nobody can know."""
    confidence: Confidence = Confidence.CERTAIN
