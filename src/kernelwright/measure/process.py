"""The timing process: the third one of a check, forked fresh, that runs problem and candidate side by side on the GPU.

Why a third: only what shares a context, a clock and a moment can be compared within a per cent, so baseline and
candidate must be in one process; but the process that judged the candidate must not hold the reference, and the oracle
must not run the candidate. So correctness is decided by those two, and this one is believed in times only, and less
than fully in those: a candidate here runs beside the judge's clock. What stands against it:

- everything of the problem is done first, eager is timed *alone*, and what clock and reference rest on is remembered
  (``integrity``) before the candidate's file is run;
- each timed run has contents that no other run had, and the outputs of all timed runs are compared with the reference,
  which is computed afterwards (``outputs``);
- the host's clock must agree with the device's events (``verdicts``), and the card is watched from outside (``nvml``);
- whatever is found makes the word UNSURE, never a win. Hooks below Python that also fake the wall clock are not seen.

The rule: one request, one reply; nothing is decided here, samples and facts go to the supervisor.
"""

from __future__ import annotations

import importlib.metadata
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernelwright.candidate import load as candidates
from kernelwright.device.specs import from_cuda
from kernelwright.errors import KernelwrightError
from kernelwright.measure import baselines, ceilings, graph, integrity, limits, work
from kernelwright.measure.baselines import EAGER, Baseline, Kept, Store
from kernelwright.measure.clock import Clock
from kernelwright.measure.contest import Contest, Entrant
from kernelwright.measure.outputs import Outputs
from kernelwright.measure.pool import Pool
from kernelwright.measure.records import Ceilings, Work
from kernelwright.measure.statistics import StoppingRule
from kernelwright.measure.verdicts import CANDIDATE, pairs
from kernelwright.problem.layout import Problem, load
from kernelwright.records import to_json
from kernelwright.worker.devices import DEVICES, Opening
from kernelwright.worker.frames import exception_fact
from kernelwright.worker.seeds import seed_all
from kernelwright.worker.tree import map_tensors
from kernelwright.worker.wire import Channel

OUTPUT_SHARE = 0.25
"""Of the device's free memory, for kept outputs."""
ALONE_ROUNDS = 12
PLACE = "cuda:0"


def main(channel: Channel, config: dict[str, Any]) -> None:
    """Serve requests until the supervisor closes the channel."""
    session = _Session(channel, config)
    while True:
        request, _ = channel.receive()
        operation: Callable[..., dict[str, Any]] = getattr(session, f"on_{request['op']}")
        try:
            reply = operation(request) if request["op"] == "open" else operation()
        except KernelwrightError as error:
            reply = {"machine": str(error), "hint": error.hint}
        except BaseException as error:
            reply = {"error": to_json(exception_fact(error, session.file)), "during": session.doing}
        sys.stdout.flush()
        sys.stderr.flush()
        channel.send({"reply": request["op"], **reply})


class _Session:
    """What the requests share; each ``on_`` method is one request and returns its reply."""

    def __init__(self, channel: Channel, config: dict[str, Any]) -> None:
        self.channel, self.config = channel, config
        self.file = ""
        self.doing, self._since = "", 0.0
        self.steps: dict[str, float] = {}
        """What each thing took, in seconds."""
        self.notes: list[str] = []
        self.work: Work | None = None
        self.ceilings: Ceilings | None = None
        self.carried: dict[str, Kept] = {}
        self.alone_ms = 0.0
        self.graphs: dict[str, tuple[list[float], str]] = {}
        self.changed: tuple[str, ...] = ()

    def say(self, doing: str) -> None:
        """Tell the supervisor what comes next, and note what the last took."""
        now = time.perf_counter()
        if self.doing:
            self.steps[self.doing] = self.steps.get(self.doing, 0.0) + now - self._since
        self.doing, self._since = doing, now
        self.channel.send({"during": doing})

    # ---- requests --------------------------------------------------------------------------------------------------
    def on_ready(self) -> dict[str, Any]:
        """Open the device and load the problem: what needs neither an idle card nor its memory, which others use."""
        self.say("opening the device")
        self.device = DEVICES["cuda"](Opening("", None, self.channel.send))
        self.say("the problem file")
        self.problem: Problem = load(Path(self.config["problem"]), self.config["sets"])
        seed_all(self.config["seed"])
        self.arguments = list(self.problem.get_init_inputs())
        self.model = self._made(self.problem.model)
        self.flags = integrity.Flags()
        self.say("waiting for the judge")
        return {}

    def on_open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Count the problem's work, make its inputs and baselines; time eager alone."""
        self.config = {**self.config, **request["judged"]}
        self.say("moving the reference to the device")
        self.model = _placed(self.model)
        self.say("the device's ceilings")
        properties = torch.cuda.get_device_properties(0)
        self.ceilings = self._ceilings()
        self.say("the clock")
        self.clock = Clock()
        self.say("get_inputs()")
        self.pool = Pool(self.problem.get_inputs, seed=int(self.config["secret"]))
        self.say("the reference's work")
        self.work = self._work()
        self.outputs = Outputs(
            self.pool.contents,
            self._reference,
            atol=self.config["atol"],
            rtol=self.config["rtol"],
            budget_bytes=int(torch.cuda.mem_get_info(0)[0] * OUTPUT_SHARE),
        )
        self.contest = Contest(
            self.clock, self.pool.take, self._baselines(), keep=self._keep, seed=int(self.config["secret"])
        )
        self.say("the baselines")
        with torch.no_grad():
            for entrant in self.contest.entrants[1:]:
                self.contest.warm_up(entrant)
            self.alone_ms = self.contest.alone(self.contest.entrants[0], ALONE_ROUNDS)
        self.before = integrity.snapshot()
        return {
            "uuid": str(properties.uuid),
            "device": properties.name,
            "versions": _versions(),
            "work": to_json(self.work),
            "ceilings": to_json(self.ceilings),
            "alone_ms": self.alone_ms,
            "inputs": self.pool.how,
            "empty_ms": self.clock.empty(),
        }

    def on_load(self) -> dict[str, Any]:
        """Run the candidate's file and construct ``ModelNew``, with weights as the judge gave them."""
        self.say("loading the candidate")
        self.file = self.config["candidate"]
        self.device.expect(self.file, self.config["text"])
        module = candidates.load(self.file, self.config["text"])
        self.say("ModelNew(...)")
        model = _placed(self._made(module.ModelNew))
        if self.config["weights"] == "state_dict":
            model.load_state_dict(self.model.state_dict())
        set_by_candidate = self.flags.changed()
        if set_by_candidate:
            self.notes.append(f"the candidate sets {', '.join(set_by_candidate)}; baselines run without")
        # It runs under the switches that it was judged with, its own.
        theirs = integrity.Flags()
        self.contest.entrants.append(Entrant(CANDIDATE, lambda inputs: model(*inputs), theirs.restore))
        self.say("the candidate's warm-up")
        with torch.no_grad():
            self.contest.warm_up(self.contest.entrants[-1])
        return {}

    def on_time(self) -> dict[str, Any]:
        """The contest, the wall clock, the check of the outputs, and at last the graphs."""
        least, most = self.config["min_samples"], self.config["samples"]
        rule = StoppingRule(least=least, most=most, budget_s=self.config["budget_s"])
        with torch.no_grad():
            self.say("the timed rounds")
            self.contest.run(rule)
            self.say("the wall clock's rounds")
            self.contest.wall()
            self.changed = integrity.replaced(self.before)
            self.flags.restore()
            self.say("the check of the timed outputs")
            self.outputs.settle()
            self._keep_baselines()
            self.say("graphs")
            self._graphs()
            self.say("the reply")
        return {
            "samples": to_json(self.contest.samples),
            "wall": to_json(self.contest.walls),
            "rounds": self.contest.rounds,
            "stopped": self.contest.stopped,
            "checked": {name: [t.checked, t.wrong, t.worst] for name, t in self.outputs.tallies.items()},
            "wrong_rounds": sorted([name, number] for name, number in self.outputs.wrong_rounds),
            "tampered": list(self.changed),
            "graphs": {name: [times, note] for name, (times, note) in self.graphs.items()},
            "carried": {name: [list(k.eager_ms), list(k.baseline_ms)] for name, k in self.carried.items()},
            "notes": self.notes,
            "steps": self.steps,
        }

    # ---- parts -----------------------------------------------------------------------------------------------------
    def _made(self, kind: Callable[..., Any]) -> Any:
        """An instance under the seed, where it makes itself, as the judge's processes make it."""
        seed_all(self.config["seed"])
        return kind(*map_tensors(self.arguments, lambda t: t.clone().to(PLACE)))

    def _reference(self, inputs: list[Any]) -> Any:
        self.flags.restore()
        with torch.no_grad():
            return self.model(*inputs)

    def _work(self) -> Work | None:
        inputs = self.pool.contents(0)
        named = [*self.model.parameters(), *self.model.buffers()] if isinstance(self.model, torch.nn.Module) else []
        try:
            return work.count(lambda: self.model(*inputs), inputs, named)
        # Dispatch modes do not reach into every kind of module; a missing limit is no reason not to time.
        except Exception as error:
            self.notes.append(f"the limit is not known: counting the reference's work raised {type(error).__name__}")
            return None

    def _ceilings(self) -> Ceilings | None:
        found = ceilings.kept()
        if found is not None:
            return found
        try:
            return ceilings.measure(lambda words: self.channel.send({"during": words}))
        except (KernelwrightError, RuntimeError) as error:
            self.notes.append(f"ceilings are the data sheet's: {str(error).splitlines()[0]}")
        try:
            return limits.from_data_sheet(from_cuda(torch.cuda.get_device_properties(0)))
        except KernelwrightError as error:
            self.notes.append(f"the limit is not known: {error}")
            return None

    def _baselines(self) -> list[Entrant]:
        """The baselines that run in this contest, eager first; kept ones are only carried over."""
        self.store = Store(
            *baselines.key(
                problem_text=self.config["problem_text"],
                sets=self.config["sets"],
                device=torch.cuda.get_device_name(0),
                driver=ceilings.driver(),
                versions=_versions(),
            )
        )
        entrants: list[Entrant] = []
        self.live: list[Baseline] = []
        for baseline in baselines.chosen(self.config["baselines"]):
            kept = self.store.load(baseline) if baseline.keep else None
            if kept is not None:
                self.carried[baseline.name] = kept
                continue
            self.live.append(baseline)
            entrants.append(self._entrant(baseline))
        return entrants

    def _entrant(self, baseline: Baseline) -> Entrant:
        model = baselines.made(baseline, self.model)
        return Entrant(
            baseline.name,
            lambda inputs: model(*inputs),
            lambda tf32=baseline.tf32: self.flags.restore(tf32=tf32),  # type: ignore[misc]
        )

    def _keep(self, contestant: str, round: int, number: int, value: Any) -> None:
        # Eager is the reference itself.
        if contestant != EAGER:
            self.outputs.keep(contestant, round, number, value)

    def _keep_baselines(self) -> None:
        for baseline in self.live:
            over, own = pairs(self.contest.samples, EAGER, baseline.name)
            # A candidate that disturbed anything must not leave a trace in later comparisons.
            if baseline.keep and len(over) >= 10 and not self.changed:
                self.store.save(baseline, Kept(tuple(over), tuple(own)))

    def _graphs(self) -> None:
        for entrant in sorted(self.contest.entrants, key=lambda e: e.name == CANDIDATE):
            if entrant.name not in (EAGER, CANDIDATE):
                continue
            first = self.contest.next_number(step=graph.REPLAYS * self.pool.sets + 1)
            first -= graph.REPLAYS * self.pool.sets
            entrant.prepare()
            try:
                self.graphs[entrant.name] = graph.replays(
                    self.clock, self.pool, entrant.run, lambda n, v: self.outputs.right(n, v)[0], first=first
                )
            # A broken context ends the graphs, not the measurement.
            except Exception as error:
                self.graphs[entrant.name] = ([], f"{type(error).__name__} during the replays")


def _placed(model: Any) -> Any:
    return model.to(PLACE) if isinstance(model, torch.nn.Module) else model


def _versions() -> dict[str, str]:
    # torch.compile's kernels are triton's.
    try:
        triton = {"triton": importlib.metadata.version("triton")}
    except importlib.metadata.PackageNotFoundError:
        triton = {}
    return {
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        **triton,
    }
