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

from kernelwright.errors import MachineError, UsageError
from kernelwright.judge.experiments import Tried
from kernelwright.problem.hosted import Hosted, names_a_gpu
from kernelwright.problem.layout import Problem, load
from kernelwright.records import to_json
from kernelwright.worker import gpu, memory
from kernelwright.worker.frames import exception_fact
from kernelwright.worker.inputs import Drawn, Handed, put_on
from kernelwright.worker.judging import Judging, first_line
from kernelwright.worker.known import Known
from kernelwright.worker.parameters import checksum, parameter_bytes, table
from kernelwright.worker.recipe import Recipe, drawn
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
        except MachineError as error:
            channel.send({"reply": request["op"], "machine": str(error), "hint": error.hint})
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            fact = exception_fact(error, session.file)
            problems_own = session.foreign or bool(fact.frames)
            kind = "error" if problems_own else "fault"
            channel.send({"reply": request["op"], kind: to_json(fact), "during": session.doing})


SUMMED = 1 << 20
"""Elements of an output, evenly spread, that a checksum is taken of."""


def _sampled_sum(tensor: torch.Tensor) -> int:
    reach = memory.extent_bytes(tensor) // tensor.element_size() if tensor.numel() else 0
    step = max(1, reach // SUMMED)
    return checksum(tensor.as_strided((reach // step,), (step,)))


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
        self.judging = Judging(
            config["place"], host_budget_bytes=config["budget_bytes"], problem_code=self._problem_code
        )
        self.no_recipe = ""
        """Why inputs cannot be drawn from a recipe; empty as long as they can."""
        self.known: Known | None = None
        """The trial at hand."""
        self.kept: dict[tuple[int, str, str], Known] = {}
        """Trials of earlier checks, with all that the candidate has no part in: by seed, where inputs are drawn, and
        where the reference ran."""

    @contextlib.contextmanager
    def _problem_code(self, doing: str) -> Any:
        self.doing, self.foreign = doing, True
        self.channel.send({"during": doing})
        yield
        # Not reached by what the code raises: then it is the problem's.
        self.foreign = False

    # ---- requests --------------------------------------------------------------------------------------------------
    def on_open(self, request: dict[str, Any], fds: list[int]) -> None:
        """Open the device, before anything of the problem's."""
        self.judging.open()
        self._reply("open", {}, [])

    def on_load(self, request: dict[str, Any], fds: list[int]) -> None:
        """Run the problem file and construct the reference; reply with constructor arguments and its parameters.

        Asked again, for another candidate, the same is replied, and the reference is as it was constructed.
        """
        if self.loaded is None:
            self.loaded = self._load()
        else:
            self._forget()
            self.judging.as_constructed()
        body, held = self.loaded
        self._reply("load", body, [os.dup(fd) for fd in held])

    def on_weights(self, request: dict[str, Any], fds: list[int]) -> None:
        """Reply with the reference's state by name."""
        packed, fds_out, specs = self._shared(dict(self.judging.model.state_dict()))
        self._reply("weights", {"state": packed, "tensors": specs}, fds_out)

    def on_trial(self, request: dict[str, Any], fds: list[int]) -> None:
        """Make one trial's inputs, as a recipe or in memory files, and drop everything of the trial before."""
        self._forget()
        key = (int(request["seed"]), str(request["draw"]), self.judging.place)
        if key not in self.kept:
            self.known = self._made(key)
        else:
            known, judging = self.kept.pop(key), self.judging
            judging.given, judging.reference, judging.oracle = known.given, known.reference, known.oracle
            self.known = known
        self._reply("trial", self.known.body, [os.dup(fd) for fd in self.known.fds])

    def on_reference(self, request: dict[str, Any], fds: list[int]) -> None:
        """Run the reference; reply with what it changed, and whether it draws random numbers."""
        assert self.known is not None
        if self.judging.reference is None:
            self.known.mutated = self.judging.refer(self.known.key[0])
        assert self.judging.reference is not None
        reference = self.judging.reference
        body = {"mutated": self.known.mutated, "random": reference.random}
        # What operators there are does not depend on the trial.
        if request.get("operators"):
            body |= {"operators": to_json(reference.operators), "reads": reference.reads_input}
        self._reply("reference", body, [])

    def on_oracle(self, request: dict[str, Any], fds: list[int]) -> None:
        """Make the oracle of what the reference computed; reply with how."""
        self.doing = "the oracle"
        if self.judging.oracle is None:
            self.judging.make_oracle()
        assert self.judging.oracle is not None
        self._reply("oracle", {"oracle": self.judging.oracle.how, "notes": self.judging.remarks}, [])

    def on_compare(self, request: dict[str, Any], fds: list[int]) -> None:
        """Judge the candidate's outputs."""
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
        asked = self.config["atol"], self.config["rtol"]
        judgement = self.judging.judged(value, devices, str(request["device"]), asked)
        assert self.judging.oracle is not None
        tried = Tried()
        untried = ""
        if not judgement.passed and request.get("experiment"):
            self.doing = "the experiments"
            try:
                tried = self.judging.experimented(value, asked)
            # The verdict stands without: what is missing is what the outputs are instead.
            except Exception as error:
                untried = f"what the outputs are instead was not tried: {type(error).__name__}: {first_line(error)}"
            if tried.left and not tried.found:
                untried = f"what the outputs are instead: {tried.left} of {tried.of} changes were not tried in time"
        sums = [_sampled_sum(item.tensor) for item in mapped]
        for item in mapped:
            item.close()
        self._reply(
            "compare",
            {
                "outputs": to_json(judgement.outputs),
                "facts": to_json(judgement.facts),
                "notes": [*judgement.notes, *filter(None, [untried])],
                "impostors": None if judgement.impostors is None else list(judgement.impostors),
                "passed": judgement.passed,
                "sums": sums,
                "experiments": to_json(tried.found),
                "oracle": self.judging.oracle.how,
                "atol": self.judging.tolerance(asked[0]),
                "rtol": self.judging.tolerance(asked[1]),
                "seconds": time.perf_counter() - started,
            },
            [],
        )

    def on_rest(self, request: dict[str, Any], fds: list[int]) -> None:
        """Let go of the last trial, and of what else is soon made again."""
        self._forget()
        self.judging.rest()
        self._reply("rest", {}, [])

    # ---- parts -----------------------------------------------------------------------------------------------------
    def _load(self) -> tuple[dict[str, Any], list[int]]:
        if self.judging.place == "cpu" and names_a_gpu(Path(self.file).read_text(encoding="utf-8", errors="replace")):
            # Until the process ends: the reference runs many times, in this dtype and that.
            Hosted().enter()
        with self._problem_code("the problem file"):
            self.problem = load(Path(self.file), self.config["sets"])
        with self._problem_code("get_init_inputs()"):
            seed_all(self.seed)
            arguments = self.problem.get_init_inputs()
            packed, held, specs = self._shared(list(arguments))
        with self._problem_code("Model(...)"):
            seed_all(self.seed)
            model = self.problem.model(*arguments)
            if not callable(model):
                raise TypeError(f"Model is a {type(model).__name__} that cannot be called")
        self.judging.take_model(model)
        model = self.judging.model
        return {"init": packed, "tensors": specs, "parameters": table(model), "bytes": parameter_bytes(model)}, held

    def _made(self, key: tuple[int, str, str]) -> Known:
        """A trial's inputs, as a recipe or in memory files."""
        seed, device, place = key
        recipe = self._recipe(device, seed) if device else None
        if recipe is not None:
            given = Drawn(recipe, None if recipe.device == place else put_on(place))
            self.judging.given = given
            body = {"recipe": asdict(recipe), "sums": given.sums(), "how": given.how, "bytes": given.bytes}
            return Known(key, body, [])
        assert self.problem is not None
        with self._problem_code("get_inputs()"):
            seed_all(seed)
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
        self.judging.here("copying the inputs", lambda: self._take(packed, mapped))
        for item in mapped:
            item.close()
        size = sum(os.fstat(fd).st_size for fd in fds_out)
        return Known(key, {"inputs": packed, "tensors": specs, "how": Handed.how, "bytes": size}, fds_out)

    def _recipe(self, device: str, seed: int) -> Recipe | None:
        """How to draw this trial's inputs on ``device``; None where that is not known, from then on."""
        assert self.problem is not None
        if self.no_recipe:
            return None
        with self._problem_code("get_inputs()"):
            try:
                recipe = drawn(self.problem.get_inputs, device=device, seed=seed)
            # Whatever the problem's code raises where torch's default device is a GPU: it was not written for that.
            except Exception as error:
                self.no_recipe = first_line(error)
                self.judging.remarks.append(f"inputs are made on the CPU: {self.no_recipe}")
                recipe = None
        self.foreign = False
        return recipe

    def _take(self, packed: Any, mapped: list[memory.Mapped]) -> None:
        fresh = [memory.attach(os.dup(item.fd), item.spec) for item in mapped]
        place = self.judging.place
        put = None if place == "cpu" else put_on(place)
        self.judging.given = Handed(packed, fresh, put, copies=put is not None)

    def _forget(self) -> None:
        """Let go of the trial at hand; what the next check will ask again is kept where there is room."""
        known, judging = self.known, self.judging
        self.known = None
        if known is not None:
            known.given, known.reference, known.oracle = judging.given, judging.reference, judging.oracle
            judging.given = judging.reference = judging.oracle = None
            # In chunks it needs its model again, which is the GPU's memory to keep.
            whole = known.oracle is not None and (known.oracle.settle() or judging.place == "cpu")
            if whole and known.key[2] == judging.place and self._room() >= known.bytes:
                self.kept[known.key] = known
            else:
                known.close()
        if judging.place != "cpu":
            gpu.release()

    def _room(self) -> int:
        """Bytes that may still be kept."""
        whole: int = gpu.KEPT_BYTES if self.judging.place != "cpu" else self.config["budget_bytes"] // 2
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
