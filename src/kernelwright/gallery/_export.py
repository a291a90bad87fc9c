"""Writes a gallery kernel as one stand-alone file: no import of ours, nothing to install but PyTorch and nvcc.

Why: a kernel that can only be had with its library is not taken. Three kernels are such files already; the fused one
builds on two of them, whose text is put in front of its own. The rule: names that two of the files share get the
second file's name in front, so that the result reads as if it had been written in one piece, and every line in it
stands in one of the files, but for the table of measured choices where one is asked for.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "kernels"
OURS = "kernelwright.gallery.kernels"


Baked = Callable[[str], dict[str, tuple[tuple[Any, ...], ...]]]
"""Gives a kernel's ``TUNED`` as the file is to hold it."""


def exported(name: str, baked: Baked | None = None) -> str:
    """The text of kernel ``name``, whose file must be in ``FOLDER``."""
    text = (FOLDER / f"{name}.py").read_text()
    parts = _imported(text)
    if not parts:
        return _with_table(text, baked(name) if baked else {})
    docstring, imports, body = _split(text)
    held: set[str] = set()
    pieces: list[str] = []
    attributes: dict[tuple[str, str], str] = {}
    for alias, module in parts.items():
        whole = _with_table((FOLDER / f"{module}.py").read_text(), baked(module) if baked else {})
        _, more, piece = _split(whole)
        imports |= more
        own = _top_level(piece)
        new = {word: f"{module}_{word}".replace("__", "_") for word in own & (held | {"ModelNew"})}
        new = {word: renamed.upper() if word.isupper() else renamed for word, renamed in new.items()}
        new = {
            word: _camel(renamed) if word[:1].isupper() and not word.isupper() else renamed
            for word, renamed in new.items()
        }
        held |= {new.get(word, word) for word in own}
        attributes |= {(alias, word): new.get(word, word) for word in own}
        pieces.append(f"# {'-' * 20} {module} {'-' * 20}\n\n" + _renamed(piece, new, {}).strip())
    tail = f"# {'-' * 20} {name} {'-' * 20}\n\n" + _renamed(body, {}, attributes).strip()
    standing = [line for line in imports if OURS not in line]
    future = "from __future__ import annotations\n\n"
    ordered = sorted(line for line in standing if line.startswith("import ")) + sorted(
        line for line in standing if line.startswith("from ")
    )
    return "\n\n\n".join([docstring + "\n\n" + future + "\n".join(ordered), *pieces, tail]) + "\n"


def _with_table(text: str, tuned: dict[str, tuple[tuple[Any, ...], ...]]) -> str:
    """``text`` with ``tuned`` for its empty ``TUNED``."""
    if not tuned:
        return text
    lines = []
    for device, rows in tuned.items():
        lines += [f"    {json.dumps(device)}: ("]
        lines += [f"        ({', '.join(map(_literal, row))}),  # fmt: skip" for row in rows]
        lines += ["    ),"]
    start = text.index("\nTUNED: ") + 1
    end = text.index("\n", start)
    head = text[start:end].removesuffix("{}")
    return text[:start] + head + "{\n" + "\n".join(lines) + "\n}" + text[end:]


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _imported(text: str) -> dict[str, str]:
    """Alias and module of every kernel file that ``text`` imports."""
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module == OURS:
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
    return found


def _split(text: str) -> tuple[str, set[str], str]:
    """The docstring as written, the top-level imports, and the rest."""
    lines = text.splitlines()
    nodes = ast.parse(text).body
    docstring = "\n".join(lines[: nodes[0].end_lineno])
    imports, last = set(), nodes[0].end_lineno or 0
    for node in nodes[1:]:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            break
        if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            imports.add(ast.unparse(node))
        last = node.end_lineno or last
    return docstring, imports, "\n".join(lines[last:]) + "\n"


def _top_level(text: str) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)}
    return names


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _renamed(text: str, names: dict[str, str], attributes: dict[tuple[str, str], str]) -> str:
    """``text`` with free-standing ``names`` replaced, and ``alias.word`` replaced by ``attributes``. Layout stays."""
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for i in reversed(range(len(tokens))):
        token = tokens[i]
        if token.type != tokenize.NAME or (i and tokens[i - 1].string == "."):
            continue
        row, column = token.start
        new, end = names.get(token.string), token.end[1]
        if new is None and i + 2 < len(tokens) and tokens[i + 1].string == ".":
            new, end = attributes.get((token.string, tokens[i + 2].string)), tokens[i + 2].end[1]
        if new is not None:
            lines[row - 1] = lines[row - 1][:column] + new + lines[row - 1][end:]
    return "".join(lines)
