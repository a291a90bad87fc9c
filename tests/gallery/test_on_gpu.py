"""The gallery on a GPU, against float64: shapes, strides, dtypes, special values, weights that change, graphs,
torch.compile.

Each kernel file is built once, which takes a minute. The variants of other GPUs run on the emulated device
(test_emulated.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernelwright import gallery
from kernelwright.gallery.kernels import linear as linear_kernel
from kernelwright.gallery.kernels import matvec as matvec_kernel
from kernelwright.gallery.kernels import softmax as softmax_kernel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
HALF_STEP = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@pytest.fixture(autouse=True)
def exact_torch() -> Iterator[None]:
    torch.manual_seed(5)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.no_grad():
        yield
    torch.backends.cuda.matmul.allow_tf32 = before


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact).abs().max() / exact.abs().max().clamp_min(1e-300)).item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("transposed", [False, True])
def test_matvec_agrees_with_float64_over_shapes_strides_and_alignments(dtype: torch.dtype, transposed: bool) -> None:
    for M in (1, 2, 3, 7, 64, 601, 2050):
        for K in (1, 2, 3, 5, 63, 64, 257, 1000, 1024, 4100, 70001):
            for extra, shift in ((0, 0), (3, 1), (8, 8)):
                rows, columns = (K, M) if transposed else (M, K)
                storage = torch.full((rows * (columns + extra) + shift,), float("nan"), dtype=dtype, device="cuda")
                A = storage[shift:].as_strided((rows, columns), (columns + extra, 1))
                A.copy_(torch.randn(rows, columns, device="cuda"))
                A = A.t() if transposed else A
                x = torch.randn(K, device="cuda").to(dtype)
                scale = (A.double().abs() @ x.double().abs()).max()
                error = ((gallery.matvec(A, x).double() - A.double() @ x.double()).abs().max() / scale).item()
                assert error <= HALF_STEP[dtype], (M, K, extra, shift, error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_matvec_recipe_gives_the_same_product_twice(dtype: torch.dtype, transposed: bool) -> None:
    k = matvec_kernel
    sms, hopper, _ = k._device(0)
    for M, K in ((130, 9000), (1, 70000), (5000, 64), (264, 4096), (4104, 1032), (64, 70000), (1003, 3001)):
        A = torch.randn((K, M) if transposed else (M, K), device="cuda").to(dtype)
        A, x = A.t() if transposed else A, torch.randn(K, device="cuda").to(dtype)
        exact = A.double() @ x.double()
        for aligned in (True, False):
            if aligned and A.stride(1 if transposed else 0) * A.element_size() % 16:
                continue
            for name, plan in k.recipes(M, K, A.element_size(), aligned, transposed, sms, hopper).items():
                y = k.matvec(A, x, plan)
                assert distance(y, exact) < 2 * HALF_STEP[dtype], (M, K, name, plan)
                assert torch.equal(y, k.matvec(A, x, plan)), (M, K, name, plan)


def test_a_captured_matvec_whose_blocks_post_sums_replays_beside_others() -> None:
    k = matvec_kernel
    A, x = torch.randn(70000, 33, device="cuda").t(), torch.randn(70000, device="cuda")
    plan = next(p for p in k.recipes(33, 70000, 4, False, True, *k._device(0)[:2]).values() if p.posted)
    exact = A.double() @ x.double()
    k.matvec(A, x, plan)
    graphs = []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = k.matvec(A, x, plan)
        graphs.append((graph, y, torch.cuda.Stream()))
    for _ in range(20):
        for graph, _, stream in graphs:
            with torch.cuda.stream(stream):
                graph.replay()
        k.matvec(A, x, plan)
    torch.cuda.synchronize()
    assert all(distance(y, exact) < 2e-6 for _, y, _ in graphs)
    assert distance(k.matvec(A, x, plan), exact) < 2e-6


def test_posted_sums_that_are_nan_are_taken_for_what_they_are() -> None:
    k = matvec_kernel
    for M, K, transposed in ((3, 40000, False), (64, 9000, True)):
        A = torch.randn((K, M) if transposed else (M, K), device="cuda")
        A.view(torch.int32)[0, 0] = -1  # the bits of an empty slot
        A, x = A.t() if transposed else A, torch.randn(K, device="cuda")
        plans = k.recipes(M, K, 4, M % 4 == 0 or not transposed, transposed, *k._device(0)[:2]).values()
        exact = A.double() @ x.double()
        for plan in (p for p in plans if p.posted):
            for _ in range(2):
                y = k.matvec(A, x, plan)
                assert torch.equal(y.isnan(), exact.isnan()), plan
                assert distance(y[1:], exact[1:]) < 2e-6, plan


def test_columns_fewer_than_a_piece_and_rows_that_lie_over_one_another_are_right() -> None:
    for columns, stride, rows in ((2, 2, 90001), (3, 5, 4097), (1000, 1, 300), (1000, 0, 300)):
        storage = torch.randn((rows - 1) * stride + columns, device="cuda")
        A, x = storage.as_strided((rows, columns), (stride, 1)).t(), torch.randn(rows, device="cuda")
        assert distance(gallery.matvec(A, x), A.double() @ x.double()) < 2e-6, (columns, stride, rows)


def test_matvec_of_more_than_two_to_the_31_elements() -> None:
    A = torch.ones(1 << 17, 20000, dtype=torch.float16, device="cuda")
    A[-1] = 2
    y = gallery.matvec(A, torch.ones(20000, dtype=torch.float16, device="cuda"))
    assert y[0] == 20000 and y[-1] == 40000


def test_matvec_propagates_nan_and_inf_as_torch_does() -> None:
    for K in (64, 5000):
        A, x = torch.randn(300, K, device="cuda"), torch.randn(K, device="cuda")
        A[3, 7], A[5, 9], A[9, 1] = float("nan"), float("inf"), float("inf")
        x[1] = 0
        for left in (A, A.t().contiguous().t()):
            y, exact = gallery.matvec(left, x), A @ x
            assert torch.equal(y.isnan(), exact.isnan()) and torch.equal(y.isinf(), exact.isinf())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_plan_by_columns_takes_special_values_as_torch_does_and_x_from_anywhere(dtype: torch.dtype) -> None:
    k = matvec_kernel
    for M, K in ((264, 1500), (203, 1500), (64, 20001)):
        A, x = torch.randn(K, M, device="cuda").to(dtype), torch.randn(K + 1, device="cuda").to(dtype)[1:]
        A[3, 7], A[5, 9], A[9, 1], A[K - 1, 30], A[K - 1, M - 1] = (
            float(v) for v in ("nan", "inf", "inf", "-inf", "inf")
        )
        x[9] = 0
        A = A.t()
        aligned = M * A.element_size() % 16 == 0
        exact = A.double() @ x.double()
        finite = exact.isfinite()
        for name, plan in k.recipes(M, K, A.element_size(), aligned, True, *k._device(0)[:2]).items():
            y = k.matvec(A, x, plan)
            assert torch.equal(y.isnan(), exact.isnan()), (M, K, name)
            assert torch.equal(y.isposinf(), exact.isposinf()) and torch.equal(y.isneginf(), exact.isneginf()), name
            assert distance(y[finite], exact[finite]) < 2 * HALF_STEP[dtype], (M, K, name)


def test_matvec_gives_the_same_bits_a_hundred_times() -> None:
    for A in (
        torch.randn(33, 70000, device="cuda"),
        torch.randn(70000, 33, device="cuda").t(),
        torch.randn(5000, 4096, device="cuda").t(),
    ):
        x = torch.randn(A.shape[1], device="cuda")
        first = gallery.matvec(A, x)
        assert all(torch.equal(first, gallery.matvec(A, x)) for _ in range(100))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_softmax_agrees_with_float64_over_lengths_and_prologues(dtype: torch.dtype) -> None:
    for N in (
        1,
        7,
        64,
        255,
        1000,
        1024,
        2048,
        4096,
        8192,
        8193,
        16384,
        20000,
        32768,
        50257,
        65536,
        131072,
        262144,
        300001,
    ):
        z = (torch.randn(5, N, device="cuda") * 3).to(dtype)
        bias = torch.randn(N, device="cuda").to(dtype)
        keep = torch.rand(5, N, device="cuda") < 0.9
        for activation, function in (
            (None, lambda v: v),
            ("gelu", F.gelu),
            ("gelu_tanh", lambda v: F.gelu(v, approximate="tanh")),
        ):
            plain = torch.softmax(function(z.double()), 1)
            assert distance(gallery.softmax(z, activation=activation), plain) <= 2 * HALF_STEP[dtype], (N, activation)
            full = torch.softmax((function(z.double() + bias.double()) * 0.5).masked_fill(~keep, float("-inf")), 1)
            found = gallery.softmax(z, bias=bias, mask=keep, scale=0.5, activation=activation)
            assert distance(found, full) <= 2 * HALF_STEP[dtype] or bool(full.isnan().any()), (N, activation)
            added = gallery.softmax(z, mask=bias, activation=activation)
            assert distance(added, torch.softmax(function(z.double()) + bias.double(), 1)) <= 2 * HALF_STEP[dtype], (
                N,
                activation,
            )


def test_every_softmax_recipe_takes_special_rows_as_torch_does() -> None:
    k = softmax_kernel
    hopper = k._device(0)[0]
    for N in (512, 1001, 2048, 5003, 16384, 32767, 65536, 131075):
        z = torch.randn(9, N, device="cuda")
        z[0, 3], z[1, N // 2], z[2], z[3, : N // 2], z[4, 7], z[5] = (
            float("nan"),
            float("inf"),
            float("-inf"),
            float("-inf"),
            1e30,
            -3e38,
        )
        z[6, : N // 2], z[6, N // 2 :] = float("-inf"), z[6, N // 2 :] - 1e4
        exact = torch.softmax(z, 1)
        aligned = k.ROWS if N % 4 == 0 else k.WHOLE
        for name, plan in k.recipes(9, N, 4, aligned, hopper, True).items():
            assert torch.allclose(k.softmax(z, plan=plan), exact, rtol=1e-5, atol=1e-30, equal_nan=True), (N, name)
            again = z.clone()
            if plan.variant != k.TORCH:
                found = k.softmax(again, in_place=True, plan=plan)
                assert found.data_ptr() == again.data_ptr(), (N, name)
                assert torch.allclose(again, exact, rtol=1e-5, atol=1e-30, equal_nan=True), (N, name)


def test_every_softmax_recipe_brings_warps_together_whatever_their_values() -> None:
    k = softmax_kernel
    hopper = k._device(0)[0]
    for N in (1000, 4096, 16385, 32768, 65536):
        z = torch.randn(9, N, device="cuda")
        z *= torch.tensor([1e-3, 1.0, 30.0, 1e3, 1e6, 1e8, 2e9, 1e20, 5e37], device="cuda")[:, None]
        z[1] += torch.arange(N, device="cuda") / N * 50  # each warp's highest value is another
        z[3] -= 1e5
        z[5] += 7e8
        exact = torch.softmax(z.double(), 1)
        for name, plan in k.recipes(9, N, 4, k.ROWS if N % 4 == 0 else k.WHOLE, hopper, False).items():
            away = (k.softmax(z, plan=plan).double() - exact).abs().amax(1) / exact.amax(1)
            assert bool((away < 2e-6).all()), (N, name, away.tolist())


def test_softmax_is_at_most_twice_as_far_off_as_torch_whatever_the_logits_size() -> None:
    k = softmax_kernel
    hopper = k._device(0)[0]
    for N in (1000, 1001, 4096, 16385, 32768, 65536):
        for size in (1, 30, 100, 1000):
            z = torch.randn(64, N, device="cuda") * size
            z[:, 7] = z.amax(1) - 0.3  # two large ones a row, so that a wrong ratio is seen
            exact = torch.softmax(z.double(), 1)
            theirs = float((torch.softmax(z, 1).double() - exact).abs().max())
            allowed = max(2 * theirs, 3e-7 * float(exact.max()))  # PyTorch's exp of the row's highest is 1 itself
            for name, plan in k.recipes(64, N, 4, k.ROWS if N % 4 == 0 else k.WHOLE, hopper, False).items():
                ours = float((k.softmax(z, plan=plan).double() - exact).abs().max())
                assert ours <= allowed, (N, size, name, ours, theirs)


def test_softmax_of_many_long_rows_takes_bias_by_every_recipe() -> None:
    k = softmax_kernel
    for dtype in (torch.float32, torch.bfloat16):
        for N, gap in ((8192, 0), (16384, 0), (16384, 8), (16385, 0), (32760, 0), (40000, 0), (40000, 8), (50257, 0)):
            z = (torch.randn(300, N + gap, device="cuda") * 2).to(dtype)[:, :N]
            bias = torch.randn(N, device="cuda").to(dtype)
            exact = torch.softmax(F.gelu(z.double() + bias.double()), 1)
            aligned = k.ROWS if N * z.element_size() % 16 == 0 else k.WHOLE
            for name, plan in k.recipes(300, N, z.element_size(), aligned, k._device(0)[0], False).items():
                found = k.softmax(z, bias=bias, activation="gelu", plan=plan)
                assert distance(found, exact) <= 2 * HALF_STEP[dtype], (dtype, N, name)


def test_softmax_claims_each_row_once_on_several_streams_at_a_time_and_in_graphs() -> None:
    k = softmax_kernel
    streams = [torch.cuda.Stream() for _ in range(3)]
    for N in (16384, 16385):
        z, bias = torch.randn(900, N, device="cuda"), torch.randn(N, device="cuda")
        exact = torch.softmax(F.gelu(z.double() + bias.double()), 1)
        for name, plan in k.recipes(900, N, 4, k.ROWS if N % 4 == 0 else k.WHOLE, k._device(0)[0], False).items():
            if plan.variant != k.STREAM:
                continue
            first = k.softmax(z, bias=bias, activation="gelu", plan=plan)
            assert distance(first, exact) <= HALF_STEP[torch.float32], (N, name)
            for _ in range(5):  # in place: a row that nobody claims, as counts were left behind, stays as it was
                again = z.clone()
                k.softmax(again, bias=bias, activation="gelu", in_place=True, plan=plan)
                assert torch.equal(first, again), (N, name)
            found = []
            for stream in streams * 3:
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    found.append(k.softmax(z, bias=bias, activation="gelu", plan=plan))
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                found.append(k.softmax(z, bias=bias, activation="gelu", plan=plan))
            for _ in range(3):
                found[-1].zero_()
                graph.replay()
                torch.cuda.synchronize()
                assert all(torch.equal(first, y) for y in found), (N, name)


def test_softmax_of_rows_that_begin_anywhere_takes_bias_and_masks() -> None:
    k = softmax_kernel
    for dtype in (torch.float32, torch.bfloat16):
        for N in (2049, 5003, 50257):
            z, bias = (torch.randn(7, N, device="cuda") * 2).to(dtype), torch.randn(N, device="cuda").to(dtype)
            keep, add = torch.rand(7, N, device="cuda") < 0.9, torch.randn(7, N, device="cuda").to(dtype)
            middle = F.gelu(z.double() + bias.double()) * 0.5
            for mask, exact in (
                (keep, torch.softmax(middle.masked_fill(~keep, float("-inf")), 1)),
                (add, torch.softmax(middle + add.double(), 1)),
            ):
                for name, plan in k.recipes(7, N, z.element_size(), k.WHOLE, k._device(0)[0], False).items():
                    found = k.softmax(z, bias=bias, mask=mask, scale=0.5, activation="gelu", plan=plan)
                    assert distance(found, exact) <= 2 * HALF_STEP[dtype], (dtype, N, name)


def test_softmax_in_place_leaves_what_lies_around_its_rows_alone() -> None:
    k = softmax_kernel
    for dtype in (torch.float32, torch.bfloat16):
        for M, N in ((3, 5003), (700, 5003), (300, 16385), (150, 50257)):
            piece = 128 // torch.finfo(dtype).bits  # 16 bytes
            bias, rows = torch.randn(N, device="cuda").to(dtype), torch.randn(M, N, device="cuda").to(dtype)
            for activation, b in ((None, None), ("gelu", bias)):
                exact = torch.softmax(rows.double() if b is None else F.gelu(rows.double() + b.double()), 1)
                for name, plan in k.recipes(M, N, rows.element_size(), k.WHOLE, k._device(0)[0], False).items():
                    storage = torch.full((M * N + 8 * piece,), 7.0, dtype=dtype, device="cuda")
                    for begin in (0, piece, 5 * piece):  # at and within a line of 128 bytes
                        storage.fill_(7)
                        z = storage[begin : begin + M * N].view(M, N)
                        z.copy_(rows)
                        k.softmax(z, bias=b, activation=activation, in_place=True, plan=plan)
                        assert distance(z, exact) <= 2 * HALF_STEP[dtype], (dtype, M, N, name, begin)
                        around = torch.cat((storage[:begin], storage[begin + M * N :]))
                        assert bool((around == 7).all()), (dtype, M, N, name, begin)


def test_a_remembered_plan_is_not_taken_where_memory_begins_elsewhere() -> None:
    for N in (5003, 8192):
        storage = torch.randn(6 * N + 8, device="cuda")
        for shift in (0, 1, 4, 0, 2):
            z = storage[shift : shift + 6 * N].view(6, N)
            assert distance(gallery.softmax(z), torch.softmax(z.double(), 1)) < 4e-6, (N, shift)
            A = storage[shift : shift + 6 * N].view(6, N)
            x = storage[shift : shift + N]
            assert distance(gallery.matvec(A, x), A.double() @ x.double()) < 2e-6, (N, shift)


def test_softmax_gives_the_same_bits_a_hundred_times() -> None:
    for shape in ((300, 1000), (64, 8192), (20, 50257), (9, 131072)):
        z, bias = torch.randn(shape, device="cuda"), torch.randn(shape[1], device="cuda")
        first = gallery.gelu_softmax(z, bias)
        assert all(torch.equal(first, gallery.gelu_softmax(z, bias)) for _ in range(100)), shape


def layer(M: int, N: int, K: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(M, K, device="cuda"), torch.randn(N, K, device="cuda") / K**0.5, torch.randn(N, device="cuda")


def test_linear_is_at_least_as_accurate_as_torch_over_ragged_shapes() -> None:
    for M, N, K in (
        (1, 1, 1),
        (1, 5000, 4097),
        (33, 129, 65),
        (64, 64, 64),
        (130, 258, 1000),
        (300, 127, 9001),
        (1000, 1000, 64),
    ):
        x, w, b = layer(M, N, K)
        exact = x.double() @ w.double().t() + b.double()
        assert distance(gallery.linear(x, w, b), exact) <= 1.2 * distance(F.linear(x, w, b), exact) + 2e-7, (M, N, K)


def tensor_variants() -> list[int]:
    """The tensor cores' kernels that this device has."""
    portable = (linear_kernel.PORTABLE, linear_kernel.PORTABLE_BYTES)
    return [v for v in linear_kernel.WIDTHS if v in portable or linear_kernel._device(0)[1]]


def bytes_and_halves() -> list[tuple[int, int]]:
    """The kernels of bytes, each with the one of halves that takes what it leaves."""
    k = linear_kernel
    pairs = [(k.BYTES_32, k.HOPPER_32), (k.BYTES_64, k.HOPPER_64), (k.BYTES_128, k.HOPPER_128)]
    return [(k.PORTABLE_BYTES, k.PORTABLE), *(pairs if k._device(0)[1] else [])]


def test_every_linear_plan_and_epilogue_agrees_with_float64() -> None:
    k = linear_kernel
    x, w, b = layer(150, 200, 700)
    residual = torch.randn(150, 200, device="cuda")
    z = x.double() @ w.double().t() + b.double()
    functions = {
        None: z,
        "gelu": F.gelu(z),
        "gelu_tanh": F.gelu(z, approximate="tanh"),
        "relu": F.relu(z),
        "silu": F.silu(z),
    }
    for plan in (k.Plan(variant, splits) for variant in tensor_variants() for splits in (1, 3)):
        for activation, exact in functions.items():
            found = k.linear(x, w, b, activation=activation, scale=0.5, residual=residual, plan=plan)
            assert distance(found, exact * 0.5 + residual.double()) < 2e-6, (plan, activation)


def few_rows(M: int, N: int, K: int) -> list[Any]:
    """The plans of `rows` there are for such operands, each once."""
    found = linear_kernel.recipes(M, N, K, linear_kernel._device(0)[0], linear_kernel._device(0)[1]).values()
    return [plan for plan in dict.fromkeys(found) if plan.variant in linear_kernel.SIDES]


@pytest.mark.parametrize("M", [1, 2, 3, 4, 5, 8, 13, 16, 17, 40, 113, 128])
def test_linear_of_few_rows_agrees_with_float64_and_always_in_the_same_bits(M: int) -> None:
    for N, K in ((1, 1), (512, 512), (130, 70001), (131, 515), (1000, 4100), (33, 129), (2049, 3000), (10, 65536)):
        x, w, b = layer(M, N, K)
        exact = F.gelu(x.double() @ w.double().t() + b.double())
        for plan in few_rows(M, N, K):
            found = linear_kernel.linear(x, w, b, activation="gelu", plan=plan)
            assert distance(found, exact) < 2e-6, (N, K, plan)
            again = [linear_kernel.linear(x, w, b, activation="gelu", plan=plan) for _ in range(5)]
            assert all(torch.equal(found, y) for y in again), (N, K, plan)


def test_linear_of_few_rows_is_as_accurate_as_torch() -> None:
    for M in (1, 2, 4, 8, 16, 64):
        for N, K in ((4096, 4096), (1000, 5003), (512, 16384), (512, 512)):
            x, w, b = layer(M, N, K)
            exact = x.double() @ w.double().t() + b.double()
            theirs = (F.linear(x, w, b).double() - exact).pow(2).mean().sqrt()
            for plan in few_rows(M, N, K):
                ours = (linear_kernel.linear(x, w, b, plan=plan).double() - exact).pow(2).mean().sqrt()
                assert ours <= 1.25 * theirs, (M, N, K, plan, float(ours), float(theirs))


@pytest.mark.parametrize("M", [1, 2, 3, 7, 16, 33])
def test_linear_of_few_rows_takes_any_strides_and_alignment_and_every_epilogue(M: int) -> None:
    functions = {
        None: lambda z: z,
        "gelu": F.gelu,
        "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
        "relu": F.relu,
        "silu": F.silu,
    }
    for N, K in ((70, 512), (37, 1003), (5, 4)):
        for extra, shift in ((0, 0), (3, 1), (4, 2), (8, 4)):
            x = torch.full((M * (K + extra) + shift,), float("nan"), device="cuda")[shift:]
            w = torch.full((N * (K + extra) + shift,), float("nan"), device="cuda")[shift:]
            x, w = x.as_strided((M, K), (K + extra, 1)), w.as_strided((N, K), (K + extra, 1))
            x.copy_(torch.randn(M, K))
            w.copy_(torch.randn(N, K) / K**0.5)
            residual, b = torch.randn(M, N, device="cuda"), torch.randn(N, device="cuda")
            for plan in few_rows(M, N, K):
                for activation, function in functions.items():
                    for bias in (b, None):
                        z = x.double() @ w.double().t() + (0 if bias is None else b.double())
                        exact = function(z) * 0.5 + residual.double()
                        y = linear_kernel.linear(
                            x, w, bias, activation=activation, scale=0.5, residual=residual, plan=plan
                        )
                        assert distance(y, exact) < 2e-6, (N, K, extra, shift, plan, activation)


@pytest.mark.parametrize("M", [1, 2, 4, 7, 16, 49])
def test_linear_of_few_rows_gives_nan_and_inf_where_torch_does(M: int) -> None:
    for N, K in ((90, 333), (90, 1024), (9, 4096)):
        for where in (0, 1, K // 2, K - 1):
            x, w, b = layer(M, N, K)
            x[0, where], w[3, where], w[4, 0], w[5, K - 1] = float("inf"), 0, float("nan"), float("-inf")
            if M > 1:  # beside an Inf, whether a product overflows first is a matter of order
                x[M - 1, 2], w[6, 2] = 1e30, 1e20
            exact = F.linear(x, w, b)
            for plan in few_rows(M, N, K):
                found = linear_kernel.linear(x, w, b, plan=plan)
                assert torch.equal(found.isnan(), exact.isnan()), (N, K, where, plan)
                assert torch.equal(found.isinf(), exact.isinf()), (N, K, where, plan)


def test_layers_one_after_the_other_read_what_the_one_in_front_wrote() -> None:
    for M in (1, 4, 16, 64):
        weights = [torch.randn(512, 512, device="cuda") / 512**0.5 for _ in range(4)]
        for _ in range(25):  # in memory that held the last turn's values
            y = torch.randn(M, 512, device="cuda")
            exact = y.double()
            for w in weights:
                y, exact = gallery.linear(y, w), exact @ w.double().t()
            assert distance(y, exact) < 5e-6, M


@pytest.mark.parametrize("rows", [70, 7])
def test_linear_answers_special_rows_in_plain_float32(rows: int) -> None:
    x, w, b = layer(70, 90, 333)
    x[1, 3], x[2, 9], w[5, 2], w[6, 0] = float("inf"), float("nan"), float("-inf"), float("nan")
    x[3], x[4], w[7] = 0, x[4] * 1e-38, w[7] * 1e25
    x[5, 0], x[6] = 1e9, x[6] * 0
    x = x[:rows]
    exact, found = F.linear(x, w, b), gallery.linear(x, w, b)
    assert torch.equal(found.isnan(), exact.isnan()) and torch.equal(found.isinf(), exact.isinf())
    bound = (x.abs() @ w.abs().t() + b.abs()) * 1e-6
    finite = exact.isfinite()
    assert bool(((found - exact).abs() <= bound)[finite].all())


def test_linear_never_uses_a_stale_weight() -> None:
    module = nn.Linear(300, 200, device="cuda")
    x = torch.randn(50, 300, device="cuda")

    def right() -> bool:
        exact = F.linear(x.double(), module.weight.double(), module.bias.double())
        return distance(gallery.linear(x, module.weight, module.bias), exact) < 2e-6

    assert right()
    module.weight.mul_(-2)
    assert right()
    module.load_state_dict({"weight": torch.randn(200, 300), "bias": torch.randn(200)})
    assert right()
    module.weight.data = torch.randn(200, 300, device="cuda")
    assert right()
    module.to("cpu").to("cuda")
    assert right()
    module.weight.grad = torch.randn(200, 300, device="cuda")
    torch.optim.SGD([module.weight], lr=0.5).step()
    assert right()
    torch.optim.Adam([module.weight], lr=0.5, fused=True).step()
    assert right()
    with torch.inference_mode():
        inside = torch.randn(200, 300, device="cuda")
        gallery.linear(x, inside)
        inside.mul_(3)
        assert distance(gallery.linear(x, inside), x.double() @ inside.double().t()) < 2e-6
    module.weight.data.mul_(2)  # PyTorch does not count this
    gallery.forget(module.weight)
    assert right()


def test_planes_that_come_to_lie_where_others_lay_are_read_by_their_own_shape() -> None:
    for _ in range(3):
        for M, N, K in ((40, 256, 512), (20, 512, 256), (70, 128, 1024), (40, 1024, 128), (300, 256, 512)):
            x, w, b = layer(M, N, K)  # whose memory, and that of their planes, is the last ones'
            exact = x.double() @ w.double().t() + b.double()
            assert distance(gallery.linear(x, w, b), exact) < 2e-6, (M, N, K)
            assert distance(gallery.linear(x, w, b), exact) < 2e-6, (M, N, K)
            del x, w, b, exact


def test_a_weight_written_on_one_stream_is_right_on_another() -> None:
    x, w, b = layer(50, 200, 300)
    for _ in range(3):
        w.mul_(-1.5)
        gallery.linear(x, w, b)
        exact = x.double() @ w.double().t() + b.double()
        torch.cuda.synchronize()
        for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                found = [gallery.linear(x, w, b) for _ in range(3)]
            stream.synchronize()
            assert all(distance(z, exact) < 2e-6 for z in found)


def test_a_weights_split_goes_with_the_weight() -> None:
    x, w, _ = layer(50, 2048, 2048)
    gallery.linear(x, w), gallery.linear(x, w)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    del w
    assert before - torch.cuda.memory_allocated() >= 2 * 2048 * 2048 * 4


def test_a_subclass_of_tensor_is_taken_as_the_tensor_it_is() -> None:
    class Named(torch.Tensor):
        pass

    x, w, b = layer(8, 64, 96)
    named = [t.as_subclass(Named) for t in (x, w, b)]
    exact = F.linear(x.double(), w.double(), b.double())
    for _ in range(3):
        assert distance(gallery.matvec(named[1], named[0][0]).as_subclass(torch.Tensor), exact[0] - b.double()) < 2e-6
        assert distance(gallery.linear(*named).as_subclass(torch.Tensor), exact) < 2e-6
        assert distance(gallery.linear(x, named[1], b).as_subclass(torch.Tensor), exact) < 2e-6


def test_where_torch_was_faster_its_result_comes_without_gradient_and_in_its_dtype(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matvec_kernel, "measured", lambda *_: (4, False, 64, 96, "torch"))
    monkeypatch.setattr(linear_kernel, "measured", lambda *_: (8, 64, 96, "torch"))
    matvec_kernel.forget_plans(), linear_kernel.forget_plans()
    try:
        with torch.enable_grad():
            for A in (torch.randn(64, 96, device="cuda"), torch.randn(96, 64, device="cuda").t()):
                A = A.detach().requires_grad_()
                for x in (torch.randn(96, device="cuda"), torch.randn(96, 1, device="cuda")):
                    for _ in range(2):
                        with torch.autocast("cuda"):
                            y = gallery.matvec(A, x)
                        assert y.dtype == torch.float32 and not y.requires_grad and y.shape == (64, *x.shape[1:])
                        assert distance(y, A.double() @ x.double()) < 2e-6
            (x, w, b), z = layer(8, 64, 96), torch.randn(2, 4, 96, device="cuda")
            w.requires_grad_()
            functions = {
                None: lambda v: v,
                "gelu": F.gelu,
                "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"),
                "relu": F.relu,
                "silu": F.silu,
            }
            for given, bias in ((x, b), (x, None), (z, b)):
                for activation, function in functions.items():
                    exact = function(F.linear(given.double(), w.double(), None if bias is None else bias.double())) * 2
                    for _ in range(2):
                        with torch.autocast("cuda"):
                            out = gallery.linear(given, w, bias, activation=activation, scale=2.0)
                        assert out.dtype == torch.float32 and not out.requires_grad
                        assert distance(out, exact) < 2e-6, activation
            torch.set_float32_matmul_precision("high")  # then PyTorch's product may be TF32, and is not taken
            try:
                assert distance(gallery.linear(x, w, b), F.linear(x.double(), w.double(), b.double())) < 2e-6
            finally:
                torch.set_float32_matmul_precision("highest")
    finally:
        monkeypatch.undo()
        matvec_kernel.forget_plans(), linear_kernel.forget_plans()


def test_x_is_split_inside_the_product_as_in_front_of_it() -> None:
    """A new weight is split in front, and x beside it; with a kept split the product's kernel splits x itself."""
    for M, N, K in ((1024, 8192, 8192), (1000, 5000, 3000), (400, 1000, 2560), (200, 1000, 12000), (130, 300, 16384)):
        x, w, b = layer(M, N, K)
        x[5, 7], x[M - 1, 0], x[M // 2] = float("inf"), 1e30, 0
        w[3, 5], w[N - 1, 0], w[N - 2] = float("nan"), 1e30, 0
        for variant in tensor_variants():
            plan = linear_kernel.Plan(variant, 1)
            gallery.forget(w)
            first = linear_kernel.linear(x, w, b, activation="gelu", plan=plan).nan_to_num()
            for _ in range(4):
                again = linear_kernel.linear(x, w, b, activation="gelu", plan=plan).nan_to_num()
                assert torch.equal(first, again), (M, N, K, plan)


def test_what_does_not_suit_bytes_is_multiplied_in_halves() -> None:
    k = linear_kernel
    for M, N, K in ((300, 700, 8200), (260, 1100, 3001), (129, 260, 6144)):  # no tiles are shared: to the bit
        x, w, b = layer(M, N, K)
        for in_bytes, in_halves in bytes_and_halves():
            plain, halves = (k.linear(x, w, b, plan=k.Plan(v, 1)) for v in (in_bytes, in_halves))
            assert not torch.equal(plain, halves)
            width = k.WIDTHS[in_bytes]
            one_row, one_column = x.clone(), w.clone()
            one_row[M - 1, 7] = 1e4
            one_column[130, K - 1] = 1e4
            changed = torch.arange(M, device="cuda") // width == (M - 1) // width
            y, theirs = (k.linear(one_row, w, b, plan=k.Plan(v, 1)) for v in (in_bytes, in_halves))
            assert torch.equal(y[changed], theirs[changed]) and torch.equal(y[~changed], plain[~changed]), in_bytes
            changed = torch.arange(N, device="cuda") // 128 == 1
            for _ in range(2):  # with W's halves made, and kept
                y, theirs = (k.linear(x, one_column, b, plan=k.Plan(v, 1)) for v in (in_bytes, in_halves))
                assert torch.equal(y[:, changed], theirs[:, changed]), in_bytes
                assert torch.equal(y[:, ~changed], plain[:, ~changed]), in_bytes
            one_column.mul_(-0.5)  # they are no longer its halves
            y, theirs = (k.linear(x, one_column, b, plan=k.Plan(v, 1)) for v in (in_bytes, in_halves))
            assert torch.equal(y[:, changed], theirs[:, changed]), in_bytes
            assert torch.equal(k.linear(x, w, b, plan=k.Plan(in_bytes, 1)), plain), in_bytes
            wide = x * torch.exp2(torch.randint(-12, 12, (M, K), device="cuda").float())
            graded = w * torch.exp2(torch.randint(-12, 12, (N, K), device="cuda").float())
            for splits in (1, 3):
                y, theirs = (k.linear(wide, graded, b, plan=k.Plan(v, splits)) for v in (in_bytes, in_halves))
                assert torch.equal(y, theirs), (in_bytes, splits)


def test_bytes_take_special_rows_as_torch_does() -> None:
    k = linear_kernel
    x, w, b = layer(150, 300, 2560)
    x[1, 3], x[2, 9], w[5, 2], w[6, 0] = float("inf"), float("nan"), float("-inf"), float("nan")
    x[3], x[4], w[7], w[140] = 0, x[4] * 1e-38, w[7] * 1e25, 0
    x[130], w[290] = 0, w[290] * 1e-30
    exact = F.linear(x, w, b)
    bound = (x.abs() @ w.abs().t() + b.abs()) * 1e-6
    finite = exact.isfinite()
    for in_bytes, _ in bytes_and_halves():
        for _ in range(2):
            y = k.linear(x, w, b, plan=k.Plan(in_bytes, 1))
            assert torch.equal(y.isnan(), exact.isnan()) and torch.equal(y.isinf(), exact.isinf()), in_bytes
            assert bool(((y - exact).abs() <= bound)[finite].all()), in_bytes


def test_bytes_are_as_accurate_as_torch_where_they_are_a_choice() -> None:
    k = linear_kernel
    for M, N, K in ((64, 8192, 8192), (512, 2048, 6144), (1024, 2048, 16384), (200, 5000, 7001)):
        for what, x, w, b in (("normal", *layer(M, N, K)), ("gelu", *layer(M, N, K)), ("positive", *layer(M, N, K))):
            x = F.gelu(x) if what == "gelu" else x.abs() if what == "positive" else x
            w = w.abs() if what == "positive" else w
            exact = x.double() @ w.double().t() + b.double()
            theirs = (F.linear(x, w, b).double() - exact).square().mean().sqrt()
            plans = [p for p in k.recipes(M, N, K, k._device(0)[0], k._device(0)[1]).values() if k.is_bytes(p.variant)]
            assert plans
            for plan in dict.fromkeys(plans):
                ours = (k.linear(x, w, b, plan=plan).double() - exact).square().mean().sqrt()
                assert ours <= theirs, (M, N, K, what, plan, float(ours), float(theirs))


def test_a_captured_product_in_bytes_replays_on_other_values() -> None:
    k = linear_kernel
    x, w, b = layer(130, 300, 6400)
    for in_bytes, _ in bytes_and_halves():
        plan = k.Plan(in_bytes, 1)
        k.linear(x, w, b, plan=plan)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = k.linear(x, w, b, plan=plan)
        for _ in range(3):
            x.copy_(torch.randn_like(x)), w.copy_(torch.randn_like(w))
            w[200, 3], x[100, 5] = 3e3, 3e3  # bytes leave some tiles
            graph.replay()
            assert torch.equal(y, k.linear(x, w, b, plan=plan)), in_bytes


def test_tiles_that_several_blocks_share_agree_with_float64_and_repeat_to_the_bit() -> None:
    for M, N, K in ((1000, 5000, 3000), (3000, 1536, 1024), (1024, 2240, 4096), (2000, 1200, 8200), (700, 2600, 1000)):
        x, w, b = layer(M, N, K)
        for variant in tensor_variants():
            plan = linear_kernel.Plan(variant, 1)
            z = linear_kernel.linear(x, w, b, plan=plan)
            exact = x.double() @ w.double().t() + b.double()
            assert distance(z, exact) < 3e-6, (M, N, K, variant)
            for _ in range(5):
                assert torch.equal(z, linear_kernel.linear(x, w, b, plan=plan)), (M, N, K, variant)
            y = linear_kernel.linear(x, w, b, activation="gelu_tanh", scale=-3.0, plan=plan)
            assert distance(y, F.gelu(exact, approximate="tanh") * -3) < 3e-6, (M, N, K, variant)


def test_products_on_two_streams_do_not_disturb_each_other() -> None:
    shapes = ((1000, 5000, 3000), (2048, 1536, 2048))
    layers = [layer(*shape) for shape in shapes]
    alone = [gallery.linear(*one) for one in layers]
    streams = [torch.cuda.Stream() for _ in layers]
    torch.cuda.synchronize()
    found: list[list[torch.Tensor]] = [[], []]
    for _ in range(20):
        for stream, one, outs in zip(streams, layers, found, strict=True):
            with torch.cuda.stream(stream):
                outs.append(gallery.linear(*one))
    torch.cuda.synchronize()
    for expected, outs in zip(alone, found, strict=True):
        assert all(torch.equal(expected, out) for out in outs)


def test_a_captured_product_with_shared_tiles_replays_beside_others() -> None:
    x, w, b = layer(1000, 5000, 3000)
    expected = gallery.linear(x, w, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = gallery.linear(x, w, b)
    for _ in range(3):
        out.zero_()
        graph.replay()
        beside = gallery.linear(x, w, b)
        assert torch.equal(out, expected)
        assert torch.equal(beside, expected)


def test_a_captured_graph_splits_the_weight_at_each_replay() -> None:
    x, w, b = layer(64, 128, 256)
    for _ in range(2):
        gallery.linear_gelu_softmax(x, w, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = gallery.linear_gelu_softmax(x, w, b)
    for _ in range(3):
        w.normal_()
        x.normal_()
        graph.replay()
        exact = torch.softmax(F.gelu(x.double() @ w.double().t() + b.double()), 1)
        assert distance(y, exact) < 2e-5


def test_linear_gives_the_same_bits_a_hundred_times() -> None:
    x, w, b = layer(70, 300, 5000)
    first = gallery.linear(x, w, b, activation="gelu")
    assert all(torch.equal(first, gallery.linear(x, w, b, activation="gelu")) for _ in range(100))


def test_torch_compile_keeps_the_operators_whole() -> None:
    x, w, b = layer(64, 256, 128)
    compiled = torch.compile(
        lambda x, w, b: gallery.linear_gelu_softmax(x, w, b) + gallery.matvec(x, x[0]).unsqueeze(1), fullgraph=True
    )
    exact = torch.softmax(F.gelu(x.double() @ w.double().t() + b.double()), 1) + (x.double() @ x[0].double()).unsqueeze(
        1
    )
    assert distance(compiled(x, w, b), exact) < 2e-6


def test_wrong_arguments_are_told_in_a_sentence() -> None:
    x = torch.randn(4, 8, device="cuda")
    with pytest.raises(RuntimeError, match=r"A \[M, K\] and x"):
        gallery.matvec(x, x[0, :3])
    with pytest.raises(RuntimeError, match="on one GPU"):
        gallery.matvec(x, x[0].cpu())
    with pytest.raises(RuntimeError, match="float32 on x's GPU"):
        gallery.linear(x, x.half())
    with pytest.raises(RuntimeError, match="activation"):
        gallery.softmax(x, activation="tanh")
