"""Start the processes of a check: the one that holds the problem, and the one that runs a candidate.

The rule: what a process is made for stands in its configuration, by which a warm process is recognised.
"""

from __future__ import annotations

from typing import Any

from kernelwright.worker import limits
from kernelwright.worker.plan import Plan
from kernelwright.worker.supervisor import Supervisor
from kernelwright.worker.worker import Worker

START_BYTES = 1 << 30
"""What a worker has before foreign code runs: torch and its own pages."""


def start_oracle(supervisor: Supervisor, plan: Plan) -> Worker:
    """A process for the problem."""
    config = {**oracle_config(plan), "budget_bytes": limits.default_memory_bytes() // 4}
    worker = supervisor.start("oracle", config, file=str(plan.problem))
    worker.memory_bytes = limits.available_bytes() * 9 // 10 + START_BYTES
    return worker


def start_candidate(supervisor: Supervisor, plan: Plan) -> Worker:
    """A process for one candidate; which one, it hears when it is opened."""
    config = {**candidate_config(plan), "memory_bytes": plan.memory_bytes}
    worker = supervisor.start("candidate", config, file=str(plan.candidate))
    worker.memory_bytes = plan.memory_bytes + START_BYTES
    return worker


def oracle_config(plan: Plan) -> dict[str, Any]:
    """What an oracle's process is made for."""
    return {
        "problem": str(plan.problem),
        "sets": plan.sets,
        "seed": plan.seed,
        "atol": plan.atol,
        "rtol": plan.rtol,
        "place": "cuda:0" if plan.device == "cuda" else "cpu",
    }


def candidate_config(plan: Plan) -> dict[str, Any]:
    """What a candidate's process is made for, whatever the candidate."""
    return {"device": plan.device, "presents_as": plan.presents_as, "counted": plan.counted, "checks": plan.checks}
