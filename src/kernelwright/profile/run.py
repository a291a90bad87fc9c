"""One profile, from files to record: trace, counters, ceilings, reasons.

Why: the command and later faces ask one question and get one record. The rule: this process imports no torch; on a GPU
the candidate runs in processes of its own, one for the trace and one below ncu; where either has no GPU or no ncu, the
emulated device counts the same kernels, and the record says so.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import kernelwright
from kernelwright.check import CheckOptions, check, device_of
from kernelwright.counters.records import EMULATED, NCU, KernelCounters
from kernelwright.device.specs import spec
from kernelwright.errors import EXIT_NO, KernelwrightError, MachineError
from kernelwright.measure.limits import from_data_sheet, limit
from kernelwright.measure.records import Ceilings, Limit, Work
from kernelwright.problem.layout import outline, read_source
from kernelwright.profile import ncu, trace
from kernelwright.profile.reasons import reasons
from kernelwright.profile.records import Profile
from kernelwright.profile.roofline import points, seconds
from kernelwright.records import DeviceFact, Stage, StageStatus, Verdict, from_json
from kernelwright.worker import alone
from kernelwright.worker import tool as outside
from kernelwright.worker.plan import trial_seed

MOST_LAUNCHES = 40
"""ncu runs each launch ten to twenty times over."""


NO_TIMES = "times, stalls, pipes and caches (the emulated device has none)"
LIBRARIES = "PyTorch's own operations, such as products by cuBLAS (the emulated device runs them without kernels)"


class NotProfiled(KernelwrightError):
    """The candidate itself does not run, so there is nothing to profile."""

    exit_status = EXIT_NO
    advice = "kernelwright check says why, at which line, and what to do"


@dataclass(frozen=True)
class ProfileOptions:
    """How to profile; every field has the default of its flag."""

    sets: dict[str, str] = field(default_factory=dict)
    device: str = "auto"
    presents_as: str = "h200"
    seed: int = 0
    timeout_s: float = 300.0
    memory_bytes: int | None = None
    launches: int = MOST_LAUNCHES
    """Most launches that ncu profiles."""


@dataclass(frozen=True)
class _Traced:
    """What the tracing process told."""

    known: dict[str, Any]

    @property
    def passes(self) -> list[list[tuple[str, float]]]:
        return [[(str(name), float(us)) for name, us in one] for one in self.known.get("passes", ())]

    @property
    def ceilings(self) -> Ceilings | None:
        told = self.known.get("ceilings")
        return from_json(Ceilings, told) if told else None

    @property
    def work(self) -> Work | None:
        told = self.known.get("work")
        return from_json(Work, told) if told else None

    @property
    def notes(self) -> list[str]:
        return [str(self.known[name]) for name in ("ceilings_note", "work_note") if name in self.known]


def profile(problem: Path, candidate: Path, *, options: ProfileOptions, progress: Callable[[str], None]) -> Profile:
    """Profile ``candidate`` at the problem's size.

    Raises ``NotProfiled`` where the candidate does not run; ``MissingFile``, ``UsageError``, ``ProblemError`` and
    ``MachineError`` as a check does.
    """
    started = time.monotonic()
    outline(problem, options.sets)
    made = (
        _on_gpu(problem, candidate, options, progress)
        if device_of(options.device) == "cuda"
        else _emulated(problem, candidate, options, progress)
    )
    return replace(made, seconds=time.monotonic() - started)


# ---- on a GPU ------------------------------------------------------------------------------------------------------
def _on_gpu(problem: Path, candidate: Path, options: ProfileOptions, progress: Callable[[str], None]) -> Profile:
    config = alone.Alone(
        problem=str(problem.resolve()),
        candidate=str(candidate),
        text=read_source(candidate, role="candidate"),
        sets=options.sets,
        seed=options.seed,
        trial_seed=trial_seed(options.seed, 0),
        weights="rng",
        do="kernelwright.profile.traced",
        result="",
    )
    progress("building and tracing the candidate")
    traced = _trace(config, options.timeout_s)
    program = ncu.find()
    if program is None:
        counted = ncu.Counted(why_not="ncu was not found")
    else:
        counted = ncu.count(program, config, launches=options.launches, timeout_s=options.timeout_s, progress=progress)
    kernels, notes = counted.kernels, [*traced.notes, *counted.notes]
    if counted.why_not:
        notes.append(f"ncu's counters ({counted.why_not})")
        kernels, more = _instead(problem, candidate, options, progress)
        notes += more
    table = trace.table(traced.passes)
    times = {kernel.kernel: 0.0 for kernel in kernels}
    for kernel in kernels:
        times[kernel.kernel] += seconds(kernel) or 0.0
    shares = trace.shares(table, times)
    told = traced.known.get("device", {})
    forward_us = trace.forward_us(traced.passes)
    versions = {**traced.known.get("versions", {}), **({"ncu": counted.version} if counted.version else {})}
    return Profile(
        problem=str(problem),
        candidate=str(candidate),
        device=DeviceFact("cuda", str(told.get("name", "")), str(told.get("capability", ""))),
        counted_by=EMULATED if counted.why_not else NCU,
        sets=options.sets,
        kernels=kernels,
        trace=table,
        forward_us=forward_us,
        reasons=reasons(kernels, traced.ceilings, shares),
        points=points(kernels, shares),
        ceilings=traced.ceilings,
        work=traced.work,
        limit=_limit(traced, forward_us),
        notes=tuple(notes),
        versions={"kernelwright": kernelwright.__version__, **{str(k): str(v) for k, v in versions.items()}},
    )


def _limit(traced: _Traced, forward_us: float | None) -> Limit | None:
    """The least time for the problem's work; None where the work or a ceiling is not known."""
    if traced.work is None or traced.ceilings is None:
        return None
    return limit(traced.work, traced.ceilings, {"forward": forward_us / 1e3} if forward_us else {})


def _trace(config: alone.Alone, timeout_s: float) -> _Traced:
    """Run the tracing process. Raises ``NotProfiled`` or ``MachineError``."""
    with tempfile.TemporaryDirectory(prefix="kernelwright-trace-") as name:
        folder = Path(name)
        own = replace(config, result=str(folder / "known.json"))
        ended = outside.run(alone.command(own, folder), folder, timeout_s=timeout_s)
        known = outside.known(Path(own.result))
    if known.get("passes") and (ended.status == 0 or "error" not in known):
        return _Traced(known)
    doing = known.get("during", "its start")
    if ended.status is None:
        raise NotProfiled(f"{config.candidate} did not end within {timeout_s:g} s, in {doing}")
    error = known.get("error")
    if isinstance(error, dict):
        message = (str(error.get("message", "")).splitlines() or [""])[0]
        if doing == "opening the device":
            raise MachineError(message)
        raise NotProfiled(f"{doing} raises {error.get('type')}: {message}")
    last = [line for line in ended.printed.splitlines() if line.strip()]
    raise NotProfiled(f"the candidate's process ended with exit status {ended.status} in {doing}: {''.join(last[-1:])}")


def _instead(
    problem: Path, candidate: Path, options: ProfileOptions, progress: Callable[[str], None]
) -> tuple[tuple[KernelCounters, ...], list[str]]:
    """The emulated device's counters where a GPU's could not be had; without them a note."""
    try:
        verdict = _counting(problem, candidate, options, progress)
    except KernelwrightError as error:
        return (), [f"the emulated device's counters ({str(error).splitlines()[0]})"]
    return verdict.counters or (), [LIBRARIES]


# ---- without one ---------------------------------------------------------------------------------------------------
def _counting(problem: Path, candidate: Path, options: ProfileOptions, progress: Callable[[str], None]) -> Verdict:
    """A check on the emulated device that counts. Raises ``NotProfiled`` where no kernel could be counted."""
    asked = CheckOptions(
        sets=options.sets,
        device="emulated",
        presents_as=options.presents_as,
        trials=1,
        seed=options.seed,
        timeout_s=options.timeout_s,
        memory_bytes=options.memory_bytes,
        confirm=False,
        timing=False,
        counted=True,
    )
    verdict = check(problem, candidate, options=asked, progress=progress)
    if not verdict.counters:
        stopped = any(s.status is StageStatus.FAILED for s in verdict.stages if s.stage is not Stage.JUDGE)
        told = verdict.causes[0].sentence if stopped and verdict.causes else "it launched no kernel of its own"
        raise NotProfiled(f"no kernel of {candidate} was counted: {told}")
    return verdict


def _emulated(problem: Path, candidate: Path, options: ProfileOptions, progress: Callable[[str], None]) -> Profile:
    verdict = _counting(problem, candidate, options, progress)
    kernels = verdict.counters or ()
    ceilings = from_data_sheet(spec(options.presents_as))
    notes = [NO_TIMES, LIBRARIES]
    if verdict.findings:
        notes.append(f"what the findings mean ({len(verdict.findings)} of them: kernelwright check explains them)")
    return Profile(
        problem=str(problem),
        candidate=str(candidate),
        device=verdict.device or DeviceFact("emulated", "", ""),
        counted_by=EMULATED,
        sets=options.sets,
        kernels=kernels,
        reasons=reasons(kernels, ceilings, {}),
        points=points(kernels, {}),
        ceilings=ceilings,
        notes=tuple(notes),
        versions=verdict.versions,
    )
