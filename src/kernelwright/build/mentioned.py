"""Names that the facade does not declare and that torch's and CUDA's real headers never mention.

Why: "identifier is undefined" may only mean that the facade is thin, so the real headers are asked, and compiling them
takes a minute; to preprocess them takes seconds. The rule: a name counts as undeclared for certain only where it stands
in no line of any header behind the preprocessor, is still in the user's own (a macro would be gone), and was put there
by no macro; all else is compiled.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernelwright.build import cache, splice
from kernelwright.build.extension import Extension, Unit
from kernelwright.build.lowered import Source
from kernelwright.build.nvcc import CommandFailed
from kernelwright.build.toolchain import Toolchain
from kernelwright.records import Diagnostic

UNDECLARED = re.compile(r"""identifier "(\w+)" is undefined|namespace "[\w:]+" has no member "(\w+)\"""")
"""cudafe++'s words for a name that nothing declares."""
_MARKER = re.compile(r'# \d+ "([^"]*)"')


def undeclared(
    extension: Extension, toolchain: Toolchain, told: Sequence[Diagnostic], *, arch: str
) -> tuple[Diagnostic, ...]:
    """Those of the facade's errors ``told`` that the real headers would give, too; none where that is not known."""
    named = {d: found[1] or found[2] for d in told if d.severity == "error" and (found := UNDECLARED.search(d.message))}
    names = set(named.values())
    for unit in extension.units:
        if names and unit.cuda:
            names -= _known(extension, toolchain, unit, arch, names)
    return tuple(d for d, name in named.items() if name in names)


def _known(extension: Extension, toolchain: Toolchain, unit: Unit, arch: str, names: set[str]) -> set[str]:
    """Those of ``names`` that something behind the preprocessor may declare."""
    source = Source(extension, toolchain, unit, arch, splice.real_include_flags(toolchain), ())
    cache.root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mentioned-", dir=cache.root()) as name:
        folder = Path(name)
        try:
            steps = source.plan(folder)
            steps.run(steps.host_preprocess)
        except CommandFailed:
            return names  # a header that is missing, say: the compilers will tell
        made = next(folder.glob("*.cpp4.ii"))
        own, headers = _split(made.read_text(encoding="utf-8", errors="replace").splitlines(), extension)
    before, after, elsewhere = (_counted(lines, names) for lines in (unit.text.splitlines(), own, headers))
    return {name for name in names if elsewhere[name] or (before[name] and not 1 <= after[name] <= before[name])}


def _split(lines: Iterable[str], extension: Extension) -> tuple[list[str], list[str]]:
    """The user's lines and those of headers, by the preprocessor's markers."""
    users = {extension.candidate, *(unit.name for unit in extension.units)}
    own: list[str] = []
    headers: list[str] = []
    current = headers
    for line in lines:
        marker = _MARKER.match(line)
        if marker:
            current = own if Path(marker[1]).name in users else headers
        else:
            current.append(line)
    return own, headers


def _counted(lines: Iterable[str], names: set[str]) -> Counter[str]:
    """How often each of ``names`` stands in ``lines`` as a word."""
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")
    return Counter(found for line in lines if any(name in line for name in names) for found in word.findall(line))
