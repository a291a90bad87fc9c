"""mma.sync and ldmatrix: matrices of drawn numbers, their fragments, and sums as Hopper's tensor cores make them.

Sources: PTX ISA 9.0, section 9.7.14.5 (fragments); Khattak and Mikaitis, arXiv 2512.07004 (how Hopper sums: products
exact; all terms cut toward zero at two bits below an f32's last one, counted from the largest exponent, which of a
product is the sum of its factors'; the exact sum cut to an f32, or rounded to an f16).
"""

from __future__ import annotations

import math
import random
from fractions import Fraction

import ieee
from case import Draft, emit, seeded

SOURCE = "PTX ISA 9.0, mma; arXiv 2512.07004"
LANES = 32
WARPS = 4
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "s8": 8, "u8": 8}
FORMS = [
    ("m16n8k8", "f32", "f16", "f32"), ("m16n8k16", "f32", "f16", "f32"), ("m16n8k8", "f16", "f16", "f16"),
    ("m16n8k16", "f16", "f16", "f16"), ("m16n8k8", "f32", "bf16", "f32"), ("m16n8k16", "f32", "bf16", "f32"),
    ("m16n8k4", "f32", "tf32", "f32"), ("m16n8k8", "f32", "tf32", "f32"), ("m8n8k4", "f64", "f64", "f64"),
]  # fmt: skip
INTEGERS = [("m8n8k16", "s8", "s8"), ("m16n8k16", "s8", "u8"), ("m16n8k32", "u8", "s8"), ("m16n8k32", "u8", "u8")]
Matrix = dict[tuple[int, int], int]


def per_register(type_: str) -> int:
    return max(32 // BITS[type_], 1)


def count(rows: int, columns: int, type_: str) -> int:
    return rows * columns // LANES // per_register(type_)


def places(role: str, rows: int, columns: int, type_: str) -> dict[tuple[int, int, int], tuple[int, int]]:
    """(lane, register, element) to (row, column), from the figures of the manual."""
    p = per_register(type_)
    found = {}
    for lane in range(LANES):
        for register in range(count(rows, columns, type_)):
            for element in range(p):
                if role == "a":
                    down = 8 * (register & 1) if rows == 16 else 0
                    across = 4 * p * (register >> 1 if rows == 16 else register)
                    place = lane // 4 + down, lane % 4 * p + element + across
                elif role == "b":
                    place = lane % 4 * p + element + 4 * p * register, lane // 4
                elif p == 2:
                    place = lane // 4 + 8 * register, lane % 4 * 2 + element
                else:
                    place = lane // 4 + 8 * (register >> 1), lane % 4 * 2 + (register & 1)
                found[lane, register, element] = place
    return found


def fragments(matrix: Matrix, role: str, rows: int, columns: int, type_: str) -> list[list[int]]:
    """For each register the 32 lanes' words."""
    made = [[0] * LANES for _ in range(count(rows, columns, type_))]
    for (lane, register, element), place in places(role, rows, columns, type_).items():
        made[register][lane] |= matrix[place] << element * BITS[type_] if type_ != "f64" else matrix[place]
    return made


def drawn(rng: random.Random, type_: str, spread: int) -> int:
    if type_ in ("s8", "u8", "s32"):
        return rng.getrandbits(BITS[type_])
    if spread == 0:
        value = Fraction(rng.randrange(-8, 9))
    else:
        value = Fraction(rng.choice((-1, 1)) * (1 + Fraction(rng.getrandbits(24), 1 << 24))) * Fraction(
            2
        ) ** rng.randrange(-spread, spread + 1)
    bits = ieee.rounded("f32" if type_ == "tf32" else type_, value)
    return bits & 0xFFFFE000 if type_ == "tf32" else bits


def real(bits: int, type_: str) -> Fraction:
    return Fraction(ieee.value("f32" if type_ == "tf32" else type_, bits))


def exponent(value: Fraction, least: int) -> int:
    size = abs(value)
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return max(guess if size >= Fraction(2) ** guess else guess - 1, least)


LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126}


def hopper(xs: list[Fraction], ys: list[Fraction], z: Fraction, type_: str, c_type: str) -> int:
    pairs = [(x, y) for x, y in zip(xs, ys, strict=True) if x and y]
    tops = [exponent(x, LEAST[type_]) + exponent(y, LEAST[type_]) for x, y in pairs]
    if z:
        tops.append(exponent(z, LEAST[c_type]))
    if not tops:
        return 0
    unit = Fraction(2) ** (max(tops) - 25)
    total = Fraction(sum(math.trunc(term / unit) for term in [*(x * y for x, y in pairs), z])) * unit
    if c_type == "f16":
        return ieee.rounded("f16", total) if total else 0
    return ieee.rounded("f32", total, "rz") if total else 0


def in_steps(xs: list[Fraction], ys: list[Fraction], z: Fraction, type_: str, c_type: str) -> int:
    """As wmma sums: tf32 four terms at a time (H200, driver 13.0, 2026-11-29); mma.m16n8k8 takes all eight at once."""
    step = 4 if type_ == "tf32" else len(xs)
    bits = 0
    for start in range(0, len(xs), step):
        bits = hopper(xs[start : start + step], ys[start : start + step], z, type_, c_type)
        z = real(bits, c_type)
    return bits


def double(xs: list[Fraction], ys: list[Fraction], z: Fraction) -> int:
    for x, y in zip(xs, ys, strict=True):
        z = Fraction(float(x * y + z))
    return ieee.rounded("f64", z) if z else 0


def reals() -> None:
    for shape, d_type, a_type, c_type in FORMS:
        m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
        name = f"mma.{shape}.{d_type}.{a_type}"
        rng = seeded(name)
        columns = _empty(m, n, k, a_type, a_type, c_type, d_type)
        for spread in (0, 1, 6, 12)[:WARPS]:
            a, b, c = _matrices(rng, (m, n, k), a_type, a_type, c_type, spread)
            d = {}
            for i in range(m):
                for j in range(n):
                    xs = [real(a[i, x], a_type) for x in range(k)]
                    ys = [real(b[x, j], a_type) for x in range(k)]
                    z = real(c[i, j], c_type)
                    d[i, j] = double(xs, ys, z) if d_type == "f64" else hopper(xs, ys, z, a_type, c_type)
            _append(columns, (m, n, k), (a, a_type), (b, a_type), (c, c_type), (d, d_type))
        _emit(name, f"mma.sync.aligned.{shape}.row.col.{d_type}.{a_type}.{a_type}.{c_type}", columns, d_type == "f64")


def integers() -> None:
    for shape, a_type, b_type in INTEGERS:
        for saturates in (False, True):
            m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
            suffix = ".satfinite" if saturates else ""
            name = f"mma.{shape}{suffix}.s32.{a_type}.{b_type}"
            rng = seeded(name)
            columns = _empty(m, n, k, a_type, b_type, "s32", "s32")
            for _ in range(WARPS):
                a, b, c = _matrices(rng, (m, n, k), a_type, b_type, "s32", 0)
                d = {}
                for i in range(m):
                    for j in range(n):
                        pairs = [(whole(a[i, x], a_type), whole(b[x, j], b_type)) for x in range(k)]
                        total = sum(x * y for x, y in pairs) + whole(c[i, j], "s32")
                        total = max(-(1 << 31), min(total, (1 << 31) - 1)) if saturates else total
                        d[i, j] = total & 0xFFFFFFFF
                _append(columns, (m, n, k), (a, a_type), (b, b_type), (c, "s32"), (d, "s32"))
            _emit(name, f"mma.sync.aligned.{shape}.row.col{suffix}.s32.{a_type}.{b_type}.s32", columns, False)


def whole(bits: int, type_: str) -> int:
    return bits - (1 << BITS[type_]) if type_[0] == "s" and bits >> (BITS[type_] - 1) else bits


Columns = dict[str, list[list[int]]]


def _empty(m: int, n: int, k: int, a: str, b: str, c: str, d: str) -> Columns:
    sizes = {"a": count(m, k, a), "b": count(k, n, b), "c": count(m, n, c), "d": count(m, n, d)}
    return {role: [[] for _ in range(size)] for role, size in sizes.items()}


def _matrices(
    rng: random.Random, shape: tuple[int, int, int], a: str, b: str, c: str, spread: int
) -> tuple[Matrix, Matrix, Matrix]:
    m, n, k = shape
    return (
        {(i, x): drawn(rng, a, spread) for i in range(m) for x in range(k)},
        {(x, j): drawn(rng, b, spread) for x in range(k) for j in range(n)},
        {(i, j): drawn(rng, c, spread) for i in range(m) for j in range(n)},
    )


def _append(columns: Columns, shape: tuple[int, int, int], *matrices: tuple[Matrix, str]) -> None:
    m, n, k = shape
    sizes = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}
    for (role, (rows, width)), (matrix, type_) in zip(sizes.items(), matrices, strict=True):
        layout = "c" if role == "d" else role
        for column, words in zip(columns[role], fragments(matrix, layout, rows, width, type_), strict=True):
            column += words


def _emit(name: str, opcode: str, columns: Columns, wide: bool) -> None:
    type_ = "b64" if wide else "b32"

    def named(role: str) -> dict[str, tuple[str, list[int | str]]]:
        return {f"{role}{i}": (type_, list(column)) for i, column in enumerate(columns[role])}

    def vector(role: str) -> str:
        return "{" + ", ".join(named(role)) + "}"

    inputs = named("a") | named("b") | named("c")
    body = f"{opcode} {vector('d')}, {vector('a')}, {vector('b')}, {vector('c')};"
    emit(Draft(name, SOURCE, body, {n: (t, [int(x) for x in v]) for n, (t, v) in inputs.items()}, named("d")))


def loads() -> None:
    """ldmatrix: 32 rows of eight halves in shared memory, row i from the registers of thread i."""
    rng = seeded("ldmatrix")
    words = {name: [rng.getrandbits(32) for _ in range(LANES)] for name in "abef"}
    rows = [[words[name][i] >> 16 * h & 0xFFFF for name in "abef" for h in range(2)] for i in range(LANES)]
    for n in (1, 2, 4):
        for trans in ("", ".trans"):
            outputs = {}
            for matrix in range(n):
                block = rows[8 * matrix : 8 * matrix + 8]
                if trans:
                    block = [list(column) for column in zip(*block, strict=True)]
                pairs = [block[i // 4][2 * (i % 4)] | block[i // 4][2 * (i % 4) + 1] << 16 for i in range(LANES)]
                outputs[f"d{matrix}"] = ("b32", pairs)
            body = f"""
                mov.u32 place, room;
                mad.lo.u32 place, %thread, 16, place;
                st.shared.v4.b32 [place], {{a, b, e, f}};
                bar.sync 0;
                ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 {{{", ".join(outputs)}}}, [place];
            """
            registers = ".shared .align 16 .b8 room[512];\n.reg .b32 place;"
            inputs = {name: ("b32", column) for name, column in words.items()}
            emit(Draft(f"ldmatrix.x{n}{trans}", SOURCE, body, inputs, outputs, registers=registers))


WARP_MATRICES = [
    ("m16n16k16", "f32", "f16", "row", "col"), ("m16n16k16", "f16", "f16", "col", "row"),
    ("m8n32k16", "f32", "f16", "row", "row"), ("m32n8k16", "f32", "f16", "col", "col"),
    ("m16n16k16", "f32", "bf16", "row", "col"), ("m16n16k16", "s32", "s8", "row", "col"),
    ("m16n16k16", "s32", "u8", "row", "row"), ("m16n16k8", "f32", "tf32", "row", "col"),
    ("m8n8k4", "f64", "f64", "row", "col"),
]  # fmt: skip


def laid_out(matrix: Matrix, rows: int, columns: int, layout: str, type_: str) -> list[list[int]]:
    """The matrix in memory as words, dealt to the threads in order: one column a word of each thread."""
    order = [(r, c) for r in range(rows) for c in range(columns)]
    order = order if layout == "row" else [(r, c) for c in range(columns) for r in range(rows)]
    size = BITS[type_] // 8
    memory = b"".join(matrix[place].to_bytes(size, "little") for place in order)
    words = [int.from_bytes(memory[at : at + 4], "little") for at in range(0, len(memory), 4)]
    each = len(words) // LANES
    return [words[i::each] for i in range(each)]


def warp_matrices() -> None:
    """wmma through shared memory: its fragments are opaque, what comes out is not."""
    for shape, d_type, a_type, a_layout, b_layout in WARP_MATRICES:
        m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
        name = f"wmma.{shape}.{a_layout}.{b_layout}.{d_type}.{a_type}"
        whole_numbers = d_type == "s32"
        a, b, c = _matrices(seeded(name), (m, n, k), a_type, a_type, d_type, 6)
        d = {}
        for i in range(m):
            for j in range(n):
                if whole_numbers:
                    pairs = [(whole(a[i, x], a_type), whole(b[x, j], a_type)) for x in range(k)]
                    d[i, j] = sum(x * y for x, y in pairs) + whole(c[i, j], "s32") & 0xFFFFFFFF
                    continue
                xs, ys = [real(a[i, x], a_type) for x in range(k)], [real(b[x, j], a_type) for x in range(k)]
                z = real(c[i, j], d_type)
                d[i, j] = double(xs, ys, z) if d_type == "f64" else in_steps(xs, ys, z, a_type, d_type)
        words = {
            "a": laid_out(a, m, k, a_layout, a_type), "b": laid_out(b, k, n, b_layout, a_type),
            "c": laid_out(c, m, n, "row", d_type),
        }  # fmt: skip
        result = laid_out(d, m, n, "row", d_type)
        _emit_warp_matrix(name, (shape, d_type, a_type, a_layout, b_layout), (m, n, k), words, result)


def _emit_warp_matrix(
    name: str,
    form: tuple[str, str, str, str, str],
    sizes: tuple[int, int, int],
    words: dict[str, list[list[int]]],
    result: list[list[int]],
) -> None:
    shape, d_type, a_type, a_layout, b_layout = form
    m, n, k = sizes
    starts = {"a": 0, "b": 2048, "c": 4096, "d": 4096}
    body = ["mov.u32 room, store;"]
    for role in "abc":
        body.append(f"mad.lo.u32 place, %thread, {4 * len(words[role])}, room;")
        body += [f"st.shared.b32 [place+{starts[role] + 4 * i}], {role}{i};" for i in range(len(words[role]))]
    body.append("bar.sync 0;")
    wide = "b64" if d_type == "f64" else "b32"
    halves = a_type == "f16"
    counts = {"a": 8 if halves else count(m, k, a_type), "b": 8 if halves else count(k, n, a_type)}
    counts["c"] = counts["d"] = count(m, n, d_type)
    registers = [".shared .align 16 .b8 store[8192];", ".reg .b32 place, room;"]
    registers += [f".reg .{wide} {role}f<{number}>;" for role, number in counts.items()]

    def vector(role: str) -> str:
        return "{" + ", ".join(f"{role}f{i}" for i in range(counts[role])) + "}"

    for role, layout, type_ in (("a", a_layout, a_type), ("b", b_layout, a_type), ("c", "row", d_type)):
        body.append(
            f"wmma.load.{role}.sync.aligned.{layout}.{shape}.shared.{type_} {vector(role)}, [room+{starts[role]}];"
        )
    types = f"{d_type}.{d_type}" if halves else f"{d_type}.{a_type}.{a_type}.{d_type}"
    mode = ".rn" if d_type == "f64" else ""
    body.append(
        f"wmma.mma.sync.aligned.{a_layout}.{b_layout}.{shape}{mode}.{types} "
        f"{vector('d')}, {vector('a')}, {vector('b')}, {vector('c')};"
    )
    body.append("bar.sync 0;")
    body.append(f"wmma.store.d.sync.aligned.row.{shape}.shared.{d_type} [room+{starts['d']}], {vector('d')};")
    body.append("bar.sync 0;")
    body.append(f"mad.lo.u32 place, %thread, {4 * len(result)}, room;")
    body += [f"ld.shared.b32 d{i}, [place+{starts['d'] + 4 * i}];" for i in range(len(result))]
    inputs: dict[str, tuple[str, list[int]]] = {
        f"{role}{i}": ("b32", column) for role in "abc" for i, column in enumerate(words[role])
    }
    outputs: dict[str, tuple[str, list[int | str]]] = {
        f"d{i}": ("b32", list(column)) for i, column in enumerate(result)
    }
    emit(Draft(name, SOURCE, "\n".join(body), inputs, outputs, registers="\n".join(registers)))


def all_cases() -> None:
    reals()
    integers()
    loads()
    warp_matrices()
