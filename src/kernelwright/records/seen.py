"""What a device saw: memory and who asked for it, accesses that went wrong, launches, the device itself."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.sourceline import SourceLine

NO_THREAD = (-1, -1, -1)
"""In the place of a thread or block that the witness does not name."""
HOST_STACK = "the host's stack"
"""Name of an allocation: where a function's own variables and temporaries lie."""


@dataclass(frozen=True)
class Allocation:
    """A piece of memory that the device or the host handed out."""

    kind: str
    """``global`` | ``shared`` | ``local`` | ``const`` | ``param`` | ``host`` | ``binding-temporary`` | ``freed``."""
    bytes: int
    name: str = ""
    """Variable or role, e.g. ``y (torch.empty)``, ``input 0``, ``part``; empty where unknown."""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    site: SourceLine | None = None
    """Where it was allocated, where known."""


@dataclass(frozen=True)
class Finding:
    """Something a kernel was seen to do wrong; many lanes at one site are one finding with a count."""

    cause: str
    """Cause id, e.g. ``memory.out-of-bounds``."""
    kernel: str
    """Demangled kernel name."""
    frames: tuple[SourceLine, ...]
    """Inline stack, innermost first; the last frame is in the kernel itself."""
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    """The first thread it happened to, in launch order; ``NO_THREAD`` where none is named."""
    access: str = ""
    """``load`` | ``store`` | ``atomic`` | ``barrier`` | ``assert`` | ``trap`` | …"""
    space: str = ""
    """``global`` | ``shared`` | ``local`` | ``const`` | ``generic`` | ``param``."""
    bytes: int = 0
    """Width of one lane's access."""
    address: int = 0
    offset: int | None = None
    """Byte offset from the start of ``allocation``; negative before it; None where no allocation is near."""
    allocation: Allocation | None = None
    """The allocation meant or nearest."""
    count: int = 1
    """Thread-level occurrences at this site in this launch (a lower bound once the launch was stopped)."""
    message: str = ""
    """Extra text: the assertion's, the refused instruction's, …"""
    ptx_line: int = 0
    grid: tuple[int, int, int] = (0, 0, 0)
    block_size: tuple[int, int, int] = (0, 0, 0)
    other: tuple[SourceLine, ...] = ()
    """A race's earlier access in the order of the code, as an inline stack; ``frames`` is the later one."""
    witness: str = ""
    """Who saw it: ``by compute-sanitizer memcheck on the GPU``; empty for the emulated device of the check itself."""


@dataclass(frozen=True)
class SanitizerFact:
    """What became of one of compute-sanitizer's tools."""

    tool: str
    """``memcheck`` | ``racecheck`` | ``initcheck`` | ``synccheck``."""
    errors: int = 0
    """As the tool counts them, in whatever code."""
    seconds: float = 0.0
    not_checked: str = ""
    """Why it checked nothing, or not all; empty where it ran to its end."""


@dataclass(frozen=True)
class Suspicion:
    """A pattern in a launched kernel's code: legal, hence no finding, yet it explains a wrong result beside it."""

    cause: str
    """Cause id, e.g. ``warp.block-broadcast``."""
    kernel: str
    frames: tuple[SourceLine, ...]
    """Where it stands: inline stack, innermost first."""
    block_size: tuple[int, int, int]
    holders: tuple[int, ...] = ()
    """Warps of the block that have what the pattern is about."""
    others: tuple[int, ...] = ()
    """Warps that use it without having it."""
    source: tuple[SourceLine, ...] = ()
    """Where the holders get it."""


@dataclass(frozen=True)
class LaunchFact:
    """One kernel launch as the device saw it."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    static_shared_bytes: int = 0
    registers: int | None = None
    error: int = 0
    """cudaError_t that the launch returned; 0 is success."""
    error_name: str = ""
    limit: str = ""
    """Cause id of the refused limit, e.g. ``launch.block-limit``; empty when not refused."""
    message: str = ""
    """Which facts disagree, e.g. ``block of 32 x 64 x 1 = 2048 threads; the device allows 1024``."""
    site: SourceLine | None = None
    """The host line that launched."""
    seconds: float = 0.0
    thread_instructions: int | None = None
    count: int = 1
    """Equal launches from the same site are one fact with a count."""


@dataclass(frozen=True)
class DeviceFact:
    """What the candidate ran on."""

    kind: str
    """``emulated`` | ``cuda``."""
    name: str
    """``NVIDIA H200``."""
    compute_capability: str
    presents_as: str = ""
    """Emulated: the data sheet it presents, e.g. ``h200``."""
    fidelity: tuple[str, ...] = ()
    """Emulated: which instruction classes ran exactly and which approximately."""
