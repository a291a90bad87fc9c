"""``kernelwright gallery``: the kernels that ship, which of their variants would run and why, and the tuner."""

from __future__ import annotations

import re
from typing import Any

import click

from kernelwright.cli.output import console, write_json


class Shape(click.ParamType[tuple[int, ...]]):
    """Sizes such as ``1024x8192``."""

    name = "MxN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if not re.fullmatch(r"[1-9][0-9]*(?:x[1-9][0-9]*)*", str(value)):
            self.fail(f"{value!r} is no shape such as 1024x8192", param, ctx)
        return tuple(map(int, str(value).split("x")))


@click.command(short_help="The kernels that ship: what they do, which variant runs and why.")
@click.argument("name", required=False)
@click.option("--explain", is_flag=True, help="Which variant and parameters would run, and why. Needs no GPU.")
@click.option("--tune", is_flag=True, help="Measure all plans on this machine's GPU and keep the fastest.")
@click.option(
    "--shape", type=Shape(), metavar="MxNxK", help="For --explain and --tune; else the shapes of the shipped tables."
)
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), default="float32", show_default=True)
@click.option("--transposed", is_flag=True, help="matvec: A is the transpose of a row-major matrix.")
@click.option("--device", metavar="GPU", default="h200", show_default=True, help="The device that --explain is about.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def gallery(
    name: str | None,
    explain: bool,
    tune: bool,
    shape: tuple[int, ...] | None,
    dtype: str,
    transposed: bool,
    device: str,
    as_json: bool,
) -> None:
    """List the gallery's kernels, or tell about NAME: its method, its limits, and which variant runs where.

    'kernelwright export NAME' writes one as a stand-alone file.
    """
    from kernelwright import gallery as kernels

    chosen = (name,) if name is not None else kernels.names()
    if explain and tune:
        raise click.UsageError("--explain asks and --tune measures: one of them")
    if shape is not None and (name is None or not (explain or tune)):
        raise click.UsageError("--shape needs a kernel's NAME and --explain or --tune")
    if tune:
        _tune(chosen, shape or (), dtype, transposed, as_json)
    elif explain:
        _explain(chosen, shape, dtype, transposed, device, as_json)
    elif name is None:
        listed = [{"name": each, "does": kernels.describe(each).partition("\n\n")[0]} for each in chosen]
        if as_json:
            write_json({"schema": "kernelwright.gallery/1", "kernels": listed})
            return
        from kernelwright.report.gallery import render_list

        render_list(listed, console())
    else:
        text = kernels.describe(name)
        if as_json:
            write_json({"schema": "kernelwright.gallery/1", "kernels": [{"name": name, "does": text}]})
        else:
            click.echo(text)


def _explain(
    names: tuple[str, ...], shape: tuple[int, ...] | None, dtype: str, transposed: bool, device: str, as_json: bool
) -> None:
    from kernelwright.gallery import explanations

    rows = explanations(names, shape, dtype=dtype, transposed=transposed, device=device)
    if as_json:
        write_json({"schema": "kernelwright.gallery-explain/1", "device": device, "choices": rows})
        return
    from kernelwright.report.gallery import render_choices

    render_choices(rows, console())


def _tune(names: tuple[str, ...], shape: tuple[int, ...], dtype: str, transposed: bool, as_json: bool) -> None:
    from kernelwright import gallery as kernels
    from kernelwright.cli.talk import Progress

    tables: list[dict[str, Any]] = []
    with Progress() as progress:
        for name in names if len(names) == 1 else [each for each in names if each != "linear_gelu_softmax"]:
            tables.append(kernels.tune(name, *shape, dtype=dtype, transposed=transposed, tell=progress))
    if as_json:
        write_json(tables[-1])
        return
    from kernelwright.report.gallery import render_table

    render_table(tables[-1], console())
