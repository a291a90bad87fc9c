"""Experiments after a wrong result: of which changed reference are the candidate's outputs the right ones?

Why: "every element differs" helps nobody; that the outputs are those of the same model with the tanh GELU, or with the
bias along another axis, says what the kernel computes. The rule: the reference runs in float64, on rows few enough to
be run many times, with one operator replaced as :mod:`kernelwright.judge.variants` offers; what is told agrees at every
element of them, to the tolerance and at least ten times better than with the unchanged reference. Run only beside a
wrong result, and for ``SECONDS`` at most.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.judge.eager import EagerMode
from kernelwright.judge.variants import STATISTICAL, VARIANTS, Call, Change, changes
from kernelwright.records import Experiment

SECONDS = 8.0
"""How long all experiments may take: one that the unchanged reference's time would carry beyond that is not begun. What
an operator takes when it is first used, as its kernels are read from disk, says nothing of the next one."""
RUN_SECONDS = 0.05
"""About how long the reference may run on the rows that are tried."""
BETTER = 0.1
"""Share of the error that may be left."""
LIKE = 4.0
"""Factor by which sizes and shares of two patterns of rounding errors may differ."""

Run = Callable[[], list[torch.Tensor]]


@dataclass(frozen=True)
class Tried:
    """What came of all experiments."""

    found: tuple[Experiment, ...] = ()
    """What the outputs are, the likeliest first."""
    left: int = 0
    """Experiments that were not made, because the time was up."""
    of: int = 0


@dataclass(frozen=True)
class Choice:
    """A change of the call at ``position``, of every call that has it where that is None."""

    position: int | None
    variant: str
    said: str


def call_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Call:
    """An ATen call by the name that variants know."""
    name = func.overloadpacket.__name__
    return Call(name if name.startswith("_") else name.rstrip("_"), func, args, kwargs or {})


class _Listing(EagerMode):
    """Notes what could be changed."""

    def __init__(self) -> None:
        super().__init__()
        self.choices: list[Choice] = []
        self._position = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        call = call_of(func, args, kwargs)
        self.choices += [Choice(self._position, change.variant, change.said) for change in changes(call)]
        self._position += 1
        return func(*args, **(kwargs or {}))


class _Changed(EagerMode):
    """Makes one choice."""

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        self.choice = choice
        self._position = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        here, self._position = self._position, self._position + 1
        if self.choice.position in (None, here):
            call = call_of(func, args, kwargs)
            for change in VARIANTS[self.choice.variant](call):
                if change.said == self.choice.said:
                    return _put(call, change)
        return func(*args, **(kwargs or {}))


def _put(call: Call, change: Change) -> Any:
    out = change.run()
    if call.func._schema.is_mutable and isinstance(out, torch.Tensor) and call.name != "native_batch_norm":
        return call.args[0].copy_(out)
    return out


def experiments(
    mine: list[torch.Tensor],
    run: Run,
    exact: list[torch.Tensor],
    slack: list[float],
    *,
    atol: float,
    rtol: float,
    unchanged: Iterable[tuple[Choice, Run]] = (),
) -> Tried:
    """What the candidate's outputs ``mine`` are; nothing is found where no variant gives them.

    ``run`` gives the reference's outputs in float64 and is run once for each variant; ``exact`` are those unchanged;
    ``slack`` is what an output may miss the tolerance by, because the reference does, too. ``unchanged`` are runs of
    the reference as it is, on other inputs, which come first.
    """
    if any(one.shape != other.shape for one, other in zip(mine, exact, strict=True)):
        return Tried()
    with _Listing() as listing:
        run()
    # The run before this one loaded what the reference needs.
    began = time.monotonic()
    run()
    once = time.monotonic() - began
    tried: dict[Choice, Experiment] = {}
    for choice, on_others in unchanged:
        found = _compared(choice, mine, on_others(), exact, slack, atol, rtol)
        if found is not None:
            return Tried((found,))
    order = list(VARIANTS)
    choices = sorted(_worth(listing.choices), key=lambda choice: order.index(choice.variant))
    left = 0
    for number, choice in enumerate(choices):
        if time.monotonic() + once > began + SECONDS:
            left = len(choices) - number
            break
        try:
            with _Changed(choice):
                outputs = run()
        # A change may not fit what follows it (another dtype or size); then it is none of the candidate's.
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue
        found = _compared(choice, mine, outputs, exact, slack, atol, rtol)
        if found is not None:
            tried[choice] = found
    least = min((found.rms_error for found in tried.values()), default=0.0)
    # Roundings of neighbouring formats differ little, and some variants not at all: of what is as near as the nearest,
    # the variant that stands first in the table is meant, and of that the nearest.
    near = [found for found in tried.values() if found.rms_error <= 3 * least]
    best = sorted(near, key=lambda found: (order.index(found.variant), found.rms_error))[:3]
    return Tried(tuple(best), left, len(choices))


def on_other_inputs(inputs: list[Any], run: Callable[[list[Any]], list[torch.Tensor]]) -> Iterator[tuple[Choice, Run]]:
    """The reference where one input's memory is read in rows, although the input has other strides."""
    for number, item in enumerate(inputs):
        if isinstance(item, torch.Tensor) and not item.is_contiguous() and _dense(item):
            changed = [*inputs]
            changed[number] = _in_rows(item)
            said = f"the memory of input {number} read in rows, although its strides are {tuple(item.stride())}"
            yield Choice(None, "input-strides", said), lambda changed=changed: run(changed)  # type: ignore[misc]


def _in_rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_strided(tensor.shape, torch.empty(tensor.shape, device="meta").stride())


def reinterpreted(
    mine: list[torch.Tensor], exact: list[torch.Tensor], *, atol: float, rtol: float
) -> Experiment | None:
    """Whether the memory of a tensor with other strides holds the right values in row-major order."""
    for one, right in zip(mine, exact, strict=True):
        if one.shape != right.shape or one.is_contiguous() or not _dense(one):
            continue
        rows = _in_rows(one)
        said = f"the output's memory read in rows, although its strides are {tuple(one.stride())}"
        choice = Choice(None, "output-strides", said)
        found = _compared(choice, [rows], [right.double()], [one.double()], [0.0], atol, rtol)
        if found is not None:
            return found
    return None


def _dense(tensor: torch.Tensor) -> bool:
    sizes = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    expected = 1
    for stride, size in sizes:
        if stride != expected:
            return False
        expected *= size
    return True


def _worth(choices: list[Choice]) -> list[Choice]:
    """Each choice at its call, and at all calls that have it where they are several; products are rounded together."""
    places: dict[tuple[str, str], list[int | None]] = {}
    for choice in choices:
        places.setdefault((choice.variant, choice.said), []).append(choice.position)
    worth: list[Choice] = []
    for (variant, said), positions in places.items():
        single = [] if variant == "rounded-operands" else positions
        together = [None] if len(positions) > 1 or not single else []
        worth += [Choice(position, variant, said) for position in (*together, *single)]
    return worth


def _compared(
    choice: Choice,
    mine: list[torch.Tensor],
    outputs: list[torch.Tensor],
    exact: list[torch.Tensor],
    slack: list[float],
    atol: float,
    rtol: float,
) -> Experiment | None:
    largest = largest_before = squares = before = 0.0
    count, mended = 0, False
    alike = [one.is_floating_point() and one.shape == other.shape for one, other in zip(mine, outputs, strict=True)]
    if not alike or not all(alike):
        return None
    statistical = choice.variant in STATISTICAL
    for one, other, right, more in zip(mine, outputs, exact, slack, strict=True):
        wide, changed, right = one.double(), other.double(), right.double()
        if statistical:
            if not _like(wide, changed, right, atol + more, rtol):
                return None
        elif not bool(_equal(wide, changed, atol + more, rtol).all()):
            return None
        finite = wide.isfinite() & changed.isfinite() & right.isfinite()
        mended = mended or bool((wide.isfinite() != right.isfinite()).any())
        error, old = (wide - changed)[finite], (wide - right)[finite]
        count += error.numel()
        squares, before = squares + float(error.square().sum()), before + float(old.square().sum())
        if error.numel():
            largest = max(largest, float(error.abs().max()))
            largest_before = max(largest_before, float(old.abs().max()))
    rms, rms_before = math.sqrt(squares / max(1, count)), math.sqrt(before / max(1, count))
    if not statistical and not rms <= BETTER * rms_before and not mended:
        return None
    total = sum(one.numel() for one in mine)
    return Experiment(choice.variant, choice.said, largest, largest_before, rms, not statistical, total)


def _equal(one: torch.Tensor, other: torch.Tensor, atol: float, rtol: float) -> torch.Tensor:
    near = (one - other).abs() <= atol + rtol * other.abs()
    return near | (one == other) | (one.isnan() & other.isnan())


def _like(one: torch.Tensor, other: torch.Tensor, right: torch.Tensor, atol: float, rtol: float) -> bool:
    """Whether as many elements are wrong, as many of them not finite, and by as much."""
    ours, theirs = (~_equal(side, right, atol, rtol) for side in (one, other))
    sizes = [[float(bad.sum()), float((~side[bad].isfinite()).sum()), _median((side - right)[bad])]
             for side, bad in ((one, ours), (other, theirs))]  # fmt: skip
    return sizes[0][0] > 0 and all(
        a == b or (b > 0 and 1 / LIKE <= a / b <= LIKE) for a, b in zip(sizes[0], sizes[1], strict=True)
    )


def _median(error: torch.Tensor) -> float:
    finite = error[error.isfinite()].abs()
    return float(finite.median()) if finite.numel() else 0.0
