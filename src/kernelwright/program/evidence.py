"""From a program's journal and its process's end to the evidence that explain reads.

The rule: facts only; an address becomes a line of the user's file where the debug information says so, else nothing. An
API call that was refused for what it asked is a cause; one that the device does not have is told apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelwright.counters.records import KernelCounters
from kernelwright.emulate import sites
from kernelwright.explain import UNEXPLAINED, explain
from kernelwright.records import (
    BuildRecord,
    Cause,
    DeviceFact,
    Evidence,
    Finding,
    LaunchFact,
    ProcessExit,
    SourceLine,
    Stage,
    StageResult,
    StageStatus,
    from_json,
)

MOST_REFUSALS = 20
NOT_SUPPORTED = 801
"""cudaErrorNotSupported: what the shim answers for what it does not have."""


@dataclass(frozen=True)
class Ended:
    """How the program's process ended."""

    returncode: int | None = None
    signal: str = ""
    timed_out: bool = False
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True)
class Fault:
    """What the emulated device could not do."""

    message: str
    hint: str
    refused: bool
    """It met something it does not know, rather than failed."""


@dataclass(frozen=True)
class Refused:
    """An API call that was refused for what it asked."""

    cause: str
    sentence: str
    error: int
    """cudaError_t that the call returned; 0 where it went on."""
    site: SourceLine | None


@dataclass
class Seen:
    """A journal, read."""

    findings: list[Finding] = field(default_factory=list)
    observations: list[Finding] = field(default_factory=list)
    launches: list[LaunchFact] = field(default_factory=list)
    failed: list[LaunchFact] = field(default_factory=list)
    """Launches that ended in an error: all that is known where the program did not end by itself."""
    refused: list[Refused] = field(default_factory=list)
    unserved: tuple[str, ...] = ()
    device: DeviceFact | None = None
    counters: list[KernelCounters] = field(default_factory=list)
    stack: tuple[SourceLine, ...] = ()
    """Host frames of the program's own, innermost first, at a crash or when time was up."""
    stopped_at: tuple[SourceLine, ...] = ()
    in_kernel: bool = False
    during: str = ""
    fault: Fault | None = None
    broken: str = ""


def read(facts: list[dict[str, Any]], *, module: Path, program: Path) -> Seen:
    """The journal ``facts`` of ``program``, compiled to ``module``."""
    seen, base = Seen(), 0
    named = _Named(program)
    for fact in facts:
        base = fact.get("base", base)
        seen.during = fact.get("during", seen.during)
        seen.broken = fact.get("broken", seen.broken)
        for kind in ("findings", "observations"):
            getattr(seen, kind).extend(named.finding(from_json(Finding, item)) for item in fact.get(kind, ()))
        if "launches" in fact:
            seen.launches = [named.launch(from_json(LaunchFact, item)) for item in fact["launches"]]
            seen.device = from_json(DeviceFact, fact["device"])
            seen.counters = [named.counters(from_json(KernelCounters, item)) for item in fact["counters"]]
        if "failed" in fact and len(seen.failed) < MOST_REFUSALS:
            seen.failed.append(from_json(LaunchFact, fact["failed"]))
        if "stopped_at" in fact:
            seen.stopped_at = named.frames(tuple(from_json(SourceLine, item) for item in fact["stopped_at"]))
        if "fault" in fact:
            seen.fault = seen.fault or Fault(fact["fault"], fact["hint"], fact["refused"])
        if "signal" in fact:
            seen.in_kernel = bool(fact["in_kernel"])
            seen.stack = _stack([address - base for address in fact["stack"]], module, named)
        if "refusal" in fact:
            _refusal(seen, fact, module, named)
    return seen


class _Named:
    """Calls the program's file what the user calls it; its text is compiled under its whole path."""

    def __init__(self, program: Path) -> None:
        self._whole, self._given = str(program.absolute()), str(program)

    def line(self, line: SourceLine) -> SourceLine:
        return replace(line, file=self._given) if line.file == self._whole else line

    def frames(self, frames: tuple[SourceLine, ...]) -> tuple[SourceLine, ...]:
        return tuple(self.line(frame) for frame in frames)

    def finding(self, finding: Finding) -> Finding:
        return replace(finding, frames=self.frames(finding.frames))

    def counters(self, kernel: KernelCounters) -> KernelCounters:
        return replace(kernel, lines=tuple(replace(line, frames=self.frames(line.frames)) for line in kernel.lines))

    def launch(self, fact: LaunchFact) -> LaunchFact:
        return replace(fact, site=self.line(fact.site)) if fact.site is not None else fact


def _stack(offsets: list[int], module: Path, named: _Named) -> tuple[SourceLine, ...]:
    size = module.stat().st_size * 4  # zero-initialised data lies behind the file's own bytes; code does not
    lines = [sites.line_in(module, offset - 1) for offset in offsets if 0 < offset < size]
    return tuple(named.line(line) for line in lines if line is not None and is_users(line.file))


def _refusal(seen: Seen, fact: dict[str, Any], module: Path, named: _Named) -> None:
    known = fact["refusal"]
    if known["error"] == NOT_SUPPORTED:
        if known["sentence"] not in seen.unserved:
            seen.unserved = (*seen.unserved, known["sentence"])
    elif len(seen.refused) < MOST_REFUSALS:
        frames = _stack(fact["stack"], module, named)
        seen.refused.append(Refused(known["cause"], known["sentence"], known["error"], frames[0] if frames else None))


def evidence(program: Path, text: str, build: BuildRecord, ended: Ended, seen: Seen) -> Evidence:
    """What explain reads; the program stands where a candidate would."""
    launches = tuple(seen.launches or seen.failed)
    bad = bool(seen.findings or seen.refused or any(fact.limit for fact in launches))
    broke = bool(ended.signal or ended.timed_out)
    exit = None
    # A program that ends with a status of its own says so itself; it is told where it noticed a refused launch.
    if broke or (bad and ended.returncode):
        exit = ProcessExit(
            returncode=ended.returncode,
            signal=ended.signal,
            timed_out=ended.timed_out,
            during=seen.during if broke and (seen.stopped_at or seen.in_kernel) else "",
            frames=seen.stopped_at or seen.stack,
            stderr=ended.stderr,
        )
    passed = {True: StageStatus.PASSED, False: StageStatus.FAILED}
    ran = StageStatus.NOT_RUN if not build.ok else passed[not (bad or broke)]
    return Evidence(
        problem_file="",
        candidate_file=str(program),
        candidate_text=text,
        stages=(
            StageResult(Stage.BUILD, passed[build.ok], build.seconds, "" if build.ok else "it does not compile"),
            StageResult(Stage.RUN, ran, 0.0, "" if build.ok else "build failed"),
        ),
        builds=(build,),
        exit=exit,
        findings=tuple(seen.findings),
        observations=tuple(seen.observations),
        launches=launches,
        device=seen.device,
    )


def causes(case: Evidence, seen: Seen) -> tuple[Cause, ...]:
    """explain's, for each of the user's files by itself, with those of refused API calls, which name no kernel."""
    groups: dict[str, list[Finding]] = {}
    for finding in case.findings:
        groups.setdefault(_file(case, finding.frames), []).append(finding)
    own = [_cause(case, refused) for refused in seen.refused]
    elsewhere: list[Cause] = []
    for file, findings in groups.items():
        if file != case.candidate_file:
            elsewhere += explain(_in_file(case, file, findings=tuple(findings)))
    ended = _file(case, case.exit.frames) if case.exit else case.candidate_file
    if ended != case.candidate_file and not case.findings:
        elsewhere += explain(_in_file(case, ended, exit=case.exit))
        case = replace(case, exit=None, stages=())
    known = explain(replace(case, findings=tuple(groups.get(case.candidate_file, ()))))
    if own or elsewhere:
        # What followed from these is not unexplained.
        known = tuple(cause for cause in known if cause.id != UNEXPLAINED)
    first: dict[tuple[str, str, int], Cause] = {}
    for cause in (*known, *elsewhere, *own):
        first.setdefault((cause.id, cause.file, cause.line), cause)
    return tuple(first.values())


def _in_file(
    case: Evidence, file: str, *, findings: tuple[Finding, ...] = (), exit: ProcessExit | None = None
) -> Evidence:
    """The same evidence as seen from another of the program's files."""
    text = Path(file).read_text(encoding="utf-8", errors="replace")
    return replace(
        case, candidate_file=file, candidate_text=text, findings=findings, exit=exit, launches=(), builds=(), stages=()
    )


def _file(case: Evidence, frames: tuple[SourceLine, ...]) -> str:
    """The user's file that the innermost frame in any of them is in; the program's own where none is."""
    return next((frame.file for frame in frames if is_users(frame.file)), case.candidate_file)


def is_users(file: str) -> bool:
    """Whether ``file`` is there and comes neither with the system nor with a CUDA toolkit."""
    installed = file.startswith("/usr/") or "/cuda-" in file or "/nvidia/cu" in file
    return not installed and Path(file).is_file()


def _cause(case: Evidence, refused: Refused) -> Cause:
    site = refused.site
    outcome = "was refused, and returned its error" if refused.error else "went on all the same"
    return Cause(
        id=refused.cause,
        stage=Stage.RUN,
        sentence=refused.sentence.rstrip(".") + ".",
        file=site.file if site else "",
        line=site.line if site else 0,
        text=site.text if site else "",
        evidence=(f"the call {outcome}",),
    )
