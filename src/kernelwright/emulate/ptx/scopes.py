"""Names inside a function: PTX's nested ``{ }`` scopes, flattened to names that are unique in the function.

Why: inline assembly and every call sequence open a scope and declare ``p``, ``%r0`` or ``param0`` anew, often hiding an
outer name, while the IR has one flat table a function. The rule: a name declared at the top keeps its spelling; a name
declared in inner scope number n becomes ``name@n``.
"""

from __future__ import annotations

import re

from .ir import Reg

_NUMBERED = re.compile(r"(.*?)(0|[1-9]\d*)$", re.DOTALL)


class Scope:
    """One ``{ }``: its registers, variables and labels, and the scope around it."""

    def __init__(self, parent: Scope | None, number: int) -> None:
        self.parent = parent
        self.number = number
        self.registers: dict[str, Reg] = {}
        self.families: dict[str, tuple[str, int]] = {}
        """Prefix to (type, count): ``.reg .b32 %r<21>`` declares ``%r0`` to ``%r20``."""
        self.variables: dict[str, str] = {}
        """Declared spelling to unique name."""
        self.labels: dict[str, str] = {}

    def unique(self, name: str) -> str:
        """The flat name of ``name`` declared in this scope."""
        return name if self.parent is None else f"{name}@{self.number}"

    def register(self, name: str) -> Reg | None:
        """The register that ``name`` means here, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.registers.get(name)
            if found is not None:
                return found
            if scope.families:
                match = _NUMBERED.match(name)
                if match:
                    family = scope.families.get(match[1])
                    if family is not None and int(match[2]) < family[1]:
                        register = scope.registers[name] = Reg(scope.unique(name), family[0])
                        return register
            scope = scope.parent
        return None

    def variable(self, name: str) -> str | None:
        """The unique name of the variable that ``name`` means here, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.variables.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def label(self, name: str) -> str | None:
        """The unique name of the label that ``name`` means here, or None; ask only once the function is read."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.labels.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None
