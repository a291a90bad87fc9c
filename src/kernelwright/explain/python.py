"""The Python of a candidate, read as a syntax tree: what is bound, called, sliced, allocated and changed in place.

Why: some causes lie on the Python side of a call into an extension. The rule: the file is never run; a question whose
answer the tree does not hold is answered with nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

_LOADERS = ("load_inline", "load")
_MAKERS = ("empty", "zeros", "ones", "full", "rand", "randn", "tensor", "arange", "empty_strided")


@dataclass(frozen=True)
class Tree:
    """A parsed candidate; empty where the text is not Python."""

    text: str

    @cached_property
    def module(self) -> ast.Module:
        """The syntax tree."""
        try:
            return ast.parse(self.text)
        except SyntaxError:
            return ast.Module(body=[], type_ignores=[])

    @cached_property
    def extensions(self) -> dict[str, str]:
        """Variables that hold an extension: variable → the extension's name (empty where it is computed)."""
        found: dict[str, str] = {}
        for node in ast.walk(self.module):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _is_loader(node.value):
                name = next((k.value for k in node.value.keywords if k.arg == "name"), None)
                name = name or (node.value.args[0] if node.value.args else None)
                text = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""
                for target in node.targets:
                    found[_last_name(target)] = text
        return found

    @cached_property
    def bound(self) -> list[str]:
        """The names in ``functions=[…]`` of every load_inline call."""
        loaders = [node for node in ast.walk(self.module) if isinstance(node, ast.Call) and _is_loader(node)]
        lists = [keyword.value for call in loaders for keyword in call.keywords if keyword.arg == "functions"]
        words = [node.value for listed in lists for node in ast.walk(listed) if isinstance(node, ast.Constant)]
        return [word for word in words if isinstance(word, str)]

    @cached_property
    def extension_calls(self) -> list[ast.Call]:
        """Calls of a bound name on an extension (``ext.relu(x)``), in file order."""
        found = [
            node
            for node in ast.walk(self.module)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (_last_name(node.func.value) in self.extensions or node.func.attr in self.bound)
        ]
        return sorted(found, key=lambda call: call.lineno)

    def called_at(self, line: int) -> str:
        """The extension's function that is called at ``line``; empty where none or several are."""
        names = {
            call.func.attr
            for call in self.extension_calls
            if isinstance(call.func, ast.Attribute) and call.lineno <= line <= (call.end_lineno or call.lineno)
        }
        return names.pop() if len(names) == 1 else ""

    @cached_property
    def sliced_arguments(self) -> list[int]:
        """Lines where a slice or view that reaches an extension's call is made (``x[1:]``, ``x.narrow(…)``)."""
        lines = []
        passed = set()
        for call in self.extension_calls:
            for argument in call.args:
                made = _view(argument)
                if made is not None:
                    lines.append(made)
                passed |= {n.id for n in ast.walk(argument) if isinstance(n, ast.Name)}
        for node in ast.walk(self.module):
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id in passed for t in node.targets):
                made = _view(node.value)
                if made is not None:
                    lines.append(made)
        return sorted(set(lines))

    @cached_property
    def cpu_tensors(self) -> list[int]:
        """Lines of ``ModelNew``'s methods that make a tensor without saying a device, or move one to the host."""
        lines = []
        for node in self._in_class("ModelNew"):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            says = any(keyword.arg == "device" for keyword in node.keywords)
            makes = node.func.attr in _MAKERS and _last_name(node.func.value) == "torch" and not says
            if makes or node.func.attr == "cpu":
                lines.append(node.lineno)
        return sorted(set(lines))

    @cached_property
    def in_place(self) -> list[int]:
        """Lines of ``ModelNew.forward`` that change an argument in place (``x.mul_(2)``, ``x += 1``, ``x[0] = 1``)."""
        lines = []
        for function in self._in_class("ModelNew"):
            if not isinstance(function, ast.FunctionDef) or function.name != "forward":
                continue
            arguments = {a.arg for a in function.args.args} - {"self"}
            lines += [node.lineno for node in ast.walk(function) if _changes(node, arguments)]
        return sorted(set(lines))

    @cached_property
    def returned_lines(self) -> list[int]:
        """Lines of ``ModelNew.forward`` that last make, by a call, a variable that it returns."""
        lines: dict[str, int] = {}
        for function in self._in_class("ModelNew"):
            if not isinstance(function, ast.FunctionDef) or function.name != "forward":
                continue
            inside = list(ast.walk(function))
            names = {n.value.id for n in inside if isinstance(n, ast.Return) and isinstance(n.value, ast.Name)}
            for node in inside:
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    for target in node.targets:
                        if isinstance(target, ast.Name) and target.id in names:
                            lines[target.id] = max(node.lineno, lines.get(target.id, 0))
        return sorted(lines.values())

    def members(self, class_name: str) -> list[tuple[str, int]]:
        """(name, line) of what ``__init__`` of ``class_name`` keeps on ``self`` that can hold parameters, in order."""
        found = []
        for function in self._in_class(class_name):
            if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Call, ast.Attribute)):
                    for target in node.targets:
                        if isinstance(target, ast.Attribute) and _last_name(target.value) == "self":
                            found.append((target.attr, node.lineno))
        return sorted(found, key=lambda member: member[1])

    def _in_class(self, name: str) -> Iterator[ast.AST]:
        for node in ast.walk(self.module):
            if isinstance(node, ast.ClassDef) and node.name == name:
                yield from ast.walk(node)


def _changes(node: ast.AST, names: set[str]) -> TypeGuard[ast.expr | ast.stmt]:
    """Whether ``node`` changes one of ``names`` in place."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method = node.func.attr
        return method.endswith("_") and not method.endswith("__") and _last_name(node.func.value) in names
    if isinstance(node, ast.AugAssign):
        return _base(node.target) in names
    return isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Subscript) and _base(t) in names for t in node.targets
    )


def _is_loader(call: ast.Call) -> bool:
    return _last_name(call.func) in _LOADERS


def _last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c``; empty for what has no name."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _base(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _view(node: ast.AST) -> int | None:
    """Line of the first slice or narrowing inside ``node``; None where there is none."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript) and not isinstance(inner.slice, ast.Constant | ast.Name):
            slices = [s for s in ast.walk(inner.slice) if isinstance(s, ast.Slice)]
            if any(s.lower is not None for s in slices):
                return inner.lineno
        if isinstance(inner, ast.Call) and _last_name(inner.func) in ("narrow", "as_strided"):
            return inner.lineno
    return None
