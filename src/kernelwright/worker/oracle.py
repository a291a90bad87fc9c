"""The oracle's process: runs the problem's code, holds inputs and reference, and judges the candidate's outputs.

Why: what is expected must not lie in the candidate's memory. The rule: one request, one reply, in order; what the
problem's own code raises is a fact about the problem (``error``), what the judge raises is ours (``fault``).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kernelwright.errors import UsageError
from kernelwright.judge.judge import Yardsticks, judge, take_yardsticks
from kernelwright.judge.oracle import Oracle, Reference, double_model
from kernelwright.problem.layout import Problem, load
from kernelwright.records import to_json
from kernelwright.worker import memory
from kernelwright.worker.frames import exception_fact
from kernelwright.worker.parameters import table
from kernelwright.worker.seeds import seed_all
from kernelwright.worker.tree import CannotCross, pack, unpack
from kernelwright.worker.wire import Channel, close_all


def main(channel: Channel, config: dict[str, Any]) -> None:
    """Serve requests until the supervisor closes the channel."""
    session = _Session(channel, config)
    while True:
        request, fds = channel.receive()
        operation: Callable[[dict[str, Any], list[int]], None] = getattr(session, f"on_{request['op']}")
        try:
            operation(request, fds)
        except UsageError as error:
            channel.send({"reply": request["op"], "usage": str(error), "hint": error.hint})
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            fact = exception_fact(error, session.file)
            problems_own = session.foreign or bool(fact.frames)
            kind = "error" if problems_own else "fault"
            channel.send({"reply": request["op"], kind: to_json(fact), "during": session.doing})


class _Session:
    def __init__(self, channel: Channel, config: dict[str, Any]) -> None:
        self.channel = channel
        self.config = config
        self.file: str = config["problem"]
        self.seed: int = config["seed"]
        self.doing = ""
        self.foreign = False
        """Whether the problem's code is what runs just now."""
        self.problem: Problem | None = None
        self.model: Any = None
        self.model64: Any = None
        self.no_double = ""
        self.mapped: list[memory.Mapped] = []
        self.inputs: list[Any] = []
        self.trial_seed = 0
        self.reference: Reference | None = None
        self.oracle: Oracle | None = None
        self.yardsticks: Yardsticks | None = None
        self.yardsticks_taken = False

    @contextlib.contextmanager
    def _problem_code(self, doing: str) -> Any:
        self.doing, self.foreign = doing, True
        self.channel.send({"during": doing})
        yield
        self.foreign = False

    # ---- requests --------------------------------------------------------------------------------------------------
    def on_load(self, request: dict[str, Any], fds: list[int]) -> None:
        """Run the problem file and construct the reference; reply with constructor arguments and its parameters."""
        with self._problem_code("the problem file"):
            self.problem = load(Path(self.file), self.config["sets"])
        with self._problem_code("get_init_inputs()"):
            seed_all(self.seed)
            arguments = self.problem.get_init_inputs()
            packed, fds_out, specs = self._shared(list(arguments))
        with self._problem_code("Model(...)"):
            seed_all(self.seed)
            self.model = self.problem.model(*arguments)
            if not callable(self.model):
                raise TypeError(f"Model is a {type(self.model).__name__} that cannot be called")
        self._reply("load", {"init": packed, "tensors": specs, "parameters": table(self.model)}, fds_out)

    def on_weights(self, request: dict[str, Any], fds: list[int]) -> None:
        """Reply with the reference's state by name."""
        packed, fds_out, specs = self._shared(dict(self.model.state_dict()))
        self._reply("weights", {"state": packed, "tensors": specs}, fds_out)

    def on_trial(self, request: dict[str, Any], fds: list[int]) -> None:
        """Make one trial's inputs in memory files, and drop everything of the trial before."""
        self._forget()
        self.trial_seed = int(request["seed"])
        assert self.problem is not None
        with self._problem_code("get_inputs()"):
            seed_all(self.trial_seed)
            values = self.problem.get_inputs()
            if not isinstance(values, (list, tuple)):
                raise TypeError(f"get_inputs() returned a {type(values).__name__}, not a list")
            values = list(values)
        with self._problem_code("the inputs"):
            packed, fds_out, specs = self._shared(values, consume=True)
        del values
        self.mapped = [
            memory.attach(os.dup(fd), spec) for fd, spec in zip(fds_out, map(memory.read_spec, specs), strict=True)
        ]
        self.inputs = unpack(packed, [mapped.tensor for mapped in self.mapped])
        self._reply("trial", {"inputs": packed, "tensors": specs}, fds_out)

    def on_reference(self, request: dict[str, Any], fds: list[int]) -> None:
        """Run the reference; reply with what it changed, and whether it draws random numbers."""
        with self._problem_code("the reference's forward()"):
            seed_all(self.trial_seed)
            self.reference = Reference(self.model, self.inputs, seed=self.trial_seed)
        mutated = [number for number, mapped in enumerate(self.mapped) if mapped.changed()]
        if mutated:
            fresh = [memory.attach(os.dup(mapped.fd), mapped.spec) for mapped in self.mapped]
            self.inputs = unpack(pack(self.inputs, []), [mapped.tensor for mapped in fresh])
            self.reference.inputs = self.inputs
        self._reply("reference", {"mutated": mutated, "random": self.reference.random}, [])

    def on_oracle(self, request: dict[str, Any], fds: list[int]) -> None:
        """Make the oracle of what the reference computed; reply with how."""
        assert self.reference is not None
        self.doing = "the oracle"
        if self.model64 is None and not self.no_double:
            self.model64, self.no_double = double_model(self.model)
        self.oracle = Oracle(
            self.reference, model64=self.model64, budget_bytes=self.config["budget_bytes"], reason=self.no_double
        )
        if self.reference.random:
            self.oracle.give_up_chunks("its forward pass draws random numbers")
        if not self.yardsticks_taken:
            # Formats do not depend on the trial: one table serves all.
            self.yardsticks = take_yardsticks(self.oracle, self.reference)
            self.yardsticks_taken = True
        self._reply("oracle", {"oracle": self.oracle.how}, [])

    def on_compare(self, request: dict[str, Any], fds: list[int]) -> None:
        """Judge the candidate's outputs."""
        assert self.reference is not None and self.oracle is not None
        self.doing = "the comparison"
        started = time.perf_counter()
        outputs: list[torch.Tensor] = []
        mapped: list[memory.Mapped] = []
        try:
            for fd, spec in zip(fds, map(memory.read_spec, request["tensors"]), strict=True):
                memory.seal(fd)
                mapped.append(memory.attach(fd, spec, writable=True))
            outputs = [item.tensor for item in mapped]
            value = unpack(request["outputs"], outputs)
        except (memory.TensorError, CannotCross, ValueError) as error:
            close_all(fds[len(mapped) :])
            self.channel.send({"reply": "compare", "garbage": str(error)})
            return
        judgement = judge(
            value,
            devices=[str(item["device"]) for item in request["tensors"]],
            expected_device=str(request["device"]),
            reference=self.reference,
            oracle=self.oracle,
            yardsticks=self.yardsticks,
            atol=_tolerance(self.config["atol"], self.reference),
            rtol=_tolerance(self.config["rtol"], self.reference),
        )
        for item in mapped:
            item.close()
        self._reply(
            "compare",
            {
                "outputs": to_json(judgement.outputs),
                "facts": to_json(judgement.facts),
                "notes": list(judgement.notes),
                "impostors": None if judgement.impostors is None else list(judgement.impostors),
                "passed": judgement.passed,
                "oracle": self.oracle.how,
                "atol": _tolerance(self.config["atol"], self.reference),
                "rtol": _tolerance(self.config["rtol"], self.reference),
                "seconds": time.perf_counter() - started,
            },
            [],
        )

    # ---- parts -----------------------------------------------------------------------------------------------------
    def _forget(self) -> None:
        self.inputs = []
        self.reference = None
        self.oracle = None
        for mapped in self.mapped:
            mapped.close()
        self.mapped = []

    def _shared(self, value: Any, *, consume: bool = False) -> tuple[Any, list[int], list[dict[str, Any]]]:
        """``value`` packed, its tensors in memory files; with ``consume`` large ones nobody else has are moved."""
        tensors: list[torch.Tensor] = []
        try:
            packed = pack(value, tensors)
        except CannotCross as error:
            raise TypeError(f"{self.doing} gives {error}, which cannot be handed to a candidate") from None
        if isinstance(value, list):
            value.clear()
        fds: list[int] = []
        specs: list[dict[str, Any]] = []
        tensors.reverse()
        while tensors:
            tensor = tensors.pop()
            # Two: this name, and the call's argument.
            alone = consume and sys.getrefcount(tensor) <= 2 and memory.sole_owner(tensor)
            fd, spec = memory.share(tensor.detach().cpu(), consume=alone)
            fds.append(fd)
            specs.append(asdict(spec))
        return packed, fds, specs

    def _reply(self, operation: str, body: dict[str, Any], fds: list[int]) -> None:
        self.channel.send({"reply": operation, **body}, fds)
        close_all(fds)


def _tolerance(chosen: float | None, reference: Reference) -> float:
    """The tolerance asked for, or KernelBench's for the reference's dtype: 1e-2 for half types, else 1e-4."""
    if chosen is not None:
        return chosen
    half = any(leaf.dtype in (torch.float16, torch.bfloat16) for leaf in reference.leaves)
    return 1e-2 if half else 1e-4
