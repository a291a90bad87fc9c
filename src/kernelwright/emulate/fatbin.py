"""Gets the PTX out of a fat binary, the container that nvcc embeds in an object file.

Why: an extension hands the CUDA runtime shim only this container. The rule: take the PTX that the presented device
would be given (the highest target it can run); where there is none, say what the container holds and which flag embeds
PTX.

Layout: cuobjdump's output against the bytes of nvcc 11.8 to 13.0 (2026-11): a header (magic, version, header size, body
size), then entries, each a header (kind, flags, sizes, target) and a payload.
"""

from __future__ import annotations

import importlib
import struct
from dataclasses import dataclass

from kernelwright.errors import RefusedError

MAGIC = 0xBA55ED50
KIND_PTX = 1
KIND_ELF = 2
FLAG_LZ4 = 0x2000
FLAG_ZSTD = 0x8000
KEY_PREFIX = b"kw-ptx:"
"""A container may be just this text, a key and a zero byte, where the PTX is provided apart."""

_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQII HHIIIQQQ".replace(" ", ""))
"""kind, version, header bytes, payload bytes, compressed bytes, options, minor, major, target, name offset, name
length, flags, reserved, uncompressed bytes."""


class NoPtx(RefusedError):
    """A container without PTX for this device."""

    message = "the module holds no PTX that a device of compute capability {capability} runs: {holds}"
    advice = "embed PTX: -gencode=arch=compute_{target},code=compute_{target} (or TORCH_CUDA_ARCH_LIST='{dotted}+PTX')"


class CompressedPtx(RefusedError):
    """PTX in a form that cannot be read here."""

    message = "the module's PTX is compressed with {how}, which this Python cannot read"
    advice = "compile with nvcc -no-compress, or use Python 3.14, which has zstd"


@dataclass(frozen=True)
class Entry:
    """One piece of code in a container."""

    kind: int
    """``KIND_PTX`` or ``KIND_ELF``."""
    target: int
    """As in ``sm_80``."""
    flags: int
    payload: bytes
    uncompressed_bytes: int


def key(container: bytes) -> str | None:
    """The key of a container that only names its PTX, else None."""
    if not container.startswith(KEY_PREFIX):
        return None
    return container.removeprefix(KEY_PREFIX).split(b"\0", 1)[0].decode()


def entries(container: bytes) -> tuple[Entry, ...]:
    """Everything in the container, in order. Raises ``ValueError`` where it is none."""
    magic, _, header_bytes, body_bytes = _HEADER.unpack_from(container)
    if magic != MAGIC:
        raise ValueError(f"no fat binary: starts with {magic:#x}")
    found = []
    at, end = header_bytes, header_bytes + body_bytes
    while at < end:
        fields = _ENTRY.unpack_from(container, at)
        kind, entry_bytes, payload_bytes, compressed, target = fields[0], fields[2], fields[3], fields[4], fields[8]
        flags, uncompressed = fields[11], fields[13]
        start = at + entry_bytes
        size = compressed if flags & (FLAG_LZ4 | FLAG_ZSTD) else payload_bytes
        found.append(Entry(kind, target, flags, container[start : start + size], uncompressed))
        at = start + payload_bytes
    return tuple(found)


def ptx(container: bytes, *, capability: tuple[int, int]) -> str:
    """The PTX text that a device of this compute capability would compile. Raises ``NoPtx``, ``CompressedPtx``."""
    limit = capability[0] * 10 + capability[1]
    found = entries(container)
    fitting = [entry for entry in found if entry.kind == KIND_PTX and entry.target <= limit]
    if not fitting:
        holds = ", ".join(f"{'PTX' if e.kind == KIND_PTX else 'machine code'} for sm_{e.target}" for e in found)
        raise NoPtx(
            capability=f"{capability[0]}.{capability[1]}",
            target=limit,
            dotted=f"{capability[0]}.{capability[1]}",
            holds=holds or "nothing",
        )
    best = max(fitting, key=lambda entry: entry.target)
    return _expand(best).rstrip(b"\0").decode()


def _expand(entry: Entry) -> bytes:
    if entry.flags & FLAG_ZSTD:
        try:
            zstd = importlib.import_module("compression.zstd")
        except ImportError:
            raise CompressedPtx(how="zstd") from None
        return bytes(zstd.decompress(entry.payload))
    if entry.flags & FLAG_LZ4:
        return _lz4(entry.payload, entry.uncompressed_bytes)
    return entry.payload


def _lz4(block: bytes, size: int) -> bytes:
    """One LZ4 block (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md)."""
    out = bytearray()
    at = 0
    while at < len(block):
        token = block[at]
        at += 1
        literals, at = _length(token >> 4, block, at)
        out += block[at : at + literals]
        at += literals
        if at >= len(block) or len(out) >= size:
            break
        distance = block[at] | block[at + 1] << 8
        match, at = _length(token & 15, block, at + 2)
        for _ in range(match + 4):
            out.append(out[-distance])
    return bytes(out)


def _length(nibble: int, block: bytes, at: int) -> tuple[int, int]:
    while nibble >= 15:
        nibble += block[at]
        at += 1
        if block[at - 1] != 255:
            break
    return nibble, at
