"""The candidate's process: runs its file, constructs ``ModelNew`` as KernelBench does, and hands its outputs over.

Why: everything foreign happens here, and everything here may be wrong, slow or hostile. The rule: one request, one
reply; before anything foreign runs the supervisor is told what it will be, so that a death has a place; nothing in this
process knows the expected outputs.
"""

from __future__ import annotations

import sys
import time
import traceback
import types
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from kernelwright.candidate import load
from kernelwright.errors import KernelwrightError
from kernelwright.judge.operators import Watch
from kernelwright.records import to_json
from kernelwright.worker import limits, memory
from kernelwright.worker.devices import DEVICES, Opening, Place
from kernelwright.worker.frames import exception_fact
from kernelwright.worker.guarded import Guard
from kernelwright.worker.inputs import Drawn, Handed, Inputs
from kernelwright.worker.lastwords import heed_interrupts, tell_exits
from kernelwright.worker.parameters import checksum, parameter_names, table
from kernelwright.worker.recipe import Recipe
from kernelwright.worker.seeds import seed_all
from kernelwright.worker.tree import CannotCross, map_tensors, pack, unpack
from kernelwright.worker.wire import Channel, close_all

REPEAT_SECONDS = 2.0
"""A first forward pass shorter than this is run again on the same inputs, to see whether it is deterministic."""


REFUSALS = {"RefusedError", "RefusedInstruction", "RefusedCall", "PtxSyntaxError"}
"""What the emulated device raises for what it does not know; anything else is a fault of ours."""


def main(channel: Channel, config: dict[str, Any]) -> None:
    """Serve requests until the supervisor closes the channel."""
    session = _Session(channel, config)
    tell_exits(session.tell_exit)
    heed_interrupts(session.interrupt)
    while True:
        request, fds = channel.receive()
        operation: Callable[[dict[str, Any], list[int]], None] = getattr(session, f"on_{request['op']}")
        try:
            operation(request, fds)
        except KernelwrightError as error:
            # What the device does not know it has noted, and says so.
            if session.tell_fault(request["op"]):
                continue
            channel.send({"reply": request["op"], "machine": str(error), "hint": error.hint})
        except BaseException as error:
            if session.tell_fault(request["op"]):
                continue
            session.flush()
            fact = exception_fact(error, session.file)
            broken = any(kind.__name__ == "BuildFailed" for kind in type(error).__mro__)
            channel.send({"reply": request["op"], "error": to_json(fact), "build": broken, "during": session.doing})


class _Session:
    def __init__(self, channel: Channel, config: dict[str, Any]) -> None:
        self.channel = channel
        self.file, self.text = "", ""
        self.config = config
        self.doing = ""
        self.device: Place | None = None
        self.module: Any = None
        self.model: Any = None
        self.arguments: list[Any] = []
        self.seed = 0
        self.checksums: dict[str, int] = {}
        self.watch: Watch | None = None
        """What the last forward pass ran, where it was watched."""
        self.reads = False
        self.guard: Guard | None = None

    def say(self, doing: str) -> None:
        """Tell the supervisor what comes next."""
        self.doing = doing
        self.channel.send({"during": doing})

    def flush(self) -> None:
        """Send what the device saw, whatever state it is in."""
        if self.device is not None:
            self.device.flush()

    def interrupt(self) -> None:
        """End the running kernel, where one runs on an emulated device."""
        if self.device is not None:
            self.device.interrupt()

    def tell_exit(self, how: str, stack: list[types.FrameType]) -> None:
        """The last words before ``os._exit`` or ``os.abort``."""
        frames = [[frame.f_lineno, frame.f_code.co_name] for frame in stack if frame.f_code.co_filename == self.file]
        self.flush()
        self.channel.send({"leaving": how, "frames": frames})

    def tell_fault(self, operation: str) -> bool:
        """Reply with what the device itself could not do, if anything: it says nothing of the candidate."""
        fault = self.device.fault() if self.device is not None else None
        if fault is None:
            return False
        self.flush()
        text = "".join(traceback.format_exception(fault))
        refused = any(kind.__name__ in REFUSALS for kind in type(fault).__mro__)
        self.channel.send({"reply": operation, "fault": str(fault), "refused": refused, "traceback": text})
        return True

    # ---- requests --------------------------------------------------------------------------------------------------
    def on_ready(self, request: dict[str, Any], fds: list[int]) -> None:
        """Open the device before there is a candidate, so that whoever waits for a verdict does not wait for that."""
        self._open()
        self._reply("ready", {}, [])

    def on_open(self, request: dict[str, Any], fds: list[int]) -> None:
        """Open the device, for this candidate."""
        self.file, self.text = str(request["candidate"]), str(request["text"])
        if self.device is None:
            self._open()
        assert self.device is not None
        self.device.expect(self.file, self.text)
        limit: int | None = self.config["memory_bytes"]
        if limit is not None and self.config["device"] != "cuda":
            # A CUDA context reserves the GPU's whole address range, which this limit would count.
            limits.limit_data(limit)
        self.channel.send({"reply": "open", "device": to_json(self.device.fact())})

    def on_load(self, request: dict[str, Any], fds: list[int]) -> None:
        """Run the candidate's file; extensions are built on the way."""
        self.say("loading the candidate")
        self.guard = Guard()
        started = time.perf_counter()
        self.module = load.load(self.file, self.text)
        self._reply("load", {"seconds": time.perf_counter() - started}, [])

    def on_construct(self, request: dict[str, Any], fds: list[int]) -> None:
        """Construct ``ModelNew(*init)`` under the seed, then move it to the device."""
        assert self.device is not None
        mapped = [memory.attach(fd, memory.read_spec(item)) for fd, item in zip(fds, request["tensors"], strict=True)]
        self.arguments = unpack(request["init"], [item.tensor.clone() for item in mapped])
        for item in mapped:
            item.close()
        self.seed = int(request["seed"])
        self._construct()
        self._reply("construct", {"parameters": table(self.model)}, [])

    def on_state(self, request: dict[str, Any], fds: list[int]) -> None:
        """Construct anew and load the reference's state by name."""
        assert self.device is not None
        mapped = [memory.attach(fd, memory.read_spec(item)) for fd, item in zip(fds, request["tensors"], strict=True)]
        state = unpack(request["state"], [item.tensor for item in mapped])
        self._construct()
        self.say("load_state_dict()")
        self.model.load_state_dict(state)
        for item in mapped:
            item.close()
        self._note_parameters()
        self._reply("state", {}, [])

    def on_forward(self, request: dict[str, Any], fds: list[int]) -> None:
        """One forward pass on fresh inputs; reply with the outputs, and what it changed."""
        assert self.device is not None
        what = f"forward, trial {int(request['trial']) + 1}"
        self.say(f"the inputs of {what}")
        given, own = self._given(request, fds)
        if given.sums() != request.get("sums", []):
            given.close()
            self._reply("forward", {"differs": True}, [])
            return
        seed_all(int(request["seed"]))
        self.say(what)
        # One forward pass is what a reader relates the sums to.
        self.device.count(bool(self.config["counted"]) and request["trial"] == 0)
        value, seconds = self._timed(given.values)
        self.device.count(False)
        _crossing(value)
        self.say(f"after {what}")
        mutated = [f"input {number}" for number in given.changed()] + self._changed_parameters()
        repeat = None
        if request["trial"] == 0 and not mutated and seconds < REPEAT_SECONDS:
            self.say(f"{what}, a second time")
            seed_all(int(request["seed"]))
            kept = map_tensors(value, lambda t: t.detach().clone())
            again = self._watched(given.values)
            repeat = _distance(kept, again)
            value = kept
            self.say(f"after {what}")
        packed, fds_out, described = self._outputs(value)
        given.close()
        del value
        limits.raise_data(-own)
        body: dict[str, Any] = {"outputs": packed, "tensors": described, "seconds": seconds}
        body |= {"mutated": mutated, "repeat": repeat}
        if self.watch is not None:
            body |= {"operators": to_json(self.watch.operators), "reads": self.reads}
            self.watch = None
        if request["trial"] == 0:
            body["counters"] = to_json(self.device.counters())
        self._reply("forward", {**body, "device": self.device.name}, fds_out)

    def on_launches(self, request: dict[str, Any], fds: list[int]) -> None:
        """One more forward pass on a GPU, for what it launches: asked for where the operators call for it."""
        from kernelwright.judge.launched import launched

        assert self.device is not None
        self.say("the inputs of a forward pass whose launches are noted")
        given, own = self._given(request, fds)
        seed_all(int(request["seed"]))
        self.say("a forward pass whose launches are noted")
        names = launched(lambda: self._timed(given.values))
        given.close()
        limits.raise_data(-own)
        self._reply("launches", {"names": names}, [])

    def on_suspicions(self, request: dict[str, Any], fds: list[int]) -> None:
        """Patterns in the code of the kernels that ran: asked for beside a wrong result."""
        assert self.device is not None
        self.doing = "reading the kernels' code"
        self._reply("suspicions", {"suspicions": to_json(self.device.suspicions())}, [])

    # ---- parts -----------------------------------------------------------------------------------------------------
    def _open(self) -> None:
        self.say("opening the device")
        config = self.config
        opening = Opening(config["presents_as"], config["memory_bytes"], self.channel.send, checks=config["checks"])
        self.device = DEVICES[self.config["device"]](opening)

    def _given(self, request: dict[str, Any], fds: list[int]) -> tuple[Inputs, int]:
        """A trial's inputs, and how many bytes of them are mapped and not the candidate's own."""
        device = self.device
        assert device is not None

        def put(tensor: torch.Tensor, number: int) -> torch.Tensor:
            return device.to_device(tensor, f"input {number}")

        if "recipe" in request:
            recipe = Recipe(**request["recipe"])
            return Drawn(recipe, None if recipe.device == device.name else put), 0
        specs = [memory.read_spec(item) for item in request["tensors"]]
        # Mapped inputs count as private writable memory, and are not the candidate's own.
        own = sum(spec.bytes for spec in specs)
        limits.raise_data(own)
        mapped = [memory.attach(fd, spec) for fd, spec in zip(fds, specs, strict=True)]
        return Handed(request["inputs"], mapped, put, copies=device.copies), own

    def _construct(self) -> None:
        assert self.device is not None
        self.say("ModelNew(...)")
        device = self.device
        seed_all(self.seed)
        arguments = map_tensors(self.arguments, lambda t: device.to_device(t, "constructor argument"))
        model = self.module.ModelNew(*arguments)
        if not callable(model):
            raise TypeError(f"ModelNew(...) is a {type(model).__name__} that cannot be called")
        self.say("moving ModelNew to the device")
        self.model = device.module(model)
        device.synchronize()
        self._note_parameters()

    def _note_parameters(self) -> None:
        names = parameter_names(self.model)
        self.checksums = {row[0]: row[3] for row in table(self.model) if row[0] in names}

    def _changed_parameters(self) -> list[str]:
        if not self.checksums:
            return []
        return [
            f"parameter {name}"
            for name, parameter in self.model.named_parameters()
            if name in self.checksums and checksum(parameter) != self.checksums[name]
        ]

    def _timed(self, inputs: list[Any]) -> tuple[Any, float]:
        assert self.device is not None
        started = time.perf_counter()
        with torch.no_grad():
            value = self.model(*inputs)
        self.device.synchronize()
        return value, time.perf_counter() - started

    def _watched(self, inputs: list[Any]) -> Any:
        """A forward pass whose operators are noted."""
        assert self.device is not None
        watch = Watch(inputs, file=self.file)
        try:
            with watch:
                value, _ = self._timed(inputs)
        # Compiled code does not run under a mode; what is the candidate's own fault is raised again below.
        except Exception:
            return self._timed(inputs)[0]
        self.watch, self.reads = watch, watch.reads(value)
        return value

    def _outputs(self, value: Any) -> tuple[Any, list[int], list[dict[str, Any]]]:
        packed, tensors = _crossing(value)
        del value
        fds: list[int] = []
        described: list[dict[str, Any]] = []
        tensors.reverse()
        while tensors:
            tensor = tensors.pop()
            place = str(tensor.device)
            fd, spec = memory.share(torch.Tensor.detach(tensor).resolve_conj().resolve_neg().cpu())
            fds.append(fd)
            described.append({**asdict(spec), "device": place})
        return packed, fds, described

    def _reply(self, operation: str, body: dict[str, Any], fds: list[int]) -> None:
        if self.tell_fault(operation):
            close_all(fds)
            return
        self.flush()
        replaced = self.guard.replaced() if self.guard is not None else []
        if replaced:
            self.channel.send({"replaced": replaced})
        sys.stdout.flush()
        sys.stderr.flush()
        self.channel.send({"reply": operation, **body}, fds)
        close_all(fds)


def _crossing(value: Any) -> tuple[Any, list[torch.Tensor]]:
    """The outputs packed, and their tensors. Raises ``TypeError`` for what no message carries."""
    tensors: list[torch.Tensor] = []
    try:
        return pack(value, tensors), tensors
    except CannotCross as error:
        raise TypeError(f"forward() returned {error}; expected tensors, or lists, tuples and dicts of them") from None


def _distance(one: Any, other: Any) -> float:
    """Largest difference between two runs' outputs; 0.0 where they are equal bit for bit."""
    ours: list[torch.Tensor] = []
    theirs: list[torch.Tensor] = []
    pack(one, ours)
    pack(other, theirs)
    largest = 0.0
    for mine, right in zip(ours, theirs, strict=False):
        if mine.shape != right.shape or mine.numel() == 0:
            continue
        a, b = mine.detach().cpu(), right.detach().cpu()
        same = (a == b) | (a.isnan() & b.isnan()) if a.is_floating_point() else a == b
        if not bool(same.all()):
            difference = (a.double() - b.double()).abs() if not a.is_complex() else (a - b).abs()
            largest = max(largest, float(torch.nan_to_num(difference, float("inf"), float("inf")).max()))
    return largest
