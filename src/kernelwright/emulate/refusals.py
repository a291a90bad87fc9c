"""What the emulated device does not know, as a finding: the instruction or call, its kernel and its line.

Why: a refusal decides nothing about a candidate, but its author needs the place as much as for a fault. The rule: all
that is known is kept; a refusal of a whole module names no kernel.
"""

from __future__ import annotations

from kernelwright import records
from kernelwright.errors import NotServed, RefusedError

from .calls import RefusedCall
from .codegen.lane import RefusedInstruction
from .demangle import demangle
from .findings import frames
from .ptx.lexer import PtxSyntaxError

CAUSE = "device.refused"
REFUSALS = (RefusedInstruction, RefusedCall, PtxSyntaxError, RefusedError)
"""What is raised for what the emulated device does not know; anything else is a fault of ours."""


def refusal(error: Exception) -> records.Finding | None:
    """The finding that ``error`` amounts to; None where it is no refusal."""
    if not isinstance(error, REFUSALS):
        return None
    nowhere = (0, 0, 0)
    if isinstance(error, (RefusedInstruction, RefusedCall)):
        kernel = demangle(error.kernel)
        return records.Finding(
            cause=CAUSE,
            kernel=kernel,
            frames=frames(error.instruction.position, kernel),
            block=nowhere,
            thread=nowhere,
            access=error.what,
            message=error.why,
            ptx_line=error.instruction.ptx_line,
        )
    if isinstance(error, NotServed):
        frame = (records.SourceLine(error.file, error.line),) if error.line else ()
        return records.Finding(CAUSE, "", frame, nowhere, nowhere, access=error.what)
    line = error.line if isinstance(error, PtxSyntaxError) else 0
    return records.Finding(CAUSE, "", (), nowhere, nowhere, message=" ".join(str(error).split()), ptx_line=line)
