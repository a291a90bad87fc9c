"""Random kernels: a warp computes what its lanes compute alone, and the analysis keeps its promises meanwhile."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import random_kernels

from kernelwright.emulate.analysis import Analysis, analyse
from kernelwright.emulate.interp import Interpreter, machine
from kernelwright.emulate.interp.lanes import Indices
from kernelwright.emulate.ptx.parse import parse

LANES = 32
Array = np.ndarray[Any, Any]


def together(text: str, threads: int = LANES, lane: int = 0, out: Array | None = None) -> Array:
    out = np.zeros((LANES, 2), np.uint32) if out is None else out
    Interpreter(parse(text)).launch("t", (1, 1, 1), (threads, 1, 1), struct.pack("<QI", out.ctypes.data, lane))
    return out


@pytest.mark.parametrize("seed", range(40))
def test_a_warp_computes_what_its_lanes_compute_alone(seed: int) -> None:
    text = random_kernels.random_kernel(seed)
    alone = np.zeros((LANES, 2), np.uint32)
    for lane in range(LANES):
        together(text, 1, lane, alone)
    np.testing.assert_array_equal(together(text), alone)


class _Witness:
    """Looks at every group of lanes the interpreter runs, and holds it against the analysis."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._starts = {block.start: block for block in analysis.blocks}
        self._run = machine.Machine._run_together
        self.broken: list[str] = []

    def __call__(self, running: machine.Machine, indices: Indices, pc: int, depth: int) -> None:
        block = self._starts.get(pc)
        if block is not None:
            self._look(running, indices, pc, depth)
        self._run(running, indices, pc, depth)

    def _look(self, running: machine.Machine, indices: Indices, pc: int, depth: int) -> None:
        block = self._starts[pc]
        if len(indices) < int((~running.done).sum()):
            if block.index not in self._analysis.partial_blocks:
                self.broken.append(f"block {block.index} ran partially")
            return
        frame = running.frame(depth, running.program.owner[pc])
        for name in self._analysis.live_in[block.index]:
            register = self._analysis.function.registers[name]
            if self._analysis.is_uniform(register) and len(np.unique(frame.register(register)[indices])) > 1:
                self.broken.append(f"{name} is not uniform in block {block.index}")


@pytest.mark.parametrize("seed", range(40, 100))
def test_partial_blocks_and_uniform_registers_are_as_promised(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = random_kernels.random_kernel(seed)
    witness = _Witness(analyse(parse(text).functions["t"]))
    # The promise about partial blocks holds while nobody spins.
    monkeypatch.setattr(machine, "_PATIENCE", 10**9)
    monkeypatch.setattr(machine.Machine, "_run_together", lambda *arguments: witness(*arguments))
    together(text)
    assert not witness.broken, witness.broken[:5]


@pytest.mark.emu
@pytest.mark.parametrize("seed", range(100, 140))
def test_the_compiled_emulator_agrees_with_the_interpreter(seed: int) -> None:
    module = pytest.importorskip("kernelwright.emulate.module", reason="the compiled emulator is not there")
    text = random_kernels.random_kernel(seed)
    out = np.zeros((LANES, 2), np.uint32)
    library = module.runtime.library()
    library.kw_adopt(out.ctypes.data, out.nbytes, module.runtime.GLOBAL, b"out")
    try:
        params = struct.pack("<QI", out.ctypes.data, 0)
        outcome = module.EmulatedModule(text, name=f"random {seed}").launch("t", (1, 1, 1), (LANES, 1, 1), params, 0)
    finally:
        library.kw_forget(out.ctypes.data)
    assert outcome.error == 0, outcome
    np.testing.assert_array_equal(out, together(text))
