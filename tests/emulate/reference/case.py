"""Writing case files: a body, operand columns, and expected columns become one PTX file and its JSON.

The kernel around the body loads each operand column into a register of the operand's name, and stores each result.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "instructions"
ALIGN = 256

SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


def size_of(type_: str) -> int:
    """Bytes of a type."""
    digits = "".join(c for c in type_.split("x")[0] if c.isdigit())
    return SIZES[digits] * (2 if "x2" in type_ else 1)


@dataclass
class Draft:
    """A case to write. Operand columns are integers, expected ones integers or the words ``nan`` and ``any``."""

    name: str
    source: str
    body: str
    inputs: dict[str, tuple[str, Sequence[int]]]
    outputs: dict[str, tuple[str, Sequence[int | str]]]
    tolerances: dict[str, dict[str, float]] = field(default_factory=dict)
    registers: str = ""
    """Further ``.reg`` and ``.shared`` lines."""
    target: str = "sm_80"
    version: str = "8.0"
    block: int = 32
    outside: str = ""
    """Module-scope declarations."""
    stores: bool = True
    """Whether results are registers that the frame stores; else the body writes to ``%out`` itself."""
    initial: dict[str, int] = field(default_factory=dict)


DRAFTS: list[Draft] = []


def emit(draft: Draft) -> None:
    """Add a case; rows are filled up to whole blocks by repeating the last one."""
    lengths = {len(values) for _, values in (*draft.inputs.values(), *draft.outputs.values())}
    if len(lengths) != 1:
        raise ValueError(f"{draft.name}: columns of different length {lengths}")
    if any(known.name == draft.name for known in DRAFTS):
        raise ValueError(f"{draft.name} exists twice")
    DRAFTS.append(draft)


def texts(draft: Draft) -> dict[str, str]:
    """Both files of a case: name to contents."""
    rows = len(next(iter((draft.inputs or draft.outputs).values()))[1])
    padded = -(-rows // draft.block) * draft.block

    def filled(values: Sequence[int | str]) -> list[str]:
        texts = [v if isinstance(v, str) else f"{v:#x}" for v in values]
        return texts + [texts[-1]] * (padded - rows)

    described = {
        "target": draft.target,
        "source": draft.source,
        "rows": padded,
        "block": draft.block,
        "inputs": [{"name": n, "type": t, "values": filled(v)} for n, (t, v) in draft.inputs.items()],
        "outputs": [
            {"name": n, "type": t, "values": filled(v)}
            | ({"tolerance": draft.tolerances[n]} if n in draft.tolerances else {})
            for n, (t, v) in draft.outputs.items()
        ],
    }
    if draft.initial:
        described["initial"] = {name: f"{value:#x}" for name, value in draft.initial.items()}
    return {f"{draft.name}.json": _compact(described), f"{draft.name}.ptx": ptx_of(draft, padded)}


def _compact(described: dict[str, object]) -> str:
    """JSON with one column a line, so that a changed value is one changed line."""
    lines = []
    for key, value in described.items():
        if isinstance(value, list):
            columns = ",\n".join("    " + json.dumps(column) for column in value)
            lines.append(f'  "{key}": [\n{columns}\n  ]' if value else f'  "{key}": []')
        else:
            lines.append(f'  "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def register_type(type_: str) -> str:
    """The register that holds a column: 8-bit values travel in 16-bit registers."""
    return {1: "b16", 2: "b16", 4: "b32", 8: "b64"}[size_of(type_)]


def ptx_of(draft: Draft, rows: int) -> str:
    """The kernel around the body."""
    lines = [
        f".version {draft.version}",
        f".target {draft.target}",
        ".address_size 64",
        *([draft.outside] if draft.outside else []),
        ".visible .entry t(.param .u64 in, .param .u64 out)",
        "{",
        "\t.reg .b64 %in, %out, %at;",
        "\t.reg .b32 %row, %block, %thread;",
    ]
    columns = {**draft.inputs, **(draft.outputs if draft.stores else {})}
    lines += [f"\t.reg .{register_type(t)} {name};" for name, (t, _) in columns.items()]
    lines += ["\t" + line for line in draft.registers.splitlines()]
    lines += [
        "\tld.param.u64 %in, [in];",
        "\tld.param.u64 %out, [out];",
        "\tcvta.to.global.u64 %in, %in;",
        "\tcvta.to.global.u64 %out, %out;",
        "\tmov.u32 %thread, %tid.x;",
        "\tmov.u32 %block, %ctaid.x;",
        f"\tmad.lo.u32 %row, %block, {draft.block}, %thread;",
    ]
    place = 0
    for name, (type_, _) in draft.inputs.items():
        size = size_of(type_)
        lines.append(f"\tmad.wide.u32 %at, %row, {size}, %in;")
        lines.append(f"\tld.global.{'u' if size == 1 else 'b'}{8 * size} {name}, [%at+{place}];")
        place += -(-size * rows // ALIGN) * ALIGN
    lines += ["\t" + line.strip() for line in draft.body.strip().splitlines()]
    place = 0
    for name, (type_, _) in draft.outputs.items() if draft.stores else ():
        size = size_of(type_)
        lines.append(f"\tmad.wide.u32 %at, %row, {size}, %out;")
        lines.append(f"\tst.global.{'u' if size == 1 else 'b'}{8 * size} [%at+{place}], {name};")
        place += -(-size * rows // ALIGN) * ALIGN
    return "\n".join([*lines, "\tret;", "}", ""])


# ---- operands -----------------------------------------------------------------------------------------------------


def seeded(name: str) -> random.Random:
    """Random numbers that depend on the case's name alone."""
    return random.Random(name)


def integers(bits: int) -> list[int]:
    """Edge values of an integer width."""
    top = 1 << (bits - 1)
    return [0, 1, 2, 3, 7, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1, 0x5A5A5A5A5A5A5A5A & (2 * top - 1)]


def floats(type_: str) -> list[int]:
    """Edge patterns of a floating-point type: zeros, subnormals, ones, extremes, infinities and NaNs with payloads."""
    exponent, fraction = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}[type_]
    top = 1 << (exponent + fraction)
    bias = (1 << (exponent - 1)) - 1
    infinity = ((1 << exponent) - 1) << fraction
    one = bias << fraction
    positive = [
        0, 1, (1 << fraction) - 1, 1 << fraction, one - 1, one, one + 1, one | 1 << (fraction - 1),
        (bias + 1) << fraction, (bias + fraction) << fraction | 1, infinity - 1, infinity, infinity | 1,
        infinity | 1 << (fraction - 1) | 5,
    ]  # fmt: skip
    return positive + [top | value for value in positive]


def tuples(
    rng: random.Random, choices: Sequence[Sequence[int]], bits: Sequence[int], *, most: int
) -> list[tuple[int, ...]]:
    """All combinations of edge values (or ``most`` of them), and half as many random rows."""
    every = list(itertools.product(*choices)) if _count(choices) <= 4 * most else []
    if not every:
        every = [tuple(rng.choice(column) for column in choices) for _ in range(most)]
    if len(every) > most:
        every = rng.sample(every, most)
    return every + [tuple(rng.getrandbits(width) for width in bits) for _ in range(max(16, len(every) // 2))]


def _count(choices: Iterable[Sequence[int]]) -> int:
    total = 1
    for column in choices:
        total *= len(column)
    return total


def simple(
    instruction: str,
    inputs: dict[str, tuple[str, Sequence[int]]],
    output: str,
    expected: Callable[..., int | str],
    *,
    name: str = "",
    source: str = "",
    most: int = 112,
    tolerance: dict[str, float] | None = None,
    target: str = "sm_80",
    version: str = "8.0",
) -> None:
    """One instruction ``instruction d, inputs…;`` over combinations of its operands' edge values.

    ``expected`` gets the operands of a row as unsigned integers and returns the result's bits or a word.
    """
    name = name or instruction.replace("::", ".")
    rng = seeded(name)
    rows = tuples(rng, [v for _, v in inputs.values()], [8 * size_of(t) for t, _ in inputs.values()], most=most)
    emit(
        Draft(
            name=name,
            source=source,
            body=f"{instruction} d, {', '.join(inputs)};",
            inputs={n: (t, [row[k] for row in rows]) for k, (n, (t, _)) in enumerate(inputs.items())},
            outputs={"d": (output, [expected(*row) for row in rows])},
            tolerances={"d": tolerance} if tolerance else {},
            target=target,
            version=version,
        )
    )
