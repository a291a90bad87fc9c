"""Tensors that cross between processes without a copy: each lies in a memory file (memfd) that is passed by descriptor.

Why: one input may have 8.6 GB and the machine 24 GB, so nothing may exist twice for long. The rule: the owner writes
once and drops its original while writing; the reader maps the file privately, so its writes never reach the others and
the kernel says, page by page, which of them it made.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import mmap
import os
from dataclasses import dataclass
from typing import Any

import torch

CHUNK_BYTES = 64 << 20
"""Step of a moving copy: at most this much exists twice."""
MOVE_BYTES = 512 << 20
"""From here on a tensor's own memory is given back while it is copied."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_MADV_DONTNEED, _MADV_HUGEPAGE = 4, 14
_F_ADD_SEALS, _F_SEAL_SHRINK, _F_SEAL_GROW, _F_SEAL_WRITE = 1033, 2, 4, 8


class TensorError(Exception):
    """A descriptor and its description do not fit each other."""


@dataclass(frozen=True)
class TensorSpec:
    """How the bytes of a memory file form a tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    dtype: str
    """``float32`` and the like, as torch spells it."""
    bytes: int
    """Of the whole storage from the tensor's first element on."""

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


def read_spec(fields: dict[str, Any]) -> TensorSpec:
    """A description as another process sent it. Raises ``TensorError`` for what is none."""
    try:
        return TensorSpec(
            tuple(int(n) for n in fields["shape"]),
            tuple(int(n) for n in fields["strides"]),
            str(fields["dtype"]),
            int(fields["bytes"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TensorError(f"a tensor described as {fields!r:.200}: {error}") from None


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype called ``name``. Raises ``TensorError``."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise TensorError(f"no dtype {name!r}")
    return found


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def extent_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the first to the last element that the strides reach."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def describe(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), tuple(tensor.stride()), dtype_name(tensor), extent_bytes(tensor))


def share(tensor: torch.Tensor, *, consume: bool = False) -> tuple[int, TensorSpec]:
    """Put a CPU tensor into a memory file and return its descriptor (the caller's to close).

    Strides are kept. With ``consume`` a large tensor's memory is given back page by page on the way: its contents are
    gone afterwards, so the caller must own the only use of it.
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise TensorError(f"only dense CPU tensors can be shared, not {tensor.layout} on {tensor.device}")
    spec = describe(tensor)
    # A broadcast tensor's strides reach little memory; overlapping ones are kept as they are.
    fd = os.memfd_create("kernelwright", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, max(spec.bytes, 1))
        if spec.bytes:
            _write(fd, tensor.data_ptr(), spec.bytes, consume=consume and spec.bytes >= MOVE_BYTES)
        # Nobody who gets the descriptor can write to it, or the owner's own view would change with it.
        fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_WRITE)
    except BaseException:
        os.close(fd)
        raise
    return fd, spec


def _write(fd: int, address: int, total: int, *, consume: bool) -> None:
    """Copy memory into the file through a mapping with huge pages: three times as fast as pwrite (2 cores, 1 GB)."""
    page = mmap.PAGESIZE
    with mmap.mmap(fd, total) as target:
        view = (ctypes.c_char * total).from_buffer(target)
        base = ctypes.addressof(view)
        _LIBC.madvise(ctypes.c_void_p(base), ctypes.c_size_t(total), _MADV_HUGEPAGE)
        low = -(-address // page) * page
        for start in range(0, total, CHUNK_BYTES):
            count = min(CHUNK_BYTES, total - start)
            ctypes.memmove(base + start, address + start, count)
            high = (address + start + count) // page * page
            if consume and high > low:
                _LIBC.madvise(ctypes.c_void_p(low), ctypes.c_size_t(high - low), _MADV_DONTNEED)
                low = high
        del view


def seal(fd: int) -> None:
    """Fix a file's size, so that nobody can shrink it under a reader (who would die of SIGBUS)."""
    try:
        fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW)
    except OSError as error:
        raise TensorError(f"the descriptor is no memory file: {error}") from None


@dataclass
class Mapped:
    """A tensor on a memory file, and how to ask which pages of it this process has written."""

    tensor: torch.Tensor
    spec: TensorSpec
    fd: int
    _map: mmap.mmap | None

    def changed(self) -> bool:
        """Whether this process changed any byte of its private view."""
        if self._map is None or not self.spec.bytes:
            return False
        return _changed(self.fd, self.tensor.data_ptr(), self.spec.bytes)

    def close(self) -> None:
        """Close the descriptor; the memory goes with the last tensor on it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def attach(fd: int, spec: TensorSpec, *, writable: bool = True) -> Mapped:
    """Map a memory file privately as a CPU tensor; takes over ``fd``. Raises ``TensorError`` where they do not fit."""
    dtype = dtype_of(spec.dtype)
    item = torch.empty(0, dtype=dtype).element_size()
    reach = 0
    if len(spec.shape) != len(spec.strides) or any(n < 0 for n in (*spec.shape, *spec.strides)):
        raise TensorError(f"shape {spec.shape} with strides {spec.strides} is no tensor")
    if spec.numel:
        reach = (sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True)) + 1) * item
    if os.fstat(fd).st_size < reach:
        raise TensorError(f"a tensor of {reach} bytes in a file of {os.fstat(fd).st_size} bytes")
    if reach == 0:
        return Mapped(torch.empty_strided(spec.shape, spec.strides, dtype=dtype), spec, fd, None)
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    mapped = mmap.mmap(fd, reach, mmap.MAP_PRIVATE, protection)
    flat = _flat(mapped, dtype, reach // item)
    return Mapped(flat.as_strided(spec.shape, spec.strides), spec, fd, mapped)


def _flat(mapped: mmap.mmap, dtype: torch.dtype, count: int) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.frombuffer(mapped, dtype=torch.uint8, count=count).view(torch.bool)
    return torch.frombuffer(mapped, dtype=dtype, count=count)


_PRESENT, _SWAPPED, _FILE_OR_SHARED = 1 << 63, 1 << 62, 1 << 61


def _changed(fd: int, address: int, total: int) -> bool:
    """Compare only the pages that copy-on-write made private (/proc/self/pagemap, bit 61 clear), by value."""
    page = mmap.PAGESIZE
    pages = -(-total // page)
    with mmap.mmap(fd, total, mmap.MAP_SHARED, mmap.PROT_READ) as original:
        for start, count in _private_runs(address // page, pages):
            low, high = start * page, min((start + count) * page, total)
            if ctypes.string_at(address + low, high - low) != original[low:high]:
                return True
    return False


def _private_runs(first: int, pages: int) -> list[tuple[int, int]]:
    """Runs of pages, at most ``CHUNK_BYTES`` each, that this process may have written; all where nobody can say."""
    step = CHUNK_BYTES // mmap.PAGESIZE
    try:
        pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return [(start, min(step, pages - start)) for start in range(0, pages, step)]
    runs: list[tuple[int, int]] = []
    try:
        for start in range(0, pages, step):
            count = min(step, pages - start)
            entries = torch.frombuffer(bytearray(os.pread(pagemap, 8 * count, 8 * (first + start))), dtype=torch.int64)
            # Bit 63 is the sign. Neither present nor swapped: never touched. Present and file-backed: only read.
            touched = (entries < 0) & ((entries & _FILE_OR_SHARED) == 0) | ((entries & _SWAPPED) != 0)
            marked: list[int] = torch.nonzero(touched).flatten().tolist()
            runs.extend(_runs(marked, start))
    finally:
        os.close(pagemap)
    return runs


def _runs(marked: list[int], offset: int) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for index in marked:
        if runs and runs[-1][0] + runs[-1][1] == offset + index:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((offset + index, 1))
    return runs


def sole_owner(tensor: torch.Tensor) -> bool:
    """Whether nothing but ``tensor`` itself uses its storage."""
    storage: Any = tensor.untyped_storage()
    count = getattr(torch._C, "_storage_Use_Count", None)
    # Two: the tensor's own and the Python object just made.
    return count is not None and count(storage._cdata) <= 2
