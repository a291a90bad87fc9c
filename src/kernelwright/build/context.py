"""What the worker tells the build room once, and what a failed build raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelwright.build.extension import Extension
from kernelwright.records import BuildRecord, Diagnostic


@dataclass(frozen=True)
class ConfirmRequest:
    """Asks the supervisor whether the real torch headers accept what the fast tier accepted."""

    extension: Extension
    arch: str
    """The PTX target the fast tier used; part of the name of what it left in the store."""
    sm: str = ""
    """What ptxas was asked for, the same way."""
    libraries: tuple[str, ...] = ()
    """The native parts the module is linked with; the supervisor does not look for them itself."""


@dataclass(frozen=True)
class ConfirmResult:
    """The answer."""

    ok: bool
    """False only on the real headers' own word."""
    diagnostics: tuple[Diagnostic, ...] = ()
    seconds: float = 0.0
    how: str = ""
    """``splice`` | ``cached`` | ``full`` | a sentence saying why it could not be checked."""
    checked: bool = True
    """False where the check itself could not run: nothing is known then."""


@dataclass(frozen=True)
class BuildContext:
    """One candidate's process."""

    candidate_file: str
    candidate_text: str
    device: Any
    """The emulated device, or None on a GPU (torch's own cpp_extension builds then)."""
    arch: str
    """PTX target where the candidate chooses none, e.g. ``sm_80``."""
    on_record: Callable[[BuildRecord], None]
    on_confirm_request: Callable[[ConfirmRequest], None]


class BuildFailed(RuntimeError):
    """An extension did not become a module. The message is torch's; ``record`` has every diagnostic at its line."""

    def __init__(self, record: BuildRecord, message: str) -> None:
        super().__init__(message)
        self.record = record
