"""The reference and its oracle on one trial's inputs, where they run: on the candidate's GPU, or on the CPU.

Why: a reference on the GPU answers in milliseconds what the CPU needs seconds for, but it may not fit there or not run
there. The rule: whatever a GPU does not do is done on the CPU, from then on, and remarked; the problem is blamed only
for what it does not do on the CPU either.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch

from kernelwright.judge.experiments import RUN_SECONDS, Tried, experiments, on_other_inputs, reinterpreted
from kernelwright.judge.judge import Judgement, Yardsticks, judge, take_yardsticks
from kernelwright.judge.oracle import Oracle, Reference, double_model
from kernelwright.worker import gpu
from kernelwright.worker.inputs import Inputs, copied
from kernelwright.worker.seeds import seed_all
from kernelwright.worker.tree import leaves, map_tensors

T = TypeVar("T")
ProblemCode = Callable[[str], AbstractContextManager[Any]]
"""Says that the problem's code runs from entry to exit, and what of it."""


class Judging:
    """One problem's reference, and the trial at hand: ``given``, ``reference`` and ``oracle``."""

    def __init__(self, place: str, *, host_budget_bytes: int, problem_code: ProblemCode) -> None:
        self.place = place
        """``cpu``, or the GPU that the candidate runs on."""
        self.remarks: list[str] = []
        """What the verdict should say of where things ran."""
        self.model: Any = None
        self.given: Inputs | None = None
        self.reference: Reference | None = None
        self.oracle: Oracle | None = None
        self._host_budget, self._problem_code = host_budget_bytes, problem_code
        self._model64: Any = None
        self._no_double = ""
        self._yardsticks: Yardsticks | None = None
        self._yardsticks_taken = False
        self._buffers: dict[str, torch.Tensor] = {}
        """The reference's buffers as constructed; a forward pass may change them."""
        self._seed = 0

    def open(self) -> None:
        """Open the device, before anything of the problem's."""
        if self.place != "cpu":
            gpu.open(self.place)

    def take_model(self, model: Any) -> None:
        """Put the reference where it runs."""
        self.model = model
        if isinstance(model, torch.nn.Module):
            self.here("moving Model to the device", lambda: setattr(self, "model", self.model.to(self.place)))
            self._buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}

    def as_constructed(self) -> None:
        """Give the reference back the buffers that it was constructed with."""
        for name, buffer in self._buffers.items():
            self.model.get_buffer(name).copy_(buffer)
        if self._buffers:
            self._model64 = None

    def rest(self) -> None:
        """Give back what of the GPU is soon made again."""
        if self.place != "cpu":
            self._model64 = None
            gpu.release()

    # ---- one trial -------------------------------------------------------------------------------------------------
    def refer(self, seed: int) -> list[int]:
        """Run the reference; numbers of the inputs that it changed."""
        self._seed = seed
        return self.here("the reference's forward()", self._refer)

    def make_oracle(self) -> None:
        """Make the oracle of what the reference computed."""
        self.here("the oracle", self._make_oracle)

    def judged(self, value: Any, devices: list[str], expected_device: str, tolerances: tuple[Any, Any]) -> Judgement:
        """Compare outputs (on the CPU) with the oracle; ``tolerances`` as :meth:`tolerance` takes them."""

        def step() -> Judgement:
            assert self.reference is not None and self.oracle is not None
            mine = value if self.place == "cpu" else map_tensors(value, lambda t: copied(t, self.place))
            atol, rtol = (self.tolerance(chosen) for chosen in tolerances)
            return judge(
                mine,
                devices=devices,
                expected_device=expected_device,
                reference=self.reference,
                oracle=self.oracle,
                yardsticks=self._yardsticks,
                atol=atol,
                rtol=rtol,
            )

        return self.here("the comparison", step)

    def experimented(self, value: Any, tolerances: tuple[Any, Any]) -> Tried:
        """What wrong outputs (on the CPU) are instead; nothing where that is not known."""
        reference, oracle = self.reference, self.oracle
        assert reference is not None and oracle is not None
        atol, rtol = (self.tolerance(chosen) for chosen in tolerances)
        if self._model64 is None:
            self._model64, self._no_double = double_model(self.model)
        if self._model64 is None or not oracle.exact:
            return Tried()
        oracle.resume(self._model64)
        mine = [tensor.to(self.place) for _, tensor in leaves(value, "") if isinstance(tensor, torch.Tensor)]
        if len(mine) != len(reference.leaves):
            return Tried()
        strided = reinterpreted(mine, reference.leaves, atol=atol, rtol=rtol)
        if strided is not None:
            return Tried((strided,))
        sample = oracle.sample(seconds=RUN_SECONDS)
        if sample is None:
            return Tried()
        inputs, rows = sample
        exact = oracle.run_sample(inputs)
        own = [leaf[rows] if leaf.dim() else leaf for leaf in reference.leaves]
        slack = [4 * float((a.double() - b).abs().nan_to_num(0.0, 0.0, 0.0).max()) if a.numel() else 0.0
                 for a, b in zip(own, exact, strict=True)]  # fmt: skip
        mine = [leaf[rows] if leaf.dim() and leaf.shape == whole.shape else leaf
                for leaf, whole in zip(mine, reference.leaves, strict=True)]  # fmt: skip
        return experiments(
            mine,
            lambda: oracle.run_sample(inputs),
            exact,
            slack,
            atol=atol,
            rtol=rtol,
            # Rows that were cut out lie in memory of their own.
            unchanged=on_other_inputs(inputs, oracle.run_sample) if rows == slice(None) else (),
        )

    def tolerance(self, chosen: float | None) -> float:
        """The tolerance asked for, or KernelBench's for the reference's dtype: 1e-2 for half types, else 1e-4."""
        if chosen is not None:
            return chosen
        assert self.reference is not None
        half = any(leaf.dtype in (torch.float16, torch.bfloat16) for leaf in self.reference.leaves)
        return 1e-2 if half else 1e-4

    # ---- where -----------------------------------------------------------------------------------------------------
    def here(self, doing: str, step: Callable[[], T]) -> T:
        """Do ``step`` where the reference runs; on the CPU, from then on, where the GPU does not do it."""
        if self.place == "cpu":
            return step()
        try:
            return step()
        except Exception as error:
            self.remarks.append(f"the reference ran on the CPU: on the GPU {doing} raised {first_line(error)}")
        self._leave_gpu()
        return step()

    def _leave_gpu(self) -> None:
        """Take model and inputs back to the CPU, and make reference and oracle of a trial anew there."""
        self.place = "cpu"
        self._model64, self._yardsticks_taken = None, False
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

    def _refer(self) -> list[int]:
        given = self.given
        assert given is not None
        with self._problem_code("the reference's forward()"):
            seed_all(self._seed)
            self.reference = Reference(self.model, given.values, seed=self._seed)
        mutated = given.changed()
        if mutated:
            self.reference.inputs = given.renewed()
        return mutated

    def _make_oracle(self) -> None:
        assert self.reference is not None
        if self._model64 is None and not self._no_double:
            self._model64, self._no_double = double_model(self.model)
        budget = self._host_budget if self.place == "cpu" else gpu.budget_bytes(self.place)
        self.oracle = Oracle(self.reference, model64=self._model64, budget_bytes=budget, reason=self._no_double)
        if self.reference.random:
            self.oracle.give_up_chunks("its forward pass draws random numbers")
        if not self._yardsticks_taken:
            # Formats do not depend on the trial: one table serves all.
            self._yardsticks = take_yardsticks(self.oracle, self.reference)
            self._yardsticks_taken = True


MOST_COLUMNS = 160


def first_line(error: Exception) -> str:
    """The first line of an exception's message, or its type where it has none; a long one by its whole sentences."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    if len(line) <= MOST_COLUMNS:
        return line
    whole, stop, _ = line[:MOST_COLUMNS].rpartition(". ")
    return f"{whole}." if stop else f"{line[: MOST_COLUMNS - 1]}…"
