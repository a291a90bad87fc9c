"""The code patterns of a kernel that ran, as records that cross to the explaining side.

Why: only this process holds the parsed kernel, only the explaining one knows whether the result is wrong. The rule:
nothing here runs unless somebody asks, so a right candidate pays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.emulate.demangle import demangle
from kernelwright.emulate.findings import frames
from kernelwright.emulate.flatten import flatten
from kernelwright.emulate.patterns import block_broadcasts
from kernelwright.records import Suspicion

if TYPE_CHECKING:
    from kernelwright.emulate.module import EmulatedModule


def suspicions(module: EmulatedModule, kernel: str, block: tuple[int, int, int]) -> list[Suspicion]:
    """Patterns in ``kernel`` (mangled) of ``module``, launched with ``block``. Raises what flattening raises."""
    function = flatten(module.module, module.module.functions[module.module.aliases.get(kernel, kernel)])
    name = demangle(kernel)
    return [
        Suspicion(
            cause="warp.block-broadcast",
            kernel=name,
            frames=frames(pattern.position, name),
            block_size=block,
            holders=pattern.holders,
            others=pattern.others,
            source=frames(pattern.source, name),
        )
        for pattern in block_broadcasts(function, block)
    ]
