"""The interpreter's front: a module, its variables, and launches.

Why: the compiled emulator needs something to be compared with that nobody would mistake for it. This one is written
for reading: numpy, one instruction at a time, no shortcuts. The rule: an instruction it does not know stops it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kernelwright.emulate.ptx.ir import Module
from kernelwright.emulate.ptx.types import align_up

from .errors import InterpreterError
from .machine import Machine
from .memory import Memory
from .program import Program
from .special import SpecialRegisters


class Interpreter:
    """Runs the kernels of one module; its global variables live as long as it does.

    ``allocations`` are (address, bytes) pairs that kernels may touch. Without them any host address may be touched,
    and a wild one ends the process.
    """

    def __init__(self, module: Module, *, allocations: Iterable[tuple[int, int]] | None = None) -> None:
        self._module = module
        self._memory = Memory(allocations)
        self._program = Program(module, self._memory)
        self._printed: list[str] = []
        self.thread_instructions = 0
        """Instructions executed by all threads of all launches, guards counted."""

    @property
    def printed(self) -> str:
        """What kernels printed so far."""
        return "".join(self._printed)

    def symbol(self, name: str) -> tuple[int, int]:
        """Host address and size in bytes of a ``__device__`` or ``__constant__`` variable."""
        return self._program.addresses[name], self._module.variables[name].size

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        params: bytes,
        dynamic_shared: int = 0,
        *,
        cooperative: bool = False,
    ) -> None:
        """Run ``kernel`` over ``grid`` blocks of ``block`` threads.

        ``params`` is the parameter block as the driver lays it out (``Param.offset``). Blocks run one after the
        other; with ``cooperative`` they run together, so that they can wait for one another. Raises an
        ``InterpreterError`` for anything that would stop the kernel on a GPU, and for unknown instructions.
        """
        code = self._program.code.get(self._program.resolve(kernel))
        if code is None or not code.function.entry:
            raise InterpreterError(f"no kernel named '{kernel}' in this module")
        needed = max((p.offset + p.size for p in code.function.params), default=0)
        if len(params) < needed:
            raise InterpreterError(f"'{kernel}' takes {needed} bytes of parameters, {len(params)} were given")
        address = self._memory.allocate(max(len(params), 16))
        self._memory.write(address, params)
        blocks = list(range(grid[0] * grid[1] * grid[2]))
        shared = align_up(self._program.shared_bytes, 16) + dynamic_shared
        special = SpecialRegisters(grid, block, dynamic_shared, shared)
        with np.errstate(all="ignore"):
            for group in [blocks] if cooperative else [[index] for index in blocks]:
                machine = Machine(
                    program=self._program,
                    kernel=code,
                    special=special,
                    blocks=group,
                    threads=block[0] * block[1] * block[2],
                    params=(address, len(params)),
                    shared_bytes=shared,
                    printed=self._printed,
                )
                try:
                    machine.run()
                finally:
                    self.thread_instructions += machine.executed
        self._memory.release(address)
