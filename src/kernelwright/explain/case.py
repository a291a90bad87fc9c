"""One failure under examination: the evidence, and the candidate's text to look lines up in.

Why: every rule asks the same few things of the candidate's text, and scanning it is done once. The rule: a case holds
no opinion; rules do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernelwright.explain.catalogue import CAUSES, UNEXPLAINED
from kernelwright.explain.cpp import Sources, returned_allocation
from kernelwright.explain.python import Tree
from kernelwright.records import Cause, Confidence, Evidence, SourceLine, Stage


@dataclass(frozen=True)
class Case:
    """Evidence with the candidate's text, scanned on demand."""

    evidence: Evidence

    @cached_property
    def sources(self) -> Sources:
        """The candidate's C++."""
        return Sources.of(self.evidence.candidate_text)

    @cached_property
    def tree(self) -> Tree:
        """The candidate's Python."""
        return Tree(self.evidence.candidate_text)

    @cached_property
    def problem_tree(self) -> Tree:
        """The problem's Python; empty where its file cannot be read."""
        try:
            return Tree(Path(self.evidence.problem_file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            return Tree("")

    @cached_property
    def lines(self) -> list[str]:
        """The candidate's lines."""
        return self.evidence.candidate_text.splitlines()

    def text(self, line: int) -> str:
        """Line ``line`` of the candidate, stripped; empty where there is none."""
        return self.lines[line - 1].strip() if 1 <= line <= len(self.lines) else ""

    def is_candidate(self, file: str) -> bool:
        """Whether ``file`` is the candidate's file, by whatever path a record calls it."""
        return bool(file) and Path(file).name == Path(self.evidence.candidate_file).name

    def own_frame(self, frames: Sequence[SourceLine]) -> SourceLine | None:
        """The first of ``frames`` that lies in the candidate's file: innermost first, headers skipped."""
        return next((frame for frame in frames if self.is_candidate(frame.file) and frame.line > 0), None)

    @cached_property
    def output_line(self) -> int:
        """Where the tensor that ``forward`` returns is made, in C++ or in Python; 0 without exactly one place."""
        called = {name for call in self.tree.extension_calls if (name := self.tree.called_at(call.lineno))}
        functions = [function for name in called for function in self.sources.named(name)]
        made = {a.line for function in functions if (a := returned_allocation(function)) is not None}
        made = made or set(self.tree.returned_lines)
        return made.pop() if len(made) == 1 else 0

    def cause(
        self,
        id: str,
        stage: Stage,
        sentence: str,
        *,
        line: int = 0,
        evidence: Sequence[str] = (),
        fix: str = "",
        confidence: Confidence = Confidence.CERTAIN,
    ) -> Cause:
        """A cause at ``line`` of the candidate (0: no line). Raises ``ValueError`` for an id outside the catalogue."""
        if id != UNEXPLAINED and id not in CAUSES:
            raise ValueError(f"{id} is not in the catalogue of causes")
        return Cause(
            id=id,
            stage=stage,
            sentence=sentence,
            file=self.evidence.candidate_file if line else "",
            line=line,
            text=self.text(line),
            evidence=tuple(fact for fact in evidence if fact),
            fix=fix,
            confidence=confidence,
        )
