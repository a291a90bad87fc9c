"""A problem in the KernelBench layout: constants, ``Model``, ``get_inputs()`` and ``get_init_inputs()`` in one file.

Why: it is the layout that hundreds of public problems have. The rule: :func:`outline` reads the file without running
it (the supervisor's part, no torch); :func:`load` runs it, and only ever inside a worker process.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.errors import MissingFile, ProblemError, UsageError
from kernelwright.problem.constants import constants, replace

MODULE = "problem"
"""Name that the problem's module has in ``sys.modules`` of its process."""


@dataclass(frozen=True)
class Outline:
    """What a problem file says of itself without being run."""

    path: Path
    text: str
    constants: dict[str, str]
    """Name to source of its value, after ``--set``."""


@dataclass(frozen=True)
class Problem:
    """A problem that was run: its reference's class and its two input functions."""

    module: types.ModuleType
    model: Callable[..., Any]
    get_inputs: Callable[[], Any]
    get_init_inputs: Callable[[], Any]


def outline(path: Path, sets: Mapping[str, str]) -> Outline:
    """Read ``path`` and check the form of it and of ``sets``.

    Raises ``MissingFile``; ``UsageError`` for a file without ``Model`` or ``get_inputs`` or for a wrong ``--set``;
    ``ProblemError`` where it is not Python.
    """
    text = read_source(path, role="problem")
    tree = _parsed(text, path)
    defined = _defined(tree)
    # A star import may bring any name: only running the file can tell then.
    for name in () if "*" in defined else ("Model", "get_inputs"):
        if name not in defined:
            raise UsageError(
                f"{path} defines no {name}", hint="a problem has Model, get_inputs() and get_init_inputs()"
            )
    return Outline(path, text, constants(replace(tree, sets, file=str(path))))


def load(path: Path, sets: Mapping[str, str]) -> Problem:
    """Run the problem file, its constants replaced by ``sets``. What it raises is the problem's and passes through."""
    tree = replace(_parsed(read_source(path, role="problem"), path), sets, file=str(path))
    module = types.ModuleType(MODULE)
    module.__file__ = str(path)
    sys.modules[MODULE] = module
    sys.path.insert(0, str(path.resolve().parent))
    exec(compile(tree, str(path), "exec"), module.__dict__)
    for name in ("Model", "get_inputs"):
        if not callable(getattr(module, name, None)):
            raise UsageError(
                f"{path} defines no {name}", hint="a problem has Model, get_inputs() and get_init_inputs()"
            )
    return Problem(module, module.Model, module.get_inputs, getattr(module, "get_init_inputs", list))


def read_source(path: Path, *, role: str) -> str:
    """The text of a Python file, by its declared encoding. Raises ``MissingFile``, or ``UsageError`` for no text."""
    if not path.is_file():
        raise MissingFile(role=role, path=path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{role} {path} cannot be read: {error.strerror}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{role} {path} is no UTF-8 text (byte {error.start})") from None


def _parsed(text: str, path: Path) -> ast.Module:
    try:
        return ast.parse(text, str(path))
    except SyntaxError as error:
        raise ProblemError(
            f"{path}, line {error.lineno}: {error.msg}", hint="the problem file is no valid Python"
        ) from None
    except ValueError as error:
        raise ProblemError(f"{path}: {error}", hint="the problem file is no valid Python") from None


def _defined(tree: ast.Module) -> set[str]:
    """Names that the top level may define, conditionally or not."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname or alias.name for alias in node.names)
    return names
