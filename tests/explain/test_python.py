"""The questions that are asked of a candidate's Python, and the answers that must be withheld."""

from __future__ import annotations

import pytest

from kernelwright.explain.python import Tree

pytestmark = pytest.mark.tiny

TEXT = """\
from torch.utils import cpp_extension

first = cpp_extension.load_inline(name="one", cuda_sources=S, functions=["go", "stop"])
second = cpp_extension.load("two", sources=["a.cu"])


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n
        self.layer = nn.Linear(n, n)
        self.weight = nn.Parameter(torch.empty(n, device="cuda"))

    def forward(self, x, y):
        out = torch.zeros(x.shape)
        whole = x[:]
        tail = x[1:]
        row = x[0]
        first.go(whole, row, tail)
        second.run(y.narrow(0, 4, 8),
                   out)
        y += 1
        x[0] = 2
        local = torch.relu(x)
        local.add_(1)
        y.copy_(x)
        return out
"""


def test_extensions_and_their_bound_names_are_found() -> None:
    tree = Tree(TEXT)
    assert tree.extensions == {"first": "one", "second": "two"}
    assert tree.bound == ["go", "stop"]


def test_a_call_over_several_lines_is_one_call() -> None:
    tree = Tree(TEXT)
    assert [tree.called_at(line) for line in (19, 20, 21, 22)] == ["go", "run", "run", ""]


def test_only_slices_that_move_the_start_and_reach_a_call_count() -> None:
    assert Tree(TEXT).sliced_arguments == [17, 20]


def test_tensors_without_a_device_are_found_in_the_class_only() -> None:
    assert Tree(TEXT).cpu_tensors == [15]


def test_changes_in_place_of_arguments_are_told_from_those_of_locals() -> None:
    assert Tree(TEXT).in_place == [22, 23, 26]


def test_what_init_keeps_and_what_forward_returns() -> None:
    tree = Tree(TEXT)
    assert tree.members("ModelNew") == [("layer", 11), ("weight", 12)]
    assert tree.returned_lines == [15]


def test_text_that_is_not_python_has_no_answers() -> None:
    tree = Tree("def (:")
    assert (tree.extensions, tree.bound, tree.sliced_arguments, tree.in_place) == ({}, [], [], [])
