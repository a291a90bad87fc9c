"""Measure a correct candidate: start the timing process, watch the card meanwhile, and make the record.

Why: the check has one call to make, and what it gets is whole. The rule: this module runs in the supervising process,
imports no torch, and takes nothing from the timing process but samples and facts; every figure and word is computed
here, from records that the verdict keeps.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernelwright.errors import MachineError
from kernelwright.measure import limits, statistics, verdicts
from kernelwright.measure.baselines import EAGER, TABLE
from kernelwright.measure.marks import marked, usable
from kernelwright.measure.nvml import Card, Sampler
from kernelwright.measure.plan import MeasurePlan
from kernelwright.measure.records import (
    Ceilings,
    Comparison,
    Contestant,
    Interval,
    Limit,
    Mark,
    Sample,
    Timing,
    WallSample,
    Work,
)
from kernelwright.measure.verdicts import CANDIDATE, Facts
from kernelwright.records import ExceptionFact, from_json
from kernelwright.worker.supervisor import Supervisor
from kernelwright.worker.worker import Worker, WorkerEnded


class NotMeasured(Exception):
    """The timing process could not do it; the message says why, for the stage's note."""


def start(supervisor: Supervisor, plan: MeasurePlan) -> Worker:
    """A timing process that opens the device and loads the problem by itself, while others judge the candidate."""
    worker = supervisor.start("timer", _config(plan), file=str(plan.candidate))
    supervisor.post(worker, {"op": "ready"})
    return worker


def run(
    supervisor: Supervisor, plan: MeasurePlan, progress: Callable[[str], None], *, worker: Worker | None = None
) -> Timing:
    """Time ``plan.candidate`` against its baselines on device 0, in ``worker`` where :func:`start` has made one.

    Raises ``NotMeasured`` where the timing process raised, ended or ran out of time; ``MachineError``.
    """
    started = time.monotonic()
    timer = worker or start(supervisor, plan)
    timer.file = str(plan.candidate)
    judged = _judged(plan)

    def answer(operation: str, doing: str) -> dict[str, Any]:
        progress(doing)
        # Each request has the whole time: none may pay for what the one before it compiled.
        timer.waited_s = 0.0
        return _reply(supervisor, timer, operation, plan.timeout_s)

    def ask(operation: str, doing: str, **more: Any) -> dict[str, Any]:
        supervisor.post(timer, {"op": operation, **more})
        return answer(operation, doing)

    try:
        answer("ready", "timing: the problem")
        opened = ask("open", "timing: the baselines", judged=judged)
        ours = tuple(one.pid for one in supervisor.workers if not one.ended)
        with Sampler(lambda: Card(str(opened["uuid"])), ours=ours) as sampler:
            ask("load", "timing: loading the candidate")
            timed = ask("time", "timing")
    finally:
        supervisor.finish(timer)
    made = timing(opened, timed, sampler)
    unmet = "" if plan.require_speedup is None else verdicts.unmet(made.comparisons, plan.require_speedup)
    return replace(made, seconds=time.monotonic() - started, required_speedup=plan.require_speedup, unmet=unmet)


def timing(opened: dict[str, Any], timed: dict[str, Any], sampler: Sampler) -> Timing:
    """The record from what the timing process said and what was seen of the card."""
    wrong = {(str(name), int(number)) for name, number in timed["wrong_rounds"]}
    samples = marked([_with_output(from_json(Sample, item), wrong) for item in timed["samples"]], list(sampler.states))
    wall = tuple(from_json(WallSample, item) for item in timed["wall"])
    facts = Facts(
        wrong_outputs=sum(name == CANDIDATE for name, _ in wrong),
        tampered=tuple(map(str, timed["tampered"])),
        baseline_alone_ms=float(opened["alone_ms"]),
    )
    # The candidate first, then baselines in the order of their table: rounds are in random order.
    names = sorted(dict.fromkeys(sample.contestant for sample in samples), key=[CANDIDATE, *TABLE].index)
    contestants = [_contestant(name, samples, wall, timed) for name in names]
    comparisons = [verdicts.compare(name, samples, wall, facts) for name in names if name != CANDIDATE]
    for name, (eager_then, baseline_then) in timed["carried"].items():
        contestant, comparison = _carried(str(name), eager_then, baseline_then, samples, wall, facts)
        contestants.append(contestant)
        comparisons.append(comparison)
    return Timing(
        contestants=tuple(contestants),
        comparisons=tuple(comparisons),
        limit=_limit(opened, contestants),
        samples=samples,
        wall=wall,
        card=sampler.summary(),
        states=tuple(sampler.states),
        rounds=int(timed["rounds"]),
        stopped=str(timed["stopped"]),
        inputs=str(opened["inputs"]),
        empty_ms=float(opened["empty_ms"]),
        notes=tuple(map(str, timed["notes"])),
        steps={str(name): float(seconds) for name, seconds in timed["steps"].items()},
        versions={str(name): str(version) for name, version in opened["versions"].items()},
    )


def _config(plan: MeasurePlan) -> dict[str, Any]:
    return {
        "problem": str(plan.problem),
        "problem_text": plan.problem_text,
        "sets": plan.sets,
        "seed": plan.seed,
        # Contents of timed runs cannot be worked out beforehand.
        "secret": secrets.randbits(48),
    }


def _judged(plan: MeasurePlan) -> dict[str, Any]:
    """What is known once the candidate was judged."""
    return {
        "candidate": str(plan.candidate),
        "text": plan.text,
        "weights": plan.weights,
        "atol": plan.atol,
        "rtol": plan.rtol,
        "baselines": list(plan.baselines),
        "samples": plan.samples,
        "min_samples": min(plan.min_samples, plan.samples),
        "budget_s": plan.budget_s,
    }


def _reply(supervisor: Supervisor, worker: Worker, operation: str, timeout_s: float) -> dict[str, Any]:
    try:
        reply, _ = supervisor.reply(worker, timeout_s=timeout_s)
    except WorkerEnded as ended:
        exit = ended.exit
        how = "ran out of time" if exit.timed_out else f"ended ({exit.signal or f'exit status {exit.returncode}'})"
        raise NotMeasured(f"the timing process {how} during {exit.during or 'its start'}") from None
    if "machine" in reply:
        raise MachineError(reply["machine"], hint=reply["hint"])
    if "error" in reply:
        fact = from_json(ExceptionFact, reply["error"])
        first = fact.message.strip().splitlines()
        raise NotMeasured(f"{reply['during']} raised {fact.type}: {first[0][:200] if first else ''}")
    if reply.get("reply") != operation:
        raise NotMeasured(f"the timing process answered {reply.get('reply')!r:.40} to {operation!r}")
    return reply


def _with_output(sample: Sample, wrong: set[tuple[str, int]]) -> Sample:
    if (sample.contestant, sample.round) not in wrong:
        return sample
    return replace(sample, marks=(*sample.marks, Mark.OUTPUT_WRONG))


def _contestant(
    name: str, samples: tuple[Sample, ...], wall: tuple[WallSample, ...], timed: dict[str, Any]
) -> Contestant:
    walls = [sample.wall_ms for sample in wall if sample.contestant == name]
    times, note = timed["graphs"].get(name, ([], "only eager's and the candidate's are taken"))
    checked, wrong, worst = timed["checked"].get(name, (0, 0, 0.0))
    return Contestant(
        name=name,
        device=verdicts.figure(samples, name),
        with_launch=statistics.interval(walls) if walls else None,
        graph=statistics.interval([float(t) for t in times]) if times else None,
        graph_note=str(note),
        fp32_accurate=name not in TABLE or not TABLE[name].tf32,
        checked=int(checked),
        wrong=int(wrong),
        worst_error=float(worst),
    )


def _carried(
    name: str,
    eager_then: list[float],
    baseline_then: list[float],
    samples: tuple[Sample, ...],
    wall: tuple[WallSample, ...],
    facts: Facts,
) -> tuple[Contestant, Comparison]:
    over, under = verdicts.pairs(samples, EAGER, CANDIDATE)
    speedup = statistics.carried(over, under, eager_then, baseline_then)
    against_eager = verdicts.compare(EAGER, samples, wall, facts)
    plain = statistics.decide(against_eager.speedup)
    # What overruled the word against eager overrules this one, too.
    objection = (against_eager.reason, against_eager.sentence) if against_eager.reason is not plain.reason else None
    factor = statistics.ratio(baseline_then, eager_then)
    eager = statistics.interval([s.device_ms for s in samples if s.contestant == EAGER and usable(s)])
    device = Interval(
        eager.median * factor.median, eager.low * factor.low, eager.high * factor.high, min(eager.n, factor.n)
    )
    contestant = Contestant(
        name, device, None, None, graph_note="carried over from an earlier run", checked=0, cached=True
    )
    return contestant, verdicts.worded(name, speedup, objection)


def _limit(opened: dict[str, Any], contestants: list[Contestant]) -> Limit | None:
    if opened["work"] is None or opened["ceilings"] is None:
        return None
    # What rounds to TF32 does less than the problem asks for: its fraction would say nothing.
    medians = {one.name: one.device.median for one in contestants if one.fp32_accurate}
    return limits.limit(from_json(Work, opened["work"]), from_json(Ceilings, opened["ceilings"]), medians)
