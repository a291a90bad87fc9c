"""The typed records that rooms hand to one another, and that the verdict is made of.

Why: every room is a separate process or could become one, so what crosses a border is a frozen dataclass that goes to
JSON and back without loss. The rule: a record holds facts with their unit in the name; it has no behaviour beyond that.
Values nobody could obtain are ``None`` and are shown as "not checked", never as passed.
"""

from __future__ import annotations

from kernelwright.records.asjson import (
    from_json,
    to_json,
)
from kernelwright.records.built import (
    BuildRecord,
    Diagnostic,
    KernelFacts,
)
from kernelwright.records.compared import (
    Experiment,
    Mismatch,
    Numerics,
    OutputFact,
    OutputNumerics,
    Trial,
)
from kernelwright.records.conduct import (
    Conduct,
    ExceptionFact,
    OperatorFact,
    ProcessExit,
    kinds,
)
from kernelwright.records.seen import (
    HOST_STACK,
    NO_THREAD,
    Allocation,
    DeviceFact,
    Finding,
    LaunchFact,
    SanitizerFact,
    Suspicion,
)
from kernelwright.records.verdict import (
    SCHEMA,
    Evidence,
    Verdict,
)
from kernelwright.records.words import (
    Cause,
    Confidence,
    Precision,
    Stage,
    StageResult,
    StageStatus,
    VerdictWord,
)
from kernelwright.sourceline import SourceLine

__all__ = [
    "HOST_STACK",
    "NO_THREAD",
    "SCHEMA",
    "Allocation",
    "BuildRecord",
    "Cause",
    "Conduct",
    "Confidence",
    "DeviceFact",
    "Diagnostic",
    "Evidence",
    "ExceptionFact",
    "Experiment",
    "Finding",
    "KernelFacts",
    "LaunchFact",
    "Mismatch",
    "Numerics",
    "OperatorFact",
    "OutputFact",
    "OutputNumerics",
    "Precision",
    "ProcessExit",
    "SanitizerFact",
    "SourceLine",
    "Stage",
    "StageResult",
    "StageStatus",
    "Suspicion",
    "Trial",
    "Verdict",
    "VerdictWord",
    "from_json",
    "kinds",
    "to_json",
]
