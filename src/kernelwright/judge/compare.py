"""One output against the oracle, in one pass over pieces of bounded size.

Why: outputs may have gigabytes, and the oracle may exist only one chunk at a time. The rule: an element passes when
``|out - oracle| <= atol + rtol * |oracle|``, written so that NaN fails; NaN where the oracle has NaN, and an equal
infinity, are right. Where the reference itself misses that (cancellation in its own dtype), twice its largest finite
error passes instead: two results as good as the reference may differ from one another by that much. Integers and
booleans must be equal to the oracle, or to the reference where rounding decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from kernelwright.judge import pattern, poison, relation
from kernelwright.records import Mismatch, OutputNumerics, Precision

PIECE = 1 << 22
"""Elements compared at once: 32 MB in float64, a few times over."""

OK, VALUE, NAN, INF, TAINTED, UNWRITTEN = range(6)
"""What is wrong with an element, the more special the higher."""


@dataclass
class Impostors:
    """What a constant would have to be, to pass at every element seen so far."""

    low: float = -math.inf
    high: float = math.inf
    least: float = math.inf
    greatest: float = -math.inf
    """The oracle's own range."""
    total: float = 0.0
    seen: int = 0
    inputs: dict[int, bool] = field(default_factory=dict)
    """Input number to whether it has passed itself off as the output so far."""

    def add(self, oracle: torch.Tensor, tolerance: torch.Tensor) -> None:
        """Take one piece of the oracle, flat, float64."""
        low, high = float((oracle - tolerance).max()), float((oracle + tolerance).min())
        if math.isnan(low):
            self.low = math.inf
            return
        self.low, self.high = max(self.low, low), min(self.high, high)
        self.least, self.greatest = min(self.least, float(oracle.min())), max(self.greatest, float(oracle.max()))
        self.total += float(oracle.sum())
        self.seen += oracle.numel()

    def passing(self, allowed: float | None = None) -> tuple[str, ...]:
        """Names of the impostors that pass; ``allowed`` is the error that passes wherever it is above the tolerance."""
        if not self.seen:
            return ()
        if allowed is not None:
            self.low = min(self.low, self.greatest - allowed)
            self.high = max(self.high, self.least + allowed)
        found = [name for name, value in (("zeros", 0.0), ("mean", self.total / self.seen)) if self._passes(value)]
        if self.low <= self.high:
            found.insert(1 if "zeros" in found else 0, "constant")
        return (*found, *(f"input {number}" for number, passes in sorted(self.inputs.items()) if passes))

    def _passes(self, value: float) -> bool:
        return self.low <= value <= self.high


class Tally:
    """The comparison of one output, fed piece by piece in memory order."""

    def __init__(self, name: str, out: torch.Tensor, reference: torch.Tensor, *, atol: float, rtol: float) -> None:
        self.name, self.atol, self.rtol = name, atol, rtol
        self.shape = tuple(reference.shape)
        self.dtype = str(out.dtype).removeprefix("torch.")
        self.exact = not (reference.is_floating_point() or reference.is_complex())
        self.codes = torch.zeros(reference.numel(), dtype=torch.uint8, device=reference.device)
        self.impostors = Impostors()
        self._out = out.reshape(-1).to(reference.device)
        self._reference = reference.reshape(-1)
        self._squares = self._reference_squares = self._oracle_squares = 0.0
        self._max = self._reference_max = 0.0
        self._first: tuple[int, float, float] | None = None
        self._worst: tuple[float, int, float, float] | None = None
        self._reference_missed = 0.0
        """The reference's largest finite error among the elements where it misses the tolerance."""
        self._differences: torch.Tensor | None = None
        """Candidate minus oracle, float32, kept from the first wrong value on."""
        self._relation = relation.Relation()

    def add(self, start: int, oracle: torch.Tensor, imitations: dict[int, torch.Tensor] | None = None) -> None:
        """Compare the elements from flat index ``start`` on with ``oracle`` (flat); ``imitations`` are inputs there."""
        for low in range(0, oracle.numel(), PIECE):
            high = min(low + PIECE, oracle.numel())
            inputs = {number: whole[low:high] for number, whole in (imitations or {}).items()}
            self._add(start + low, oracle[low:high], inputs)

    def _add(self, start: int, oracle: torch.Tensor, inputs: dict[int, torch.Tensor]) -> None:
        stop = start + oracle.numel()
        out, reference = self._out[start:stop], self._reference[start:stop]
        wide, exact = _wide(out), _wide(oracle)
        wide_reference = _wide(reference)
        tolerance = self.atol + self.rtol * exact.abs()
        good = _within(wide, exact, tolerance)
        if self.exact:
            good = (wide == exact) | (wide == wide_reference)
        elif not exact.is_complex():
            self.impostors.add(exact, tolerance)
            for number, values in inputs.items():
                passes = bool(_within(_wide(values), exact, tolerance).all())
                self.impostors.inputs[number] = self.impostors.inputs.get(number, True) and passes
        error, reference_error = _error(wide, exact), _error(wide_reference, exact)
        missed = (reference_error > tolerance) & reference_error.isfinite()
        if not self.exact and bool(missed.any()):
            self._reference_missed = max(self._reference_missed, float(reference_error[missed].max()))
        self._squares += float(error.square().sum())
        self._reference_squares += float(reference_error.square().sum())
        self._oracle_squares += float(torch.nan_to_num(exact.abs(), 0.0, 0.0, 0.0).square().sum())
        self._max = max(self._max, float(error.max()))
        self._reference_max = max(self._reference_max, float(reference_error.max()))
        bad = ~good
        if bool(bad.any()):
            self._note(start, out, wide, exact, error, bad)

    def _note(
        self,
        start: int,
        out: torch.Tensor,
        wide: torch.Tensor,
        exact: torch.Tensor,
        error: torch.Tensor,
        bad: torch.Tensor,
    ) -> None:
        codes = self.codes[start : start + out.numel()]
        codes[bad] = VALUE
        codes[bad & wide.isnan()] = NAN
        codes[bad & wide.isinf()] = INF
        contiguous = out.contiguous()
        for code, found in ((TAINTED, poison.tainted(contiguous)), (UNWRITTEN, poison.unwritten(contiguous))):
            if found is not None:
                codes[bad & found] = code
        if not self.exact and not exact.is_complex():
            if self._differences is None:
                self._differences = torch.zeros_like(self.codes, dtype=torch.float32)
            self._differences[start : start + out.numel()] = (wide - exact).to(torch.float32)
        self._relation.add(wide[bad], exact[bad])
        first = int(bad.to(torch.uint8).argmax())
        if self._first is None:
            self._first = (start + first, _number(wide[first]), _number(exact[first]))
        ranked = torch.where(bad & error.isfinite(), error, -1.0)
        worst = int(ranked.argmax())
        if float(ranked[worst]) < 0:
            worst = first
        size = float(ranked[worst])
        if self._worst is None or size > self._worst[0]:
            self._worst = (size, start + worst, _number(wide[worst]), _number(exact[worst]))

    @property
    def allowed(self) -> float | None:
        """The error that passes because the reference is no better; None where it keeps the tolerance."""
        return 2 * self._reference_missed if self._reference_missed else None

    @property
    def rms(self) -> float:
        return math.sqrt(self._squares / max(1, self.codes.numel()))

    @property
    def reference_rms(self) -> float:
        return math.sqrt(self._reference_squares / max(1, self.codes.numel()))

    @property
    def oracle_rms(self) -> float:
        return math.sqrt(self._oracle_squares / max(1, self.codes.numel()))

    def result(self, precision: Precision | None) -> OutputNumerics:
        """The record, once everything was fed."""
        self._forgive()
        mismatch = self._mismatch()
        return OutputNumerics(
            output=self.name,
            shape=self.shape,
            dtype=self.dtype,
            max_abs_error=self._max,
            rms_error=self.rms,
            reference_max_abs_error=self._reference_max,
            reference_rms_error=self.reference_rms,
            rms_ratio=self.rms / self.reference_rms if self.reference_rms > 0 else None,
            within_tolerance=mismatch is None,
            allowed_error=self.allowed,
            precision=precision,
            mismatch=mismatch,
        )

    def _forgive(self) -> None:
        """Let pass what is wrong by no more than the reference's own error allows."""
        if self.allowed is None or self._differences is None or self._first is None:
            return
        self.codes[(self.codes == VALUE) & (self._differences.abs() <= self.allowed)] = OK
        left = self.codes.nonzero()
        if not len(left):
            self._first = None
            return
        first = int(left[0])
        if first != self._first[0]:
            got = _number(_wide(self._out[first]))
            self._first = (first, got, got - float(self._differences[first]))

    def _mismatch(self) -> Mismatch | None:
        if self._first is None or self._worst is None:
            return None
        # Patterns are read off element by element: for that the CPU is the better place.
        codes = self.codes.cpu().reshape(self.shape)
        counts = torch.bincount(self.codes, minlength=6).tolist()
        bad = sum(counts[VALUE:])
        text = pattern.describe(codes > OK)
        for code, name in (
            (UNWRITTEN, "unwritten"),
            (TAINTED, "computed from unwritten memory"),
            (NAN, "NaN"),
            (INF, "infinite"),
        ):
            if 0 < counts[code] < bad:
                text += f"; {name}: {pattern.describe(codes == code)}"
        if counts[VALUE]:
            said = self._relation.sentence()
            text += said.replace("every wrong", "every finite wrong") if counts[INF] or counts[NAN] else said
        return Mismatch(
            count=bad,
            total=self.codes.numel(),
            nan=int((torch.isnan(self._out) & (self.codes > OK)).sum()) if self._out.is_floating_point() else 0,
            inf=counts[INF],
            unwritten=counts[UNWRITTEN],
            tainted=counts[TAINTED],
            description=text,
            first=_index(self._first[0], self.shape),
            first_got=self._first[1],
            first_expected=self._first[2],
            worst=_index(self._worst[1], self.shape),
            worst_got=self._worst[2],
            worst_expected=self._worst[3],
        )


def _wide(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def _within(out: torch.Tensor, exact: torch.Tensor, tolerance: torch.Tensor) -> torch.Tensor:
    """NaN fails every comparison; equal infinities give NaN there and are let in by equality."""
    return ((out - exact).abs() <= tolerance) & exact.isfinite() | (out == exact) | (out.isnan() & exact.isnan())


def _error(out: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Absolute error; zero for equal non-finite values, infinite where only one side is finite."""
    error = (out - exact).abs()
    same = (out == exact) | (out.isnan() & exact.isnan())
    error = torch.where(same, 0.0, error)
    return torch.where(error.isnan(), math.inf, error)


def _number(value: torch.Tensor) -> float:
    return float(value.abs()) if value.is_complex() else float(value)


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        index.insert(0, rest)
    return tuple(index)
