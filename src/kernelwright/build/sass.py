"""What ptxas makes of a kernel's PTX for the presented device: registers, spills, and the mix of its SASS instructions.

Why: the emulated device counts PTX; which instructions the hardware would run stands in the cubin alone. The rule: the
PTX that ran is assembled again, with as many registers as the build gave it; code that comes out with other registers
is not the build's and is not shown. Without a disassembler the mix is "not checked", the rest stands.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kernelwright.build import cache, ptxas
from kernelwright.build.nvcc import CommandFailed, clean_environment, run_command
from kernelwright.build.toolchain import Toolchain
from kernelwright.counters.records import KernelCode, KernelCounters
from kernelwright.emulate.demangle import demangle
from kernelwright.records import KernelFacts

NO_DISASSEMBLER = "SASS instructions (nvdisasm is not installed; it comes with CUDA and as nvidia-cuda-nvdisasm)"
OTHER_FLAGS = "SASS instructions (the build compiled with flags that are not known here)"
_WHEELS = ("nvidia/cu13/bin", "nvidia/cuda_nvdisasm/bin", "triton/backends/nvidia/bin")
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+)", re.M)
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.M)
_MEMORY = frozenset({"LDG", "STG", "LDS", "STS", "LDL", "STL", "LD", "ST", "LDGSTS"})
"""Mnemonics whose width (64, 128) is worth telling apart."""


def code(
    ptx: str, toolchain: Toolchain, *, sm: str, registers: dict[str, int] | None = None
) -> tuple[dict[str, KernelCode], str]:
    """Each kernel's code by mangled name, and why the mix is missing (empty where it is there).

    ``registers``: those that the build reported, by mangled name.
    """
    known = registers or {}
    facts, text = _assembled(ptx, toolchain, sm, 0)
    if any(known.get(fact.name, fact.registers) != fact.registers for fact in facts):
        facts, text = _assembled(ptx, toolchain, sm, max(known.values()))
    mixes = mix(text)
    found = {
        fact.name: _code(fact, sm, mixes.get(fact.name, {}))
        for fact in facts
        if known.get(fact.name, fact.registers) == fact.registers
    }
    return found, ("" if text else NO_DISASSEMBLER) if len(found) == len(facts) else OTHER_FLAGS


def attached(
    kernels: Iterable[KernelCounters],
    modules: Iterable[str],
    toolchain: Toolchain,
    *,
    sm: str,
    registers: dict[str, int] | None = None,
) -> list[KernelCounters]:
    """``kernels`` with the code that the PTX texts ``modules`` become; what is missing is said in each record."""
    found: dict[str, KernelCode] = {}
    missing = ""
    for text in modules:
        try:
            codes, why = code(text, toolchain, sm=sm, registers=registers)
        except CommandFailed as failure:
            codes, why = {}, f"SASS instructions ({failure.tool} refuses the PTX)"
        found |= {demangle(name): made for name, made in codes.items()}
        missing = missing or why
    made = []
    for kernel in kernels:
        own = found.get(kernel.kernel)
        reasons = kernel.not_checked if own is not None and own.instructions else (*kernel.not_checked, missing)
        made.append(replace(kernel, code=own, not_checked=tuple(filter(None, reasons))))
    return made


def _code(fact: KernelFacts, sm: str, instructions: dict[str, int]) -> KernelCode:
    return KernelCode(
        arch=sm,
        registers=fact.registers,
        static_shared_bytes=fact.static_shared_bytes,
        stack_bytes=fact.stack_bytes,
        spill_store_bytes=fact.spill_store_bytes,
        spill_load_bytes=fact.spill_load_bytes,
        instructions=instructions,
    )


def _assembled(ptx: str, toolchain: Toolchain, sm: str, most: int) -> tuple[tuple[KernelFacts, ...], str]:
    """ptxas's report and the disassembly (empty without a disassembler); kept in the cache."""
    tool = disassembler(toolchain)

    def make(folder: Path) -> None:
        source, cubin = folder / "kernels.ptx", folder / "kernels.cubin"
        source.write_text(ptx, encoding="utf-8")
        command = [str(toolchain.tool("ptxas")), "-v", f"-arch={sm}", "-o", cubin.name, source.name]
        said = run_command(
            [*command, *([f"-maxrregcount={most}"] if most else [])], folder=folder, environment=clean_environment()
        )
        (folder / "ptxas.txt").write_text(said, encoding="utf-8")
        text = ""
        if tool is not None:
            answer = subprocess.run([str(tool), "-c", str(cubin)], capture_output=True, text=True, check=False)
            text = answer.stdout if answer.returncode == 0 else ""
        (folder / "sass.txt").write_text(text, encoding="utf-8")
        source.unlink()
        cubin.unlink()

    entry, _ = cache.obtain("sass", cache.digest(ptx, toolchain.identity, sm, str(most), str(tool)), make)
    said = (entry / "ptxas.txt").read_text(encoding="utf-8")
    return ptxas.parse(said), (entry / "sass.txt").read_text(encoding="utf-8")


def disassembler(toolchain: Toolchain) -> Path | None:
    """nvdisasm: beside nvcc, on PATH, or in a wheel."""
    places = [toolchain.nvcc.resolve().parent, toolchain.home / "bin"]
    places += [Path(sysconfig.get_path("purelib")) / wheel for wheel in _WHEELS]
    for place in places:
        if (place / "nvdisasm").exists():
            return place / "nvdisasm"
    on_path = shutil.which("nvdisasm")
    return Path(on_path) if on_path else None


def mix(text: str) -> dict[str, dict[str, int]]:
    """Of ``nvdisasm -c``'s output: by mangled kernel, how often each mnemonic stands there; padding is left out."""
    parts = _SECTION.split(text)
    return {
        name: dict(sorted(Counter(map(_mnemonic, _INSTRUCTION.findall(_without_padding(body)))).items()))
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def _without_padding(body: str) -> str:
    """Behind the code stand a branch to itself and NOPs up to the next 128 bytes."""
    body = re.sub(r"(\.L_x_\d+):\n[^\n]*\bBRA `\(\1\);", "", body)
    return re.sub(r"[^\n]*\bNOP\s*;", "", body)


def _mnemonic(opcode: str) -> str:
    base, *parts = opcode.split(".")
    width = next((part for part in parts if part in ("64", "128")), "") if base in _MEMORY else ""
    return f"{base}.{width}" if width else base
