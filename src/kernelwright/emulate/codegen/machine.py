"""LLVM IR to machine code, once for each kernel and kind of CPU.

Why: compiling is most of a first launch. The rule: an object file is named by everything that made it (the IR, LLVM's
version, the CPU and its features), appears in the cache by one rename, and is loaded the same way whether it was found
or just made. IR passes are not run: the IR is made in the form they would bring it to, and for a kernel of 401
instructions they add 0.27 s to 0.33 s and change the object's size by less than 1 % (2 cores of an EPYC, 2026-11).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import tempfile
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from kernelwright.settings import cache_folder

_ENGINES: list[object] = []
"""Engines own the code they loaded; kept for the life of the process."""


@functools.cache
def _machine() -> tuple[llvm.TargetMachine, str]:
    """A target machine for this host, and what identifies its code."""
    if tuple(map(int, llvmlite.__version__.split(".")[:2])) < (0, 45):
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    machine = target.create_target_machine(cpu=cpu, features=features, opt=1, codemodel="jitdefault", jit=True)
    return machine, f"{llvmlite.__version__} {cpu} {features}"


@functools.cache
def _declare_runtime() -> None:
    from kernelwright.emulate.runtime import library

    loaded = library()
    for name in RUNTIME_FUNCTIONS:
        address = ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value
        llvm.add_symbol(name, address)


RUNTIME_FUNCTIONS = (
    *(
        f"kw_{kind}_{space}_{bits}x{count}"
        for kind in ("ld", "st")
        for space in ("global", "shared", "local", "generic")
        for bits in (8, 16, 32, 64)
        for count in ((1, 2, 4, 8) if bits == 32 else (1, 2, 4))
    ),
    "kw_dispatch", "kw_defer", "kw_diverge", "kw_exit", "kw_yield", "kw_sync", "kw_branch_by_index", "kw_bar",
    "kw_bar_arrive", "kw_shfl_up", "kw_shfl_down", "kw_shfl_bfly", "kw_shfl_idx", "kw_vote", "kw_match", "kw_redux",
    "kw_atomic", "kw_vprintf", "kw_assert", "kw_trap", "kw_malloc", "kw_heap_free", "kw_clock", "kw_divide64",
    "kw_count_load", "kw_count_store", "kw_count_atomic", "kw_count_increment",
    "kw_count_matrix", "kw_count_copy", "kw_count_targets",
    "kw_mma",
    "kw_ldmatrix",
    "kw_cp_async",
    "kw_mbarrier_do",
    "kw_mbarrier_after_copies",
    "kw_ex2", "kw_lg2", "kw_sin", "kw_cos", "kw_tanh", "kw_rsqrt", "kw_rsqrt64", "kw_rounded", "kw_fma_f16",
    "kw_find_nth_set", "kw_fma_bf16", "kw_to_f16", "kw_to_bf16", "kw_to_fp8", "kw_fp8_to_f16",
)  # fmt: skip
"""What generated code may call."""


def _parse(text: str) -> tuple[llvm.ModuleRef, llvm.ContextRef]:
    """A module in a context of its own.

    llvmlite 0.44 (LLVM 15) has typed pointers unless a context is told otherwise; drop this with llvmlite < 0.45.
    """
    if getattr(llvmlite, "opaque_pointers_enabled", True):
        context = llvm.create_context()
    else:
        from llvmlite.binding import ffi

        context = llvm.ContextRef(ffi.lib.LLVMPY_ContextCreate(True))
    return llvm.parse_assembly(text, context), context


def _object(text: str) -> bytes:
    """The object file of ``text``, from the cache where it is there."""
    machine, identity = _machine()
    digest = hashlib.sha256(f"{identity}\0{text}".encode()).hexdigest()
    path = cache_folder() / "kernels" / digest[:2] / f"{digest}.o"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        pass
    else:
        _used(path)
        return content
    module, context = _parse(text)
    made: bytes = machine.emit_object(module)
    del module, context
    _keep(path, made)
    return made


def _used(path: Path) -> None:
    """Eviction takes first what was not used for longest; a cache that cannot be written keeps no times."""
    try:
        os.utime(path)
    except OSError:
        return


def _keep(path: Path, content: bytes) -> None:
    """Write ``path`` in one step; a cache that cannot be written costs time, not the launch."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except OSError:
        return


def load(text: str, symbol: str) -> int:
    """The address of function ``symbol`` of the IR ``text``."""
    machine, _ = _machine()
    _declare_runtime()
    content = _object(text)
    empty, context = _parse("")
    engine = llvm.create_mcjit_compiler(empty, _fresh_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(content))
    engine.finalize_object()
    address: int = engine.get_function_address(symbol)
    if not address:
        raise AssertionError(f"{symbol} is not in its own object file")
    _ENGINES.append((engine, machine, context))
    return address


def _fresh_machine() -> llvm.TargetMachine:
    """Each engine takes a machine for itself."""
    return llvm.Target.from_default_triple().create_target_machine(opt=1, codemodel="jitdefault", jit=True)
