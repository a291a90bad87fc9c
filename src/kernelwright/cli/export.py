"""``kernelwright export``: a gallery kernel as a stand-alone file, or all verdicts of the past as JSON lines."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from kernelwright.cli.history import opened


@click.command(short_help="A gallery kernel as one file, or all verdicts as JSON lines.")
@click.argument("name", required=False)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write there, not on stdout.")
@click.option("--device", metavar="GPU", default="", help="Put the choices that were measured on GPU into the file.")
@click.option("--json", "as_json", is_flag=True, help="The verdicts, one object a line: what is printed without NAME.")
def export(name: str | None, output: Path | None, device: str, as_json: bool) -> None:
    """With NAME, write that kernel of the gallery as a stand-alone candidate file, with no import of Kernelwright.

    Without, print every verdict with both sources and all raw samples, oldest first, one JSON object a line.
    """
    if name is not None and as_json:
        raise click.UsageError("a kernel's file is no JSON: leave out NAME or --json")
    if name is None and device:
        raise click.UsageError("--device belongs to a kernel: name one")
    if name is not None:
        from kernelwright import gallery

        text = gallery.export(name, device=device)
    else:
        text = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in opened().export())
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
