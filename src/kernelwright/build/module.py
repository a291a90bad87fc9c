"""Finished modules in the store: the shared object, the PTX it registers, what ptxas said.

The rule: a module names its PTX by content (``kw-ptx:<digest>``), so two modules of one name never meet in the emulated
device, and a kernel-only edit changes 32 bytes of an otherwise equal shared object.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelwright.build import cache, headers, link
from kernelwright.build.extension import Extension
from kernelwright.build.lowered import SOURCES, Lowered
from kernelwright.build.toolchain import Toolchain
from kernelwright.records import KernelFacts, from_json, to_json


@dataclass(frozen=True)
class Built:
    """A module in the store."""

    module: Path
    """The shared object."""
    ptx: dict[str, Path]
    """For each key that the module's registration names, its PTX."""
    kernels: tuple[KernelFacts, ...]
    cached: bool
    output: str = ""
    """What the compilers said (warnings)."""


def obtain(
    tier: str,
    extension: Extension,
    toolchain: Toolchain,
    arch: str,
    sm: str,
    make: Callable[[Path, Path], None],
    *,
    libraries: str | None = None,
) -> Built:
    """The finished module; ``make(folder, work)`` fills the entry, with a scratch folder that goes away.

    ``libraries`` names what it is linked with, where that is not the emulated device's native parts.
    """
    own = [cache.folder_digest(Path(f), SOURCES) for f in extension.folders()]
    parts = (
        extension.identity(toolchain),
        arch,
        sm,
        headers.facade_digest(),
        link.native_identity() if libraries is None else libraries,
        cache.code(),
        *own,
    )

    def scratched(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix=".work-", dir=folder.parent) as work:
            make(folder, Path(work))

    entry, cached = cache.obtain("module", cache.digest(tier, *parts), scratched)
    facts = json.loads((entry / "facts.json").read_text())
    return Built(
        module=entry / f"{extension.name}.so",
        ptx={path.stem: path for path in sorted(entry.glob("*.ptx"))},
        kernels=tuple(from_json(KernelFacts, fact) for fact in facts["kernels"]),
        cached=cached,
        output=facts["output"],
    )


def finish(folder: Path, module: Path, ptx: Mapping[int, str], lowered: Mapping[int, Lowered]) -> None:
    """Moves the linked ``module`` into the entry, with its PTX under the keys that it registers."""
    content = module.read_bytes()
    for index, text in ptx.items():
        key = cache.digest(text)
        content = content.replace(cache.placeholder(index).encode(), key.encode())
        (folder / f"{key}.ptx").write_text(text)
    (folder / module.name).write_bytes(content)
    facts = {
        "kernels": [to_json(fact) for low in lowered.values() for fact in low.kernels],
        "output": "".join(low.said for low in lowered.values()),
    }
    (folder / "facts.json").write_text(json.dumps(facts))
