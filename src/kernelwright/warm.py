"""What lasts from one check to the next: the nursery, the oracle with its problem, and processes that are ready.

Why: of a check that is repeated after each edit, importing PyTorch, opening the device and loading the problem are most
of the time, and none of them depends on the candidate. The rule: a candidate's code runs only in a process that was
made for this one check; what is kept ready has run nothing foreign but the problem. Another problem, or the same one
edited, gets processes of its own.
"""

from __future__ import annotations

from types import TracebackType

from kernelwright.measure.plan import MeasurePlan
from kernelwright.measure.stage import start as start_measuring
from kernelwright.worker.plan import Plan
from kernelwright.worker.start import candidate_config, oracle_config, start_candidate, start_oracle
from kernelwright.worker.supervisor import Supervisor
from kernelwright.worker.wire import close_all
from kernelwright.worker.worker import Worker, WorkerEnded


class Warm:
    """One supervisor and what it keeps. A context manager: its end ends every process."""

    def __init__(self) -> None:
        self.supervisor = Supervisor()
        self._oracle: tuple[str, Worker] | None = None
        self._spare: tuple[str, Worker] | None = None
        self._timer: tuple[str, Worker] | None = None
        self._used: Worker | None = None
        """The last check's candidate."""

    def __enter__(self) -> Warm:
        self.supervisor.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.supervisor.close()

    def oracle(self, plan: Plan, problem_text: str) -> Worker:
        """The oracle of this very problem: kept, or started."""
        key = repr((problem_text, oracle_config(plan)))
        worker = self._taken(self._oracle, key)
        if worker is not None and not self._drained(worker, plan.timeout_s):
            worker = None
        worker = worker or start_oracle(self.supervisor, plan)
        worker.waited_s = 0.0
        self._oracle = (key, worker)
        return worker

    def awaits(self, plan: Plan) -> bool:
        """Whether a process waits for such a candidate, so that nothing is gained by compiling ahead of it."""
        return self._spare is not None and self._spare[0] == repr(candidate_config(plan)) and not self._spare[1].ended

    def candidate(self, plan: Plan) -> Worker:
        """A process in which no candidate has run: the one that waits, or a new one."""
        if self._used is not None and not self._used.ended:
            self.supervisor.stop(self._used)
        kept, self._spare = self._taken(self._spare, repr(candidate_config(plan))), None
        self._used = kept or start_candidate(self.supervisor, plan)
        return self._used

    def timer(self, plan: MeasurePlan) -> Worker:
        """A timing process for this problem in which no candidate has run, on its way to be ready."""
        key = repr((str(plan.problem), plan.problem_text, sorted(plan.sets.items()), plan.seed))
        worker = self._taken(self._timer, key) or start_measuring(self.supervisor, plan)
        self._timer = (key, worker)
        return worker

    def get_ready(self, plan: Plan, timing: MeasurePlan | None) -> None:
        """Start what the next check will want, and let go of what ended."""
        for worker in [worker for worker in self.supervisor.workers if worker.ended]:
            self.supervisor.drop(worker)
        if self._spare is None:
            spare = start_candidate(self.supervisor, plan)
            self.supervisor.post(spare, {"op": "ready"})
            self._spare = (repr(candidate_config(plan)), spare)
        if timing is not None:
            self.timer(timing)

    def _drained(self, worker: Worker, timeout_s: float) -> bool:
        """Take the replies that an earlier check no longer asked for; whether the worker lives."""
        worker.waited_s = 0.0
        try:
            while worker.outstanding:
                close_all(self.supervisor.reply(worker, timeout_s=timeout_s)[1])
        except WorkerEnded:
            return False
        return True

    def _taken(self, kept: tuple[str, Worker] | None, key: str) -> Worker | None:
        """What is kept, where it lives and is for ``key``; else it is ended."""
        if kept is None:
            return None
        name, worker = kept
        if name == key and not worker.ended and not worker.protocol_error:
            return worker
        self.supervisor.stop(worker)
        return None
