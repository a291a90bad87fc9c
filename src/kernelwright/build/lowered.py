"""What one pass of nvcc's front end leaves of a ``.cu`` unit, kept in the store for whoever needs it again.

Why: the fast tier, the full tier and the confirmation all start from the same facade pass. The rule: an entry holds the
PTX, the user's part of the host text and the stub, named by everything that went into them.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernelwright.build import cache, headers, placed, ptxas, skeleton
from kernelwright.build.extension import Extension, Unit, optimisation
from kernelwright.build.nvcc import CommandFailed, Plan, plan
from kernelwright.build.toolchain import Toolchain
from kernelwright.records import KernelFacts, from_json, to_json


@dataclass(frozen=True)
class Lowered:
    """One unit behind nvcc's front end."""

    ptx: str
    head: str
    """cudafe++'s text of the headers, before the user's part; empty where it equals the precompiled prefix, and for a
    GPU, whose host code is compiled on the real headers."""
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
    optimise: str = "-O0"
    """The level at which nvcc would compile the host code of a unit for a GPU."""
    image: Path | None = None
    """ptxas's machine code, where it was asked for."""


_GPU = ["image", "optimise"]
"""What a GPU's build keeps beside the rest; part of the entry's name."""
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
        *,
        image: bool = False,
    ):
        self.extension, self.toolchain, self.unit, self.arch = extension, toolchain, unit, arch
        self.parts = parts
        self.image = image
        """Keep ptxas's machine code, too: a GPU loads it."""
        self.flags = [
            *extension.nvcc_flags(toolchain),
            *([f"-I{unit.folder}"] if unit.folder else []),
            *include,
        ]
        extra = headers.standard_includes(unit.text, torch=bool(parts))
        self.text = headers.prefix_text(parts) + headers.HEAD_MARKER + extra + unit.text

    def name(self, *more: str, text: bool = True) -> str:
        """The digest of what determines every product; without the text where ``more`` stands for it."""
        # Files that the unit includes from the user's folders change products, too.
        own = [cache.folder_digest(Path(f), SOURCES) for f in self.extension.folders()]
        known = (self.toolchain.identity, headers.facade_digest())
        return cache.digest(
            self.text if text else "", self.extension.name, self.unit.name, *self.flags, self.arch, *own, *known, *more
        )

    def plan(self, folder: Path) -> Plan:
        """nvcc's steps, in ``folder``."""
        source = folder / self.unit.name
        source.write_text(self.text)
        return plan(self.toolchain, source, self.flags, arch=self.arch, salt=f"{self.extension.name} {self.unit.name}")

    def precompiled(self, flags: list[str]) -> Path | None:
        """The prefix as cudafe++ lowers it, precompiled; None where the unit has none, or nobody compiles on it."""
        if not self.parts or self.image:
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


@dataclass(frozen=True)
class _Host:
    """What cudafe++ makes of a unit."""

    head: str
    rest: str
    flags: list[str]
    prefix: str
    optimise: str


def lower(source: Source, sm: str) -> Lowered:
    """Runs both front ends side by side, or finds what they left. Raises :class:`CommandFailed`.

    Where both fail, cudafe++'s word counts: nvcc runs it first. Where only device bodies changed, it does not run.
    """

    def make(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        steps = source.plan(work)

        def device() -> tuple[str, tuple[KernelFacts, ...]]:
            said = steps.run(steps.device_preprocess, steps.compile)
            return said, ptxas.facts(steps, sm)

        with ThreadPoolExecutor(2) as pool:
            jobs = pool.submit(_host_text, source, steps), pool.submit(device)
            host = jobs[0].result()
            said, kernels = jobs[1].result()
        facts = {
            "flags": host.flags,
            "prefix": host.prefix,
            "optimise": host.optimise,
            "kernels": [to_json(fact) for fact in kernels],
            "said": said,
        }
        (folder / "unit.ptx").write_text(steps.ptx.read_text().replace(f"{work}/", ""))  # nobody can open that folder
        if source.image:
            shutil.copy(work / ptxas.CUBIN, folder / ptxas.CUBIN)
        (folder / "head.cpp").write_text(host.head)
        (folder / "rest.cpp").write_text(host.rest)
        (folder / "stub.c").write_text(steps.stub.read_text().replace(steps.fatbin.name, "fatbin.c"))
        (folder / "facts.json").write_text(json.dumps(facts))
        shutil.rmtree(work)

    entry, _ = cache.obtain("lowered", source.name(sm, *_GPU * source.image), make, leans_on=_prefix)
    facts = json.loads((entry / "facts.json").read_text())
    stub = (entry / "stub.c").read_text()
    return Lowered(
        ptx=(entry / "unit.ptx").read_text(),
        head=(entry / "head.cpp").read_text(),
        rest=re.sub(r'#include "[^"]*\.cudafe1\.stub\.c"', lambda _: stub, (entry / "rest.cpp").read_text()),
        stub=stub,
        host_flags=tuple(facts["flags"]),
        prefix=cache.root() / "prefix" / facts["prefix"] if facts["prefix"] else None,
        kernels=tuple(from_json(KernelFacts, fact) for fact in facts["kernels"]),
        said=facts["said"],
        optimise=facts.get("optimise", "-O0"),
        image=entry / ptxas.CUBIN if source.image else None,
    )


def _host_text(source: Source, steps: Plan) -> _Host:
    """cudafe++'s text, kept by the unit's skeleton and moved to the unit's present lines."""
    bare, places = placed.separate(skeleton.of(source.text))
    fixed = [json.dumps(places)] if placed.names_lines(bare) else []
    fixed += _GPU * source.image

    def make(folder: Path) -> None:
        steps.run(steps.host_preprocess, steps.lower)
        flags = headers.lowered_host_flags(steps, source.toolchain)
        prefix = source.precompiled(flags)
        head, rest = headers.cut(steps.lowered.read_text())
        equal = prefix is not None and head == (prefix / "prefix.h").read_text()
        (folder / "head.cpp").write_text("" if equal or source.image else head)
        (folder / "rest.cpp").write_text(rest)
        facts = {
            "flags": flags,
            "prefix": prefix.name if prefix is not None and equal else "",
            "places": places,
            "optimise": optimisation(shlex.split(steps.host_compile)),
        }
        (folder / "facts.json").write_text(json.dumps(facts))

    entry, _ = cache.obtain("hosttext", source.name("host", bare, *fixed, text=False), make, leans_on=_prefix)
    facts = json.loads((entry / "facts.json").read_text())
    old = [(str(file), int(line)) for file, line in facts["places"]]
    rest = placed.retold((entry / "rest.cpp").read_text(), old, places)
    optimise = facts.get("optimise", "-O0")
    return _Host((entry / "head.cpp").read_text(), rest, facts["flags"], facts["prefix"], optimise)


def _prefix(entry: Path) -> tuple[str, str] | None:
    """The precompiled prefix that an entry's text is compiled behind."""
    name = json.loads((entry / "facts.json").read_text())["prefix"]
    return ("prefix", name) if name else None


__all__ = ["CommandFailed", "Lowered", "Source", "lower"]
