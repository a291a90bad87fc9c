"""Turns the arguments of ``load_inline`` and ``load`` into translation units with line markers.

Why: the text must be what the real ``load_inline`` writes (same includes, same bindings, same order), or errors would
differ; only ``#line`` markers are added, so that they name candidate.py. The rule: everything that changes meaning is
copied from torch.utils.cpp_extension.load_inline; nothing is repaired.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelwright.build.extension import Unit
from kernelwright.build.lines import LineMap

Functions = None | str | Sequence[str] | Mapping[str, str]

_CUDA_SUFFIXES = (".cu", ".cuh")


def bindings(functions: Functions, *, wrapped: bool) -> list[str]:
    """The lines of the generated PYBIND11_MODULE block, as torch writes them. Raises ``ValueError`` as torch does."""
    if functions is None:
        return []
    if isinstance(functions, str):
        functions = [functions]
    if isinstance(functions, list):
        functions = {name: name for name in functions}
    elif not isinstance(functions, dict):
        raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(functions)}")
    made = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    for name, doc in functions.items():
        bound = f"torch::wrap_pybind_function({name})" if wrapped else name
        made.append(f'm.def("{name}", {bound}, "{doc}");')
    return [*made, "}"]


def names_of(functions: Functions) -> tuple[str, ...]:
    """The names in ``functions``."""
    if functions is None:
        return ()
    return (functions,) if isinstance(functions, str) else tuple(functions)


def inline_units(
    cpp: Sequence[str],
    cuda: Sequence[str],
    functions: Functions,
    *,
    lines: LineMap | None,
    implicit_headers: bool,
    wrapped: bool,
) -> tuple[Unit, ...]:
    """``main.cpp`` and, where there is CUDA source, ``cuda.cu``."""
    head = ["#include <torch/extension.h>"] if implicit_headers else []
    tail = bindings(functions, wrapped=wrapped)
    units = [Unit("main.cpp", _joined(head, cpp, tail, "main.cpp", lines), cuda=False)]
    if cuda:
        head = (
            ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"] if implicit_headers else []
        )
        units.append(Unit("cuda.cu", _joined(head, cuda, [], "cuda.cu", lines), cuda=True))
    return tuple(units)


def _joined(head: Sequence[str], sources: Sequence[str], tail: Sequence[str], file: str, lines: LineMap | None) -> str:
    parts: list[str] = list(head)
    at = len(head) + 1
    for source in sources:
        parts.append(lines.marked(source, fallback=file, start=at) if lines else source)
        at += source.count("\n") + 1
    if tail:
        parts += [f'#line {at} "{file}"', *tail]
    return "\n".join(parts) + "\n"


def file_units(paths: Sequence[str]) -> tuple[Unit, ...]:
    """The units of ``load``: files as they are, their own lines and names. Raises ``OSError`` for a missing file."""
    made = []
    for path in paths:
        file = Path(path).absolute()
        text = file.read_text(encoding="utf-8")
        made.append(Unit(file.name, f'#line 1 "{file.name}"\n{text}', file.suffix in _CUDA_SUFFIXES, str(file.parent)))
    return tuple(made)


def parameter_names(units: Sequence[Unit], functions: Sequence[str]) -> dict[str, list[str]]:
    """The parameter names of ``functions`` as the sources declare them; functions not found are left out."""
    text = "\n".join(unit.text for unit in units)
    made: dict[str, list[str]] = {}
    for name in dict.fromkeys([*functions, *re.findall(r'\.def\(\s*"(\w+)"', text)]):
        found = re.search(rf"\b[\w:<>*&]+[\s*&]+{re.escape(name)}\s*\(([^(){{}};]*)\)\s*[{{;]", text)
        if not found:
            continue
        names = [_last_word(parameter) for parameter in _commas(found[1])]
        if names and all(names):
            made[name] = names
    return made


def _commas(text: str) -> list[str]:
    parts, depth = [""], 0
    for c in text:
        depth += (c == "<") - (c == ">")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def _last_word(parameter: str) -> str:
    found = re.search(r"[\s*&](\w+)\s*(?:\[\s*\d*\s*\])?$", parameter.split("=")[0].rstrip())
    return found[1] if found else ""
