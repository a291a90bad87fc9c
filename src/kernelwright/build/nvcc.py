"""nvcc's own steps, taken apart, so that they run side by side and are skipped one by one.

Why: ``nvcc -c`` runs host preprocessing, cudafe++, device preprocessing, cicc, ptxas, fatbinary and g++ one after the
other; the emulated device needs cicc's PTX and g++'s object only, and most edits change only one of them. The rule: the
commands are nvcc's own (``--dryrun``), with the user's flags; none is written by hand, so every flag keeps its meaning.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.build.cache import digest
from kernelwright.build.toolchain import Toolchain


class CommandFailed(Exception):
    """A compiler refused. Carries what it said; not the user's to see."""

    def __init__(self, tool: str, command: str, output: str) -> None:
        super().__init__(f"{tool} failed")
        self.tool = tool
        self.command = command
        self.output = output


@dataclass(frozen=True)
class Plan:
    """The steps of one ``.cu`` unit, ready to run in ``folder``."""

    folder: Path
    environment: dict[str, str]
    host_preprocess: str
    lower: str
    """cudafe++: the unit as host C++, kernels become stubs."""
    device_preprocess: str
    compile: str
    """cicc: PTX, and the stub file that registers the kernels."""
    assemble: str
    """ptxas, for the plan's own target."""
    host_compile: str
    lowered: Path
    stub: Path
    ptx: Path
    fatbin: Path

    def run(self, *commands: str) -> str:
        """Runs ``commands`` in order; what they printed. Raises :class:`CommandFailed`."""
        said = "".join(run_command(command, folder=self.folder, environment=self.environment) for command in commands)
        for command, made in ((self.lower, self.lowered), (self.compile, self.ptx)):
            if command in commands and not made.is_file():
                there = ", ".join(sorted(path.name for path in self.folder.iterdir()))
                raise CommandFailed("nvcc", command, f"{command}\nwrote no {made}; beside it lie {there}\n{said}")
        return said


def run_command(command: str | Sequence[str], *, folder: Path, environment: dict[str, str] | None = None) -> str:
    """Runs one command (a string through ``sh``); its output. Raises :class:`CommandFailed`."""
    answer = subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if answer.returncode != 0:
        words = shlex.split(command) if isinstance(command, str) else list(command)
        raise CommandFailed(Path(words[0]).name, shlex.join(words), answer.stdout)
    return answer.stdout


def plan(toolchain: Toolchain, source: Path, flags: Sequence[str], *, arch: str, salt: str) -> Plan:
    """The steps for ``source``, which lies in the folder to work in.

    ``salt`` tells this unit's static variables and anonymous namespaces from another module's; it must not depend on
    kernel bodies, because the host object is kept when only they change. Raises :class:`CommandFailed` where nvcc
    refuses the flags.
    """
    folder = source.parent
    many = [] if any("split-compile" in flag for flag in flags) else at_once(toolchain.version)
    command = [
        *(str(toolchain.nvcc), "-c", target_flag(arch), "-lineinfo", *many, *flags),
        *(source.name, "-o", "unit.o", "--keep", "--keep-dir", ".", "--dryrun"),
    ]
    output = run_command(command, folder=folder, environment=clean_environment())
    environment = clean_environment()
    commands: list[str] = []
    for line in output.splitlines():
        if not line.startswith("#$ "):
            continue
        assigned = re.match(r"#\$ (\w+)=(.*)$", line)
        if assigned:
            if assigned[1] in ("PATH", "LD_LIBRARY_PATH", "CICC_PATH", "NVVMIR_LIBRARY_DIR"):
                environment[assigned[1]] = assigned[2].strip()
        else:
            commands.append(line[3:])
    stem = source.stem
    names = {
        "host_preprocess": _one(commands, ".cpp4.ii", "-E "),
        "lower": _one(commands, "cudafe++", ".cpp4.ii"),
        "device_preprocess": _one(commands, ".cpp1.ii", "-E "),
        "compile": _one(commands, "cicc", ".cpp1.ii"),
        "assemble": _one(commands, "ptxas", ".ptx"),
        "host_compile": _one(commands, "unit.o", ".cudafe1.cpp"),
    }
    # cudafe++ and cicc share one module id; given beforehand, neither waits for the other.
    identity = digest(salt, stem)
    written = _file(names["lower"], "--module_id_file_name")
    (folder / written).write_text(f"_{identity[:8]}_{len(stem) + 3}_{stem}_cu_{identity[8:16]}")
    names["lower"] = names["lower"].replace("--gen_module_id_file ", "")
    return Plan(
        folder=folder,
        environment=environment,
        lowered=folder / _file(names["lower"], "--gen_c_file_name"),
        stub=folder / _file(names["compile"], "--stub_file_name"),
        ptx=folder / _file(names["compile"], "-o"),
        fatbin=folder / _file(names["compile"], "--include_file_name"),
        **names,
    )


def at_once(version: str) -> list[str]:
    """nvcc's flag that lets ptxas assemble a unit's kernels side by side, from the first version that was tried on.

    The machine code is the same (13.0, all 82 kernels of the gallery's ``linear``); it took 22 s instead of 27 on two
    cores. nvcc's own ``--split-compile`` makes other code.
    """
    return ["-Xptxas=-split-compile=0"] if int(version.split(".")[0]) >= 13 else []


def target_flag(arch: str) -> str:
    """nvcc's flag for one pass for ``sm_90`` or ``sm_90a``.

    ``-arch=sm_90a`` would run a second pass for compute_90, with names and steps of its own (13.0).
    """
    if arch[-1].isdigit():
        return f"-arch={arch}"
    return f"-gencode=arch=compute_{arch.removeprefix('sm_')},code={arch}"


def _file(command: str, option: str) -> str:
    """The file that an option of a step names."""
    words = shlex.split(command)
    if option not in words[:-1]:
        raise CommandFailed("nvcc", command, f"the step names no file with {option}")
    return words[words.index(option) + 1]


def clean_environment() -> dict[str, str]:
    """This process's environment without what redirects compilers' output or language."""
    made = {k: v for k, v in os.environ.items() if not k.startswith(("NVCC_", "LC_", "GCC_COLORS"))}
    made["LC_ALL"] = "C"
    made.setdefault("PATH", os.defpath)
    return made


def _one(commands: list[str], *marks: str) -> str:
    for command in commands:
        if all(mark in command for mark in marks):
            return command
    raise CommandFailed("nvcc", " ".join(marks), "nvcc --dryrun has no step with " + " and ".join(marks))


FATBIN = """#ifndef __SKIP_INTERNAL_FATBINARY_HEADERS
#include "fatbinary_section.h"
#endif
#define __CUDAFATBINSECTION ".nvFatBinSegment"
#define __CUDAFATBINDATASECTION ".nv_fatbin"
asm(".section .nv_fatbin, \\"a\\"\\n.align 8\\nfatbinData:\\n.asciz \\"kw-ptx:{key}\\"\\n.align 8\\n.text\\n");
#ifdef __cplusplus
extern "C" {{
#endif
extern const unsigned long long fatbinData[16];
#ifdef __cplusplus
}}
#endif
#ifdef __cplusplus
extern "C" {{
#endif
static const __fatBinC_Wrapper_t __fatDeviceText
    __attribute__ ((aligned (8))) __attribute__ ((section (__CUDAFATBINSECTION))) =
    {{ 0x466243b1, 1, fatbinData, 0 }};
#ifdef __cplusplus
}}
#endif
"""
"""nvcc's ``fatbin.c`` with the text ``kw-ptx:<key>`` where the images would be: the emulated device looks it up."""
