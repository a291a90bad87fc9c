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
from typing import Any, TypeVar

import torch

from kernelwright.errors import UsageError
from kernelwright.judge.judge import Judgement, Yardsticks, judge, take_yardsticks
from kernelwright.judge.oracle import Oracle, Reference, double_model
from kernelwright.problem.layout import Problem, load
from kernelwright.records import to_json
from kernelwright.worker import gpu, memory
from kernelwright.worker.frames import exception_fact
from kernelwright.worker.inputs import Drawn, Handed, Inputs, copied, put_on
from kernelwright.worker.known import Known
from kernelwright.worker.parameters import table
from kernelwright.worker.recipe import Recipe, drawn
from kernelwright.worker.seeds import seed_all
from kernelwright.worker.tree import CannotCross, map_tensors, pack, unpack
from kernelwright.worker.wire import Channel, close_all

T = TypeVar("T")


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
        self.loaded: tuple[dict[str, Any], list[int]] | None = None
        """The reply to ``load``, with the constructor arguments' memory files."""
        self.buffers: dict[str, torch.Tensor] = {}
        """The reference's buffers as constructed; a forward pass may change them."""
        self.known: Known | None = None
        """The trial at hand."""
        self.kept: dict[tuple[int, str], Known] = {}
        """Trials of earlier checks, with all that the candidate has no part in: by seed and where inputs are drawn."""
        self.model: Any = None
        self.model64: Any = None
        self.no_double = ""
        self.no_recipe = ""
        """Why inputs cannot be drawn from a recipe; empty as long as they can."""
        self.place: str = config["place"]
        """Where the reference runs: a GPU where the candidate runs on one, and all fits there."""
        self.notes: list[str] = []
        self.given: Inputs | None = None
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
    def on_open(self, request: dict[str, Any], fds: list[int]) -> None:
        """Open the device, before anything of the problem's."""
        if self.place != "cpu":
            gpu.open(self.place)
        self._reply("open", {}, [])

    def on_load(self, request: dict[str, Any], fds: list[int]) -> None:
        """Run the problem file and construct the reference; reply with constructor arguments and its parameters.

        Asked again, for another candidate, the same is replied, and the reference is as it was constructed.
        """
        if self.loaded is None:
            self.loaded = self._load()
        else:
            self._forget()
            for name, buffer in self.buffers.items():
                self.model.get_buffer(name).copy_(buffer)
            if self.buffers:
                self.model64 = None
        body, held = self.loaded
        self._reply("load", body, [os.dup(fd) for fd in held])

    def on_weights(self, request: dict[str, Any], fds: list[int]) -> None:
        """Reply with the reference's state by name."""
        packed, fds_out, specs = self._shared(dict(self.model.state_dict()))
        self._reply("weights", {"state": packed, "tensors": specs}, fds_out)

    def on_trial(self, request: dict[str, Any], fds: list[int]) -> None:
        """Make one trial's inputs, as a recipe or in memory files, and drop everything of the trial before."""
        self._forget()
        self.trial_seed = int(request["seed"])
        key = (self.trial_seed, str(request["draw"]))
        if key not in self.kept:
            self.known = self._made(key)
        else:
            known = self.known = self.kept.pop(key)
            self.given, self.reference, self.oracle = known.given, known.reference, known.oracle
        self._reply("trial", self.known.body, [os.dup(fd) for fd in self.known.fds])

    def on_reference(self, request: dict[str, Any], fds: list[int]) -> None:
        """Run the reference; reply with what it changed, and whether it draws random numbers."""
        assert self.known is not None
        if self.reference is None:
            self.known.mutated = self._here(self._refer)
        assert self.reference is not None
        self._reply("reference", {"mutated": self.known.mutated, "random": self.reference.random}, [])

    def on_oracle(self, request: dict[str, Any], fds: list[int]) -> None:
        """Make the oracle of what the reference computed; reply with how."""
        self.doing = "the oracle"
        if self.oracle is None:
            self._here(self._make_oracle)
        assert self.oracle is not None
        self._reply("oracle", {"oracle": self.oracle.how, "notes": self.notes}, [])
        self.notes = []

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
        devices = [str(item["device"]) for item in request["tensors"]]
        judgement = self._here(lambda: self._judged(value, devices, str(request["device"])))
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

    def on_rest(self, request: dict[str, Any], fds: list[int]) -> None:
        """Let go of the last trial."""
        self._forget()
        self._reply("rest", {}, [])

    # ---- parts -----------------------------------------------------------------------------------------------------
    def _load(self) -> tuple[dict[str, Any], list[int]]:
        with self._problem_code("the problem file"):
            self.problem = load(Path(self.file), self.config["sets"])
        with self._problem_code("get_init_inputs()"):
            seed_all(self.seed)
            arguments = self.problem.get_init_inputs()
            packed, held, specs = self._shared(list(arguments))
        with self._problem_code("Model(...)"):
            seed_all(self.seed)
            self.model = self.problem.model(*arguments)
            if not callable(self.model):
                raise TypeError(f"Model is a {type(self.model).__name__} that cannot be called")
        self._here(lambda: self._place_model())
        if isinstance(self.model, torch.nn.Module):
            self.buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        return {"init": packed, "tensors": specs, "parameters": table(self.model)}, held

    def _made(self, key: tuple[int, str]) -> Known:
        """A trial's inputs, as a recipe or in memory files."""
        recipe = self._recipe(key[1]) if key[1] else None
        if recipe is not None:
            self.given = Drawn(recipe, None if recipe.device == self.place else put_on(self.place))
            return Known(key, {"recipe": asdict(recipe), "sums": self.given.sums(), "how": self.given.how}, [])
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
        mapped = [
            memory.attach(os.dup(fd), spec) for fd, spec in zip(fds_out, map(memory.read_spec, specs), strict=True)
        ]
        self._here(lambda: self._take(packed, mapped))
        return Known(key, {"inputs": packed, "tensors": specs, "how": Handed.how}, fds_out)

    def _recipe(self, device: str) -> Recipe | None:
        """How to draw this trial's inputs on ``device``; None where that is not known, from then on."""
        assert self.problem is not None
        if self.no_recipe:
            return None
        with self._problem_code("get_inputs()"):
            try:
                recipe = drawn(self.problem.get_inputs, device=device, seed=self.trial_seed)
            # Whatever the problem's code raises where torch's default device is a GPU: it was not written for that.
            except Exception as error:
                self.no_recipe = _first_line(error)
                self.notes.append(f"inputs are made on the CPU: {self.no_recipe}")
                recipe = None
        self.foreign = False
        return recipe

    def _take(self, packed: Any, mapped: list[memory.Mapped]) -> None:
        on_the_host = self.place == "cpu"
        fresh = [memory.attach(os.dup(item.fd), item.spec) for item in mapped]
        put = None if on_the_host else put_on(self.place)
        self.given = Handed(packed, fresh, put, copies=not on_the_host)
        for item in mapped:
            item.close()

    def _place_model(self) -> None:
        if self.place != "cpu" and isinstance(self.model, torch.nn.Module):
            self.model = self.model.to(self.place)

    def _refer(self) -> list[int]:
        """Run the reference; numbers of the inputs that it changed."""
        given = self.given
        assert given is not None
        with self._problem_code("the reference's forward()"):
            seed_all(self.trial_seed)
            self.reference = Reference(self.model, given.values, seed=self.trial_seed)
        mutated = given.changed()
        if mutated:
            self.reference.inputs = given.renewed()
        return mutated

    def _make_oracle(self) -> None:
        assert self.reference is not None
        if self.model64 is None and not self.no_double:
            self.model64, self.no_double = double_model(self.model)
        budget = self.config["budget_bytes"] if self.place == "cpu" else gpu.budget_bytes(self.place)
        self.oracle = Oracle(self.reference, model64=self.model64, budget_bytes=budget, reason=self.no_double)
        if self.reference.random:
            self.oracle.give_up_chunks("its forward pass draws random numbers")
        if not self.yardsticks_taken:
            # Formats do not depend on the trial: one table serves all.
            self.yardsticks = take_yardsticks(self.oracle, self.reference)
            self.yardsticks_taken = True

    def _judged(self, value: Any, devices: list[str], expected: str) -> Judgement:
        assert self.reference is not None and self.oracle is not None
        if self.place != "cpu":
            value = map_tensors(value, lambda tensor: copied(tensor, self.place))
        return judge(
            value,
            devices=devices,
            expected_device=expected,
            reference=self.reference,
            oracle=self.oracle,
            yardsticks=self.yardsticks,
            atol=_tolerance(self.config["atol"], self.reference),
            rtol=_tolerance(self.config["rtol"], self.reference),
        )

    def _here(self, step: Callable[[], T]) -> T:
        """Do ``step`` where the reference runs; on the CPU, from then on, where the GPU does not do it.

        A reference that runs on the CPU only, or more than the GPU's memory, is no fault of the problem's.
        """
        if self.place == "cpu":
            return step()
        try:
            return step()
        except Exception as error:
            self.notes.append(f"the reference ran on the CPU: on the GPU {self.doing} raised {_first_line(error)}")
            self.foreign = False
            self._leave_gpu()
        return step()

    def _leave_gpu(self) -> None:
        """Take model and inputs back to the CPU, and make reference and oracle of a trial anew there."""
        self.place = "cpu"
        self.model64, self.yardsticks_taken = None, False
        for known in self.kept.values():
            known.close()
        self.kept.clear()
        if isinstance(self.model, torch.nn.Module):
            self.model = self.model.to("cpu")
        referred, judging = self.reference is not None, self.oracle is not None
        self.reference = self.oracle = None
        gpu.release()
        if self.given is not None:
            self.given = self.given.on_host()
            gpu.release()
        if referred:
            self._refer()
        if judging:
            self._make_oracle()

    def _forget(self) -> None:
        """Let go of the trial at hand; what the next check will ask again is kept where there is room."""
        known: Known | None = self.known
        given: Inputs | None = self.given
        if known is not None and self.oracle is not None:
            known.given, known.reference, known.oracle = given, self.reference, self.oracle
        self.known = None
        self.given = None
        self.reference = self.oracle = None
        if known is not None and known.oracle is not None and self._room() >= known.bytes:
            self.kept[known.key] = known
        elif known is not None:
            known.close()
        elif given is not None:
            given.close()
        if self.place != "cpu":
            gpu.release()

    def _room(self) -> int:
        """Bytes that may still be kept."""
        whole: int = gpu.KEPT_BYTES if self.place != "cpu" else self.config["budget_bytes"] // 2
        return whole - sum(known.bytes for known in self.kept.values())

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


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]


def _tolerance(chosen: float | None, reference: Reference) -> float:
    """The tolerance asked for, or KernelBench's for the reference's dtype: 1e-2 for half types, else 1e-4."""
    if chosen is not None:
        return chosen
    half = any(leaf.dtype in (torch.float16, torch.bfloat16) for leaf in reference.leaves)
    return 1e-2 if half else 1e-4
