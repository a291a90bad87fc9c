"""What one pass of nvcc's front end leaves of a ``.cu`` unit, kept in the store for whoever needs it again.

Why: the fast tier, the full tier and the confirmation all start from the same facade pass. The rule: an entry holds the
PTX, the user's part of the host text and the stub, named by everything that went into them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernelwright.build import cache, headers, ptxas
from kernelwright.build.extension import Extension, Unit
from kernelwright.build.nvcc import CommandFailed, Plan, plan
from kernelwright.build.toolchain import Toolchain
from kernelwright.records import KernelFacts, from_json, to_json


@dataclass(frozen=True)
class Lowered:
    """One unit behind nvcc's front end."""

    ptx: str
    head: str
    """cudafe++'s text of the headers, before the user's part; empty where it equals the precompiled prefix."""
    rest: str
    """cudafe++'s text of the user's part."""
    stub: str
    """cicc's file that registers the kernels; includes ``fatbin.c``."""
    host_flags: tuple[str, ...]
    """nvcc's own flags for the host compile."""
    prefix: Path | None
    """The precompiled prefix that goes before ``rest``."""
    kernels: tuple[KernelFacts, ...]
    said: str


SOURCES = (".h", ".cuh", ".hpp", ".cu", ".cpp", ".inl")
"""Files in the user's folders that a unit may include."""


class Source:
    """A ``.cu`` unit with the headers it is compiled against."""

    def __init__(
        self,
        extension: Extension,
        toolchain: Toolchain,
        unit: Unit,
        arch: str,
        include: list[str],
        parts: tuple[str, ...],
    ):
        self.extension, self.toolchain, self.unit, self.arch = extension, toolchain, unit, arch
        self.parts = parts
        self.flags = [
            *extension.nvcc_flags(toolchain),
            *([f"-I{unit.folder}"] if unit.folder else []),
            *include,
        ]
        extra = headers.standard_includes(unit.text, torch=bool(parts))
        self.text = headers.prefix_text(parts) + headers.HEAD_MARKER + extra + unit.text

    def name(self, *more: str) -> str:
        """The digest of what determines every product."""
        # Files that the unit includes from the user's folders change products, too.
        own = [cache.folder_digest(Path(f), SOURCES) for f in self.extension.folders()]
        known = (self.toolchain.identity, headers.facade_digest())
        return cache.digest(self.text, self.unit.name, *self.flags, self.arch, *own, *known, *more)

    def plan(self, folder: Path) -> Plan:
        """nvcc's steps, in ``folder``."""
        source = folder / self.unit.name
        source.write_text(self.text)
        return plan(self.toolchain, source, self.flags, arch=self.arch, salt=f"{self.extension.name} {self.unit.name}")

    def precompiled(self, flags: list[str]) -> Path | None:
        """The prefix as cudafe++ lowers it, precompiled; None where the unit has none."""
        if not self.parts:
            return None
        own = ("-DTORCH_EXTENSION_NAME=", "-I", "-O", "-maxrregcount", "--maxrregcount")
        return headers.lowered_prefix(
            self.toolchain,
            self.parts,
            unit=self.unit.name,
            arch=self.arch,
            host_flags=flags,
            nvcc_flags=[f for f in self.flags if not f.startswith(own)],
        )


def lower(source: Source, sm: str, *, before: Callable[[], None] | None = None) -> Lowered:
    """Runs both front ends side by side, or finds what they left. Raises :class:`CommandFailed`.

    Where both fail, cudafe++'s word counts: nvcc runs it first. ``before`` runs beside them.
    """

    def make(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        steps = source.plan(work)

        def device() -> tuple[str, tuple[KernelFacts, ...]]:
            said = steps.run(steps.device_preprocess, steps.compile)
            return said, ptxas.facts(steps, sm)

        def host() -> tuple[list[str], Path | None]:
            steps.run(steps.host_preprocess, steps.lower)
            flags = headers.lowered_host_flags(steps, source.toolchain)
            return flags, source.precompiled(flags)

        with ThreadPoolExecutor(3) as pool:
            jobs = pool.submit(host), pool.submit(device)
            if before is not None:
                pool.submit(before).result()
            flags, prefix = jobs[0].result()
            said, kernels = jobs[1].result()
        head, rest = headers.cut(steps.lowered.read_text())
        if prefix is not None and head == (prefix / "prefix.h").read_text():
            head = ""
        stub = steps.stub.read_text().replace(steps.fatbin.name, "fatbin.c")
        facts = {
            "flags": flags,
            "prefix": prefix.name if prefix is not None and not head else "",
            "kernels": [to_json(fact) for fact in kernels],
            "said": said,
        }
        # The scratch folder is no place that anyone can open.
        ptx = steps.ptx.read_text().replace(f"{work}/", "")
        for name, text in (
            ("unit.ptx", ptx),
            ("head.cpp", head),
            ("rest.cpp", rest),
            ("stub.c", stub),
        ):
            (folder / name).write_text(text)
        (folder / "facts.json").write_text(json.dumps(facts))
        shutil.rmtree(work)

    entry, _ = cache.obtain("lowered", source.name(sm), make)
    facts = json.loads((entry / "facts.json").read_text())
    rest = (entry / "rest.cpp").read_text()
    stub = (entry / "stub.c").read_text()
    return Lowered(
        ptx=(entry / "unit.ptx").read_text(),
        head=(entry / "head.cpp").read_text(),
        rest=re.sub(r'#include "[^"]*\.cudafe1\.stub\.c"', lambda _: stub, rest),
        stub=stub,
        host_flags=tuple(facts["flags"]),
        prefix=cache.root() / "prefix" / facts["prefix"] if facts["prefix"] else None,
        kernels=tuple(from_json(KernelFacts, fact) for fact in facts["kernels"]),
        said=facts["said"],
    )


__all__ = ["CommandFailed", "Lowered", "Source", "lower"]
