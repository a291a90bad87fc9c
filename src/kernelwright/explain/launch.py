"""Causes of the family ``launch``: a launch is refused or does nothing.

Needs: a launch that the device refused, with the limit it met (``LaunchFact.limit``). The rule: the line is where the
refused size is declared (a ``dim3`` variable), else the launch itself; and when no exception came of it, that nobody
looked is a cause of its own, because stale memory is then returned as if it were a result.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.explain import access
from kernelwright.explain.case import Case
from kernelwright.explain.cpp import Launch, dim3_line
from kernelwright.records import Cause, LaunchFact, Stage

# Which expression between the chevrons sets the refused size.
_ARGUMENT = {"launch.grid-limit": 0, "launch.block-limit": 1, "launch.shared-memory": 2, "launch.registers": 1}

_FIX = {
    "launch.grid-limit": "Round the grid up, (n + block - 1) / block, launch nothing for no work, and fold a large y "
    "or z into x or a loop.",
    "launch.block-limit": "Launch fewer threads in a block, 1024 at most, and more blocks.",
    "launch.shared-memory": "Opt in before the launch: cudaFuncSetAttribute(kernel, "
    "cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), up to the device's limit; or use less.",
    "launch.registers": "Launch fewer threads in a block, or cap the registers with __launch_bounds__.",
}


def causes(case: Case) -> Iterator[Cause]:
    """Causes of this family that the evidence shows."""
    refused = [fact for fact in case.evidence.launches if fact.error and fact.limit]
    for fact in refused:
        yield limit(case, fact)
    if refused and case.evidence.exception is None and case.evidence.exit is None:
        yield unchecked(case, refused[0])


def limit(case: Case, fact: LaunchFact) -> Cause:
    """A launch that the device refused."""
    launch, line = _written(case, fact)
    size = _size_line(launch, fact.limit)
    grid, block = (f"({','.join(str(n) for n in sizes)})" for sizes in (fact.grid, fact.block))
    shared = f", {fact.dynamic_shared_bytes} bytes of dynamic shared memory" if fact.dynamic_shared_bytes else ""
    code = fact.error_name or f"CUDA error {fact.error}"
    return case.cause(
        fact.limit,
        Stage.RUN,
        f"The launch of {access.kernel(fact.kernel)} is refused: {(fact.message or code).rstrip('.')}.",
        line=size or line,
        evidence=[
            f"grid {grid}, block {block}{shared}",
            f"the launch returned {code} ({fact.error})",
            f"launched at line {line}: {case.text(line)}" if size and size != line else "",
        ],
        fix=_FIX.get(fact.limit, ""),
    )


def unchecked(case: Case, fact: LaunchFact) -> Cause:
    """The refused launch was noticed by nobody."""
    _, line = _written(case, fact)
    return case.cause(
        "launch.unchecked",
        Stage.RUN,
        f"Nobody noticed that the launch of {access.kernel(fact.kernel)} was refused, so memory that it never wrote "
        f"was returned.",
        line=line,
        evidence=[f"{fact.error_name or fact.error} was the launch's error, and no exception was raised"],
        fix="Put C10_CUDA_KERNEL_LAUNCH_CHECK() after the launch, or check cudaGetLastError().",
    )


def _written(case: Case, fact: LaunchFact) -> tuple[Launch | None, int]:
    """The launch in the text, and its line: the device's record first, else the only launch of that kernel."""
    written = case.sources.launches_of(fact.kernel)
    line = fact.site.line if fact.site is not None and case.is_candidate(fact.site.file) else 0
    # A launch over several lines is recorded at one of them.
    near = [launch for launch in written if abs(launch.line - line) <= 3] if line else written
    launch = near[0] if len(near) == 1 else None
    return launch, line or (launch.line if launch else 0)


def _size_line(launch: Launch | None, limit_id: str) -> int:
    position = _ARGUMENT.get(limit_id, -1)
    if launch is None or not 0 <= position < len(launch.configuration):
        return 0
    return dim3_line(launch.within, launch.configuration[position])
