"""``kernelwright run``: a whole CUDA program on the emulated device."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernelwright import settings
from kernelwright.cli import flags
from kernelwright.cli.output import error_console, write_json
from kernelwright.cli.talk import Progress
from kernelwright.errors import MissingFile


@click.command(short_help="Run a CUDA program without a GPU, with every check on.")
@click.argument("program", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@flags.presents_as
@flags.timeout("Longest the program may take, once compiled.  [default: 300]")
@flags.memory("Most memory that the program may take, such as 16G.  [default: three quarters of what is free]")
@click.option(
    "-I",
    "include",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder to search for included files. May be given again.",
)
@click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="A macro to define. May be given again.")
@click.option("--nvcc", "flags", multiple=True, metavar="FLAG", help="One more flag for nvcc. May be given again.")
@flags.checks
@click.option("--counters", "counted", is_flag=True, help="Count what each kernel does, and show it by line.")
@click.option("--json", "as_json", is_flag=True, help="Keep the program's output and print a report as JSON.")
def run(
    program: Path,
    arguments: tuple[str, ...],
    presents_as: str | None,
    timeout_s: float | None,
    memory_bytes: int | None,
    include: tuple[Path, ...],
    defines: tuple[str, ...],
    flags: tuple[str, ...],
    counted: bool,
    checks: str,
    as_json: bool,
) -> int:
    """Compile PROGRAM, a CUDA file with its own main(), and run it on the emulated device with ARGUMENTS.

    Write -- before arguments that begin with a dash. Input and output are the program's own; what the device saw is
    told on stderr. Exit status: the program's; 1 where something was found, or it does not compile or end; 128 and the
    signal's number where one ended it; 3 where it needs what the emulated device does not have.
    """
    if not program.is_file():
        raise MissingFile(role="program", path=program)
    from kernelwright import program as core
    from kernelwright.device.specs import spec

    options = core.RunOptions(
        presents_as=spec(settings.get("AS", flag=presents_as)).key,
        timeout_s=settings.get("TIMEOUT", flag=timeout_s),
        memory_bytes=settings.get("MEMORY", flag=memory_bytes),
        include=include,
        defines=defines,
        flags=flags,
        arguments=arguments,
        counted=counted,
        checks=checks,
        captured=as_json,
    )
    report = core.run(program, options=options, progress=_Quiet())
    if as_json:
        write_json(report)
    else:
        from kernelwright.report import render_program

        render_program(report, error_console())
    return core.exit_status(report)


class _Quiet:
    """Progress on a terminal only, and gone before the program runs: stderr is the program's."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def __call__(self, step: str) -> None:
        if self._live and step.startswith("compiling"):
            self._progress = Progress()
            self._progress(step)
        elif self._live:
            self._progress.__exit__(None, None, None)
