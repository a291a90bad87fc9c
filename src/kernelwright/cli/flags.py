"""Options and arguments that several commands take, each once.

The rule: one option has one name, type and help wherever it is taken; where the help must differ, it is a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kernelwright import settings
from kernelwright.device.checks import CHECKS
from kernelwright.errors import MissingFile, UsageError


def setting(name: str) -> Callable[[str], Any]:
    """A reader of an option's value that takes what setting ``name`` takes, and complains in its words."""
    entry = settings.TABLE[name]

    def value(text: str) -> Any:
        try:
            return entry.read(text)
        except ValueError as error:
            words = str(error)
            raise click.BadParameter(words if words.startswith("expected") else f"expected {entry.kind}") from None

    return value


problem = click.argument("problem", type=click.Path(path_type=Path))
candidate = click.argument("candidate", type=click.Path(path_type=Path))
sets = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a module-level constant of the problem, such as a size. May be given again.",
)
presents_as = click.option(
    "--as",
    "presents_as",
    metavar="GPU",
    help="The data sheet that the emulated device presents; 'kernelwright specs' lists them.  [default: h200]",
)
device = click.option(
    "--device",
    type=click.Choice(settings.DEVICES),
    help="What the candidate runs on; auto takes a GPU where there is one.  [default: auto]",
)
seed = click.option("--seed", type=int, metavar="N", default=0, show_default=True, help="Seed of weights and inputs.")
checks = click.option(
    "--checks",
    type=click.Choice(CHECKS),
    default="all",
    show_default=True,
    help="What the emulated device looks for. 'memory' leaves out races, and is faster where threads share memory.",
)


def timeout(help: str) -> Callable[[Any], Any]:
    """``--timeout SECONDS``."""
    return click.option("--timeout", "timeout_s", type=setting("TIMEOUT"), metavar="SECONDS", help=help)


def memory(help: str) -> Callable[[Any], Any]:
    """``--memory SIZE``."""
    return click.option("--memory", "memory_bytes", type=setting("MEMORY"), metavar="SIZE", help=help)


def need(problem: Path, candidate: Path) -> None:
    """Raises ``MissingFile`` for the first of both files that is not there."""
    for role, path in (("problem", problem), ("candidate", candidate)):
        if not path.is_file():
            raise MissingFile(role=role, path=path)


def read_sets(pairs: tuple[str, ...]) -> dict[str, str]:
    """``{"M": "64"}`` from ``("M=64",)``. Raises ``UsageError``."""
    sets: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip().isidentifier() or not value.strip():
            raise UsageError(f"--set {pair} is not NAME=VALUE", hint="for example --set M=64")
        sets[name.strip()] = value.strip()
    return sets
