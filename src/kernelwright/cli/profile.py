"""``kernelwright profile``: what each kernel of a candidate does, and why it takes its time."""

from __future__ import annotations

from pathlib import Path

import click

from kernelwright import settings
from kernelwright.cli import flags
from kernelwright.cli.output import console, write_json
from kernelwright.cli.talk import Progress, say_note
from kernelwright.errors import UsageError


@click.command(short_help="Counters by kernel and line, reasons in words, a roofline picture.")
@flags.problem
@flags.candidate
@flags.sets
@flags.presents_as
@flags.device
@flags.seed
@flags.timeout("Longest each run of the candidate may take.  [default: 300]")
@flags.memory("Most memory that the candidate may take on the emulated device, such as 16G.")
@click.option(
    "--launches",
    type=click.IntRange(min=1),
    metavar="N",
    default=40,
    show_default=True,
    help="Most kernel launches that ncu profiles.",
)
@click.option(
    "--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a roofline picture."
)
@click.option("--json", "as_json", is_flag=True, help="Print the profile as JSON (schema kernelwright.profile/1).")
def profile(
    problem: Path,
    candidate: Path,
    sets: tuple[str, ...],
    presents_as: str | None,
    device: str | None,
    seed: int,
    timeout_s: float | None,
    memory_bytes: int | None,
    launches: int,
    svg: Path | None,
    as_json: bool,
) -> int:
    """Profile CANDIDATE at PROBLEM's size: by kernel, by source line, and under the roofs of the device.

    On a GPU ncu counts (clocks are left alone) and PyTorch's profiler traces; without ncu or without a GPU the emulated
    device counts the same kernels, and the report says so. Exit status 0; 1 where the candidate does not run.
    """
    flags.need(problem, candidate)
    from kernelwright import profile as core
    from kernelwright.device.specs import spec

    options = core.ProfileOptions(
        sets=flags.read_sets(sets),
        device=settings.get("DEVICE", flag=device),
        presents_as=spec(settings.get("AS", flag=presents_as)).key,
        seed=seed,
        timeout_s=settings.get("TIMEOUT", flag=timeout_s),
        memory_bytes=settings.get("MEMORY", flag=memory_bytes),
        launches=launches,
    )
    with Progress() as progress:
        made = core.profile(problem, candidate, options=options, progress=progress)
    if svg is not None:
        try:
            svg.write_text(core.picture(made), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--svg {svg} cannot be written: {error.strerror}") from None
        say_note(f"the roofline picture is in {svg}")
    if as_json:
        write_json(made)
    else:
        from kernelwright.report.profile import render_profile

        render_profile(made, console())
    return 0
