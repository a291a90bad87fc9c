"""Host memory as the kernel sees it: gathers and scatters at arbitrary addresses, checked against known ranges.

Why: a device address is a host address, so the interpreter reads tensors in place. The rule: with a list of
allocations every access must lie wholly inside one of them (or inside the interpreter's own memory); without a list
only the first page is refused, and a wild address ends the process as it would end the kernel.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .formats import Bits
from .values import DTYPES

_FIRST = 4096
_END = 1 << 47
"""User addresses of x86-64 and of AArch64 Linux with 48-bit tables end at or above this."""


class _AllOfIt:
    """Describes the whole address space to numpy as one array of bytes."""

    __array_interface__: ClassVar[dict[str, Any]] = {
        "shape": (_END - _FIRST,),
        "typestr": "|u1",
        "data": (_FIRST, False),
        "version": 3,
    }


class Memory:
    """Loads and stores at host addresses."""

    def __init__(self, allocations: Iterable[tuple[int, int]] | None = None) -> None:
        self._bytes = np.asarray(_AllOfIt())
        self._checked = allocations is not None
        self._ranges: list[tuple[int, int]] = []
        self._kept: list[npt.NDArray[np.uint8]] = []
        for base, size in allocations or ():
            self.allow(base, size)

    def allow(self, base: int, size: int) -> None:
        """Make ``size`` bytes at ``base`` accessible."""
        self._ranges.append((base, base + size))
        self._ranges.sort()

    def allocate(self, size: int, *, align: int = 256) -> int:
        """``size`` zeroed bytes of the interpreter's own; they live as long as it does."""
        buffer = np.zeros(size + align, np.uint8)
        self._kept.append(buffer)
        base = -(-buffer.ctypes.data // align) * align
        self.allow(base, size)
        return base

    def release(self, base: int) -> None:
        """Make the range at ``base`` inaccessible."""
        self._ranges = [entry for entry in self._ranges if entry[0] != base]

    def bad(self, addresses: npt.NDArray[np.uint64], size: int) -> tuple[int, str] | None:
        """The first index whose access is not allowed, and why; None when all are fine."""
        if not len(addresses):
            return None
        odd = addresses % np.uint64(size) != 0
        if odd.any():
            return int(odd.argmax()), f"misaligned {size}-byte access"
        outside = (addresses < np.uint64(_FIRST)) | (addresses > np.uint64(_END - size))
        if outside.any():
            return int(outside.argmax()), "illegal access"
        if self._checked:
            starts = [start for start, _ in self._ranges]
            for index, address in enumerate(addresses.tolist()):
                place = bisect_right(starts, address) - 1
                if place < 0 or address + size > self._ranges[place][1]:
                    return index, "illegal access"
        return None

    def _cells(self, addresses: npt.NDArray[np.uint64], size: int) -> npt.NDArray[np.int64]:
        first = addresses.astype(np.int64) - _FIRST
        cells: npt.NDArray[np.int64] = first[:, None] + np.arange(size)
        return cells

    def load(self, addresses: npt.NDArray[np.uint64], size: int) -> Bits:
        """One value of ``size`` bytes (1, 2, 4, 8) from each address."""
        found: Bits = self._bytes[self._cells(addresses, size)].view(DTYPES[size])[:, 0]
        return found

    def store(self, addresses: npt.NDArray[np.uint64], values: Bits) -> None:
        """One value to each address; where addresses meet, the highest lane wins."""
        size = values.dtype.itemsize
        data = np.ascontiguousarray(values)[:, None].view(np.uint8)
        self._bytes[self._cells(addresses, size)] = data

    def read(self, address: int, size: int) -> bytes:
        """``size`` bytes from one address."""
        return self._bytes[address - _FIRST : address - _FIRST + size].tobytes()

    def write(self, address: int, data: bytes) -> None:
        """Bytes to one address."""
        self._bytes[address - _FIRST : address - _FIRST + len(data)] = np.frombuffer(data, np.uint8)

    def text(self, address: int) -> str:
        """The zero-terminated string at ``address``."""
        end = address
        while self._bytes[end - _FIRST]:
            end += 1
        return self.read(address, end - address).decode("utf-8", "replace")
