"""Causes of the family ``cheat``: how the candidate comes to its outputs, whatever they are.

Needs: what was seen of its conduct (``Conduct``): functions replaced, PyTorch's operators that a forward pass ran, and
trials whose outputs were equal bit for bit. The rule: seen directly, never read off the text, which gives the line
only; a candidate without kernels of its own that does the reference's work with PyTorch hides nothing and is not named.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelwright.explain.case import Case
from kernelwright.records import Cause, Confidence, Stage, kinds


def causes(case: Case) -> Iterator[Cause]:
    """Causes of this family that the evidence shows."""
    yield from replaced(case)
    yield from returned_again(case)
    evidence = case.evidence
    trials = evidence.numerics.trials if evidence.numerics is not None else ()
    # A GPU tells what it launched where somebody looked.
    idle = not evidence.launches if _tells_all(case) else evidence.conduct.own_kernels == ()
    if idle and trials and all(trial.passed for trial in trials):
        yield from calls_reference(case)
        yield from constant_output(case)


def _tells_all(case: Case) -> bool:
    """Whether the device tells every launch, and hands out no memory that still holds an earlier answer."""
    device = case.evidence.device
    return device is not None and device.kind in ("emulated", "host")


def replaced(case: Case) -> Iterator[Cause]:
    """A clock, a wait or a comparison is another function after the candidate's file ran."""
    names = case.evidence.conduct.replaced
    if not names:
        return
    last = names[0].rpartition(".")[2]
    yield case.cause(
        "cheat.patches-harness",
        Stage.LOAD,
        f"The candidate replaces {', '.join(names)}: whoever times or compares by that in the same process is told "
        f"what the candidate likes.",
        line=_assigned(case.tree.module, last),
        evidence=[f"{name} is another object than before the candidate's file ran" for name in names],
        fix="Leave it as it is.",
    )


def returned_again(case: Case) -> Iterator[Cause]:
    """The outputs of an earlier trial, right then, are returned for other inputs."""
    again = case.evidence.conduct.returned_again
    if again is None:
        return
    wrong, right = again
    yield case.cause(
        "cheat.cached-output",
        Stage.JUDGE,
        f"In trial {wrong} the candidate returns bit for bit what it returned in trial {right}, where it was right, "
        f"although the inputs are others: it remembers its answer.",
        line=remembered(case.tree.module),
        evidence=[f"equal checksums of the outputs of trials {right} and {wrong}"],
        fix="Compute the output in each call. An address says nothing of what lies there: memory is filled anew.",
        # Memory that a GPU hands out again may hold an earlier answer, too.
        confidence=Confidence.CERTAIN if _tells_all(case) else Confidence.LIKELY,
    )


def calls_reference(case: Case) -> Iterator[Cause]:
    """It builds kernels, runs none, and PyTorch does all that the reference does."""
    conduct = case.evidence.conduct
    if not case.evidence.builds or not conduct.does_the_references_work:
        return
    ours, theirs = conduct.operators or (), conduct.reference_operators or ()
    wanted = kinds(theirs)
    line = next((one.line for one in ours if (one.name, one.shape) in wanted and one.line), 0)
    names = ", ".join(dict.fromkeys(one.name.lstrip("_") for one in theirs))
    yield case.cause(
        "cheat.calls-reference",
        Stage.RUN,
        f"None of the candidate's own kernels ran: PyTorch does all that the reference does ({names}).",
        line=line,
        evidence=[
            f"built: {', '.join(record.name for record in case.evidence.builds)}; launched: nothing",
            *(f"line {one.line} runs {one.name.lstrip('_')} {list(one.shape)}" for one in ours[:4] if one.line),
        ],
        fix="Launch the kernel in the mode that is checked: a module is in training mode until eval() is called.",
    )


def constant_output(case: Case) -> Iterator[Cause]:
    """It passes without having read an input."""
    conduct = case.evidence.conduct
    # Host code may read memory that no operator was given; then the outputs would differ from trial to trial.
    if not conduct.gives_a_constant:
        return
    passing = case.evidence.numerics.passing_impostors if case.evidence.numerics is not None else ()
    yield case.cause(
        "cheat.constant-output",
        Stage.JUDGE,
        "The output does not depend on the input: no operator and no kernel was given one, and it passes all the same.",
        line=case.output_line or _returned(case.tree.module),
        evidence=[
            "the outputs of all trials are equal bit for bit; the reference reads its input",
            f"within the tolerance {', '.join(passing)} would pass, too" if passing else "",
        ],
        fix="Compute it from the input; and give the problem inputs whose outputs differ, or a tighter tolerance.",
    )


def remembered(module: ast.Module) -> int:
    """The one place that keeps a result for the next call: a test before a container is filled, or a cache's name."""
    lines = set()
    for node in ast.walk(module):
        if isinstance(node, ast.If):
            kept = {
                ast.unparse(target.value if isinstance(target, ast.Subscript) else target)
                for inner in node.body
                for assigned in ast.walk(inner)
                if isinstance(assigned, ast.Assign)
                for target in assigned.targets
                if isinstance(target, ast.Subscript | ast.Attribute)
            }
            if kept & {ast.unparse(n) for n in ast.walk(node.test) if isinstance(n, ast.Name | ast.Attribute)}:
                lines.add(node.lineno)
        if isinstance(node, ast.FunctionDef):
            lines |= {d.lineno for d in node.decorator_list if ast.unparse(d).split("(")[0].endswith("cache")}
    return lines.pop() if len(lines) == 1 else 0


def _assigned(module: ast.Module, name: str) -> int:
    """The first line that assigns an attribute of that name, also by setattr."""
    for node in ast.walk(module):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Attribute) and target.attr == name for target in targets):
            return node.lineno if isinstance(node, ast.Assign) else 0
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("setattr", "patch", "patch.object")):
            words = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
            if any(word.split(".")[-1] == name for word in words):
                return node.lineno
    return 0


def _returned(module: ast.Module) -> int:
    """The only return of ModelNew.forward; 0 where there are several."""
    lines = {
        node.lineno
        for owner in ast.walk(module)
        if isinstance(owner, ast.ClassDef) and owner.name == "ModelNew"
        for function in owner.body
        if isinstance(function, ast.FunctionDef) and function.name == "forward"
        for node in ast.walk(function)
        if isinstance(node, ast.Return)
    }
    return lines.pop() if len(lines) == 1 else 0
