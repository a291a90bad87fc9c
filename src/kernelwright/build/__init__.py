"""Sources to modules: toolchain, line mapping, the fast and the full tier, confirmation, diagnostics.

The worker calls :func:`install` once in the candidate's process; ``torch.utils.cpp_extension.load_inline`` and ``load``
are then ours. The supervisor calls :func:`confirm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.build.context import BuildContext, BuildFailed, ConfirmRequest, ConfirmResult

if TYPE_CHECKING:
    from kernelwright.build.inline import Builder

__all__ = ["BuildContext", "BuildFailed", "ConfirmRequest", "ConfirmResult", "confirm", "install"]


def install(context: BuildContext) -> Builder:
    """Makes ``torch.utils.cpp_extension``'s ``load_inline`` and ``load`` build through ``context``, in this process."""
    import torch.utils.cpp_extension as theirs

    from kernelwright.build.gpu import GpuBuilder
    from kernelwright.build.inline import Builder
    from kernelwright.build.torchtier import recorded

    on_a_gpu = context.device is None
    builder = GpuBuilder(context, theirs=recorded(theirs, context)) if on_a_gpu else Builder(context)
    theirs.load_inline = builder.load_inline
    theirs.load = builder.load
    return builder


def confirm(request: ConfirmRequest) -> ConfirmResult:
    """Whether the real torch headers accept what the fast tier accepted; runs compilers, imports no torch."""
    from kernelwright.build.confirmation import run

    return run(request)
