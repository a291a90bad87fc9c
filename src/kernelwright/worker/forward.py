"""A program that runs one candidate's forward pass in a process of its own: what ncu and compute-sanitizer start.

Why: such tools must be there from a process's first instruction, so neither a fork of the nursery nor a process that
runs anything else will do. The rule: it judges nothing and times nothing; what it knows goes to the file that its
configuration names, each fact as soon as it is known, since a tool may end the process at any moment. It builds the
extensions as every other process of a check does, so a build that is there is found again.

Ways of ``do``: ``forward`` runs it once (sanitizers); ``profiled`` runs it once unseen and once between
``cudaProfilerStart`` and ``Stop`` (``ncu --profile-from-start off``); any other names a module whose ``main(session)``
runs it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernelwright.candidate import load as candidates
from kernelwright.problem.layout import Problem, load
from kernelwright.records import to_json
from kernelwright.worker.alone import Alone
from kernelwright.worker.devices import DEVICES, Opening, Place
from kernelwright.worker.frames import exception_fact
from kernelwright.worker.recipe import NoRecipe, drawn, replayed
from kernelwright.worker.seeds import seed_all
from kernelwright.worker.tree import leaves, map_tensors

EXIT_RAISED = 1
"""The candidate, or the problem, raised; the file says what."""


def main(file: str) -> None:
    """Run what ``file`` says; leaves the process."""
    config = Alone(**json.loads(Path(file).read_text(encoding="utf-8")))
    session = Session(config)
    try:
        session.open()
        _way(config.do)(session)
    except BaseException as error:
        session.tell(error=to_json(exception_fact(error, config.candidate)), during=session.doing)
        _leave(EXIT_RAISED)
    _leave(0)


class Session:
    """The candidate, constructed, with one set of inputs on the device."""

    def __init__(self, config: Alone) -> None:
        self.config = config
        self.known: dict[str, Any] = {"tensors": []}
        self.doing = ""
        self.place: Place | None = None
        self.arguments: list[Any] = []

    def tell(self, **facts: Any) -> None:
        """Write facts at once; the file is replaced whole, so a reader never sees half of one."""
        self.known.update(facts)
        target = Path(self.config.result)
        partial = target.with_suffix(".partial")
        partial.write_text(json.dumps(self.known), encoding="utf-8")
        partial.replace(target)

    def say(self, doing: str) -> None:
        """What comes next, should it be the last."""
        self.doing = doing
        self.tell(during=doing)

    def open(self) -> None:
        """Everything before the forward pass."""
        config = self.config
        self.say("opening the device")
        self.place = DEVICES[config.device](Opening("", None, lambda event: None))
        self.place.expect(config.candidate, config.text)
        # The problem first: a candidate's file may change what it likes.
        self.say("the problem file")
        self.problem: Problem = load(Path(config.problem), config.sets)
        seed_all(config.seed)
        self.arguments = arguments = list(self.problem.get_init_inputs())
        state = self._reference_state(arguments) if config.weights == "state_dict" else None
        self.say("get_inputs()")
        self.inputs = [self._moved(value, f"input {n}") for n, value in enumerate(self._drawn())]
        self.say("loading the candidate")
        module = candidates.load(config.candidate, config.text)
        self.say("ModelNew(...)")
        seed_all(config.seed)
        place = self.place
        made = module.ModelNew(*map_tensors(arguments, lambda t: place.to_device(t, "constructor argument")))
        self.model = place.module(made)
        if state is not None:
            self.model.load_state_dict(state)
        self._name_parameters()
        place.synchronize()

    def forward(self, doing: str = "forward") -> Any:
        """One forward pass, waited for."""
        assert self.place is not None
        self.say(doing)
        with torch.no_grad():
            value = self.model(*self.inputs)
        for path, leaf in leaves(value, "output"):
            if isinstance(leaf, torch.Tensor):
                self._name(leaf, path)
        self.tell()
        self.place.synchronize()
        self.say(f"after {doing}")
        return value

    # ---- parts -----------------------------------------------------------------------------------------------------
    def _drawn(self) -> list[Any]:
        """The inputs as a check's first trial has them: drawn on a GPU where ``get_inputs()`` allows it."""
        assert self.place is not None
        if self.config.device == "cuda":
            with contextlib.suppress(NoRecipe):
                return replayed(drawn(self.problem.get_inputs, device=self.place.name, seed=self.config.trial_seed))
        seed_all(self.config.trial_seed)
        return list(self.problem.get_inputs())

    def _reference_state(self, arguments: list[Any]) -> dict[str, Any]:
        seed_all(self.config.seed)
        reference = self.problem.model(*arguments)
        return dict(reference.state_dict()) if isinstance(reference, torch.nn.Module) else {}

    def _moved(self, value: Any, name: str) -> Any:
        place = self.place
        assert place is not None

        def move(tensor: torch.Tensor) -> torch.Tensor:
            there = str(tensor.device) == place.name
            made = tensor.detach() if there else place.to_device(tensor.detach(), name)
            self._name(made, name)
            return made

        return map_tensors(value, move)

    def _name_parameters(self) -> None:
        if isinstance(self.model, torch.nn.Module):
            for name, parameter in self.model.named_parameters():
                self._name(parameter, f"parameter {name}")

    def _name(self, tensor: torch.Tensor, name: str) -> None:
        """Note which memory ``tensor`` has, so that a bare address gets a name."""
        storage = tensor.untyped_storage()
        if not storage.nbytes() or any(t["address"] == storage.data_ptr() for t in self.known["tensors"]):
            return
        self.known["tensors"].append(
            {
                "name": name,
                "address": storage.data_ptr(),
                "bytes": storage.nbytes(),
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": list(tensor.shape),
            }
        )


def _way(do: str) -> Callable[[Session], None]:
    if do in _WAYS:
        return _WAYS[do]
    way: Callable[[Session], None] = importlib.import_module(do).main
    return way


def _forward(session: Session) -> None:
    session.tell(maps=host_memory())
    session.forward()
    session.tell(maps=host_memory())


def _profiled(session: Session) -> None:
    session.forward("the warm forward")
    cuda: Any = torch.cuda
    cuda.profiler.start()
    session.forward()
    cuda.profiler.stop()


_WAYS: dict[str, Callable[[Session], None]] = {"forward": _forward, "profiled": _profiled}


def host_memory() -> list[list[Any]]:
    """Readable memory of this process that no device made: start, end, name (``[stack]``, ``[heap]``, a file)."""
    found: list[list[Any]] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        name = fields[5] if len(fields) > 5 else ""
        if not fields[1].startswith("rw") or name.startswith("/dev/"):
            continue
        start, _, end = fields[0].partition("-")
        found.append([int(start, 16), int(end, 16), name])
    return found


def _leave(status: int) -> None:
    """Without destructors: after a fault they raise again, and would hide it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
