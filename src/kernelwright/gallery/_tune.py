"""Measures the plans of a kernel at a shape and keeps the fastest right one, per device and driver.

Why: a rule can only be as good as the shapes it was made from. The rule here: a plan is timed only after its result
has agreed with float64; the leaders are timed in several sittings, each with operands in other memory, for where these
lie moves a kernel by as much as plans differ; of plans within a hundredth, the rule's is kept; a second kernel must be
worth two hundredths, as the host launches it; PyTorch's own operator is one of the plans, and only what was faster than
it in every sitting goes before it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kernelwright.errors import MachineError
from kernelwright.gallery import _clock, _tables
from kernelwright.gallery.kernels import linear, matvec, softmax

Call = Callable[[], torch.Tensor]

MATVEC = (
    (1, 1 << 20), (4, 1 << 20), (16, 1 << 20), (64, 1 << 20), (128, 1 << 18), (1, 65536), (8, 65536), (64, 65536),
    (512, 65536), (2048, 65536), (64, 8192), (512, 8192), (2048, 8192), (8192, 8192), (1024, 4096), (4096, 4096),
    (11008, 4096), (16384, 4096), (65536, 4096), (256, 1024), (1024, 1024), (8192, 1024), (65536, 1024), (4096, 256),
    (65536, 256), (65536, 64), (8192, 64), (1 << 20, 64), (1000, 5000), (3001, 1003), (50257, 768), (768, 3072),
)  # fmt: skip
SOFTMAX = (
    (65536, 256), (65536, 512), (65536, 1024), (4096, 1000), (32768, 2048), (1024, 4096), (32768, 4096), (1024, 8192),
    (16384, 8192), (8192, 16384), (4096, 32768), (2048, 65536), (1024, 131072), (512, 262144), (8192, 50257),
    (64, 32768), (64, 128), (256, 1024),
)  # fmt: skip
LINEAR = (
    (1024, 8192, 8192), (1, 8192, 8192), (4, 8192, 8192), (16, 8192, 8192), (32, 8192, 8192), (64, 8192, 8192),
    (128, 8192, 8192), (256, 8192, 8192), (512, 8192, 8192), (1024, 1024, 1024), (1024, 4096, 4096),
    (4096, 4096, 4096), (8192, 8192, 8192), (1000, 5000, 3000), (2048, 512, 2048), (8192, 1024, 512),
    (256, 16384, 4096), (64, 512, 16384), (1, 512, 512), (1, 4096, 4096), (8, 1024, 1024), (16, 512, 512),
    (64, 512, 512), (512, 512, 512), (8192, 512, 512), (33, 1000, 5003), (1, 512, 16384), (2, 4096, 4096),
    (4, 1024, 1024), (4, 4096, 4096), (8, 4096, 4096), (16, 1024, 1024), (16, 4096, 4096), (32, 1024, 1024),
)  # fmt: skip
"""What the shipped tables cover."""


@dataclass(frozen=True)
class Bench:
    """One shape of one kernel, ready to be timed."""

    kernel: str
    at: tuple[Any, ...]
    """What identifies the shape in a table's row."""
    calls: Mapping[str, Call]
    """A call for each recipe; equal plans appear once, under the first name."""
    error: Callable[[torch.Tensor], float]
    """How far a result is from float64."""
    bound: float
    """The largest error that passes."""
    rule: str
    """The name of the plan that the rule would choose."""
    second: Callable[[str], bool] = lambda name: False
    """Whether the recipe's plan launches more than one kernel."""


def matvec_bench(M: int, K: int, *, dtype: torch.dtype = torch.float32, transposed: bool = False) -> Bench:
    """y = A @ x on random data; ``transposed``: A is the transpose of a row-major K x M matrix."""
    A = torch.randn((K, M) if transposed else (M, K), device="cuda").to(dtype)
    A = A.t() if transposed else A
    x = torch.randn(K, device="cuda").to(dtype)
    exact = _in_float64(A, x)
    size = K**0.5  # of a result, on average: few of them may be near zero by chance
    sms, hopper, _ = matvec._device(torch.cuda.current_device())
    aligned = (M if transposed else K) * A.element_size() % 16 == 0
    plans, rule = _distinct(matvec.recipes(M, K, A.element_size(), aligned, transposed, sms, hopper))
    theirs = float((torch.mv(A, x).double() - exact).abs().max()) / size
    return Bench(
        "matvec",
        (A.element_size(), transposed, M, K),
        {name: partial(matvec.matvec, A, x, plan=plan) for name, plan in plans.items()},
        lambda y: float((y.double() - exact).abs().max()) / size,
        max(2 * theirs, 2e-6),
        rule,
        lambda name: plans[name].segments > 1 and plans[name].cluster == 1 and not plans[name].posted,
    )


def _in_float64(A: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A @ x in float64, in slices: A may be as large as the memory."""
    M, K = A.shape
    if A.stride(1) == 1:
        step = max(1, (1 << 26) // K)
        return torch.cat([A[i : i + step].double() @ x.double() for i in range(0, M, step)])
    step = max(1, (1 << 26) // M)
    parts = [A[:, k : k + step].double() @ x[k : k + step].double() for k in range(0, K, step)]
    return torch.stack(parts).sum(0)


def softmax_bench(M: int, N: int, *, dtype: torch.dtype = torch.float32, gelu: bool = False) -> Bench:
    """softmax(z), or softmax(gelu(z + bias)) on random data."""
    z = (torch.randn(M, N, device="cuda") * 2).to(dtype)
    bias = torch.randn(N, device="cuda").to(dtype) if gelu else None
    every = max(1, M // 64)
    some = z[::every].double()
    some = torch.nn.functional.gelu(some + bias.double()) if bias is not None else some
    exact = torch.softmax(some, 1)
    largest = exact.amax(1, keepdim=True)
    hopper, _ = softmax._device(torch.cuda.current_device())
    aligned = softmax.ROWS if N * z.element_size() % 16 == 0 else softmax.WHOLE
    plans, rule = _distinct(softmax.recipes(M, N, z.element_size(), aligned, hopper, not gelu))
    activation = "gelu" if gelu else None
    return Bench(
        "softmax",
        (z.element_size(), gelu, M, N),
        {
            name: partial(softmax.softmax, z, bias=bias, activation=activation, plan=plan)
            for name, plan in plans.items()
        },
        lambda y: float(((y[::every].double() - exact) / largest).abs().max()),
        {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype],
        rule,
    )


def linear_bench(M: int, N: int, K: int) -> Bench:
    """gelu(x @ W.T + b) on random data, the weight prepared."""
    x = torch.randn(M, K, device="cuda")
    w, b = torch.randn(N, K, device="cuda") / K**0.5, torch.randn(N, device="cuda")
    every = max(1, M // 32)
    exact = torch.nn.functional.gelu(x[::every].double() @ w.double().t() + b.double())
    sms, hopper, _ = linear._device(torch.cuda.current_device())
    plans, rule = _distinct(linear.recipes(M, N, K, sms, hopper))
    return Bench(
        "linear",
        (M, N, K),
        {name: partial(linear.linear, x, w, b, activation="gelu", plan=plan) for name, plan in plans.items()},
        lambda y: float((y[::every].double() - exact).abs().max()),
        1e-4,
        rule,
        lambda name: plans[name].splits > 1 or linear.is_bytes(plans[name].variant),
    )


def _distinct(plans: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Each plan once, under its first name, and the name of the rule's, which is "rule" only where no other has it."""
    first: dict[Any, str] = {}
    for name in sorted(plans, key=lambda name: name == "rule"):
        first.setdefault(plans[name], name)
    return {name: plan for plan, name in first.items()}, first[plans["rule"]]


SITTINGS, ROUNDS = 3, 20
"""How often the leaders are timed in new memory, and how often each time."""


def fastest(make: Callable[[], Bench], *, tell: Callable[[str], None] = lambda _: None) -> tuple[str, dict[str, Any]]:
    """The kernel, and its table's row: the recipe chosen, and the microseconds of every recipe that was right."""
    bench = make()
    right: dict[str, Call] = {}
    for name, call in bench.calls.items():
        try:
            error = bench.error(call())
        except RuntimeError as failure:
            if "CUDA error" in str(failure):
                raise
            error = float("nan")
        if error <= bench.bound:
            right[name] = call
        else:
            tell(f"{bench.kernel} {bench.at}: {name} is not right (error {error:.1e}) and is left out")
    first = _clock.device_us(right, rounds=4)
    leaders = sorted(first, key=lambda name: first[name])[:6]
    finalists = [name for name in dict.fromkeys([*leaders, bench.rule, "torch"]) if name in right]
    held = [bench]
    sittings: list[dict[str, float]] = []
    while len(sittings) < SITTINGS:
        calls = {name: held[-1].calls[name] for name in finalists}
        sittings.append(_clock.device_us(calls, rounds=ROUNDS))
        if len(sittings) < SITTINGS:
            held.append(make())  # in other memory than all that is still held
    chosen, times = choice(sittings, rule=bench.rule, second=bench.second)
    told = {name: round(us, 2) for name, us in (first | times).items()}
    return bench.kernel, {"at": list(bench.at), "recipe": chosen, "rule": bench.rule, "us": told}


def choice(
    sittings: Sequence[Mapping[str, float]], *, rule: str, second: Callable[[str], bool] = lambda name: False
) -> tuple[str, dict[str, float]]:
    """The recipe to take, and the mean microseconds of each, from those of each sitting."""
    times = {name: statistics.mean(sitting[name] for sitting in sittings) for name in sittings[0]}
    ours = [name for name in times if name != "torch"]
    if not ours:
        return "torch", times
    best = min(ours, key=lambda name: times[name] * (1 + 0.02 * second(name)))
    if rule in ours and times[rule] <= 1.01 * times[best] and not second(rule):
        best = rule
    sure = "torch" not in times or all(sitting[best] < sitting["torch"] for sitting in sittings)
    return best if sure else "torch", times


PARTS = {"linear_gelu_softmax": ("linear", "softmax")}
"""Kernels that have no plans of their own."""


def asked_for(
    name: str, shape: tuple[int, ...], *, dtype: str, transposed: bool, activation: str | None
) -> list[Callable[[], Bench]]:
    """The benches of one shape of kernel ``name``, or of all shapes that the shipped tables cover."""
    from kernelwright.gallery import _explain

    if not shape:
        return list(shipped_benches(PARTS.get(name, (name,))))
    dtypes = _explain.dtypes_of(name)
    wanted = _explain.SHAPES[name]
    if len(shape) != len(wanted.split()) or dtype not in dtypes or min(shape) < 1:
        raise _explain.BadShape(
            name=name, wanted=wanted, dtypes=", ".join(dtypes), shape=" ".join(map(str, shape)), dtype=dtype
        )
    if name == "matvec":
        return [partial(matvec_bench, *shape, dtype=getattr(torch, dtype), transposed=transposed)]
    if name == "softmax":
        return [partial(softmax_bench, *shape, dtype=getattr(torch, dtype), gelu=activation is not None)]
    benches: list[Callable[[], Bench]] = [partial(linear_bench, *shape)]
    return benches if name == "linear" else [*benches, partial(softmax_bench, shape[0], shape[1])]


def shipped_benches(names: Iterable[str]) -> Iterable[Callable[[], Bench]]:
    """The shapes that the shipped tables cover; float16 takes bfloat16's rows."""
    for name in names:
        if name == "matvec":
            for M, K in MATVEC:
                for transposed in (False, True):
                    rows, columns = (K, M) if transposed else (M, K)
                    for dtype in (torch.float32, torch.bfloat16):
                        yield partial(matvec_bench, rows, columns, dtype=dtype, transposed=transposed)
        elif name == "softmax":
            for M, N in SOFTMAX:
                for gelu in (False, True):
                    for dtype in (torch.float32, torch.bfloat16):
                        yield partial(softmax_bench, M, N, dtype=dtype, gelu=gelu)
        else:
            for M, N, K in LINEAR:
                yield partial(linear_bench, M, N, K)


def table_of(rows: Mapping[str, list[dict[str, Any]]]) -> _tables.Table:
    """A table of this machine's device."""
    return {
        "schema": _tables.SCHEMA,
        "device": torch.cuda.get_device_name(),
        "driver": _tables.driver(),
        "measured": True,
        "how": "device time from a cold L2 cache, plans in turn and backwards: the median of 4 rounds; of the leaders "
        f"the mean of {SITTINGS} medians of {ROUNDS} rounds, operands in other memory each time (gallery._tune)",
        "torch": torch.__version__,
        "kernels": dict(rows),
    }


def tune(benches: Iterable[Callable[[], Bench]], *, tell: Callable[[str], None] = lambda _: None) -> _tables.Table:
    """Measure, add the rows to this machine's table, and let the kernels take it.

    Raises ``MachineError`` without a GPU. Rows of shapes measured before are replaced.
    """
    if not torch.cuda.is_available() or not _tables.driver():
        raise MachineError("tuning measures on an NVIDIA GPU, and this machine has none that PyTorch can use")
    _tables.install()
    rows: dict[str, list[dict[str, Any]]] = {}
    with torch.no_grad():
        for make in benches:
            kernel, row = fastest(make, tell=tell)
            rows.setdefault(kernel, []).append(row)
            us = row["us"]
            beside = f", torch {us['torch']:.1f} us" if "torch" in us else ""
            tell(f"{kernel} {tuple(row['at'])}: {row['recipe']}, {us[row['recipe']]:.1f} us{beside}")
    path = _tables.own_file(torch.cuda.get_device_name(), _tables.driver())
    known = json.loads(path.read_text(encoding="utf-8"))["kernels"] if path.is_file() else {}
    for kernel, old in known.items():
        new = {tuple(row["at"]) for row in rows.get(kernel, ())}
        rows[kernel] = [*rows.get(kernel, []), *(row for row in old if tuple(row["at"]) not in new)]
    table = table_of(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(table, indent=1), encoding="utf-8")
    scratch.replace(path)
    _tables.reinstall()
    return table
