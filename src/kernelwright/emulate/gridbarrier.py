"""What ``cooperative_groups::this_grid()`` finds in the environment registers: the memory of the grid's barrier.

Why: cooperative groups ask ``%envreg1`` and ``%envreg2`` for the address of a workspace of the driver's, null where the
launch is not cooperative (cooperative_groups/details/driver_abi.h, CUDA 13.0). The rule: a module that reads them gets
a variable of its own in their place, set before each launch; no line of the PTX moves.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping

from . import runtime

POINTER = "kw_grid_workspace"
"""The variable that holds the workspace's address, or 0."""
WORKSPACE_BYTES = 64

_READS = re.compile(r"mov\.[ub]32\s+(%\w+),\s*%envreg([12])\s*;")
_HALVES = {"1": "high", "2": "low"}
"""Which half of the address each register holds."""


def with_workspace(ptx: str) -> str:
    """``ptx`` with the environment registers read from the variable; the same text where none is read."""
    if "%envreg" not in ptx:
        return ptx
    count = 0

    def read(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        whole, low, high = (f"%kw_{part}{count}" for part in ("whole", "low", "high"))
        half = {"low": low, "high": high}[_HALVES[match[2]]]
        return (
            f"{{ .reg .b64 {whole}; .reg .b32 {low}; .reg .b32 {high}; ld.global.u64 {whole}, [{POINTER}]; "
            f"mov.b64 {{{low}, {high}}}, {whole}; mov.u32 {match[1]}, {half}; }}"
        )

    made = _READS.sub(read, ptx)
    return re.sub(r"^(\s*\.address_size\s+64)", rf"\1 .global .align 8 .u64 {POINTER};", made, count=1, flags=re.M)


class GridBarrier:
    """The workspace of one module; nothing where the module reads none."""

    def __init__(self, variables: Mapping[str, tuple[int, int]]) -> None:
        self._pointer = variables.get(POINTER, (0, 0))[0]
        self._workspace = 0

    def prepare(self, *, cooperative: bool) -> None:
        """Before a launch: the workspace of a cooperative one, null for another."""
        if not self._pointer:
            return
        if cooperative and not self._workspace:
            self._workspace = runtime.library().kw_alloc(WORKSPACE_BYTES, runtime.GLOBAL, b"the grid's barrier") or 0
        if cooperative:
            ctypes.memset(self._workspace, 0, WORKSPACE_BYTES)
        address = ctypes.c_uint64(self._workspace if cooperative else 0)
        ctypes.memmove(self._pointer, ctypes.byref(address), 8)
