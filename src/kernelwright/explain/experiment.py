"""Causes that an experiment shows: the outputs are those of the reference with one thing changed.

Needs: ``Evidence.experiments``, made by the judge beside a wrong result. The rule: all elements agree with the changed
reference and not with the reference as it is, so what was changed is what the candidate computes; the line is the first
of the kernels that ran that does what the variant is about, else the only place where the kernel writes its result.
Rounding errors that agree in number and size only are named where the code has the formula that makes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.explain.case import Case
from kernelwright.explain.cpp import Function, blank, stores
from kernelwright.records import Cause, Confidence, Experiment, Stage


@dataclass(frozen=True)
class Row:
    """What is said of one variant."""

    cause: str
    because: str
    """The sentence's end: why PyTorch does otherwise."""
    fix: str
    patterns: tuple[str, ...] = ()
    """Where it can stand, the likeliest first; regular expressions over one line."""
    last: bool = False
    """The last line with the pattern is meant, not the first."""


_EXP = (r"\b(?:__)?expf?\s*\(", r"\bexp2f?\s*\(")
_INDEXED = (r"\[[^\]]*%[^\]]*\]",)

ROWS: dict[str, Row] = {
    "correction": Row(
        "semantic.convention",
        "torch.var and torch.std divide by n - 1 unless correction=0 is given, normalisations by n",
        "Divide the sum of squares by what the reference divides it by.",
        (r"\w\s*/\s*[\w(]|\*\s*inv_?\w*",),
        last=True,
    ),
    "other-gelu": Row(
        "numeric.other-function",
        "the two differ by up to 5e-4; F.gelu is exact unless approximate='tanh' is given",
        "Compute the one that the reference computes: 0.5 x (1 + erf(x / sqrt(2))) where it says nothing else.",
        (r"\btanhf?\s*\(|tanh\.approx", r"\berff?\s*\("),
    ),
    "transposed-factor": Row(
        "semantic.transposed",
        "nn.Linear keeps its weight as [out, in], and x @ w reads w as [in, out]",
        "Swap row and column in that factor's index, or the length of its rows.",
        (r"\+=.*\*.*\[|fmaf?\s*\(",),
    ),
    "other-axis": Row(
        "semantic.broadcast",
        "a vector belongs to the axis that its view or unsqueeze puts it on",
        "Compute the index along its own axis: divide the flat index by the product of the later sizes, then take it "
        "modulo the vector's length.",
        _INDEXED,
    ),
    "reduced-along-other": Row(
        "semantic.transposed",
        "the dim argument names the axis that disappears, or sums to one",
        "Walk along the axis that the reference reduces.",
        (r"\+=|\bf?maxf?\s*\(",),
    ),
    "read-linearly": Row(
        "interface.non-contiguous",
        "a transposed view shares its parent's memory, and data_ptr() points to that",
        "Pass .contiguous() of it, or use its strides in the index.",
    ),
    "output-strides": Row(
        "interface.non-contiguous",
        "the kernel fills the memory in rows while the tensor's strides say otherwise; empty_like() keeps the strides "
        "of a transposed tensor",
        "Make the output from the contiguous tensor, or with torch::empty(sizes, options).",
    ),
    "input-strides": Row(
        "interface.non-contiguous",
        "data_ptr() points to memory in the order of the strides, not of the shape",
        "Pass .contiguous() of it, or use its strides in the index.",
    ),
    "batch-statistics": Row(
        "semantic.mode",
        "a module is in training mode until eval() is called, and then normalises by the batch itself",
        "Take the statistics that the reference takes in the mode it runs in.",
        (r"rsqrtf?\s*\(",),
    ),
    "started-from-zero": Row(
        "logic.wrong-identity",
        "a row, or a window, whose values all lie on the other side of 0 then gives 0",
        "Start from -INFINITY for a maximum, INFINITY for a minimum.",
        (r"=\s*\{?\s*0(?:\.0*)?f?\s*[;,}]",),
    ),
    "counted-padding": Row(
        "semantic.convention",
        "count_include_pad is true unless told otherwise",
        "Divide by the number of elements that the reference counts.",
        (r"\w\s*/\s*[\w(]",),
        last=True,
    ),
    "flipped-kernel": Row(
        "semantic.convention",
        "what PyTorch calls a convolution is a correlation",
        "Index the kernel forwards: input[i + k] * weight[k].",
        (r"\+=.*\*.*\[|fmaf?\s*\(",),
    ),
    "sum-for-mean": Row(
        "logic.formula",
        "the two differ by the number of elements",
        "Divide by the number of elements where the reference takes a mean, and not where it takes a sum.",
    ),
    "left-out": Row("logic.formula", "nothing else is missing", "Apply it where the result is computed."),
    "no-maximum": Row(
        "numeric.overflow",
        "infinity / infinity is NaN",
        "Subtract the row's maximum inside each exp(): equal in real arithmetic, and nothing overflows.",
        _EXP,
    ),
    "naive-exponential": Row(
        "numeric.overflow",
        "infinity / infinity is NaN",
        "Use exp() of negative values only: 1 / (1 + exp(-x)), log1p(exp(-|x|)) + max(x, 0).",
        _EXP,
    ),
    "half-product": Row(
        "numeric.overflow",
        "a half that overflows is infinite, and stays so when it is converted afterwards",
        "Convert to float before multiplying.",
        (r"__h(?:mul|fma)2?(?:_\w+)?\s*\(", r"(\b\w+)\s*\*\s*\1\b"),
    ),
    "rounded-operands": Row(
        "numeric.reduced-operands",
        "of a float's 24 bits of mantissa TF32 and FP16 keep 11 and BF16 8",
        "Multiply in float32, or split each factor into a high and a low part and add the three products.",
        (
            r"precision::tf32|\.tf32\.|wmma::fragment<[^;]*(?:half|bfloat16)",
            r"\.to\(\s*(?:torch::|at::|torch\.)?(?:k?Half|k?BFloat16|half|float16|bfloat16)\b|\.half\(\)|\.bfloat16\(\)",
            r"__float_to_tf32|cvt\.\w+\.tf32|__float2half|__float2bfloat16|__floats2half2|__floats2bfloat162",
            r"allow_tf32\s*=\s*True|set_float32_matmul_precision",
            r"\b__half2?\b|\b__nv_bfloat162?\b|at::Half|at::BFloat16",
        ),
    ),
    "difference-of-squares": Row(
        "numeric.cancellation",
        "where the mean is large beside the spread, the two are equal in all the digits that float32 has",
        "Sum the squares of (x - mean) in a second pass, or use Welford's recurrence.",
        (r"-\s*(\w+)\s*\*\s*\1\b", r"-\s*(?:powf?|square)\s*\(\s*mean"),
    ),
}
"""Each variant that the judge tries, and two that it reads off strides."""


def causes(case: Case) -> Iterator[Cause]:
    """What the candidate computes instead; none beside a fault of the run itself."""
    experiments = case.evidence.experiments
    if not experiments or case.evidence.findings:
        return
    shown = experiments[0]
    row = ROWS.get(shown.variant)
    if row is None:
        return
    line = case.output_line if shown.variant == "output-strides" else _line(case, row)
    if not shown.exact and not (line and any(re.search(p, _code(case, line)) for p in row.patterns)):
        return
    yield named(case, shown, row, line)


def named(case: Case, shown: Experiment, row: Row, line: int) -> Cause:
    """The cause of one experiment, and of equal ones of the same variant."""
    others = [e.said for e in case.evidence.experiments if e.variant == shown.variant and e.said != shown.said]
    said = ", or ".join([shown.said, *others])
    if shown.exact:
        seen = (
            f"all {shown.compared} elements that were compared agree with the reference changed so, NaN and infinity "
            f"included: the largest difference is {shown.max_abs_error:.3g}; beside the reference as it is, it is "
            f"{shown.max_abs_error_before:.3g} where both are finite"
        )
        sentence = f"The output is the reference's with {said}: {row.because}."
    else:
        seen = "as many elements are wrong, and by as much, in the reference when it is changed so"
        sentence = f"The errors are those of the reference with {said}: {row.because}."
    return case.cause(
        row.cause,
        Stage.JUDGE,
        sentence,
        line=line,
        evidence=[seen],
        fix=row.fix,
        confidence=Confidence.LIKELY if _elements(case) >= FEW else Confidence.POSSIBLE,
    )


FEW = 4
"""Elements below which outputs may agree by chance: of some sixty changes one comes near one number in a hundred."""


def _elements(case: Case) -> int:
    trials = case.evidence.numerics.trials if case.evidence.numerics else ()
    return next((o.mismatch.total for t in trials for o in t.outputs if o.mismatch is not None), 0)


def _line(case: Case, row: Row) -> int:
    """Where the candidate does it: a line with the pattern, or the only store of the kernels that ran."""
    for pattern in row.patterns:
        found = [line for line in _lines(case) if re.search(pattern, _code(case, line))]
        if found:
            return found[-1] if row.last else found[0]
    written = {line for kernel in _ran(case) for _, line in stores(kernel)}
    return written.pop() if len(written) == 1 else 0


def _ran(case: Case) -> list[Function]:
    """The kernels that ran; all of them on a device that does not tell."""
    launches = case.evidence.launches
    if not launches:
        return [function for function in case.sources.functions if function.is_kernel]
    names = dict.fromkeys(fact.kernel for fact in launches if fact.error == 0)
    return [kernel for name in names if (kernel := case.sources.kernel(name)) is not None]


def _lines(case: Case) -> list[int]:
    """Lines of the kernels that ran, then of the device functions that they call, then of all else."""
    kernels = _ran(case)
    called = [
        function
        for function in case.sources.functions
        if any(re.search(rf"\b{re.escape(function.name)}\b", kernel.body) for kernel in kernels)
    ]
    ordered = [line for function in (*kernels, *called) for line in range(function.line, function.last_line + 1)]
    return list(dict.fromkeys([*ordered, *range(1, len(case.lines) + 1)]))


def _code(case: Case, line: int) -> str:
    """A line without comments."""
    text = case.lines[line - 1] if 1 <= line <= len(case.lines) else ""
    return blank(text).partition("#")[0] if not text.lstrip().startswith("#") else ""
