"""Causes of the family ``logic`` that a launch and a loop show together: work done twice, or a slot never added.

Needs: outputs that are wrong, and the launch (``LaunchFact``) of a kernel whose loop is written in a known form. The
rule: the launch's numbers are put into the loop and it is followed; only where that loses an element, or gives one to
several blocks that add it up, is it named. A fault of the run itself explains the result better.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelwright.explain import access
from kernelwright.explain.case import Case
from kernelwright.explain.cpp import Function
from kernelwright.records import Cause, Confidence, LaunchFact, Mismatch, Stage

_HALVING = re.compile(
    r"\bfor\s*\(\s*[\w\s]*?\b(?P<s>\w+)\s*=\s*(?P<whole>[\w.]+)\s*(?:/\s*2|>>\s*1)\s*;"
    r"\s*(?P=s)\s*(?:>\s*0|>=\s*1|!=\s*0|)\s*;\s*(?P=s)\s*(?:>>=\s*1|/=\s*2|=\s*(?P=s)\s*(?:/\s*2|>>\s*1))\s*\)"
)
"""``for (int s = blockDim.x / 2; s > 0; s >>= 1)``."""
_STRIDING = re.compile(
    r"\bfor\s*\(\s*[\w\s]*?\b(?P<i>\w+)\s*=\s*(?P<start>[^;]+);\s*(?P=i)\s*<\s*(?P<end>\w+)\s*;"
    r"\s*(?P=i)\s*\+=\s*(?P<step>[\w.]+)\s*\)(?P<body>[^;]*;)"
)
"""``for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x) v += x[i];``."""


def causes(case: Case) -> Iterator[Cause]:
    """Causes of this family that the evidence shows."""
    numerics = case.evidence.numerics
    if numerics is None or case.evidence.findings or all(trial.passed for trial in numerics.trials):
        return
    wrong = next((o.mismatch for t in numerics.trials for o in t.outputs if o.mismatch is not None), None)
    for fact in case.evidence.launches:
        kernel = case.sources.kernel(fact.kernel) if fact.error == 0 else None
        if kernel is not None and wrong is not None:
            yield from _power_of_two(case, fact, kernel)
            yield from _repeated_work(case, fact, kernel, wrong)


def halvings(size: int) -> tuple[list[int], int]:
    """The steps of a halving tree over ``size`` slots, and how many slots are left where one is lost (0: none is)."""
    steps, lost_of = [], 0
    while size > 1:
        if size % 2 and not lost_of:
            lost_of = size
        size //= 2
        steps.append(size)
    return steps, lost_of


def _power_of_two(case: Case, fact: LaunchFact, kernel: Function) -> Iterator[Cause]:
    called = [f for f in case.sources.functions if re.search(rf"\b{re.escape(f.name)}\s*[(<]", kernel.body)]
    for function in (kernel, *called):
        for loop in _HALVING.finditer(function.body):
            size = _value(case, loop["whole"], fact)
            steps, lost_of = halvings(size)
            adds = re.search(rf"\[[^\]]*\+\s*{loop['s']}\s*\]", function.body[loop.end() : loop.end() + 400])
            if size != fact.block[0] or not lost_of or not adds:
                continue
            line = function.line_at(loop.start())
            launched = fact.site.line if fact.site is not None and case.is_candidate(fact.site.file) else 0
            walked = ", ".join(map(str, steps[:8]))
            yield case.cause(
                "logic.power-of-two",
                Stage.JUDGE,
                f"{access.kernel(fact.kernel)} halves the {size} values of a block by {loop['s']} = {walked}: where "
                f"{lost_of} are left, the last is in no pair and never added, since {size} is no power of two.",
                line=launched or line,
                evidence=[f"the tree is at line {line}: {case.text(line)}", f"launched with {size} threads a block"],
                fix="Launch a power of two of threads in each block, or round up while halving and test the partner's "
                "index: half = (left + 1) / 2, if (i + half < left).",
                confidence=Confidence.LIKELY,
            )
            return


def _repeated_work(case: Case, fact: LaunchFact, kernel: Function, wrong: Mismatch) -> Iterator[Cause]:
    blocks = fact.grid[0]
    for loop in _STRIDING.finditer(kernel.body):
        own = re.search(rf"\b{loop['end']}\b[^;]*=[^;]*\bblockIdx\b", kernel.body)
        adds = re.search(r"\+=|\batomicAdd\w*\s*\(", loop["body"])
        by_block = _value(case, loop["step"], fact) == fact.block[0]
        if blocks < 2 or own or not adds or not by_block or not _starts_at_block(kernel, loop["start"]):
            continue
        line = kernel.line_at(loop.start())
        ratio = wrong.first_got / wrong.first_expected if wrong.first_expected else 0.0
        yield case.cause(
            "logic.repeated-work",
            Stage.JUDGE,
            f"Each of the {blocks} blocks of {access.kernel(fact.kernel)} starts at its own elements but goes on by "
            f"one block ({loop['step']}), not by the whole grid: it adds what the later blocks add, too.",
            line=line,
            evidence=[
                f"launched with {blocks} blocks of {fact.block[0]} threads",
                f"at {list(wrong.first)} the output is {ratio:.4g} times what it should be" if ratio > 1 else "",
            ],
            fix=f"Advance by the grid: {loop['i']} += blockDim.x * gridDim.x.",
            confidence=Confidence.LIKELY,
        )
        return


_INDEX = re.compile(
    r"^\s*(?:\(?\w+\)?\s*)?\(?\s*(?:blockIdx\.x\s*\*\s*[\w.]+|[\w.]+\s*\*\s*blockIdx\.x)\s*\+\s*threadIdx\.x\s*\)?\s*$|"
    r"^\s*threadIdx\.x\s*\+\s*(?:blockIdx\.x\s*\*\s*[\w.]+|[\w.]+\s*\*\s*blockIdx\.x)\s*$"
)


def _starts_at_block(kernel: Function, start: str) -> bool:
    """Whether a loop starts at the thread's index in the grid, or at a variable that was set to it."""
    if re.fullmatch(r"\s*\w+\s*", start):
        made = re.search(rf"\b{start.strip()}\s*=\s*([^;,]+)[;,]", kernel.body)
        start = made[1] if made else start
    return _INDEX.match(start) is not None


def _value(case: Case, word: str, fact: LaunchFact) -> int:
    """What a number, ``blockDim.x`` or a constant of the candidate is worth; 0 where that is not known."""
    if word == "blockDim.x":
        return fact.block[0]
    if word.isdigit():
        return int(word)
    name = re.escape(word)
    for _, text in case.sources.segments:
        set_to = re.search(rf"#define\s+{name}\s+(\d+)\b|\bconst\w*[\w\s]*\b{name}\s*=\s*(\d+)\s*;", text)
        if set_to:
            return int(set_to[1] or set_to[2])
    return 0
