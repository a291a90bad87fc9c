"""Nsight Compute over one forward pass, and its pages.

Why: hardware counters need a tool that replays each kernel. The rule: clocks are left alone, caches are flushed before
each kernel as the clock of ``check`` does, only the second forward pass is profiled, and only the sections and metrics
that something here shows are asked for. What it could not do is one sentence.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kernelwright.build import toolchain
from kernelwright.counters.records import KernelCounters
from kernelwright.errors import KernelwrightError
from kernelwright.profile import metrics as asked
from kernelwright.profile import pages
from kernelwright.worker import alone
from kernelwright.worker import tool as outside

PAGE_SECONDS = 120.0


@dataclass(frozen=True)
class Counted:
    """What ncu counted."""

    kernels: tuple[KernelCounters, ...] = ()
    why_not: str = ""
    """Why there are none; empty where there are."""
    notes: tuple[str, ...] = ()
    version: str = ""


def find() -> Path | None:
    """ncu: on PATH, or beside the CUDA toolkit's nvcc."""
    found = shutil.which("ncu")
    if found:
        return Path(found)
    try:
        place = toolchain.find().nvcc.resolve().parents[1] / "bin" / "ncu"
    except KernelwrightError:
        return None
    return place if place.is_file() else None


def command(
    program: Path, report: Path, target: list[str], *, metrics: tuple[str, ...], launches: int, folder: Path
) -> list[str]:
    """ncu's command line; ``folder`` has the candidate's source, which goes into the report."""
    sections = [word for section in asked.SECTIONS for word in ("--section", section)]
    return [
        str(program), "--target-processes", "application-only", "--profile-from-start", "off",
        "--clock-control", "none", "--launch-count", str(launches), "--import-source", "yes",
        "--source-folders", str(folder), *sections, *(["--metrics", ",".join(metrics)] if metrics else []),
        "--force-overwrite", "--export", str(report), *target,
    ]  # fmt: skip


def count(
    program: Path, config: alone.Alone, *, launches: int, timeout_s: float, progress: Callable[[str], None]
) -> Counted:
    """Profile ``config``'s forward pass; fewer metrics where this chip does not know one."""
    with tempfile.TemporaryDirectory(prefix="kernelwright-ncu-") as name:
        work = Path(name)
        # A folder of its own: ncu searches what it is given with all that lies below.
        folder = work / "source"
        folder.mkdir()
        (folder / Path(config.candidate).name).write_text(config.text, encoding="utf-8")
        own = replace(config, do="profiled", result=str(work / "known.json"))
        report = work / "report.ncu-rep"
        why = ""
        for metrics in (asked.ASKED, asked.BASE, ()):
            progress("ncu" if metrics is asked.ASKED else "ncu with fewer metrics")
            line = command(program, report, alone.command(own, work), metrics=metrics, launches=launches, folder=folder)
            ended = outside.run(line, work, timeout_s=timeout_s)
            why = refused(ended, outside.known(Path(own.result)), timeout_s=timeout_s)
            if report.is_file() or "metric" not in why.lower():
                break
        if not report.is_file():
            return Counted(why_not=why or "it made no report")
        progress("reading ncu's report")
        raw = _page(program, report, work, "raw")
        sass = _page(program, report, work, "source", "--print-source", "sass")
        source = _page(program, report, work, "source", "--print-source", "cuda,sass")
        kernels = pages.kernels(raw, sass, source, candidate_file=config.candidate, candidate_text=config.text)
        # A page over all launches may stop at a library's, which has no source: the candidate's own are asked for.
        missing = own_without_lines(kernels, config.text)
        if missing:
            for name in missing:
                source += _page(program, report, work, "source", "--print-source", "cuda,sass", "--kernel-name", name)
            kernels = pages.kernels(raw, sass, source, candidate_file=config.candidate, candidate_text=config.text)
        version = outside.run([str(program), "--version"], work, timeout_s=PAGE_SECONDS).printed.split("Version ")[-1]
    notes = []
    if sum(kernel.launches for kernel in kernels) >= launches:
        notes.append(f"launches after the first {launches} (--launches)")
    if not kernels:
        return Counted(why_not=why or "the candidate launched no kernel")
    return Counted(kernels, notes=tuple(notes), version=version.split()[0] if version.split() else "")


def own_without_lines(kernels: tuple[KernelCounters, ...], text: str) -> tuple[str, ...]:
    """Function names (no template arguments, no parameters) of the candidate's own kernels that have no lines."""
    names = (re.match(r"[\w:~]+", kernel.kernel.removeprefix("void ")) for kernel in kernels if not kernel.lines)
    bare = (name[0].rsplit("::", 1)[-1] for name in names if name)
    return tuple(name for name in dict.fromkeys(bare) if re.search(rf"\b{re.escape(name)}\b", text))


def refused(ended: outside.Ended, known: dict[str, object], *, timeout_s: float) -> str:
    """Why a run gave nothing, in its own words; empty where it went well."""
    if ended.status is None:
        return f"ncu did not end within {timeout_s:g} s, in {known.get('during', 'its start')}"
    error = known.get("error")
    if isinstance(error, dict):
        first = (str(error.get("message", "")).splitlines() or [""])[0]
        return f"{error.get('type')} in {known.get('during')}: {first}"[:300]
    errors = [line.partition("==ERROR==")[2].strip() for line in ended.printed.splitlines() if "==ERROR==" in line]
    if errors:
        return f"ncu: {errors[0]}"[:300]
    return "" if ended.status == 0 else f"ncu ended with exit status {ended.status}"


def _page(program: Path, report: Path, work: Path, page: str, *more: str) -> str:
    line = [str(program), "--import", str(report), "--csv", "--page", page, *more]
    return outside.run(line, work, timeout_s=PAGE_SECONDS).printed
