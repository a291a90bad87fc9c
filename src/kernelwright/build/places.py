"""Lines of the candidate that a build message means without naming them.

Why: generated code fails at lines nobody wrote; the mistake stands elsewhere, in an argument of the call or a
declaration in one of its strings. The rule: read by ``ast`` and by words, never executed; 0 where nothing fits.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from kernelwright.records import BuildRecord


class Places:
    """One candidate's text, as seen from one failed build."""

    def __init__(self, record: BuildRecord, text: str) -> None:
        self.record = record
        self.lines = text.splitlines()
        self.name = re.sub(r"_v\d+$", "", record.name)
        program = record.tier == "program"
        self.bad_name = not program and not self.name.isidentifier()
        # A program is a file of its own; an extension's text stands in strings of a Python file.
        written = next((d.file for d in record.diagnostics if d.file.endswith(".py")), "candidate.py")
        self.file = record.name if program else written
        self._suffix = Path(self.file).suffix
        try:
            self.tree: ast.Module | None = ast.parse(text)
        except SyntaxError:
            self.tree = None
        self.call = self._call()
        self.functions = self._functions()

    def is_candidate(self, file: str) -> bool:
        """Whether a diagnostic's file is the candidate's own."""
        return file.endswith(self._suffix) and Path(file).name == Path(self.file).name

    def text(self, line: int) -> str:
        """The line, stripped."""
        return self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""

    def line_with(self, pattern: str) -> int:
        """The first line that matches."""
        return next((i for i, line in enumerate(self.lines, 1) if re.search(pattern, line)), 0)

    def name_line(self) -> int:
        """Where the extension's name is given."""
        value = self._argument("name", 0)
        return value.lineno if value is not None else self.line_with(re.escape(self.name)) or self.record.call_line

    def argument_line(self, name: str) -> int:
        """Where the value of the call's argument ``name`` is written: its assignment where it is a variable."""
        value = self._argument(name, {"cpp_sources": 1, "cuda_sources": 2}.get(name, -1))
        if isinstance(value, ast.List) and value.elts:
            value = value.elts[-1]
        if isinstance(value, ast.Name) and self.tree is not None:
            assigned = [
                node.lineno
                for node in ast.walk(self.tree)
                if isinstance(node, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == value.id for t in node.targets)
            ]
            return max((line for line in assigned if line <= value.lineno), default=value.lineno)
        return value.lineno if value is not None else self.record.call_line

    def architecture_line(self) -> int:
        """Where the candidate chooses a GPU."""
        return (
            self.line_with(r"TORCH_CUDA_ARCH_LIST")
            or self.line_with(r"-gencode|-arch[=\s\"']|--gpu-architecture|code=sm_")
            or self.record.call_line
        )

    def include_line(self, header: str) -> int:
        """Where ``header`` is included."""
        return self.line_with(r"#\s*include\s*[<\"]" + re.escape(header))

    def flag_line(self, message: str) -> int:
        """Where a flag named in ``message`` is written."""
        for flag in re.findall(r"['\"`]?(-{1,2}[\w][\w=+.-]*)", message):
            if line := self.line_with(re.escape(flag)):
                return line
        return 0

    def declaration_line(self, function: str) -> int:
        """Where ``function`` is declared without a body."""
        return self.line_with(rf"\b{re.escape(function)}\s*\([^{{}}]*\)\s*(const)?\s*;") if function else 0

    def definition(self, function: str) -> str:
        """The head of ``function``'s definition, on one line; empty where there is none."""
        if not function:
            return ""
        found = re.search(
            rf"^[ \t]*([\w:<>,&*\s]*?\b{re.escape(function)}\s*\([^;{{}}]*\))\s*\{{", "\n".join(self.lines), re.M
        )
        return re.sub(r"\s+", " ", found[1]).strip() if found else ""

    def _call(self) -> ast.Call | None:
        if self.tree is None:
            return None
        calls = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and _callee(node) in ("load_inline", "load")
        ]
        return min(calls, key=lambda node: abs(node.lineno - self.record.call_line), default=None)

    def _argument(self, name: str, position: int) -> ast.expr | None:
        if self.call is None:
            return None
        for keyword in self.call.keywords:
            if keyword.arg == name:
                return keyword.value
        return self.call.args[position] if 0 <= position < len(self.call.args) else None

    def _functions(self) -> tuple[str, ...]:
        value = self._argument("functions", 4)
        if value is None:
            return ()
        return tuple(n.value for n in ast.walk(value) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def _callee(node: ast.Call) -> str:
    return (
        node.func.attr
        if isinstance(node.func, ast.Attribute)
        else node.func.id
        if isinstance(node.func, ast.Name)
        else ""
    )
