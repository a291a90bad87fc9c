"""A problem file's module-level constants, and ``--set NAME=VALUE``, which replaces them before the module runs.

Why: a problem of 8 GB is checked on a laptop by making its constants small, and the file must not be edited for that.
The rule: only the named assignment changes, in the syntax tree, so that constants derived from it recompute and every
line keeps its number. No torch here: the supervisor reads constants, too, to refuse a wrong name at once.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernelwright.errors import UsageError


def constants(tree: ast.Module) -> dict[str, str]:
    """Names bound by top-level assignments, in order, each with the source of its (last) value."""
    found: dict[str, str] = {}
    for statement in tree.body:
        value = getattr(statement, "value", None)
        if isinstance(value, ast.expr):
            for name in _bound(statement):
                found[name] = ast.unparse(_part(statement, name) or value)
    return found


def parse_value(name: str, text: str) -> ast.expr:
    """``text`` as a Python literal. Raises ``UsageError`` where it is none."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise UsageError(
            f"--set {name}={text}: {text!r} is no Python literal",
            hint="numbers, quoted strings, tuples, lists, True, False and None can be set",
        ) from None
    return ast.parse(text.strip(), mode="eval").body


def replace(tree: ast.Module, sets: Mapping[str, str], *, file: str) -> ast.Module:
    """``tree`` with each constant of ``sets`` assigned its value; ``tree`` itself is changed and returned.

    Raises ``UsageError`` for a name that no top-level assignment binds, naming those there are.
    """
    known = constants(tree)
    for name, text in sets.items():
        if name not in known:
            listing = ", ".join(f"{key}={value}" for key, value in known.items()) or "none"
            raise UsageError(f"--set {name}={text}: {file} has no constant {name}", hint=f"its constants: {listing}")
        value = parse_value(name, text)
        body: list[ast.stmt] = []
        for statement in tree.body:
            body.append(statement)
            if name in _bound(statement):
                body.extend(_assign(statement, name, value))
        tree.body = body
    return ast.fix_missing_locations(tree)


def _assign(statement: ast.stmt, name: str, value: ast.expr) -> list[ast.stmt]:
    """Make ``statement`` bind ``name`` to ``value``, in place where its form allows, else by what is returned."""
    fresh = _at(value, statement)
    if isinstance(statement, ast.AnnAssign):
        statement.value = fresh
        return []
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            statement.value = fresh
            return []
        part = _part(statement, name)
        if part is not None and isinstance(statement.value, (ast.Tuple, ast.List)):
            statement.value.elts = [fresh if item is part else item for item in statement.value.elts]
            return []
    # `a = b = 4`, `a, b = f()`, `a += 1`: the statement stays, and the constant is assigned again on the same line.
    return [ast.copy_location(ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=fresh), statement)]


def _at(value: ast.expr, place: ast.stmt) -> ast.expr:
    fresh = ast.parse(ast.unparse(value), mode="eval").body
    for node in ast.walk(fresh):
        ast.copy_location(node, place)
    return fresh


def _bound(statement: ast.stmt) -> list[str]:
    """Names that a top-level assignment binds."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = list(statement.targets)
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    names: list[str] = []
    while targets:
        target = targets.pop(0)
        if isinstance(target, ast.Name):
            names.append(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            targets = [*target.elts, *targets]
        elif isinstance(target, ast.Starred):
            targets.insert(0, target.value)
    return names


def _part(statement: ast.stmt, name: str) -> ast.expr | None:
    """The element of ``a, b = 1, 2`` that ``name`` takes; None for every other form."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return None
    target, value = statement.targets[0], statement.value
    if not (isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List))):
        return None
    if len(target.elts) != len(value.elts) or any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts)):
        return None
    for slot, item in zip(target.elts, value.elts, strict=True):
        if isinstance(slot, ast.Name) and slot.id == name:
            return item
    return None
