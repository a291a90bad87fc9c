"""``kernelwright history``, ``show`` and ``compare``: verdicts of the past."""

from __future__ import annotations

import sys
from typing import Any

import click

from kernelwright import settings
from kernelwright.cli.output import console, write_json


def opened() -> Any:
    """The history that the settings name."""
    from kernelwright.store.history import History

    return History(settings.history_file())


@click.command(short_help="Verdicts of the past, newest first.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="At most this many."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def history(limit: int, as_json: bool) -> None:
    """List the newest verdicts; 'kernelwright show' prints one whole."""
    entries = opened().entries(limit=limit)
    if as_json:
        write_json({"schema": "kernelwright.history/1", "verdicts": entries})
        return
    from kernelwright.report.history import render_history

    render_history(entries, console())


@click.command(short_help="One verdict of the past.")
@click.argument("number", type=int)
@click.option("--source", is_flag=True, help="Print the candidate's source as it was checked.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON (schema kernelwright.verdict/1).")
def show(number: int, source: bool, as_json: bool) -> None:
    """Print verdict NUMBER of 'kernelwright history' once more; after --, -1 is the newest."""
    stored = opened().get(number)
    if source:
        sys.stdout.write(stored.candidate_text)
    elif as_json:
        write_json(stored.verdict)
    else:
        from kernelwright.report import render

        render(stored.verdict, console())


@click.command(short_help="Two verdicts of the past: which is faster?")
@click.argument("first", type=int)
@click.argument("second", type=int)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def compare(first: int, second: int, as_json: bool) -> None:
    """Is verdict SECOND faster than verdict FIRST? Each is taken as a multiple of the eager it was timed beside."""
    from kernelwright.store.compare import compare as between

    base = opened()
    found = between(base.get(first), base.get(second))
    if as_json:
        write_json({"schema": "kernelwright.compare/1", "compare": found})
        return
    from kernelwright.report.history import render_comparison

    render_comparison(found, console())
