"""A failure on a GPU once more on the emulated device, which sees what a GPU runs on past.

Why: the same launch is seen there access by access, at its own size where that is small and else at a smaller one, so
that the cause is named either way. The rule: what was seen at another size than the failure's counts as likely only,
unless a sanitizer saw the same line on the GPU; and what ran to its end on the GPU is wrong, whatever the emulated
device would have stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kernelwright.errors import KernelwrightError
from kernelwright.problem.smaller import smaller
from kernelwright.records import Confidence, Finding, Verdict, VerdictWord
from kernelwright.sanitize import findings as named
from kernelwright.sanitize.question import Question, Sanitized

SAME_SIZE_BYTES = 128 << 20
"""Of tensors: up to here the emulated device replays at the failure's own size first."""
REPLAY_SECONDS = 60.0
ALL_REPLAYS_SECONDS = 150.0
_OF_KERNELS = frozenset({"interface", "memory", "sync", "warp"})
"""Families of causes that a device sees: at another size a candidate may well fail by itself in Python."""
_OF_VALUES = frozenset({"launch", "logic", "numeric"})
"""Families that explain what a GPU did not stop, at any size."""
_AT_ITS_SIZE = frozenset({"semantic"})
"""And one that another size may bring about: of a shape that is written into the candidate."""

_ENDED = frozenset({VerdictWord.CORRECT, VerdictWord.WRONG})
"""Of a replay that ran to its end: at the failure's own size it has said what there is to say."""

Replay = Callable[[Mapping[str, str], float], Verdict]
"""A check on the emulated device with these ``--set`` values, ended after so many seconds."""


@dataclass(frozen=True)
class Answer:
    """What the emulated device said, at the first size at which it said anything."""

    question: Question
    verdict: Verdict | None = None
    sets: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Of the sizes before."""

    @property
    def certain(self) -> bool:
        """Whether the failure itself was seen, at its own size."""
        return self.verdict is not None and not self.sets

    def told(self, seen: tuple[Finding, ...]) -> Sanitized:
        """What it says of the failure, of which tools on the GPU saw ``seen``."""
        if self.verdict is None:
            return Sanitized(notes=self.notes)
        return replace(_told(self.verdict, self.sets, seen, self.question), notes=self.notes)


def replayed(question: Question, tensor_bytes: int | None, replay: Replay, progress: Callable[[str], None]) -> Answer:
    """The failure on the emulated device, at its own size where its tensors have few bytes, else at smaller ones."""
    notes: list[str] = []
    started = time.monotonic()
    for sets in _sizes(question, tensor_bytes):
        left = ALL_REPLAYS_SECONDS - (time.monotonic() - started)
        if left <= 0:
            notes.append(f"no smaller size was tried: the replays had taken {ALL_REPLAYS_SECONDS:g} s")
            break
        progress(f"replaying {_where(sets)}")
        try:
            verdict = replay({**question.alone.sets, **sets}, min(REPLAY_SECONDS, left))
        except KernelwrightError as error:
            notes.append(f"the replay {_where(sets)} did not run: {str(error).splitlines()[0][:200]}")
            continue
        told = _told(verdict, sets, (), question)
        if told.findings or told.causes:
            return Answer(question, verdict, sets, tuple(notes))
        notes.append(f"the replay {_where(sets)} shows nothing ({_outcome(verdict)})")
        if not sets and verdict.verdict in _ENDED:
            break
    return Answer(question, notes=tuple(notes))


def _sizes(question: Question, tensor_bytes: int | None) -> list[dict[str, str]]:
    """Sizes to try, the failure's own first where it is small."""
    steps = list(smaller(question.constants, question.alone.text))
    same = tensor_bytes is not None and tensor_bytes <= SAME_SIZE_BYTES
    # Without a smaller size its own is all there is to try.
    return [*([{}] if same or not steps else []), *steps]


def _told(verdict: Verdict, sets: Mapping[str, str], seen: tuple[Finding, ...], question: Question) -> Sanitized:
    """What a replay's verdict says of the failure."""
    where, same_size = _where(sets), not sets
    found = tuple(replace(finding, witness=where) for finding in verdict.findings)
    stopped = question.crashed or question.hung
    if not stopped:
        sure: tuple[Finding, ...] = ()
    elif same_size:
        sure = found
    else:
        sure = tuple(f for f in found if any(named.same(f, other, question.alone.candidate) for other in seen))
    families = _OF_KERNELS
    if not stopped:
        families |= _OF_VALUES | (_AT_ITS_SIZE if same_size else frozenset())
    # A candidate that stops by itself at another size than its own says nothing of its own size.
    alike = bool(verdict.findings) or (not stopped and verdict.verdict is VerdictWord.WRONG)
    rest = [
        replace(
            cause,
            confidence=cause.confidence if same_size else Confidence.LIKELY,
            evidence=(*cause.evidence, f"seen {where}"),
        )
        for cause in verdict.causes
        if (same_size or alike) and cause.id.partition(".")[0] in families
    ]
    return Sanitized(findings=sure, causes=tuple(rest))


def _where(sets: Mapping[str, str]) -> str:
    return f"on the emulated device at {_spelled(sets) or 'the same size'}"


def _outcome(verdict: Verdict) -> str:
    first = f": {verdict.causes[0].id}: {verdict.causes[0].sentence}" if verdict.causes else ""
    return f"it is {verdict.verdict.value} there{first}"[:400]


def _spelled(sets: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sets.items())
