"""The commands' group, and what becomes of every way a command can end.

Why: click's own usage errors, our errors and exceptions nobody foresaw must all end in one of the four documented exit
statuses, with the advice on a line of its own. The rule: a traceback is shown under ``KERNELWRIGHT_DEBUG`` only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from kernelwright import __version__, settings
from kernelwright.cli.check import check
from kernelwright.cli.demo import demo
from kernelwright.cli.doctor import doctor
from kernelwright.cli.export import export
from kernelwright.cli.gallery import gallery
from kernelwright.cli.history import compare, history, show
from kernelwright.cli.profile import profile
from kernelwright.cli.run import run
from kernelwright.cli.specs import specs
from kernelwright.cli.talk import say_error
from kernelwright.cli.watch import watch
from kernelwright.errors import EXIT_FAULT, EXIT_USAGE, EXIT_YES, KernelwrightError
from kernelwright.eviction import evict_sometimes

EXIT_INTERRUPTED = 130
"""As shells count it: 128 and SIGINT."""


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    epilog="Exit status: 0 yes, 1 no, 2 usage or configuration, 3 our failure or the machine's.",
)
@click.version_option(__version__, "--version", prog_name="kernelwright", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Check a CUDA candidate against a PyTorch problem, with or without a GPU, and explain what fails."""
    settings.check_names()
    if context.invoked_subcommand is None:
        # Not asked for, so not data: it goes to stderr, and nothing was done.
        click.echo(context.get_help(), err=True)
        context.exit(EXIT_USAGE)


for _command in (check, watch, run, profile, history, show, compare, export, gallery, specs, doctor, demo):
    cli.add_command(_command)


def own_tools_on_path() -> None:
    """Let builds find what was installed beside us (ninja), as in an activated environment.

    A PATH that leads nowhere at all is left as it is: a broken environment is what the build must name.
    """
    places = os.environ.get("PATH", "").split(os.pathsep)
    own = str(Path(sys.executable).parent)
    if own not in places and any(Path(place).is_dir() for place in places if place):
        os.environ["PATH"] = os.pathsep.join([*places, own])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv`` by default) and return its exit status."""
    own_tools_on_path()
    try:
        status = cli.main(
            args=None if arguments is None else list(arguments), prog_name="kernelwright", standalone_mode=False
        )
        sys.stdout.flush()
        return status if isinstance(status, int) else EXIT_YES
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        say_error(error.format_message(), hint=f"try '{context.command_path} --help'" if context else "")
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        say_error("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader went away; a second failure at interpreter exit would only add noise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAULT
    except KernelwrightError as error:
        say_error(str(error), hint=error.hint)
        _trace()
        return error.exit_status
    except Exception as error:
        text = str(error).strip() or "no message"
        say_error(
            f"this is our fault, not the candidate's: {type(error).__name__}: {text}",
            hint="KERNELWRIGHT_DEBUG=1 shows the traceback, which a report should hold",
        )
        _trace()
        return EXIT_FAULT
    finally:
        _keep_cache_small()


def _keep_cache_small() -> None:
    """After the answer, so that nobody waits for it; a cache or a setting that is at fault was told already."""
    with contextlib.suppress(KernelwrightError, OSError):
        evict_sometimes()


def _trace() -> None:
    try:
        wanted = settings.debug()
    except KernelwrightError:
        wanted = 0
    if wanted >= settings.DEBUG_COMMANDS:
        traceback.print_exc()
