"""The measure stage of a check: timed, not timed and why, or failed and why.

Why: whatever becomes of the timing, the verdict on correctness stands. The rule: a stage that was not run says what
kept it; it fails only where a speed-up was required and not shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.errors import MachineError
from kernelwright.measure.plan import MeasurePlan
from kernelwright.measure.records import Timing
from kernelwright.records import Stage, StageResult, StageStatus
from kernelwright.worker.supervisor import Supervisor
from kernelwright.worker.worker import Worker


@dataclass(frozen=True)
class Measured:
    """What the stage came to."""

    result: StageResult
    timing: Timing | None = None
    note: str = ""
    """For the verdict's list of what was not checked; empty where it was."""


def start(supervisor: Supervisor, plan: MeasurePlan) -> Worker:
    """A timing process that gets ready while the candidate is judged."""
    from kernelwright.measure import run

    return run.start(supervisor, plan)


def measure(
    supervisor: Supervisor,
    plan: MeasurePlan | str,
    progress: Callable[[str], None],
    *,
    worker: Worker | None = None,
) -> Measured:
    """Time ``plan``; a string says why there is nothing to time. ``worker`` is a process that :func:`start` made."""
    if isinstance(plan, str):
        return Measured(StageResult(Stage.MEASURE, StageStatus.NOT_RUN, 0.0, plan))
    # numpy, and all that stands on it, only where something is timed.
    from kernelwright.measure.run import NotMeasured, run

    started = time.monotonic()
    try:
        timing = run(supervisor, plan, progress, worker=worker)
    except (NotMeasured, MachineError) as error:
        status = StageStatus.NOT_RUN if plan.require_speedup is None else StageStatus.FAILED
        result = StageResult(Stage.MEASURE, status, time.monotonic() - started, str(error))
        return Measured(result, note=f"timing: {error}")
    if timing.unmet:
        return Measured(StageResult(Stage.MEASURE, StageStatus.FAILED, timing.seconds, timing.unmet), timing)
    return Measured(StageResult(Stage.MEASURE, StageStatus.PASSED, timing.seconds), timing)
