"""Replays the instruction cases on a GPU and prints every difference: ``python tests/emulate/hardware.py [words]``.

Why: expectations come from the manual, and only hardware can confirm them. The rule: it needs numpy, this folder and
libcuda, nothing else, so that it runs on any machine with a GPU. Words select cases whose name holds any of them.
``--json FILE`` also writes everything observed: device, driver, and the result bits of every case.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import instruction_case
import numpy as np


class DriverError(RuntimeError):
    """A CUDA driver call that failed."""


class Gpu:
    """The first CUDA device, through the driver API."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._do("cuInit", 0)
        device = ctypes.c_int()
        self._do("cuDeviceGet", ctypes.byref(device), 0)
        name = ctypes.create_string_buffer(256)
        self._do("cuDeviceGetName", name, 256, device)
        version = ctypes.c_int()
        self._do("cuDriverGetVersion", ctypes.byref(version))
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._do("cuDeviceGetAttribute", ctypes.byref(major), 75, device)
        self._do("cuDeviceGetAttribute", ctypes.byref(minor), 76, device)
        self.name = name.value.decode()
        self.driver = version.value
        self.capability = 10 * major.value + minor.value
        self._context = ctypes.c_void_p()
        # The primary context: cuCtxCreate's signature differs between CUDA 12 and 13.
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._do("cuCtxSetCurrent", self._context)

    def _do(self, function: str, *arguments: Any) -> None:
        error = getattr(self._cuda, function)(*arguments)
        if error:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(error, ctypes.byref(text))
            raise DriverError(f"{function}: {error} {(text.value or b'').decode()}")

    def run(self, case: instruction_case.Case) -> np.ndarray[Any, Any]:
        """The output memory after ``case`` ran."""
        log = ctypes.create_string_buffer(8192)
        options = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER, its size
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(8192))
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            self._do("cuModuleLoadDataEx", ctypes.byref(module), case.ptx.encode() + b"\0", 2, options, values)
        except DriverError as error:
            raise DriverError(f"{error}\n{log.value.decode(errors='replace')}") from None
        buffers: list[ctypes.c_uint64] = []
        try:
            self._do("cuModuleGetFunction", ctypes.byref(function), module, b"t")
            given, result = instruction_case.input_bytes(case), instruction_case.output_bytes(case)
            for memory in (given, result):
                address = ctypes.c_uint64()
                self._do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(memory.nbytes))
                buffers.append(address)
                self._do(
                    "cuMemcpyHtoD_v2", address, ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.nbytes)
                )
            pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(buffer) for buffer in buffers))
            self._do("cuLaunchKernel", function, case.grid, 1, 1, case.block, 1, 1, 0, None, pointers, None)
            self._do("cuCtxSynchronize")
            self._do("cuMemcpyDtoH_v2", ctypes.c_void_p(result.ctypes.data), buffers[1], ctypes.c_size_t(result.nbytes))
            return result
        finally:
            for buffer in buffers:
                self._cuda.cuMemFree_v2(buffer)
            self._cuda.cuModuleUnload(module)


def main() -> int:
    """Run the selected cases; the exit status is 1 when anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="select cases whose name holds any of these")
    parser.add_argument("--json", type=Path, help="write all observed bits here")
    parser.add_argument("--rows", type=int, default=6, help="differing rows to print a case (default 6)")
    arguments = parser.parse_args()
    gpu = Gpu()
    print(f"{gpu.name}, sm_{gpu.capability}, driver {gpu.driver}")
    observed: dict[str, Any] = {"device": gpu.name, "capability": gpu.capability, "driver": gpu.driver, "cases": {}}
    chosen = [n for n in instruction_case.names() if not arguments.words or any(w in n for w in arguments.words)]
    different: list[str] = []
    failed: list[str] = []
    skipped = 0
    for name in chosen:
        case = instruction_case.load(name)
        if int("".join(c for c in case.target if c.isdigit())) > gpu.capability:
            skipped += 1
            continue
        try:
            memory = gpu.run(case)
        except DriverError as error:
            failed.append(name)
            print(f"FAILED    {name}: {error}")
            if "cuCtxSynchronize" in str(error):
                print("the context is lost; the remaining cases did not run")
                break
            continue
        rows = instruction_case.results(case, memory)
        observed["cases"][name] = {
            column.name: [f"{value:#x}" for value in values] for column, values in zip(case.outputs, rows, strict=True)
        }
        wrong = instruction_case.mismatches(case, memory)
        if wrong:
            different.append(name)
            print(f"DIFFERENT {name}: {len(wrong)} of {case.rows * len(case.outputs)} results")
            for mismatch in wrong[: arguments.rows]:
                told = f"expected {mismatch.expected}, got {mismatch.got}  ({mismatch.operands})"
                print(f"    row {mismatch.row} {mismatch.column}: {told}")
    if arguments.json:
        arguments.json.write_text(json.dumps(observed))
    agree = len(chosen) - len(different) - len(failed) - skipped
    print(f"{agree} agree, {len(different)} differ, {len(failed)} failed, {skipped} need a newer GPU")
    print("differing:", " ".join(different) or "none")
    return 1 if different or failed else 0


if __name__ == "__main__":
    sys.exit(main())
