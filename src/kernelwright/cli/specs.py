"""``kernelwright specs``: the data sheets that the emulated device can present, or the real GPU's."""

from __future__ import annotations

from typing import Any

import click

from kernelwright.cli.output import console, write_json


@click.command(short_help="Data sheets of GPUs: limits, peaks, ridge points.")
@click.option("--as", "name", metavar="GPU", help="Only this one, with every figure.")
@click.option("--real", is_flag=True, help="Only the GPU of this machine, as its driver reports it.")
@click.option("--measure", is_flag=True, help="Measure what this machine's GPU reaches, and keep it for limits.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def specs(name: str | None, real: bool, measure: bool, as_json: bool) -> None:
    """Data sheets of GPUs: limits, peaks and ridge points (flop for each byte of device memory)."""
    if measure:
        _measure(as_json)
        return
    from kernelwright.device.specs import SPECS, spec

    if real:
        sheets = [real_sheet()]
    elif name is not None:
        sheets = [spec(name)]
    else:
        sheets = list(SPECS)
    if as_json:
        write_json({"schema": "kernelwright.specs/1", "specs": [as_record(sheet) for sheet in sheets]})
        return
    from kernelwright.report.specs import render_sheet, render_table

    if len(sheets) == 1:
        render_sheet(sheets[0], console())
    else:
        render_table(sheets, console())


def _measure(as_json: bool) -> None:
    """Measure this GPU's ceilings and show them."""
    from kernelwright.cli.talk import Progress
    from kernelwright.measure import ceilings

    with Progress() as progress:
        made = ceilings.measure(progress)
    if as_json:
        write_json(made)
        return
    from kernelwright.report.page import labelled
    from kernelwright.report.timing import ceilings_lines

    labelled(console(), made.device, ceilings_lines(made))


def as_record(sheet: Any) -> dict[str, Any]:
    """A sheet's fields and what follows from them, JSON-ready."""
    import dataclasses

    values = {f.name: getattr(sheet, f.name) for f in dataclasses.fields(sheet)}
    values["vector_tflops"] = dict(sheet.vector_tflops)
    values["tensor_tflops"] = dict(sheet.tensor_tflops)
    return {
        **values,
        "architecture": sheet.architecture,
        "peaks_tflops": sheet.peaks,
        "ridges_flop_per_byte": sheet.ridges,
    }


def real_sheet() -> Any:
    """The data sheet of this machine's first GPU. Raises ``MachineError`` where there is none."""
    from kernelwright.device.specs import from_cuda
    from kernelwright.doctor import gpus
    from kernelwright.errors import MachineError

    if not gpus():
        raise MachineError("this machine has no NVIDIA GPU that nvidia-smi can see")
    import torch

    if not torch.cuda.is_available():
        raise MachineError("this machine has an NVIDIA GPU, but the installed PyTorch cannot use it")
    return from_cuda(torch.cuda.get_device_properties(0))
