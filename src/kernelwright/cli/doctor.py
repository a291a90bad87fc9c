"""``kernelwright doctor``: what this machine has, what is missing, and how to get it."""

from __future__ import annotations

import click

from kernelwright.cli.output import console, write_json
from kernelwright.errors import EXIT_FAULT, EXIT_YES


@click.command(short_help="What this machine has, what is missing, how to get it.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor(as_json: bool) -> int:
    """What Kernelwright needs and whether this machine has it. Exit status 3: the emulated device cannot work here."""
    from kernelwright.doctor import examine

    health = examine()
    if as_json:
        write_json(health)
    else:
        from kernelwright.report.doctor import render_health

        render_health(health, console())
    return EXIT_YES if health.emulated_device_works else EXIT_FAULT
