"""``kernelwright check``: one candidate against one problem."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from kernelwright import settings
from kernelwright.cli import flags
from kernelwright.cli.output import console, write_json
from kernelwright.cli.talk import Progress, say_note
from kernelwright.errors import MachineError

BASELINES = ("eager", "tf32", "compile", "max-autotune")
"""What ``--baseline`` takes; tests hold it to the measure room's own table."""


@click.command(short_help="Check a candidate against a problem, and explain what fails.")
@flags.problem
@flags.candidate
@flags.sets
@flags.presents_as
@flags.device
@click.option("--trials", type=flags.setting("TRIALS"), metavar="N", help="Fresh inputs to compare on.  [default: 3]")
@flags.seed
@click.option(
    "--inputs",
    type=click.Choice(settings.INPUTS),
    help="Draw inputs in each process from one seed, or make them once on the CPU.  [default: auto]",
)
@click.option("--atol", type=click.FloatRange(min=0), metavar="NUMBER", help="Absolute tolerance.  [default: by dtype]")
@click.option("--rtol", type=click.FloatRange(min=0), metavar="NUMBER", help="Relative tolerance.  [default: by dtype]")
@flags.timeout("Longest the candidate may take in all.  [default: 300]")
@flags.memory("Most memory that the candidate may take, such as 16G.  [default: three quarters of what is free]")
@click.option(
    "--no-confirm", is_flag=True, help="Trust the fast headers; do not compile against the real torch headers."
)
@flags.checks
@click.option(
    "--counters", "counted", is_flag=True, help="Count what each kernel does, by line, and name what makes it slow."
)
@click.option("--no-timing", is_flag=True, help="Do not time a correct candidate (only a GPU is timed).")
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    type=click.Choice(BASELINES),
    help="What to time against, besides eager. May be given again.  [default: eager]",
)
@click.option(
    "--samples", type=click.IntRange(min=10), metavar="N", default=100, show_default=True, help="Most rounds to time."
)
@click.option(
    "--min-samples",
    type=click.IntRange(min=10),
    metavar="N",
    default=20,
    show_default=True,
    help="Fewest rounds to time, however precise they are.",
)
@click.option(
    "--require-speedup",
    type=click.FloatRange(min=0, min_open=True),
    metavar="X",
    help="Exit with 1 unless at least X times each baseline's speed is shown. UNSURE shows nothing.",
)
@click.option(
    "--sanitize", is_flag=True, help="Run compute-sanitizer's four tools, too (GPU only; a crash runs memcheck anyway)."
)
@click.option(
    "--no-replay",
    is_flag=True,
    help="Leave a failure unexplained rather than run it on the emulated device (GPU only).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON (schema kernelwright.verdict/1).")
def check(
    problem: Path,
    candidate: Path,
    sets: tuple[str, ...],
    presents_as: str | None,
    device: str | None,
    trials: int | None,
    seed: int,
    inputs: str | None,
    atol: float | None,
    rtol: float | None,
    timeout_s: float | None,
    memory_bytes: int | None,
    no_confirm: bool,
    counted: bool,
    checks: str,
    no_timing: bool,
    baselines: tuple[str, ...],
    samples: int,
    min_samples: int,
    require_speedup: float | None,
    sanitize: bool,
    no_replay: bool,
    as_json: bool,
) -> int:
    """Does CANDIDATE build, and compute what PROBLEM computes? If not: why, at which line, and what to do.

    PROBLEM holds Model, get_inputs() and get_init_inputs(); CANDIDATE holds ModelNew (the KernelBench layout).
    Without a GPU the candidate's CUDA runs on the emulated device; on a GPU a correct one is timed, too.
    Exit status 0: correct; 1: not.
    """
    flags.need(problem, candidate)
    options = check_options(
        sets=flags.read_sets(sets),
        presents_as=presents_as,
        device=device,
        trials=trials,
        seed=seed,
        inputs=inputs,
        atol=atol,
        rtol=rtol,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
        confirm=False if no_confirm else None,
        counted=counted,
        checks=checks,
        timing=not no_timing,
        baselines=baselines or ("eager",),
        samples=samples,
        min_samples=min_samples,
        require_speedup=require_speedup,
        sanitize=sanitize,
        replay=False if no_replay else None,
    )
    from kernelwright import check as core

    with Progress() as progress:
        verdict = core.check(problem, candidate, options=options, progress=progress)
    keep(verdict, problem, candidate)
    if as_json:
        write_json(verdict)
    else:
        from kernelwright.report import render

        render(verdict, console())
    return core.exit_status(verdict)


def keep(verdict: Any, problem: Path, candidate: Path) -> None:
    """Add ``verdict`` to the history. A history that cannot be written is told on stderr; the verdict stands."""
    from kernelwright.cli.history import opened

    file = settings.history_file()
    if file == Path(os.devnull):
        return
    try:
        opened().add(
            verdict,
            problem_text=problem.read_text(encoding="utf-8", errors="replace"),
            candidate_text=candidate.read_text(encoding="utf-8", errors="replace"),
        )
    except (MachineError, OSError) as error:
        say_note(f"the verdict is not kept: {error}")


def check_options(
    *,
    sets: dict[str, str],
    presents_as: str | None = None,
    device: str | None = None,
    trials: int | None = None,
    seed: int = 0,
    inputs: str | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    confirm: bool | None = None,
    counted: bool = False,
    checks: str = "all",
    timing: bool = True,
    baselines: tuple[str, ...] = ("eager",),
    samples: int = 100,
    min_samples: int = 20,
    require_speedup: float | None = None,
    sanitize: bool = False,
    replay: bool | None = None,
) -> Any:
    """``CheckOptions`` from flags; what no flag gave comes from the settings."""
    from kernelwright.check import CheckOptions
    from kernelwright.device.specs import spec

    return CheckOptions(
        sets=sets,
        device=settings.get("DEVICE", flag=device),
        presents_as=spec(settings.get("AS", flag=presents_as)).key,
        trials=settings.get("TRIALS", flag=trials),
        seed=seed,
        inputs=settings.get("INPUTS", flag=inputs),
        atol=atol,
        rtol=rtol,
        timeout_s=settings.get("TIMEOUT", flag=timeout_s),
        memory_bytes=settings.get("MEMORY", flag=memory_bytes),
        confirm=settings.get("CONFIRM", flag=confirm),
        counted=counted,
        checks=checks,
        timing=timing,
        baselines=baselines,
        samples=samples,
        min_samples=min_samples,
        require_speedup=require_speedup,
        sanitize=sanitize,
        replay=settings.get("REPLAY", flag=replay),
    )
