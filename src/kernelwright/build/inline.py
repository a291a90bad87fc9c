"""``load_inline`` and ``load``, as torch.utils.cpp_extension has them, building for the emulated device.

Why: a candidate must run unchanged. The rule: arguments, order of evaluation and messages are torch's; what differs is
what compiles and how long it takes. Every call leaves one :class:`BuildRecord`, whatever becomes of it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from kernelwright.build import architecture, certain, diagnostics, fast, full, link, toolchain
from kernelwright.build import sources as texts
from kernelwright.build.context import BuildContext, BuildFailed, ConfirmRequest
from kernelwright.build.extension import Extension
from kernelwright.build.lines import LineMap
from kernelwright.build.link import Unresolved
from kernelwright.build.module import Built
from kernelwright.build.nvcc import CommandFailed
from kernelwright.emulate.demangle import demangle
from kernelwright.errors import MachineError, NotServed
from kernelwright.records import BuildRecord, Diagnostic

Strings = str | Sequence[str]
Failure = CommandFailed | Unresolved

_LIBRARY = re.compile(
    r"\b((?:cublas|cudnn|cufft|cusparse|cusolver|curand|cutensor|nccl|npp)\w*\.h(?:pp)?): No such file"
    r"|[\"'](cu(?:blas|dnn|fft|sparse|solver|rand)\w+)[\"'] (?:is undefined|was not declared)"
)
"""A compiler on a library of NVIDIA's whose header it does not have, or has without the function that is called."""


class Builder:
    """Builds the extensions of one candidate."""

    def __init__(self, context: BuildContext) -> None:
        self.context = context
        self.lines = LineMap(context.candidate_text, context.candidate_file)
        self._names: dict[str, tuple[str, int]] = {}

    def load_inline(
        self,
        name: str,
        cpp_sources: Strings,
        cuda_sources: Strings | None = None,
        sycl_sources: Strings | None = None,
        functions: str | Sequence[str] | Mapping[str, str] | None = None,
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_sycl_cflags: Sequence[str] | None = None,
        extra_ldflags: Sequence[str] | None = None,
        extra_include_paths: Sequence[str] | None = None,
        build_directory: str | None = None,
        verbose: bool = False,
        with_cuda: bool | None = None,
        with_sycl: bool | None = None,
        is_python_module: bool = True,
        with_pytorch_error_handling: bool = True,
        keep_intermediates: bool = True,
        use_pch: bool = False,
        no_implicit_headers: bool = False,
    ) -> ModuleType | str:
        """Builds and imports a module from source strings; see ``torch.utils.cpp_extension.load_inline``.

        Raises :class:`BuildFailed`. ``build_directory``, ``verbose``, ``keep_intermediates`` and ``use_pch`` are taken
        and not needed: products live in the store.
        """
        if sycl_sources or with_sycl:
            raise NotImplementedError("SYCL sources run on no CUDA device")
        cpp = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
        cuda = [cuda_sources] if isinstance(cuda_sources, str) else list(cuda_sources or [])
        units = texts.inline_units(
            cpp,
            cuda,
            functions,
            lines=self.lines,
            implicit_headers=not no_implicit_headers,
            wrapped=with_pytorch_error_handling,
        )
        extension = Extension(
            name=self._versioned(name, repr((cpp, cuda, functions, extra_cflags, extra_cuda_cflags, extra_ldflags))),
            units=units,
            cflags=tuple(extra_cflags or ()),
            cuda_cflags=tuple(extra_cuda_cflags or ()),
            ldflags=tuple(extra_ldflags or ()),
            include_paths=tuple(map(str, extra_include_paths or ())),
            with_cuda=bool(cuda) if with_cuda is None else with_cuda,
            functions=texts.names_of(functions),
        )
        return self._module(extension, is_python_module)

    def load(
        self,
        name: str,
        sources: Strings,
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_sycl_cflags: Sequence[str] | None = None,
        extra_ldflags: Sequence[str] | None = None,
        extra_include_paths: Sequence[str] | None = None,
        build_directory: str | None = None,
        verbose: bool = False,
        with_cuda: bool | None = None,
        with_sycl: bool | None = None,
        is_python_module: bool = True,
        is_standalone: bool = False,
        keep_intermediates: bool = True,
    ) -> ModuleType | str:
        """Builds and imports a module from files, as torch's ``load``; raises :class:`BuildFailed`."""
        if is_standalone:
            raise NotImplementedError("standalone executables are not built for the emulated device")
        paths = [sources] if isinstance(sources, str) else list(map(str, sources))
        units = texts.file_units(paths)
        extension = Extension(
            name=self._versioned(name, repr((units, extra_cflags, extra_cuda_cflags, extra_ldflags))),
            units=units,
            cflags=tuple(extra_cflags or ()),
            cuda_cflags=tuple(extra_cuda_cflags or ()),
            ldflags=tuple(extra_ldflags or ()),
            include_paths=tuple(map(str, extra_include_paths or ())),
            with_cuda=any(unit.cuda for unit in units) if with_cuda is None else with_cuda,
        )
        return self._module(extension, is_python_module)

    def _versioned(self, name: str, content: str) -> str:
        """A name used again for other sources gets a version, as torch's: two modules of one name cannot be loaded."""
        before, version = self._names.get(name, (content, 0))
        if before != content:
            version += 1
        self._names[name] = (content, version)
        return f"{name}_v{version}" if version else name

    def _module(self, extension: Extension, is_python_module: bool) -> ModuleType | str:
        extension = replace(
            extension,
            arch_list=os.environ.get("TORCH_CUDA_ARCH_LIST", ""),
            call_line=call_line(self.context.candidate_file),
            candidate=Path(self.context.candidate_file).name,
        )
        start = time.monotonic()
        record = BuildRecord(extension.name, "fast", False, 0.0, False, None, call_line=extension.call_line)
        if refusal := _environment_refuses(extension):
            self._fail(replace(record, diagnostics=refusal, seconds=time.monotonic() - start), refusal[0].message)
        chain = toolchain.find()
        capability = self._capability()
        arch, complaint = architecture.choose(extension, self.context.arch, capability)
        if complaint:
            told = (Diagnostic("nvcc", "error", complaint),)
            self._fail(replace(record, diagnostics=told, seconds=time.monotonic() - start), complaint)
        sm = f"sm_{capability[0]}{capability[1]}" + ("a" if arch.endswith("a") else "")
        record = replace(record, arch=arch)
        built, record = self._tiers(extension, chain, arch, sm, record, start)
        self._hand_over(built)
        kernels = tuple(replace(fact, name=demangle(fact.name)) for fact in built.kernels)
        module = self._import(extension, built.module, is_python_module, record)
        record = replace(record, ok=True, cached=built.cached, kernels=kernels, seconds=time.monotonic() - start)
        self.context.on_record(record)
        if record.tier == "fast":
            self.context.on_confirm_request(ConfirmRequest(extension, record.arch, sm, link.native_flags()))
        return module

    def _capability(self) -> tuple[int, int]:
        """Compute capability of the device that will load the module."""
        major, minor = self.context.device.spec.compute_capability
        return int(major), int(minor)

    def _hand_over(self, built: Built) -> None:
        """Tell the device what the module registers."""
        for key, path in built.ptx.items():
            self.context.device.provide_ptx(key, path.read_text())
        self.context.device.provide_registers({fact.name: fact.registers for fact in built.kernels})

    def _tiers(
        self, extension: Extension, chain: toolchain.Toolchain, arch: str, sm: str, record: BuildRecord, start: float
    ) -> tuple[Built, BuildRecord]:
        try:
            return fast.build(extension, chain, arch=arch, sm=sm), record
        except (CommandFailed, Unresolved) as failure:
            first, last = self._diagnostics(extension, failure), failure
            self._refuse_what_is_not_served(failure, first)
            if settled := certain.settled(failure, first, extension, chain, arch=arch):
                record = replace(record, diagnostics=settled, seconds=time.monotonic() - start)
                self._fail(record, said(failure), cause=failure)
        if arch == self.context.arch != sm and not architecture.images(extension):
            # torch would have compiled for the device itself: the code may need what our default target lacks.
            arch, record = sm, replace(record, arch=sm)
            try:
                return fast.build(extension, chain, arch=arch, sm=sm), record
            except (CommandFailed, Unresolved) as failure:
                first, last = self._diagnostics(extension, failure), failure
        if certain.in_device_code(first, extension):
            record = replace(record, diagnostics=first, seconds=time.monotonic() - start)
            self._fail(record, said(last), cause=last)
        record = replace(record, tier="full", fell_through=first_error(first))
        try:
            return full.build(extension, chain, arch=arch, sm=sm), record
        except (CommandFailed, Unresolved) as failure:
            told = self._diagnostics(extension, failure)
            record = replace(record, diagnostics=told, seconds=time.monotonic() - start)
            self._fail(record, said(failure), cause=failure)

    def _refuse_what_is_not_served(self, failure: Failure, told: Sequence[Diagnostic]) -> None:
        """Raises :class:`NotServed` where a library of NVIDIA's is missing that nothing stands in for here."""
        errors = [(d.line, _LIBRARY.search(d.message)) for d in told if d.severity == "error"]
        wanted = [(line, str(found[1] or found[2])) for line, found in errors if found]
        if isinstance(failure, Unresolved):
            wanted += [(use.line, use.symbol) for use in failure.references if link.OF_LIBRARIES.fullmatch(use.symbol)]
        if wanted:
            line, what = wanted[0]
            refused = NotServed(what, file=self.context.candidate_file, line=line)
            if self.context.device is not None:
                self.context.device.note_fault(refused)
            raise refused

    def _import(
        self, extension: Extension, path: Path, is_python_module: bool, record: BuildRecord
    ) -> ModuleType | str:
        if not is_python_module:
            import torch

            torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
            return str(path)
        try:
            loader = importlib.machinery.ExtensionFileLoader(extension.name, str(path))
            spec = importlib.util.spec_from_file_location(extension.name, path, loader=loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            return module
        except ImportError as error:
            text = re.sub(r"\S*/(?=[^/]+\.so)", "", str(error))
            self._fail(replace(record, diagnostics=(Diagnostic("loader", "error", text),)), text, cause=error)

    def _diagnostics(self, extension: Extension, failure: Failure) -> tuple[Diagnostic, ...]:
        own = [Path(self.context.candidate_file).name, *(unit.name for unit in extension.units)]
        return diagnostics.of_failure(failure, own=own, text=self.context.candidate_text)

    def _fail(self, record: BuildRecord, output: str, *, cause: BaseException | None = None) -> NoReturn:
        self.context.on_record(record)
        raise BuildFailed(record, f"Error building extension '{record.name}': {output}") from cause


def call_line(candidate_file: str) -> int:
    """The line of the candidate that is calling us; 0 where the call does not come from there."""
    frame = sys._getframe(1)
    wanted = os.path.realpath(candidate_file)
    while frame is not None:
        if os.path.realpath(frame.f_code.co_filename) == wanted:
            return frame.f_lineno
        if frame.f_back is None:
            break
        frame = frame.f_back
    return 0


def _environment_refuses(extension: Extension) -> tuple[Diagnostic, ...]:
    """What torch's own build would stop at before any compiler, in the environment the candidate has now."""
    path = os.environ.get("PATH", os.defpath)
    if shutil.which("ninja", path=path) is None:
        return (
            Diagnostic("python", "error", "Ninja is required to load C++ extensions (pip install ninja to get it)"),
            Diagnostic("python", "note", f"no ninja on PATH={path}"),
        )
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if extension.with_cuda and home and not (Path(home) / "bin" / "nvcc").exists():
        return (Diagnostic("nvcc", "error", f"{home}/bin/nvcc: not found (CUDA_HOME={home})"),)
    try:
        toolchain.find()
    except MachineError as error:
        return (Diagnostic("nvcc", "error", str(error)), Diagnostic("nvcc", "note", error.hint))
    return ()


def said(failure: Failure) -> str:
    """What a compiler or the linker said, in torch's names."""
    return link.without_facade(failure.output) if isinstance(failure, CommandFailed) else str(failure)


def first_error(found: Sequence[Diagnostic]) -> str:
    """The first error among ``found``, with its line."""
    first = next((d for d in found if d.severity == "error"), None)
    if first is None:
        return "the fast tier failed"
    return (f"{first.file}:{first.line}: " if first.line else "") + first.message
