"""Compulsory bytes and flops, counted by hand beside."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.measure import work
from kernelwright.measure.records import Work

pytestmark = pytest.mark.tiny


def counted(run: Any, inputs: list[Any], module: torch.nn.Module | None = None) -> Work:
    named = [*module.parameters(), *module.buffers()] if module is not None else []
    return work.count(lambda: run(*inputs), inputs, named)


def test_a_linear_layer_reads_input_weight_and_bias_once() -> None:
    layer = torch.nn.Linear(256, 512)
    found = counted(lambda x: torch.softmax(layer(x), 1), [torch.randn(64, 256)], layer)
    assert found == Work(4 * (64 * 256 + 512 * 256 + 512), 4 * 64 * 512, {"fp32": 2 * 64 * 256 * 512})


def test_a_matrix_vector_product_has_its_flops_in_either_form() -> None:
    a = torch.randn(10, 20, dtype=torch.float64)
    assert counted(torch.mv, [a, torch.randn(20, dtype=torch.float64)]).flops == {"fp64": 400}
    assert counted(torch.matmul, [a, torch.randn(20, 1, dtype=torch.float64)]).flops == {"fp64": 400}


def test_a_lookup_counts_its_rows_and_not_its_table() -> None:
    table = torch.nn.Embedding(1000, 16)
    found = counted(table, [torch.randint(0, 1000, (10,))], table)
    assert found.read_bytes == 10 * 16 * 4 + 10 * 8


def test_a_slice_counts_what_is_taken() -> None:
    assert counted(lambda x: x[:, :8].sum(1), [torch.randn(100, 64)]).read_bytes == 100 * 8 * 4


def test_an_input_that_two_operations_read_counts_once() -> None:
    assert counted(lambda x: (x + 1) * x.sum(), [torch.randn(1000)]).read_bytes == 4000


def test_an_expanded_input_counts_its_memory() -> None:
    assert counted(lambda x: x.sum(), [torch.randn(1, 64).expand(100, 64)]).read_bytes == 256


def test_a_parameter_that_nothing_reads_costs_nothing() -> None:
    layer = torch.nn.Linear(64, 64)
    assert counted(lambda x: x * 2, [torch.randn(8)], layer).read_bytes == 32


def test_an_output_that_is_a_view_of_an_input_need_not_be_written() -> None:
    assert counted(lambda x: x.reshape(8, 8), [torch.randn(64)]).written_bytes == 0


def test_half_products_are_counted_under_their_own_dtype() -> None:
    a = torch.randn(16, 16).bfloat16()
    assert counted(torch.matmul, [a, a]).flops == {"bf16": 2 * 16**3}


def test_a_product_of_a_dtype_without_a_ceiling_is_said_and_not_counted() -> None:
    a = torch.ones(16, 16, dtype=torch.int64)
    found = counted(torch.matmul, [a, a])
    assert found.flops == {}
    assert found.note == "products of int64 are not counted"
