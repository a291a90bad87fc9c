"""The interpreter on whole kernels as nvcc compiles them, against numpy; and what stops it."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import ptx_samples
import pytest

from kernelwright.emulate.interp import (
    Interpreter,
    InterpreterError,
    KernelAssertion,
    KernelTrap,
    MemoryFault,
    UnknownInstruction,
)
from kernelwright.emulate.ptx.parse import parse

Array = np.ndarray[Any, Any]
nvcc = pytest.mark.skipif(not ptx_samples.available(), reason="no nvcc")


def run(
    name: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    *arguments: Array | int | float | bytes,
    dynamic_shared: int = 0,
) -> Interpreter:
    """Launch a sample kernel on arrays (passed by address, bounds checked), ints and floats (32 bits) and raw bytes."""
    arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
    interpreter = Interpreter(
        parse(ptx_samples.ptx_of(name)), allocations=[(array.ctypes.data, array.nbytes) for array in arrays]
    )
    params = b""
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            data, align = struct.pack("<Q", argument.ctypes.data), 8
        elif isinstance(argument, bytes):
            data, align = argument, 8
        else:
            data, align = struct.pack("<i" if isinstance(argument, int) else "<f", argument), 4
        params += bytes(-len(params) % align) + data
    interpreter.launch(name, grid, block, params, dynamic_shared)
    return interpreter


def random(*shape: int, dtype: type = np.float32) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


pytestmark = pytest.mark.emu


@nvcc
def test_gemv() -> None:
    a, x, y = random(10, 256), random(256), np.zeros(10, np.float32)
    run("gemv", (3, 1, 1), (32, 4, 1), a, x, y, 10, 64)
    np.testing.assert_allclose(y, a.astype(np.float64) @ x, rtol=2e-5, atol=1e-5)


@nvcc
def test_softmax() -> None:
    x, y = random(3, 300), np.zeros((3, 300), np.float32)
    run("softmax", (3, 1, 1), (128, 1, 1), x, y, 300)
    exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, exact / exact.sum(axis=1, keepdims=True), rtol=1e-5)


@nvcc
def test_gemm_with_a_ragged_edge() -> None:
    a, b, c = random(40, 40), random(40, 40), np.zeros((40, 40), np.float32)
    run("gemm", (3, 3, 1), (16, 16, 1), a, b, c, 40)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)


@nvcc
def test_histogram() -> None:
    data = np.random.default_rng(1).integers(0, 256, 3000).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    run("histogram", (3, 1, 1), (128, 1, 1), data, bins, 3000)
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=256))


@nvcc
def test_halves() -> None:
    a = random(50, 2).astype(np.float16)
    b = (random(50, 2).view(np.uint32) >> 16).astype(np.uint16)
    c, d, e = np.zeros((50, 2), np.float16), np.zeros((50, 2), np.uint16), np.zeros(50, np.float32)
    run("halves", (2, 1, 1), (32, 1, 1), a, b, c, d, e, 50)
    np.testing.assert_array_equal(c, (a.astype(np.float64) ** 2 + 0.5).astype(np.float16))
    wide = (b.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    got = (d.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(got, wide**2 + 0.5, rtol=2**-8)
    less = np.where(a[:, 0] < a[:, 1], 1, 0)
    np.testing.assert_allclose(e, a[:, 0].astype(np.float64) + wide[:, 1] + less, rtol=1e-6, atol=1e-6)


@nvcc
def test_layernorm() -> None:
    x, scale, shift, y = random(2, 200), random(200), random(200), np.zeros((2, 200), np.float32)
    run("layernorm", (2, 1, 1), (64, 1, 1), x, scale, shift, y, 200, 1e-5, dynamic_shared=2 * 64 * 4)
    wide = x.astype(np.float64)
    exact = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * scale + shift
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-5)


@nvcc
def test_double_math_through_calls() -> None:
    x, y = random(40, dtype=np.float64), np.zeros(40)
    run("doubles", (2, 1, 1), (32, 1, 1), x, y, 40)
    series = np.zeros(40)
    for i in range(5):
        series = series * x + np.sin(x * i)
    exact = np.exp(x) + np.sqrt(np.abs(x)) / (1 + x * x) + series + np.abs(x) ** 1.5
    np.testing.assert_allclose(y, exact, rtol=1e-13)


@nvcc
def test_64_bit_division() -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(-(2**62), 2**62, 64)
    b = np.where(rng.integers(0, 2, 64) == 0, rng.integers(1, 1000, 64), rng.integers(-(2**40), -1, 64))
    q, r, s = np.zeros(64, np.int64), np.zeros(64, np.uint64), np.zeros(64, np.int32)
    run("division", (2, 1, 1), (32, 1, 1), a, b, q, r, s, 64)

    def quotient(p: int, d: int) -> int:
        return abs(p) // abs(d) * (1 if (p < 0) == (d < 0) else -1)

    assert q.tolist() == [quotient(p, d) for p, d in zip(a.tolist(), b.tolist(), strict=True)]
    np.testing.assert_array_equal(r, a.astype(np.uint64) % b.astype(np.uint64))
    short_a, short_b = a.astype(np.int32).tolist(), (b.astype(np.int32) | 1).tolist()
    rest = [p - quotient(p, d) * d for p, d in zip(short_a, short_b, strict=True)]
    expected = [quotient(p, 7) + m for p, m in zip(short_a, rest, strict=True)]
    assert s.tolist() == np.array(expected, np.int64).astype(np.int32).tolist()


@nvcc
def test_switches_tables_recursion_structs_and_printf() -> None:
    out = np.zeros(35, np.int32)
    interpreter = run("ways", (1, 1, 1), (35, 1, 1), out, 6, struct.pack("<i4xd", 4, 2.25))
    factorials = [1, 1, 2, 6, 24, 120, 720, 5040, 40320]

    def expected(i: int) -> int:
        return [
            3, [1, 10, 100, 1000][i & 3], 2 * i if i & 1 else i + 1, factorials[i % 9], 5 + 4, i * 6, -i, -i,
        ][i % 7]  # fmt: skip

    assert out.tolist() == [expected(i) for i in range(35)]
    assert interpreter.printed == f"thread 2 of ways:  2.25 {6 << 33}\n"


@nvcc
def test_a_failed_assertion_names_file_line_and_thread() -> None:
    with pytest.raises(KernelAssertion, match=r"ways\.cu:\d+: .*thread 0.*Assertion `n >= 0` failed"):
        run("ways", (1, 1, 1), (32, 1, 1), np.zeros(32, np.int32), -1, struct.pack("<i4xd", 0, 0))


@nvcc
def test_cooperative_groups() -> None:
    out, total = np.zeros(64, np.int32), np.zeros(1, np.uint32)
    run("groups", (1, 1, 1), (64, 1, 1), out, total)
    sums = np.arange(64).reshape(8, 8).sum(axis=1).repeat(8)
    np.testing.assert_array_equal(out, sums + 32 + 8)
    assert total[0] == len(range(0, 64, 3))


@nvcc
def test_approximations_stay_within_a_few_units() -> None:
    x, y = random(200), np.zeros(200, np.float32)
    run("approximations", (2, 1, 1), (128, 1, 1), x, y, 200)
    import math

    wide = x.astype(np.float64)
    m = np.abs(wide)
    erf = np.array([math.erf(v) for v in wide])
    slow = np.sin((x * np.float32(1000)).astype(np.float64))
    exact = np.exp(wide) + np.sin(wide) + np.cos(wide) + np.log(m + 1) + wide / 3 + np.tanh(wide)
    exact += 1 / np.sqrt(m + 1) + (m + 0.5) ** 1.3 + erf + slow + np.log1p(m)
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-5)


@nvcc
def test_the_second_row_short_of_memory_is_a_fault_at_its_thread() -> None:
    a, x, y = random(2, 256), random(256), np.zeros(1, np.float32)
    with pytest.raises(MemoryFault, match=r"PTX line \d+: st\.global\.f32: illegal access at address .* by thread 32"):
        run("gemv", (1, 1, 1), (32, 2, 1), a, x, y, 2, 64)


def launch(body: str, *, threads: int = 32, head: str = "") -> None:
    text = (
        f".version 8.0\n.target sm_80\n.address_size 64\n{head}.entry k()\n{{\n"
        f".reg .b32 a, b; .reg .pred p;\n{body}\n}}\n"
    )
    Interpreter(parse(text), allocations=[]).launch("k", (1, 1, 1), (threads, 1, 1), b"")


def test_an_unknown_instruction_is_named_with_its_line() -> None:
    with pytest.raises(UnknownInstruction, match=r"PTX line 7: vshl\.u32\.u32\.u32\.sat\.clamp"):
        launch("vshl.u32.u32.u32.sat.clamp a, b, a;")


def test_a_trap_stops_the_kernel() -> None:
    with pytest.raises(KernelTrap, match="PTX line 8"):
        launch("mov.u32 a, 1;\ntrap;")


def test_a_barrier_that_half_a_block_never_reaches_is_a_deadlock() -> None:
    body = "mov.u32 a, %tid.x;\nsetp.lt.u32 p, a, 32;\n@p bar.sync 1, 64;\n@p bra END;\nbar.sync 0, 64;\nEND:\nret;"
    with pytest.raises(InterpreterError, match=r"deadlock[\s\S]*32 threads wait at PTX line 9: bar\.sync"):
        launch(body, threads=64)


def test_a_shuffle_whose_mask_names_a_lane_that_never_comes_is_a_deadlock() -> None:
    body = (
        "mov.u32 a, %tid.x;\nsetp.lt.u32 p, a, 8;\n@!p bra OTHER;\n"
        "shfl.sync.idx.b32 b, a, 0, 31, -1;\nret;\nOTHER:\nbar.sync 0;\nret;"
    )
    with pytest.raises(InterpreterError, match="8 threads wait at PTX line 10"):
        launch(body)


def test_a_misaligned_access_is_a_fault() -> None:
    with pytest.raises(MemoryFault, match="misaligned 4-byte access"):
        launch("ld.shared.u32 a, [s+2];", head=".shared .align 4 .b8 s[16];\n")
