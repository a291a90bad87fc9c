"""``kernelwright demo``: the two stories that Kernelwright exists for, checked before your eyes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kernelwright.cli.check import check_options
from kernelwright.cli.output import console, write_json
from kernelwright.cli.talk import Progress
from kernelwright.errors import EXIT_NO, EXIT_YES, MachineError


@dataclass(frozen=True)
class Story:
    """One example: a problem, and sizes small enough to be shown in seconds."""

    folder: str
    title: str
    small: dict[str, str]


STORIES = (
    Story(
        "matrix_vector",
        "A matrix-vector product. A checker on a GPU said: an illegal memory access was encountered.",
        {"M": "64", "K": "4096"},
    ),
    Story(
        "linear_gelu_softmax",
        "softmax(gelu(linear(x))). A checker on a GPU said: max_difference: inf.",
        {"batch": "16", "in_features": "256", "out_features": "1024"},
    ),
)

FILES = ("faulty.py", "candidate.py")


@click.command(short_help="Check two public problems, a faulty and a right candidate each.")
@click.option("--full", is_flag=True, help="The problems' real sizes: 8.6 GB and minutes instead of seconds.")
@click.option("--device", type=click.Choice(("auto", "emulated", "cuda")), help="As for check.")
@click.option("--json", "as_json", is_flag=True, help="Print the four verdicts as JSON.")
def demo(full: bool, device: str | None, as_json: bool) -> int:
    """Check two public problems, each with a candidate that cost its author hours and with one that is right."""
    from kernelwright import check as core
    from kernelwright.records import VerdictWord

    root = examples_folder()
    shown = console() if not as_json else None
    verdicts: list[Any] = []
    told = True
    for story in STORIES:
        sets = {} if full else story.small
        if shown is not None:
            shown.rule(characters="=")
            shown.print(story.title)
            flags = "".join(f" --set {name}={value}" for name, value in sets.items())
        for file in FILES:
            problem, candidate = root / story.folder / "problem.py", root / story.folder / file
            if shown is not None:
                shown.print(f"\n$ kernelwright check {problem} {candidate}{flags}", style="bold", soft_wrap=True)
            with Progress() as progress:
                verdict = core.check(
                    problem, candidate, options=check_options(sets=sets, device=device), progress=progress
                )
            verdicts.append(verdict)
            told = told and (verdict.verdict is VerdictWord.CORRECT) == (file == "candidate.py")
            if shown is not None:
                from kernelwright.report import render

                render(verdict, shown)
    if as_json:
        write_json({"schema": "kernelwright.demo/1", "verdicts": verdicts})
    elif shown is not None:
        from kernelwright.report import render_summary

        shown.rule(characters="=")
        render_summary(verdicts, shown)
    return EXIT_YES if told else EXIT_NO


def examples_folder() -> Path:
    """Where the examples lie: inside an installed package, or beside ``src`` in a checkout. Raises ``MachineError``."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / STORIES[0].folder / "problem.py").is_file():
            return folder
    raise MachineError("the examples are not installed", hint="run the demo from a checkout, or reinstall kernelwright")
