"""The oracle: the reference's outputs in float64, whole or in chunks along the leading axis.

Why: a float32 reference has errors of its own, which may exceed the candidate's; and an input of 8.6 GB has no float64
copy on a 24 GB machine. The rule: chunks are used only where every chunk agrees with the rows of the unchunked float32
reference to float32's accuracy, so a batch-wide normalisation or a transposed product is never cut; where float64 is
not to be had, the float32 reference stands in and the record says why.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.judge.eager import EagerMode
from kernelwright.judge.operators import Watch
from kernelwright.worker.tree import leaves, map_tensors

CHUNK_BYTES = 512 << 20
"""Float64 memory of one chunk: large enough to keep the cores busy, small beside the inputs that force chunking."""
LEGITIMATE = 2.0**-24 * 2000
"""Largest relative rms distance between a float64 chunk and the float32 reference's rows, 1.2e-4: float32 sums of a
million terms stay below it, statistics over a part of a batch do not."""
HALF_LEGITIMATE = 16
"""The same for reference outputs of half types, in units of their roundoff."""
SAMPLE_SECONDS = 0.3
"""About how long the reference may run on the rows that yardsticks are taken on."""
SAMPLE_ELEMENTS = 1 << 24
"""Most input elements among those rows: each is rounded once for each format."""


@dataclass(frozen=True)
class Piece:
    """Rows ``start`` to ``stop`` of all outputs (all of them where ``stop`` is None), float64, one tensor a leaf."""

    start: int
    stop: int | None
    outputs: list[torch.Tensor]


class NotRows(Exception):
    """The outputs' rows do not depend on the inputs' rows alone."""


class _Largest(EagerMode):
    """Notes the largest tensor that an operator makes: what intermediates need cannot be told from inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        # Views are no new memory.
        given = {item.untyped_storage().data_ptr() for item in args if isinstance(item, torch.Tensor)}
        for item in out if isinstance(out, (list, tuple)) else (out,):
            if isinstance(item, torch.Tensor) and item.untyped_storage().data_ptr() not in given:
                self.bytes = max(self.bytes, item.untyped_storage().nbytes())
        return out


class Reference:
    """The problem's model on one trial's inputs."""

    def __init__(self, model: Any, inputs: list[Any], *, seed: int) -> None:
        self.model, self.inputs, self.seed = model, inputs, seed
        torch.manual_seed(seed)
        states = _generators()
        started = time.perf_counter()
        with torch.no_grad(), _Largest() as largest, Watch(inputs) as watch:
            self.outputs = model(*inputs)
        _wait()
        self.seconds = time.perf_counter() - started
        self.largest_bytes = largest.bytes
        self.operators = watch.operators
        self.reads_input = watch.reads(self.outputs)
        self.random = not all(torch.equal(a, b) for a, b in zip(states, _generators(), strict=True))
        """Whether the forward pass draws random numbers (dropout): no second implementation can draw the same."""
        self.leaves = [_as_tensor(value) for _, value in leaves(self.outputs, "output")]


def _wait() -> None:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def _generators() -> list[torch.Tensor]:
    """The states of the generators that a forward pass may draw from."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states.append(torch.cuda.get_rng_state())
    return states


class Oracle:
    """Outputs in float64. Iterate over :meth:`pieces` once or more; ``how`` is for the record."""

    def __init__(self, reference: Reference, *, model64: Any, budget_bytes: int, reason: str = "") -> None:
        self._reference = reference
        self._model = model64
        self._axes: tuple[int, ...] | None = None
        self._rows = 0
        self._wide: dict[int, Any] = {}
        self._scratch_of: dict[int, torch.Tensor] = {}
        self.how = "float64"
        self.exact = True
        """False where the float32 reference stands in."""
        if model64 is None:
            self._fall_back(reason)
            return
        if self._need() <= budget_bytes:
            try:
                self._whole: list[torch.Tensor] | None = self._run(reference.inputs)
            except torch.OutOfMemoryError:
                # A GPU's memory; the CPU's may do.
                raise
            except Exception as error:
                first = next(iter(str(error).splitlines()), "")[:120]
                self._fall_back(f"in float64 it raises {type(error).__name__}: {first}")
                return
            if not _same_shapes(self._whole, reference.leaves):
                self._fall_back("in float64 it returns other shapes")
            return
        self._whole = None
        if not self._find_rows():
            self._fall_back(f"float64 needs {self._need() / 2**30:.0f} GiB at once, and it cannot be cut along axis 0")
            return
        number = -(-self._length // self._rows)
        self.how = f"float64 in {number} chunks along axis 0"

    def _fall_back(self, reason: str) -> None:
        own = {str(leaf.dtype).removeprefix("torch.") for leaf in self._reference.leaves if leaf.is_floating_point()}
        self.how = f"{'/'.join(sorted(own)) or 'integer'} reference ({reason})"
        self.exact = False
        self._whole = self._reference.leaves

    # ---- pieces ----------------------------------------------------------------------------------------------------
    def pieces(self) -> Iterator[Piece]:
        """All outputs, whole or in chunks of rows. Raises ``NotRows`` where a later chunk shows cutting to be wrong."""
        if self._whole is not None:
            yield Piece(0, None, self._whole)
            return
        assert self._axes is not None
        for start in range(0, self._length, self._rows):
            stop = min(start + self._rows, self._length)
            outputs = self._run(self._cut(self._axes, start, stop))
            if not self._agrees(outputs, start, stop):
                raise NotRows(f"rows {start}-{stop - 1} of the cut reference differ from those of the whole one")
            yield Piece(start, stop, outputs)

    @property
    def held(self) -> list[torch.Tensor]:
        """The tensors that it keeps."""
        kept = [*(self._whole or []), *self._scratch_of.values()]
        map_tensors(list(self._wide.values()), kept.append)
        return kept

    def settle(self) -> bool:
        """Keep the outputs only, where all of them are there: what they were made with is let go of."""
        if self._whole is None:
            return False
        self._model = None
        self._wide.clear()
        self._scratch_of.clear()
        return True

    def resume(self, model64: Any) -> None:
        """Take back the float64 model that :meth:`settle` let go of: more is to be computed."""
        self._model = model64

    def give_up_chunks(self, why: str) -> None:
        """Let the reference stand in after ``NotRows``."""
        self._fall_back(why)

    def sample(self, *, seconds: float = SAMPLE_SECONDS) -> tuple[list[Any], slice] | None:
        """Float64 inputs of some rows, and the rows; None where nothing is exact.

        ``seconds`` is about how long the reference may run on them in its own dtype.
        """
        if not self.exact:
            return None
        share = seconds / max(self._reference.seconds, 1e-9)
        elements = sum(x.numel() for _, x in leaves(self._reference.inputs, "") if isinstance(x, torch.Tensor))
        if self._whole is not None and share >= 1 and elements <= SAMPLE_ELEMENTS:
            return self._converted(self._reference.inputs), slice(None)
        if self._axes is None and not self._find_rows():
            return self._converted(self._reference.inputs), slice(None)
        assert self._axes is not None
        each = max(1, sum(self._reference.inputs[n][:1].numel() for n in self._axes))
        rows = max(1, min(self._rows, int(self._length * min(1.0, share)), SAMPLE_ELEMENTS // each))
        return self._cut(self._axes, 0, rows), slice(0, rows)

    def run_sample(self, inputs: list[Any]) -> list[torch.Tensor]:
        """The reference in float64 on ``inputs`` that are float64 already."""
        torch.manual_seed(self._reference.seed)
        with torch.no_grad(), _default_double():
            return [_as_tensor(value) for _, value in leaves(self._model(*inputs), "output")]

    # ---- float64 ---------------------------------------------------------------------------------------------------
    def _need(self) -> int:
        """Float64 bytes of inputs, parameters and a few intermediates."""
        inputs = sum(_double_bytes(value) for _, value in leaves(self._reference.inputs, ""))
        return inputs + 3 * 2 * int(self._reference.largest_bytes)

    def _converted(self, inputs: list[Any]) -> list[Any]:
        return [map_tensors(item, to_double) for item in inputs]

    def _run(self, inputs: list[Any]) -> list[torch.Tensor]:
        return self.run_sample(self._converted(inputs))

    # ---- rows ------------------------------------------------------------------------------------------------------
    @property
    def _length(self) -> int:
        return int(self._reference.leaves[0].shape[0])

    def _find_rows(self) -> bool:
        """Find which inputs share the outputs' leading axis, such that cutting them cuts the outputs."""
        outputs = self._reference.leaves
        if not outputs or any(leaf.dim() == 0 or leaf.size(0) != self._length for leaf in outputs) or self._length < 2:
            return False
        inputs = self._reference.inputs
        sharing = [
            n for n, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.dim() and x.size(0) == self._length
        ]
        for count in range(len(sharing), 0, -1):
            for axes in itertools.combinations(sharing, count):
                self._axes, self._rows = axes, self._rows_a_chunk(axes)
                if self._try(axes):
                    return True
        self._axes, self._rows = None, 0
        return False

    def _rows_a_chunk(self, axes: tuple[int, ...]) -> int:
        inputs = sum(_double_bytes(self._reference.inputs[n]) for n in axes)
        each = (inputs + 6 * self._reference.largest_bytes) / self._length
        rows = max(1, min(self._length, int(CHUNK_BYTES / max(each, 1))))
        # A power of two keeps chunks, and the blocks of matrix products, aligned.
        return 1 << (rows.bit_length() - 1)

    def _try(self, axes: tuple[int, ...]) -> bool:
        """Whether a first and a last chunk come out as the whole reference's rows."""
        rows = min(self._rows, self._length // 2)
        for start in (0, self._length - rows):
            try:
                outputs = self._run(self._cut(axes, start, start + rows))
            except torch.OutOfMemoryError:
                raise
            except Exception:
                return False
            if not self._agrees(outputs, start, start + rows):
                return False
        return True

    def _cut(self, axes: tuple[int, ...], start: int, stop: int) -> list[Any]:
        """Inputs in float64, those of ``axes`` cut to rows; memory for the conversion is kept between chunks."""
        cut: list[Any] = []
        for number, item in enumerate(self._reference.inputs):
            if number in axes:
                cut.append(self._scratch(number, item[start:stop]))
            else:
                if number not in self._wide:
                    self._wide[number] = map_tensors(item, to_double)
                cut.append(self._wide[number])
        return cut

    def _scratch(self, number: int, rows: torch.Tensor) -> torch.Tensor:
        # Fresh memory costs five times the conversion itself: 0.7 s of page faults for 0.5 GB (2 cores).
        if not rows.is_floating_point():
            return to_double(rows)
        kept = self._scratch_of.get(number)
        if kept is None or kept.size(0) < rows.size(0):
            kept = self._scratch_of[number] = torch.empty(rows.shape, dtype=torch.float64, device=rows.device)
        target: torch.Tensor = kept[: rows.size(0)]
        return target.copy_(rows)

    def _agrees(self, outputs: list[torch.Tensor], start: int, stop: int) -> bool:
        own = [leaf[start:stop] for leaf in self._reference.leaves]
        return _same_shapes(outputs, own) and all(_close(o, r) for o, r in zip(outputs, own, strict=True))


def double_model(model: Any) -> tuple[Any, str]:
    """A float64 copy of ``model``, or None and why there is none."""
    try:
        return copy.deepcopy(model).double(), ""
    except Exception as error:
        return None, f"the model has no float64 copy: {type(error).__name__}"


def to_double(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` in float64, a complex one in complex128; as it is where it holds integers or booleans."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _double_bytes(value: Any) -> int:
    if not isinstance(value, torch.Tensor):
        return 0
    return value.numel() * (16 if value.is_complex() else 8 if value.is_floating_point() else value.element_size())


def _as_tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, (bool, int, float, complex)):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    return torch.zeros(0)


def _same_shapes(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return [leaf.shape for leaf in one] == [leaf.shape for leaf in other]


def _close(exact: torch.Tensor, own: torch.Tensor) -> bool:
    """Whether the reference's rows are the chunk's, up to the reference's own rounding."""
    if not own.is_floating_point():
        return bool((exact == own).double().mean() >= 0.999) if own.numel() else True
    limit = LEGITIMATE
    if own.element_size() == 2:
        limit = HALF_LEGITIMATE * torch.finfo(own.dtype).eps
    both = exact.isfinite() & own.isfinite()
    if not torch.equal(exact.isfinite(), own.isfinite()):
        return False
    right, mine = exact[both].double(), own[both].double()
    if not right.numel():
        return True
    distance = math.sqrt(float((right - mine).square().mean()))
    size = math.sqrt(float(right.square().mean()))
    return distance <= limit * size or distance == 0


@contextlib.contextmanager
def _default_double() -> Iterator[None]:
    """Tensors that the forward pass makes itself are float64, too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
