"""Every instruction case, through the interpreter, the compiled emulator, and (``KERNELWRIGHT_HW=1``) a real GPU."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import instruction_case
import pytest

from kernelwright.emulate.interp import Interpreter
from kernelwright.emulate.ptx.parse import parse

CASES = instruction_case.names()


def _report(wrong: list[instruction_case.Mismatch]) -> str:
    return "\n".join(str(mismatch) for mismatch in wrong[:8])


@pytest.mark.parametrize("name", CASES)
def test_interpreter_computes_the_expected_bits(name: str) -> None:
    case = instruction_case.load(name)
    given, result = instruction_case.input_bytes(case), instruction_case.output_bytes(case)
    known = [(memory.ctypes.data, memory.nbytes) for memory in (given, result)]
    interpreter = Interpreter(parse(case.ptx), allocations=known)
    params = struct.pack("<QQ", given.ctypes.data, result.ctypes.data)
    interpreter.launch("t", (case.grid, 1, 1), (case.block, 1, 1), params)
    wrong = instruction_case.mismatches(case, result)
    assert not wrong, _report(wrong)


@pytest.mark.emu
@pytest.mark.parametrize("name", CASES)
def test_compiled_emulator_computes_the_expected_bits(name: str) -> None:
    module = pytest.importorskip("kernelwright.emulate.module", reason="the compiled emulator is not there")
    case = instruction_case.load(name)
    given, result = instruction_case.input_bytes(case), instruction_case.output_bytes(case)
    params = struct.pack("<QQ", given.ctypes.data, result.ctypes.data)
    library = module.runtime.library()
    for memory, role in ((given, b"in"), (result, b"out")):
        library.kw_adopt(memory.ctypes.data, memory.nbytes, module.runtime.GLOBAL, role)
    try:
        emulated = module.EmulatedModule(case.ptx, name=name)
        outcome = emulated.launch("t", (case.grid, 1, 1), (case.block, 1, 1), params, 0)
    except (module.RefusedCall, module.RefusedInstruction) as error:
        pytest.skip(f"refused: {error}")
    finally:
        for memory in (given, result):
            library.kw_forget(memory.ctypes.data)
    assert outcome.error == 0, outcome
    # Payloads of NaNs carry the mark of poisoned memory through the compiled emulator, so any NaN will do.
    wrong = instruction_case.mismatches(case, result, any_nan=True)
    assert not wrong, _report(wrong)


@pytest.mark.gpu
@pytest.mark.skipif(os.environ.get("KERNELWRIGHT_HW") != "1", reason="replay on a GPU with KERNELWRIGHT_HW=1")
@pytest.mark.parametrize("name", CASES)
def test_hardware_computes_the_expected_bits(name: str, gpu: object) -> None:
    import hardware

    assert isinstance(gpu, hardware.Gpu)
    case = instruction_case.load(name)
    if int("".join(c for c in case.target if c.isdigit())) > gpu.capability:
        pytest.skip(f"needs {case.target}, this GPU is sm_{gpu.capability}")
    wrong = instruction_case.mismatches(case, gpu.run(case))
    assert not wrong, _report(wrong)


@pytest.fixture(scope="session")
def gpu() -> object:
    import hardware

    return hardware.Gpu()


def test_case_files_are_what_the_reference_derives() -> None:
    command = [sys.executable, str(Path(__file__).parent / "reference"), "--check"]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_every_case_file_has_its_twin() -> None:
    ptx = {path.stem for path in instruction_case.FOLDER.glob("*.ptx")}
    assert ptx == set(CASES)
    assert len(CASES) > 900
