"""A build before anybody asks for it: the same products in the store, no module and no record.

Why: what the candidate will ask for is often plain from its text, and the compilers need not wait for PyTorch. The
rule: the call goes through the same code as the candidate's own, up to the finished module; a failure says nothing,
because the candidate's own call will meet it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

from kernelwright.build import architecture, fast, gpu, toolchain
from kernelwright.build.context import BuildContext
from kernelwright.build.extension import Extension
from kernelwright.build.inline import Builder
from kernelwright.build.link import Unresolved
from kernelwright.build.nvcc import CommandFailed
from kernelwright.errors import KernelwrightError


class Ahead(Builder):
    """Runs loader calls of one candidate ahead of it. ``capability`` is the device's, ``real`` whether it is a GPU."""

    def __init__(
        self, candidate_file: str, candidate_text: str, *, arch: str, capability: tuple[int, int], real: bool = False
    ) -> None:
        def ignore(_: object) -> None:
            return None

        super().__init__(BuildContext(candidate_file, candidate_text, None, arch, ignore, ignore))
        self._own = capability
        self._real = real

    def run(self, function: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """``function`` is ``load_inline`` or ``load``; arguments are the candidate's."""
        loader: Callable[..., ModuleType | str] = self.load_inline if function == "load_inline" else self.load
        expected = (CommandFailed, Unresolved, KernelwrightError, OSError, TypeError, ValueError, RuntimeError)
        with suppress(gpu.FallThrough, *expected):
            loader(*positional, **keywords)

    def _capability(self) -> tuple[int, int]:
        return self._own

    def _module(self, extension: Extension, is_python_module: bool) -> ModuleType | str:
        extension = replace(extension, arch_list=os.environ.get("TORCH_CUDA_ARCH_LIST", ""))
        arch, complaint = architecture.choose(extension, self.context.arch, self._own)
        if not complaint:
            sm = f"sm_{self._own[0]}{self._own[1]}" + ("a" if arch.endswith("a") else "")
            build = gpu.build if self._real else fast.build
            build(extension, toolchain.find(), arch=arch, sm=sm)
        return ""
