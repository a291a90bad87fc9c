"""What the runtime saw, as records: causes, source lines, allocations.

The rule: the order of ``CAUSES`` is that of enum kw_cause in native/runtime_warp.h.
"""

from __future__ import annotations

import functools
import linecache

from kernelwright import records

from .codegen.lane import Site
from .demangle import demangle
from .ptx.ir import Instruction, Position
from .recursion import BY_POINTER, DEPTH, TOO_DEEP
from .runtime import NativeFinding

CAUSES = (
    "memory.out-of-bounds", "memory.misaligned", "memory.local-overrun", "interface.host-memory",
    "interface.raw-pointer", "memory.use-after-free", "sync.divergent-barrier", "sync.deadlock", "warp.mask",
    "device.assert", "device.trap", "sync.divergent-barrier",
)  # fmt: skip
OBSERVATIONS = frozenset({8, 11})
"""Causes (by number) that hardware tolerates: no error, but they may explain a wrong result."""
SPACES = ("global", "shared", "local", "generic", "const", "param")
ACCESSES = ("load", "store", "atomic", "barrier", "assert", "trap", "sync")
KINDS = (
    "none", "global", "host", "pinned", "managed", "binding-temporary", "const", "freed", "shared", "local", "param",
)  # fmt: skip
EXITED_BEFORE_BARRIER = 11
TRAPS = {
    TOO_DEEP: f"{{}} calls itself more than {DEPTH} deep, where the emulated device ends a thread; a GPU's stack ends"
    " at a depth that its limit and the frame's size decide",
    BY_POINTER: "{} calls itself through a pointer, which the emulated device does not follow",
}
"""Of a ``trap`` that flattening put in, by its first modifier: what it means for the function its second one names."""


@functools.lru_cache(maxsize=4096)
def _line(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()


def frames(position: Position | None, kernel: str) -> tuple[records.SourceLine, ...]:
    """The inline stack of a position, innermost first; the last frame lies in the kernel itself."""
    found = []
    while position is not None:
        function = demangle(position.function) if position.function else kernel
        found.append(records.SourceLine(position.file, position.line, _line(position.file, position.line), function))
        position = position.inlined_at
    return tuple(found)


def coordinates(index: int, size: tuple[int, int, int]) -> tuple[int, int, int]:
    """A linear index as x, y, z."""
    return index % size[0], index // size[0] % size[1], index // size[0] // size[1]


def finding(
    native: NativeFinding,
    *,
    kernel: str,
    site: Site,
    instruction: Instruction,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
) -> records.Finding:
    """The record of a native finding."""
    allocation = None
    if native.has_allocation:
        about = native.allocation
        allocation = records.Allocation(
            kind=KINDS[about.kind],
            bytes=about.bytes,
            name=about.name.decode(errors="replace"),
            dtype=about.dtype.decode(errors="replace"),
            shape=tuple(about.shape[: max(about.ndim, 0)]),
        )
    message = native.message.decode(errors="replace")
    if native.cause == EXITED_BEFORE_BARRIER:
        message = "some threads of the block had exited before this barrier"
    if instruction.op == "trap" and instruction.mods:
        message = TRAPS[instruction.mods[0]].format(demangle(instruction.mods[1]))
    return records.Finding(
        cause=CAUSES[native.cause],
        kernel=kernel,
        frames=frames(instruction.position, kernel),
        block=coordinates(native.block, grid),
        thread=coordinates(native.thread, block),
        access=ACCESSES[native.access],
        space=SPACES[native.space] if native.bytes else "",
        bytes=native.bytes,
        address=native.address,
        offset=native.offset if native.has_allocation else None,
        allocation=allocation,
        count=native.count,
        message=message,
        ptx_line=instruction.ptx_line,
        grid=grid,
        block_size=block,
    )
