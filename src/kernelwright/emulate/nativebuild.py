"""Compiles the native parts on first use into the cache, and never twice.

Why: the native parts depend on the user's torch and compiler, so they cannot ship as binaries. The rule: a product's
folder is named by the content of everything that can change it (sources, the headers beside them, flags, links, the
compiler's version, the caller's salt such as torch's version); it appears in one rename, under a lock, so that any
number of processes may ask at once and a killed compile leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from kernelwright.errors import MachineError, MissingTool
from kernelwright.settings import cache_folder, jobs

Language = Literal["c", "c++"]

NATIVE = Path(__file__).parent / "native"
"""The folder of the native sources, inside the package."""

_COMPILERS: dict[Language, tuple[str, tuple[str, ...]]] = {
    "c": ("CC", ("gcc", "cc", "clang")),
    "c++": ("CXX", ("g++", "c++", "clang++")),
}
"""For each language: the environment variable that names the compiler, and what is tried without it."""


@functools.cache
def compiler(language: Language) -> tuple[str, str]:
    """Path and version line of the host compiler. Raises :class:`MissingTool` where there is none."""
    variable, names = _COMPILERS[language]
    asked = os.environ.get(variable, "").split()
    for name in asked[:1] or names:
        path = shutil.which(name, path=_search_path())
        if path is None:
            continue
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout:
            return path, answer.stdout.splitlines()[0]
    raise MissingTool(
        tool=f"a {language.upper()} compiler",
        searched=", ".join(asked[:1] or names),
        hint=f"install one (Debian, Ubuntu: apt install {names[0]}) or name one in the environment variable {variable}",
    )


@functools.cache
def shared_library(driver: str) -> tuple[str, ...]:
    """The shared C++ library as a link's argument; nothing where the compiler at ``driver`` knows none.

    A g++ that links its library statically (seen in a container with an H200) gives each module a copy of its own,
    whose symbols the others then use: ``<<`` of a number takes one copy's stream and the other's facets, and crashes.
    Named before what g++ adds by itself, the shared one, which torch uses, answers for all.
    """
    answer = subprocess.run([driver, "-print-file-name=libstdc++.so.6"], capture_output=True, text=True, check=False)
    path = Path(answer.stdout.strip())
    return (str(path.resolve()),) if path.is_absolute() and path.exists() else ()


def _search_path() -> str:
    """PATH and the system's own folders: a PATH that is broken is the candidate's build's affair, not our parts'."""
    return os.pathsep.join(part for part in (os.environ.get("PATH", ""), os.defpath) if part)


def build_shared(
    name: str,
    sources: Sequence[Path],
    *,
    flags: Sequence[str] = (),
    links: Sequence[str] = (),
    language: Language = "c++",
    headers: Sequence[Path] = (),
    salt: str = "",
) -> Path:
    """The shared library ``lib<name>.so`` made of ``sources``; compiled only where the cache does not hold it.

    ``flags`` go to every compile, ``links`` after the objects at the link. Headers beside the sources and those in
    ``headers`` count as content; ``salt`` names whatever else matters (torch's version). Raises :class:`MachineError`
    with the compiler's first errors.
    """
    links = (*links, *(shared_library(compiler(language)[0]) if language == "c++" else ()))
    with _product(f"lib{name}.so", sources, flags, links, language, headers, salt) as (path, scratch):
        if scratch is not None:
            objects = _objects(sources, flags, language, scratch)
            driver, _ = compiler(language)
            output = ["-shared", f"-Wl,-soname,{path.name}", "-o", str(scratch / path.name)]
            _run([driver, *output, *map(str, objects), *links], name)
    return path


def build_archive(
    name: str,
    sources: Sequence[Path],
    *,
    flags: Sequence[str] = (),
    language: Language = "c++",
    headers: Sequence[Path] = (),
    salt: str = "",
) -> Path:
    """The static library ``lib<name>.a`` made of ``sources``; see :func:`build_shared`."""
    with _product(f"lib{name}.a", sources, flags, (), language, headers, salt) as (path, scratch):
        if scratch is not None:
            objects = _objects(sources, flags, language, scratch)
            _run(["ar", "rcsD", str(scratch / path.name), *map(str, objects)], name)
    return path


@contextmanager
def _product(
    file: str,
    sources: Sequence[Path],
    flags: Sequence[str],
    links: Sequence[str],
    language: Language,
    headers: Sequence[Path],
    salt: str,
) -> Iterator[tuple[Path, Path | None]]:
    """Yields the product's final path and, where it must be made, the folder to make it in (renamed on success)."""
    digest = hashlib.sha256()
    beside = {header for source in sources for header in source.parent.glob("*.h")}
    for path in [*sources, *sorted(beside | set(headers))]:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\0".encode())
        digest.update(content)
    digest.update("\0".join([*flags, "|", *links, "|", file, *compiler(language), salt]).encode())
    root = cache_folder() / "native"
    folder = root / f"{file.removeprefix('lib').split('.')[0]}-{digest.hexdigest()[:24]}"
    if (folder / file).exists():
        with contextlib.suppress(OSError):  # a read-only cache; else the time tells eviction that it is in use
            os.utime(folder)
        yield folder / file, None
        return
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / file).exists():
            yield folder / file, None
            return
        with tempfile.TemporaryDirectory(dir=root, prefix=".making-") as made:
            scratch = Path(made) / "product"
            scratch.mkdir()
            yield folder / file, scratch
            shutil.rmtree(folder, ignore_errors=True)
            scratch.rename(folder)


def _objects(sources: Sequence[Path], flags: Sequence[str], language: Language, scratch: Path) -> list[Path]:
    """Compiles each source, as many at a time as the ``JOBS`` setting allows; the objects in the sources' order."""
    driver, _ = compiler(language)
    made = scratch.parent

    def compile_one(source: Path) -> Path:
        target = made / f"{source.stem}.o"
        _run([driver, "-x", language, "-fPIC", *flags, "-c", str(source), "-o", str(target)], source.name)
        return target

    with ThreadPoolExecutor(max_workers=min(len(sources), jobs())) as pool:
        return list(pool.map(compile_one, sources))


def _run(command: list[str], what: str) -> None:
    environment = {**os.environ, "PATH": _search_path()}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if answer.returncode == 0:
        return
    lines = answer.stderr.splitlines()
    first = [line for line in lines if "error" in line or "undefined" in line][:6] or lines[-6:]
    raise MachineError(
        f"{Path(command[0]).name} could not compile {what}:\n  " + "\n  ".join(first),
        hint="the native parts need a C++17 compiler that this torch accepts; command: " + " ".join(command),
    )
