"""On a GPU, where our own way stops: torch's own ``load_inline`` and ``load``, with the same records.

The rule: nothing about the build is changed, save that source strings get line markers and device code a line table,
which changes no instruction and lets profiler and sanitizers name lines; what torch raises is raised on, as
:class:`BuildFailed` with diagnostics at candidate lines.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelwright.build import diagnostics
from kernelwright.build.context import BuildContext, BuildFailed
from kernelwright.build.lines import LineMap
from kernelwright.build.nvcc import CommandFailed
from kernelwright.records import BuildRecord

LINE_TABLE = "-lineinfo"


def recorded(module: Any, context: BuildContext) -> dict[str, Callable[..., Any]]:
    """``load_inline`` and ``load`` of torch.utils.cpp_extension as recording versions of themselves, by name.

    They take ``fell_through`` beside torch's arguments: why a faster way was not taken.
    """
    lines = LineMap(context.candidate_text, context.candidate_file)
    return {
        "load_inline": _recorded(module.load_inline, context, lines),
        "load": _recorded(module.load, context, None),
    }


def _recorded(original: Callable[..., Any], context: BuildContext, lines: LineMap | None) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(name: str, *args: Any, fell_through: str = "", **named: Any) -> Any:
        from kernelwright.build.inline import call_line

        if lines is not None:
            args, named = _marked(lines, args, named)
        args, named = with_line_table(original, (name, *args), named)
        start = time.monotonic()
        site = call_line(context.candidate_file)
        try:
            made = original(*args, **named)
        except (RuntimeError, ImportError, ValueError, OSError) as error:
            own = [Path(context.candidate_file).name, "main.cpp", "cuda.cu"]
            failure = CommandFailed("nvcc", "", str(error))
            told = diagnostics.of_failure(failure, own=own, text=context.candidate_text)
            record = BuildRecord(
                name,
                "torch",
                False,
                time.monotonic() - start,
                False,
                None,
                diagnostics=told,
                fell_through=fell_through,
                arch=context.arch,
                call_line=site,
            )
            context.on_record(record)
            raise BuildFailed(record, str(error)) from error
        seconds = time.monotonic() - start
        context.on_record(
            BuildRecord(
                *(name, "torch", False, seconds, True, True),
                fell_through=fell_through,
                arch=context.arch,
                call_line=site,
            )
        )
        return made

    return call


def with_line_table(
    original: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call's arguments with ``-lineinfo`` among nvcc's flags, however the flags were given."""
    bound = inspect.signature(original).bind_partial(*args, **named)
    flags = list(bound.arguments.get("extra_cuda_cflags") or [])
    bound.arguments["extra_cuda_cflags"] = flags if LINE_TABLE in flags else [*flags, LINE_TABLE]
    return bound.args, bound.kwargs


def _marked(lines: LineMap, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def mark(value: Any, file: str) -> Any:
        if isinstance(value, str):
            return lines.marked(value, fallback=file)
        return [mark(item, file) for item in value] if isinstance(value, (list, tuple)) else value

    files = {"cpp_sources": "main.cpp", "cuda_sources": "cuda.cu"}
    positional = [mark(value, file) for value, file in zip(args, files.values(), strict=False)]
    changed = {key: mark(value, files[key]) if key in files else value for key, value in named.items()}
    return (*positional, *args[len(positional) :]), changed
