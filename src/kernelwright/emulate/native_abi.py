"""kw_runtime.h in Python: its structures, and the callbacks through which the shim reaches the device.

Why: one place knows the layout. The rule: a callback never lets an exception out; it answers a ``cudaError_t`` and
leaves the exception in ``device.fault``.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.device.specs import DeviceSpec
from kernelwright.emulate.fatbin import NoPtx
from kernelwright.emulate.nativebuild import NATIVE

if TYPE_CHECKING:
    from kernelwright.emulate.device import EmulatedDevice

INVALID_DEVICE_FUNCTION = 98
INVALID_SYMBOL = 13
NO_KERNEL_IMAGE = 209
NOT_SUPPORTED = 801


class Dim3(ctypes.Structure):
    """``kw_dim3``."""

    _fields_ = (("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32))

    def triple(self) -> tuple[int, int, int]:
        """As Python writes it."""
        return int(self.x), int(self.y), int(self.z)


class Launch(ctypes.Structure):
    """``kw_launch``."""

    _fields_ = (
        ("module_key", ctypes.c_char_p),
        ("kernel", ctypes.c_char_p),
        ("grid", Dim3),
        ("block", Dim3),
        ("args", ctypes.POINTER(ctypes.c_void_p)),
        ("dynamic_shared", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("host_pc", ctypes.c_uint64),
        ("cooperative", ctypes.c_int32),
    )


class DeviceProperties(ctypes.Structure):
    """``kw_device_properties``."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        *(
            (name, ctypes.c_int32)
            for name in (
                "major",
                "minor",
                "multiprocessors",
                "clock_khz",
                "memory_clock_khz",
                "memory_bus_bits",
                "l2_bytes",
                "max_threads_per_block",
                "max_threads_per_sm",
                "max_blocks_per_sm",
                "registers_per_block",
                "registers_per_sm",
                "warp_size",
            )
        ),
        ("max_grid", ctypes.c_int32 * 3),
        ("max_block", ctypes.c_int32 * 3),
        *(
            (name, ctypes.c_uint64)
            for name in (
                "total_memory",
                "shared_per_block",
                "shared_per_block_optin",
                "shared_per_sm",
                "reserved_shared_per_block",
            )
        ),
    )


_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Launch))
_MODULE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
_ATTRIBUTES = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int32))
_SYMBOL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint64)
)
_PARAMETERS = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_int
)
_REFUSAL = ctypes.CFUNCTYPE(None, ctypes.POINTER(Launch), ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)


class Callbacks(ctypes.Structure):
    """``kw_callbacks``."""

    _fields_ = (
        ("launch", _LAUNCH),
        ("module_register", _MODULE),
        ("attributes", _ATTRIBUTES),
        ("symbol", _SYMBOL),
        ("refusal", _REFUSAL),
        ("parameters", _PARAMETERS),
    )


@dataclass(frozen=True)
class Attributes:
    """What ``kw_attributes_fn`` fills in, in its order."""

    registers: int
    static_shared_bytes: int
    local_bytes: int
    constant_bytes: int
    max_threads_per_block: int
    """0 where the kernel sets no bound."""
    ptx_version: int
    binary_version: int
    max_dynamic_shared_bytes: int

    def words(self) -> tuple[int, ...]:
        """In ``kw_attributes_fn``'s order."""
        return (
            self.registers,
            self.static_shared_bytes,
            self.local_bytes,
            self.constant_bytes,
            self.max_threads_per_block,
            self.ptx_version,
            self.binary_version,
            self.max_dynamic_shared_bytes,
        )


def present(library: ctypes.CDLL, spec: DeviceSpec) -> None:
    """Tells the runtime which device it is."""
    limit = 2**31 - 1  # the fields are 32 bits wide
    facts = DeviceProperties(
        name=spec.name.encode(),
        major=spec.compute_capability[0],
        minor=spec.compute_capability[1],
        multiprocessors=spec.multiprocessors,
        clock_khz=spec.clock_mhz * 1000,
        memory_clock_khz=spec.memory_clock_mhz * 1000,
        memory_bus_bits=spec.memory_bus_bits,
        l2_bytes=spec.l2_bytes,
        max_threads_per_block=spec.max_threads_per_block,
        max_threads_per_sm=spec.max_threads_per_sm,
        max_blocks_per_sm=spec.max_blocks_per_sm,
        registers_per_block=spec.registers_per_block,
        registers_per_sm=spec.registers_per_sm,
        warp_size=spec.warp_size,
        max_grid=(ctypes.c_int32 * 3)(*(min(limit, extent) for extent in spec.max_grid)),
        max_block=(ctypes.c_int32 * 3)(*spec.max_block),
        total_memory=spec.memory_bytes,
        shared_per_block=spec.shared_per_block,
        shared_per_block_optin=spec.shared_per_block_optin,
        shared_per_sm=spec.shared_per_sm,
        reserved_shared_per_block=spec.reserved_shared_per_block,
    )
    library.kw_set_device(ctypes.byref(facts))


def connect(library: ctypes.CDLL, device: EmulatedDevice) -> Callbacks:
    """Installs the callbacks; the answer must be kept alive as long as the process."""
    keys: dict[bytes, ctypes.Array[ctypes.c_char]] = {}

    def guarded(run: Callable[[], int], missing: int) -> int:
        try:
            return run()
        except KeyError:
            return missing
        except Exception as error:
            device.note_fault(error)
            return NO_KERNEL_IMAGE if isinstance(error, NoPtx) else NOT_SUPPORTED

    def launch(asked: Any) -> int:
        return guarded(lambda: device.launch(asked.contents), INVALID_DEVICE_FUNCTION)

    def register(address: int, size: int) -> int:
        key = device.register(ctypes.string_at(address, size))
        if key not in keys:
            keys[key] = ctypes.create_string_buffer(key)
        return ctypes.addressof(keys[key])

    def attributes(key: bytes, kernel: bytes, out: Any) -> int:
        def run() -> int:
            for at, word in enumerate(device.attributes(key, kernel.decode()).words()):
                out[at] = word
            return 0

        return guarded(run, INVALID_DEVICE_FUNCTION)

    def symbol(key: bytes, name: bytes, address: Any, size: Any) -> int:
        def run() -> int:
            address[0], size[0] = device.module(key).symbol(name.decode())
            return 0

        return guarded(run, INVALID_SYMBOL)

    def refusal(asked: Any, error: int, cause: bytes, sentence: bytes) -> None:
        device.refused(asked.contents if asked else None, error, cause.decode(), sentence.decode())

    def parameters(key: bytes, kernel: bytes, out: Any, room: int) -> int:
        def run() -> int:
            found = device.module(key).parameters(kernel.decode())
            for at, (offset, size) in enumerate(found[:room]):
                out[2 * at], out[2 * at + 1] = offset, size
            return len(found)

        return guarded(run, -1)

    callbacks = Callbacks(
        *(_LAUNCH(launch), _MODULE(register), _ATTRIBUTES(attributes), _SYMBOL(symbol), _REFUSAL(refusal)),
        _PARAMETERS(parameters),
    )
    library.kw_set_callbacks(ctypes.byref(callbacks))
    return callbacks


def error_name(code: int) -> str:
    """``cudaErrorIllegalAddress`` for 700; empty for 0."""
    return _names().get(code, f"cudaError {code}") if code else ""


@functools.cache
def _names() -> dict[int, str]:
    text = (NATIVE / "cuda_errors.h").read_text(encoding="utf-8")
    return {int(code): name for code, name in re.findall(r'\{(\d+), "(\w+)"', text)}
