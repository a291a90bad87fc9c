"""What ptxas says of each kernel: registers, shared memory, spills.

The rule: asked for the presented device, with the user's own ptxas flags; a kernel that ptxas refuses fails the build.
"""

from __future__ import annotations

import re

from kernelwright.build.nvcc import Plan
from kernelwright.records import KernelFacts

CUBIN = "facts.cubin"
"""What ptxas leaves in the plan's folder."""

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[(\d+)\]")


def facts(steps: Plan, sm: str) -> tuple[KernelFacts, ...]:
    """Assembles the plan's PTX for ``sm``. Raises :class:`kernelwright.build.nvcc.CommandFailed`."""
    command = re.sub(r"-arch=\S+", f"-arch={sm}", steps.assemble, count=1)
    command = re.sub(r'-o\s+("[^"]*"|\S+)\s*$', f"-o {CUBIN} -v", command)
    return parse(steps.run(command))


def parse(output: str) -> tuple[KernelFacts, ...]:
    """The facts in ``ptxas -v``'s output."""
    made = []
    for block in re.split(r"(?=ptxas info\s+: Compiling entry function)", output)[1:]:
        name = _ENTRY.search(block)
        used = _USED.search(block)
        if not name or not used:
            continue
        spills = _SPILLS.search(block)
        shared = _SHARED.search(block)
        made.append(
            KernelFacts(
                name=name[1],
                registers=int(used[1]),
                static_shared_bytes=int(shared[1]) if shared else 0,
                stack_bytes=int(spills[1]) if spills else 0,
                spill_store_bytes=int(spills[2]) if spills else 0,
                spill_load_bytes=int(spills[3]) if spills else 0,
                constant_bytes=sum(int(size) for size, bank in _CONSTANT.findall(block) if bank != "0"),
            )
        )
    return tuple(made)
