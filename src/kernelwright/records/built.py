"""What became of a build: kernels, compilers' messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelFacts:
    """What ptxas says of one kernel (``nvcc -Xptxas -v``)."""

    name: str
    registers: int
    static_shared_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    constant_bytes: int = 0


@dataclass(frozen=True)
class Diagnostic:
    """One message of a compiler, linker or loader, at its place in the candidate."""

    tool: str
    """``nvcc`` | ``g++`` | ``ptxas`` | ``ld`` | ``loader`` | ``python``."""
    severity: str
    """``error`` | ``warning`` | ``note``."""
    message: str
    file: str = ""
    line: int = 0
    text: str = ""


@dataclass(frozen=True)
class BuildRecord:
    """One extension's build."""

    name: str
    """The extension's name."""
    tier: str
    """``fast`` (facade headers) | ``full`` (real torch headers) | ``torch`` (PyTorch's own cpp_extension, on a GPU)."""
    cached: bool
    seconds: float
    ok: bool
    confirmed: bool | None
    """True when real torch headers accepted these sources too; None when not checked."""
    confirm_note: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    kernels: tuple[KernelFacts, ...] = ()
    fell_through: str = ""
    """Why the fast tier was left, first error; empty when it was not."""
    arch: str = "sm_80"
    call_line: int = 0
    """Line in the candidate of the load_inline/load call; 0 where unknown."""
