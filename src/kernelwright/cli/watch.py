"""``kernelwright watch``: the check again after each save, until Ctrl-C."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import click

from kernelwright.cli import flags
from kernelwright.cli.check import check, check_options, keep
from kernelwright.cli.output import console
from kernelwright.cli.talk import Progress, say_error, say_note
from kernelwright.errors import EXIT_NO, KernelwrightError

_LEFT_OUT = frozenset({"as_json", "require_speedup"})
"""Options of ``check`` that only mean something where somebody reads its exit status or its output as data."""


@click.command(
    short_help="Check again after each save.",
    params=[option for option in check.params if option.name not in _LEFT_OUT],
)
def watch(problem: Path, candidate: Path, **given: Any) -> int:
    """Check CANDIDATE against PROBLEM now, and again whenever it is saved, until Ctrl-C.

    Between checks PyTorch stays imported, the problem loaded, its oracle computed, and processes for the next
    candidate open the device; each candidate still runs in a process of its own. Files beside the candidate count, too.
    Exit status: the last check's, 0 for correct and 1 for not.
    """
    from kernelwright import check as core
    from kernelwright.report import render
    from kernelwright.watch import Session, saves

    flags.need(problem, candidate)
    given["sets"] = flags.read_sets(given["sets"])
    given["confirm"] = False if given.pop("no_confirm") else None
    given["replay"] = False if given.pop("no_replay") else None
    given["timing"] = not given.pop("no_timing")
    given["baselines"] = given["baselines"] or ("eager",)
    options = check_options(**given)
    screen = console()
    status = EXIT_NO
    with Session(problem, candidate, options=options) as session, contextlib.suppress(KeyboardInterrupt):
        for _ in saves(problem, candidate, session.idle):
            if screen.is_terminal:
                screen.clear()
            began = time.monotonic()
            try:
                with Progress() as progress:
                    verdict = session.check(progress)
            except KernelwrightError as error:
                status = error.exit_status
                say_error(str(error), hint=error.hint)
            else:
                status = core.exit_status(verdict)
                keep(verdict, problem, candidate)
                render(verdict, screen)
            say_note(f"{time.monotonic() - began:.1f} s; waiting for the next save, Ctrl-C ends")
    return status
