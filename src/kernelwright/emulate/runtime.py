"""The native runtime from Python: one library for the whole process, loaded once, its structures mirrored here.

The rule: a structure here equals the one of the same name in native/*.h, field by field.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .nativebuild import NATIVE, build_shared

SOURCES = (
    "runtime.c", "runtime_memory.c", "runtime_admit.c", "runtime_access.c", "runtime_atomic.c", "runtime_warp.c",
    "runtime_exchange.c", "runtime_barrier.c", "runtime_block.c", "runtime_schedule.c", "runtime_math.c",
    "runtime_print.c", "runtime_matrix.c", "runtime_shadow.c", "runtime_order.c", "runtime_mbarrier.c",
    "runtime_count.c", "runtime_global.c", "runtime_cover.c", "runtime_past.c", "runtime_views.c",
)  # fmt: skip
FLAGS = (
    "-std=gnu11", "-O3", "-march=native", "-mprefer-vector-width=512", "-ffp-contract=off", "-fno-math-errno",
    "-fno-strict-aliasing", "-fvisibility=hidden", "-pthread",
)  # fmt: skip

GLOBAL, HOST, PINNED, MANAGED, BINDING_TEMPORARY, CONST, FREED, SHARED, LOCAL, PARAM = range(1, 11)
"""enum kw_kind."""


class Allocation(ctypes.Structure):
    """kw_allocation."""

    _fields_ = [
        ("base", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("kind", ctypes.c_int32), ("id", ctypes.c_int32),
        ("name", ctypes.c_char * 120), ("dtype", ctypes.c_char * 16), ("shape", ctypes.c_int64 * 8),
        ("ndim", ctypes.c_int32), ("host_pc", ctypes.c_uint64),
    ]  # fmt: skip


class Site(ctypes.Structure):
    """kw_site."""

    _fields_ = [
        ("parameter", ctypes.c_int32), ("low", ctypes.c_int32), ("high", ctypes.c_int32), ("bytes", ctypes.c_int32),
        ("space", ctypes.c_uint8), ("access", ctypes.c_uint8), ("strong", ctypes.c_uint8), ("parts", ctypes.c_uint8),
        ("variable", ctypes.c_int32), ("granule", ctypes.c_uint8), ("read_only", ctypes.c_uint8),
        ("padding", ctypes.c_uint8 * 2),
    ]  # fmt: skip


class NativeFinding(ctypes.Structure):
    """kw_finding."""

    _fields_ = [
        ("cause", ctypes.c_int32), ("site", ctypes.c_int32), ("space", ctypes.c_int32), ("access", ctypes.c_int32),
        ("block", ctypes.c_uint64), ("count", ctypes.c_uint64), ("address", ctypes.c_uint64),
        ("offset", ctypes.c_int64), ("thread", ctypes.c_uint32), ("bytes", ctypes.c_uint32),
        ("has_allocation", ctypes.c_int32), ("other_site", ctypes.c_int32), ("other_thread", ctypes.c_uint32),
        ("other_block", ctypes.c_uint32), ("allocation", Allocation),
        ("message", ctypes.c_char * 512),
    ]  # fmt: skip


class Run(ctypes.Structure):
    """kw_run."""

    _fields_ = [
        ("code", ctypes.c_void_p), ("kernel", ctypes.c_char_p), ("params", ctypes.c_void_p),
        ("sites", ctypes.POINTER(Site)), ("symbols", ctypes.POINTER(ctypes.c_uint64)),
        ("parameter_bytes", ctypes.c_uint64), ("dynamic_shared", ctypes.c_uint64), ("deadline_s", ctypes.c_double),
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("n_sites", ctypes.c_uint32),
        ("static_shared", ctypes.c_uint32), ("local_bytes", ctypes.c_uint32), ("register_bytes", ctypes.c_uint32),
        ("parallel", ctypes.c_uint32), ("resident_limit", ctypes.c_uint32), ("worker_limit", ctypes.c_uint32),
        ("granule", ctypes.c_uint32), ("cells", ctypes.POINTER(ctypes.c_uint64)), ("n_cells", ctypes.c_uint32),
        ("n_accesses", ctypes.c_uint32), ("global_races", ctypes.c_uint32), ("cooperative", ctypes.c_uint32),
        ("shared_races", ctypes.c_uint32),
        ("error", ctypes.c_int32), ("interrupted", ctypes.c_int32),
        ("count", ctypes.c_uint64), ("findings", ctypes.POINTER(NativeFinding)), ("n_findings", ctypes.c_uint64),
        ("text", ctypes.POINTER(ctypes.c_char)), ("text_bytes", ctypes.c_uint64), ("where", ctypes.c_int32 * 64),
        ("where_thread", ctypes.c_uint32 * 64), ("where_block", ctypes.c_uint64), ("n_where", ctypes.c_int32),
        ("padding", ctypes.c_int32), ("sectors_read", ctypes.c_uint64), ("sectors_written", ctypes.c_uint64),
        ("atomics", ctypes.c_uint64), ("atomic_addresses", ctypes.c_uint64), ("hottest", ctypes.c_uint64),
        ("private", ctypes.c_uint64 * 8),
    ]  # fmt: skip


def build() -> Path:
    """libkw_runtime.so, compiled on first use."""
    return build_shared(
        "kw_runtime", [NATIVE / name for name in SOURCES], flags=FLAGS, links=("-lm", "-pthread"), language="c",
        salt=_cpu(),
    )  # fmt: skip


@functools.cache
def library() -> ctypes.CDLL:
    """libkw_runtime.so, loaded; its symbols are visible to whatever is loaded later."""
    loaded = ctypes.CDLL(str(build()), mode=ctypes.RTLD_GLOBAL)
    address, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    loaded.kw_alloc.restype, loaded.kw_alloc.argtypes = address, [size, ctypes.c_int, text]
    loaded.kw_free.restype, loaded.kw_free.argtypes = ctypes.c_int, [address]
    loaded.kw_adopt.restype, loaded.kw_adopt.argtypes = None, [address, size, ctypes.c_int, text]
    loaded.kw_forget.restype, loaded.kw_forget.argtypes = None, [address]
    loaded.kw_describe.restype = None
    loaded.kw_describe.argtypes = [address, text, text, ctypes.POINTER(ctypes.c_int64), ctypes.c_int]
    loaded.kw_view.restype, loaded.kw_view.argtypes = None, [address, ctypes.c_uint64, ctypes.c_uint64]
    loaded.kw_find.restype, loaded.kw_find.argtypes = ctypes.c_int, [ctypes.c_uint64, ctypes.POINTER(Allocation)]
    loaded.kw_bytes_in_use.restype = loaded.kw_peak_bytes.restype = size
    loaded.kw_set_memory_limit.argtypes = [size]
    loaded.kw_run_launch.restype, loaded.kw_run_launch.argtypes = ctypes.c_int, [ctypes.POINTER(Run)]
    loaded.kw_run_release.restype, loaded.kw_run_release.argtypes = None, [ctypes.POINTER(Run)]
    return loaded


def _cpu() -> str:
    """What ``-march=native`` means here, so that a shared cache serves several machines."""
    import llvmlite.binding as llvm

    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


@dataclass(frozen=True)
class Place:
    """Where the running kernel was last seen."""

    kernel: str
    """Mangled name."""
    code_block: int
    """Number of the code block; :meth:`EmulatedModule.position_of_block` gives its source line."""
    block: int
    """Linear index of the thread block."""
    thread: int
    """Linear index of the first thread of the running warp."""


def where() -> Place | None:
    """What runs now, for a watchdog on another thread; None between launches."""
    kernel, code = ctypes.c_char_p(), ctypes.c_int32()
    block, thread = ctypes.c_uint64(), ctypes.c_uint32()
    running = library().kw_where(ctypes.byref(kernel), ctypes.byref(code), ctypes.byref(block), ctypes.byref(thread))
    if not running or kernel.value is None:
        return None
    return Place(kernel.value.decode(), code.value, block.value, thread.value)


def interrupt() -> None:
    """Stop the running launch at its next backward branches; it ends with error 702 (launch timeout)."""
    library().kw_interrupt()


def clear_interrupt() -> None:
    """Allow launches again."""
    library().kw_clear_interrupt()


@contextmanager
def device_memory(size: int, name: str = "", kind: int = GLOBAL) -> Iterator[int]:
    """Device memory of ``size`` bytes for a ``with`` block; its address."""
    address = library().kw_alloc(size, kind, name.encode())
    if not address:
        raise MemoryError(f"the emulated device has no {size} bytes left")
    try:
        yield address
    finally:
        library().kw_free(address)
