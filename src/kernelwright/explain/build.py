"""Causes of the family ``build``: the sources do not become a loadable module.

Needs: a failed build's record, which the build room reads itself (its diagnostics know the compilers' wordings), an
attribute that a module built in this run does not have, or a file that Python cannot parse. The rule: only a module
that this run built is talked about.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from kernelwright.explain.case import Case
from kernelwright.records import Cause, ExceptionFact, Stage

_NO_ATTRIBUTE = re.compile(r"(?:module )?'([^']+)'(?: object)? has no attribute '([^']+)'")


_SYNTAX_ERRORS = frozenset({"SyntaxError", "IndentationError", "TabError"})


def causes(case: Case) -> Iterator[Cause]:
    """Causes of this family that the evidence shows."""
    for record in case.evidence.builds:
        if not record.ok or record.confirmed is False:
            # Here, so that a check whose builds are in order does not load the compilers' wordings.
            from kernelwright.build.diagnostics import causes_of

            yield from causes_of(record, case.evidence.candidate_text)
    exception = case.evidence.exception
    if exception is not None and exception.type == "AttributeError":
        yield from not_exported(case, exception)
    if exception is not None and exception.type in _SYNTAX_ERRORS and exception.frames:
        yield syntax(case, exception)


def syntax(case: Case, exception: ExceptionFact) -> Cause:
    """The candidate's file is not valid Python."""
    line = exception.frames[-1].line
    message = exception.message.splitlines()[0] if exception.message else exception.type
    return case.cause(
        "build.syntax",
        Stage.LOAD,
        f"{case.evidence.candidate_file} is not valid Python: {message}.",
        line=line,
        evidence=[f"Python: {exception.type}: {message}"],
    )


def not_exported(case: Case, exception: ExceptionFact) -> Iterator[Cause]:
    """The Python side names something that a module built in this run does not bind."""
    missing = _NO_ATTRIBUTE.search(exception.message)
    if missing is None or missing[1] not in {record.name for record in case.evidence.builds}:
        return
    module, name = missing.groups()
    bound = case.tree.bound
    near = difflib.get_close_matches(name, bound, n=1, cutoff=0.3)
    yield case.cause(
        "build.not-exported",
        Stage.RUN,
        f"The module {module} binds no {name}"
        + (f"; it binds {', '.join(bound)}." if bound else ": only what functions=[…] or m.def(…) names becomes one."),
        line=exception.frames[-1].line if exception.frames else 0,
        evidence=[f"{exception.type}: {exception.message}"],
        fix=f"Call {near[0]}, or add {name} to functions=[…]." if near else f"Add {name} to functions=[…].",
    )
