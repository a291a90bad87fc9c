"""What the runtime saw, as records: causes, source lines, allocations.

The rule: the order of ``CAUSES`` is that of enum kw_cause in native/runtime_warp.h.
"""

from __future__ import annotations

import dataclasses
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
    "device.assert", "device.trap", "sync.divergent-barrier", "sync.shared-race", "sync.shared-race",
    "memory.uninitialised", "memory.uninitialised", "sync.global-race", "sync.global-race", "memory.stale-read",
    "sync.shared-race", "memory.out-of-bounds",
)  # fmt: skip
OBSERVATIONS = frozenset({8, 11, 13, 15, 17, 20})
"""Causes (by number) that hardware tolerates: no error, but they may explain a wrong result."""
SPACES = ("global", "shared", "local", "generic", "const", "param")
ACCESSES = ("load", "store", "atomic", "barrier", "assert", "trap", "sync")
KINDS = (
    "none", "global", "host", "pinned", "managed", "binding-temporary", "const", "freed", "shared", "local", "param",
)  # fmt: skip
EXITED_BEFORE_BARRIER = 11
GLOBAL_RACES = frozenset({16, 17, 18})
STALE, UNDER_WAY = 18, 19
TRAPS = {
    TOO_DEEP: f"{{}} calls itself more than {DEPTH} deep, where the emulated device ends a thread; a GPU's stack ends"
    " at a depth that its limit and the frame's size decide",
    BY_POINTER: "{} calls itself through a pointer, which the emulated device does not follow",
}
"""Of a ``trap`` that flattening put in, by its first modifier: what it means for the function its second one names."""
_BY_WINDOW = frozenset({12, 13, 14, 15, 19})
"""Causes whose shared offsets are from the window's start, not from an array's."""
_DID = {"load": "read", "store": "wrote", "atomic": "updated"}


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


def own_frame(stack: tuple[records.SourceLine, ...]) -> records.SourceLine:
    """The innermost frame in the file that holds the kernel, so that no header's line is named."""
    return next(frame for frame in stack if frame.file == stack[-1].file)


def coordinates(index: int, size: tuple[int, int, int]) -> tuple[int, int, int]:
    """A linear index as x, y, z."""
    return index % size[0], index // size[0] % size[1], index // size[0] // size[1]


def finding(
    native: NativeFinding,
    *,
    kernel: str,
    instruction: Instruction,
    other: tuple[Site, Instruction] | None,
    shared_arrays: tuple[tuple[str, int, int], ...],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
) -> records.Finding:
    """The record of a native finding; ``other``: the earlier access that it races with."""
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
    offset = native.offset
    if native.cause in _BY_WINDOW and allocation is not None and allocation.kind == "shared":
        allocation, offset = _array(allocation, offset, shared_arrays)
    message = native.message.decode(errors="replace")
    if native.cause == EXITED_BEFORE_BARRIER:
        message = "some threads of the block had exited before this barrier"
    if instruction.op == "trap" and instruction.mods:
        message = TRAPS[instruction.mods[0]].format(demangle(instruction.mods[1]))
    earlier: tuple[records.SourceLine, ...] = ()
    if other is not None:
        earlier = frames(other[1].position, kernel)
        same_warp = native.thread // 32 == native.other_thread // 32
        same_block = native.cause not in GLOBAL_RACES or native.other_block == native.block
        of_block = "" if same_block else f" of block {_triple(coordinates(native.other_block, grid))}"
        missing = "no barrier" if same_block else "nothing that orders the two blocks"
        if same_block and same_warp:
            missing = "no __syncwarp"
        who = f"thread {_triple(coordinates(native.other_thread, block))}{of_block}"
        at = f" at line {own_frame(earlier).line}" if earlier else ""
        doubt = "and this load may find what was there before" if native.cause == STALE else f"with {missing} between"
        message = f"{who} {_DID[ACCESSES[other[0].access]]} it{at}, {doubt}"
        if native.cause == UNDER_WAY:
            message = f"{who} copies it{at} asynchronously and has not waited for that copy"
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
        offset=offset if native.has_allocation else None,
        allocation=allocation,
        count=native.count,
        message=message,
        ptx_line=instruction.ptx_line,
        grid=grid,
        block_size=block,
        other=earlier,
    )


def _array(
    window: records.Allocation, offset: int, arrays: tuple[tuple[str, int, int], ...]
) -> tuple[records.Allocation, int]:
    """The shared array at ``offset`` of the window and the offset in it; the window itself where none is declared."""
    for name, start, size in arrays:
        size = size or window.bytes - start
        if start <= offset < start + size:
            return dataclasses.replace(window, name=_own_name(name), bytes=size), offset - start
    return window, offset


def _own_name(mangled: str) -> str:
    return demangle(mangled).rsplit("::", 1)[-1]


def _triple(numbers: tuple[int, int, int]) -> str:
    return f"({','.join(str(n) for n in numbers)})"
