"""How many terms an operator sums, which a yardstick's noise depends on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.judge import precision

aten = torch.ops.aten
X = torch.zeros(2, 3, 5, dtype=torch.float64)


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("operator", "args", "terms"),
    [
        (aten.sum.default, (X,), 30),
        (aten.sum.dim_IntList, (X, [1, -1]), 15),
        (aten.prod.dim_int, (X, 2), 5),
        (aten.var.correction, (X, [0]), 2),
        # The order of the norm stands before its axes, as in torch.norm(x, p=2, dim=1).
        (aten.linalg_vector_norm.default, (X, 2, [1], True), 3),
        (aten.linalg_vector_norm.default, (X, 7), 30),
        (aten.norm.ScalarOpt_dim, (X, 2, [1, 2], False), 15),
        (aten.mm.default, (X[0], X[0].t()), 5),
        (aten.addmm.default, (X[0], X[0], X[0].t()), 5),
        (aten.relu.default, (X,), 1),
    ],
)
def test_the_terms_of_a_result_are_counted_over_its_own_axes(operator: Any, args: tuple[Any, ...], terms: int) -> None:
    assert precision._terms(operator, args) == terms
