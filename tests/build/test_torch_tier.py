"""PyTorch's own build on a GPU: what we add to a call of ``load_inline`` or ``load``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.build import BuildContext, BuildFailed
from kernelwright.build.torchtier import recorded

pytestmark = pytest.mark.tiny

CANDIDATE = 'SOURCE = r"""\n__global__ void k() {}\n"""\n'


class Torch:
    """Stands for torch.utils.cpp_extension: keeps what it was asked."""

    def __init__(self, *, fails: str = "") -> None:
        self.fails = fails
        self.asked: dict[str, Any] = {}

    def load_inline(
        self, name: str, cpp_sources: Any, cuda_sources: Any = None, functions: Any = None, extra_cflags: Any = None,
        extra_cuda_cflags: Any = None, **more: Any,
    ) -> str:  # fmt: skip
        self.asked = {"name": name, "cuda_sources": cuda_sources, "extra_cuda_cflags": extra_cuda_cflags, **more}
        if self.fails:
            raise RuntimeError(self.fails)
        return "module"

    def load(self, name: str, sources: Any, extra_cflags: Any = None, extra_cuda_cflags: Any = None) -> str:
        self.asked = {"name": name, "sources": sources, "extra_cuda_cflags": extra_cuda_cflags}
        return "module"


def wrapped(torch: Torch) -> tuple[Any, list[Any]]:
    """The two functions as we hand them on, and the records that they make."""
    records: list[Any] = []
    context = BuildContext("candidate.py", CANDIDATE, None, "sm_90", records.append, lambda request: None)
    return SimpleNamespace(**recorded(torch, context)), records


def test_device_code_gets_a_line_table_beside_the_flags_that_were_given() -> None:
    theirs = Torch()
    torch, records = wrapped(theirs)
    assert torch.load_inline("e", "", "x", extra_cuda_cflags=["-O3"], verbose=True) == "module"
    assert theirs.asked["extra_cuda_cflags"] == ["-O3", "-lineinfo"]
    assert theirs.asked["verbose"] is True
    assert [(r.name, r.ok, r.tier) for r in records] == [("e", True, "torch")]


def test_flags_given_by_position_are_found() -> None:
    theirs = Torch()
    torch, _ = wrapped(theirs)
    torch.load_inline("e", "", "x", ["f"], [], ["--use_fast_math", "-lineinfo"])
    assert theirs.asked["extra_cuda_cflags"] == ["--use_fast_math", "-lineinfo"]
    torch.load("f", ["a.cu"], None, ["-O2"])
    assert theirs.asked["extra_cuda_cflags"] == ["-O2", "-lineinfo"]


def test_a_call_without_flags_gets_the_line_table_alone() -> None:
    theirs = Torch()
    torch, _ = wrapped(theirs)
    torch.load(name="f", sources=["a.cu"])
    assert theirs.asked == {"name": "f", "sources": ["a.cu"], "extra_cuda_cflags": ["-lineinfo"]}


def test_sources_are_marked_with_the_candidates_lines() -> None:
    theirs = Torch()
    torch, _ = wrapped(theirs)
    torch.load_inline("e", "", ["\n__global__ void k() {}\n"])
    assert theirs.asked["cuda_sources"] == ['#line 1 "candidate.py"\n\n__global__ void k() {}\n']


def test_what_torch_raises_is_a_failed_build() -> None:
    torch, records = wrapped(Torch(fails="Error building extension 'e'"))
    with pytest.raises(BuildFailed, match="Error building extension 'e'"):
        torch.load_inline("e", "", "x")
    assert [r.ok for r in records] == [False]
