"""The extensions that a candidate will ask for, read off its text without running it.

Why: compilers can start while PyTorch is still being imported, which is most of a small check. The rule: only what
constants decide is known (literals, names bound to them once, and the string operations in the table below); a call
whose arguments are not all known is left out, and nothing but speed depends on what is found.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LOADERS = ("load_inline", "load")

_STRING_METHODS = frozenset({"format", "join", "lower", "lstrip", "replace", "rstrip", "strip", "upper"})
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Mod: lambda a, b: a % b,
    ast.Mult: lambda a, b: a * b,
}
_LONGEST = 1 << 20
"""Characters or items beyond which a value is not worth knowing."""


class _Unknown(Exception):
    """An expression whose value the text alone does not give."""


@dataclass(frozen=True)
class Load:
    """One call of a loader."""

    function: str
    """``load_inline`` or ``load``."""
    positional: tuple[Any, ...]
    keywords: dict[str, Any]
    line: int


def loads(text: str) -> list[Load]:
    """The loader calls in ``text`` whose arguments are all known, in file order; none where it is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    known = _constants(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in LOADERS:
            try:
                keywords = {str(k.arg): _value(k.value, known) for k in node.keywords if k.arg is not None}
                if len(keywords) == len(node.keywords):
                    positional = tuple(_value(argument, known) for argument in node.args)
                    found.append(Load(_name(node.func), positional, keywords, node.lineno))
            except _Unknown:
                continue
    return sorted(found, key=lambda load: load.line)


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Module-level names that are bound exactly once, to a value that is known."""
    bound: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = bound.get(node.id, 0) + 1
    known: dict[str, Any] = {}
    for statement in tree.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if isinstance(statement, ast.AnnAssign):
            target = statement.target
        if isinstance(target, ast.Name) and bound.get(target.id) == 1:
            value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
            try:
                if value is not None:
                    known[target.id] = _value(value, known)
            except _Unknown:
                continue
    return known


def _value(node: ast.expr, known: dict[str, Any]) -> Any:
    """The value of an expression. Raises ``_Unknown``."""
    value = _computed(node, known)
    if isinstance(value, (str, bytes, list, tuple)) and len(value) > _LONGEST:
        raise _Unknown
    return value


def _computed(node: ast.expr, known: dict[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() if node.id in known:
            return known[node.id]
        case ast.List() | ast.Tuple():
            return [_value(item, known) for item in node.elts]
        case ast.Dict() if all(key is not None for key in node.keys):
            keys = [_value(key, known) for key in node.keys if key is not None]
            return dict(zip(keys, [_value(item, known) for item in node.values], strict=True))
        case ast.JoinedStr():
            return "".join(_piece(part, known) for part in node.values)
        case ast.BinOp() if type(node.op) in _OPERATORS:
            left, right = _value(node.left, known), _value(node.right, known)
            if isinstance(node.op, ast.Mult) and not (isinstance(left, int) and isinstance(right, int)):
                raise _Unknown
            return _tried(lambda: _OPERATORS[type(node.op)](left, right))
        case ast.Call() if not node.keywords or isinstance(node.func, ast.Attribute):
            return _called(node, known)
    raise _Unknown


def _called(node: ast.Call, known: dict[str, Any]) -> Any:
    """A string method, or ``textwrap.dedent``."""
    arguments = [_value(argument, known) for argument in node.args]
    keywords = {str(k.arg): _value(k.value, known) for k in node.keywords}
    if _name(node.func) == "dedent" and len(arguments) == 1 and isinstance(arguments[0], str):
        return textwrap.dedent(arguments[0])
    if isinstance(node.func, ast.Attribute) and node.func.attr in _STRING_METHODS:
        subject = _value(node.func.value, known)
        if isinstance(subject, str):
            return _tried(lambda: getattr(subject, node.func.attr)(*arguments, **keywords))  # type: ignore[attr-defined]
    raise _Unknown


def _piece(part: ast.expr, known: dict[str, Any]) -> str:
    """One part of an f-string; a format specification must be plain text."""
    if isinstance(part, ast.FormattedValue) and part.conversion == -1:
        specification = "" if part.format_spec is None else str(_value(part.format_spec, known))
        return str(_tried(lambda: format(_value(part.value, known), specification)))
    return str(_value(part, known))


def _tried(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise _Unknown from error


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
