"""What Python sees of the emulated device: ``torch.cuda`` answers as on a machine with the presented GPU.

Why: candidates and torch itself ask ``torch.cuda`` before they use a device; operators are the bridge's business
(native/torch_bridge.cpp). The rule: every replaced name stands in one table, built by :func:`patches`; what the device
cannot do is refused by name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.device.specs import DeviceSpec
from kernelwright.emulate import bridge, runtime, streams

CUDA_VERSION = "13.0"
"""What ``torch.version.cuda`` says: the CUDA whose runtime API the shim has."""


@dataclass(frozen=True)
class Properties:
    """As ``torch.cuda.get_device_properties`` gives them; bytes where a size is meant."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    max_threads_per_block: int = 1024
    warp_size: int = 32
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    clock_rate: int = 0
    """kHz."""
    memory_clock_rate: int = 0
    """kHz."""
    memory_bus_width: int = 0
    """Bits."""
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0


def properties(spec: DeviceSpec) -> Properties:
    """The data sheet in torch's words."""
    return Properties(
        name=spec.name,
        major=spec.compute_capability[0],
        minor=spec.compute_capability[1],
        total_memory=spec.memory_bytes,
        multi_processor_count=spec.multiprocessors,
        max_threads_per_multi_processor=spec.max_threads_per_sm,
        regs_per_multiprocessor=spec.registers_per_sm,
        shared_memory_per_block=spec.shared_per_block,
        shared_memory_per_block_optin=spec.shared_per_block_optin,
        shared_memory_per_multiprocessor=spec.shared_per_sm,
        L2_cache_size=spec.l2_bytes,
        clock_rate=spec.clock_mhz * 1000,
        memory_clock_rate=spec.memory_clock_mhz * 1000,
        memory_bus_width=spec.memory_bus_bits,
    )


def _index(device: Any) -> int:
    """The device's index, 0; raises torch's error for a device that is not there."""
    if device is None:
        return 0
    if isinstance(device, int):
        index = device
    else:
        asked = torch.device(device)
        if asked.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {asked}")
        index = asked.index or 0
    if index > 0:
        bridge.check(101)
    return 0


def _refuse(name: str) -> Callable[..., Any]:
    def refused(*arguments: Any, **named: Any) -> Any:
        raise NotImplementedError(f"the emulated device has no {name}")

    refused.__name__ = name.rpartition(".")[2]
    return refused


class _Refused:
    """A class of ``torch.cuda`` that the device does not have; making one says so."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        raise NotImplementedError(f"the emulated device has no torch.cuda.{type(self).__name__}")


class CUDAGraph(_Refused):
    """CUDA graphs are not emulated."""


class MemPool(_Refused):
    """The caching allocator's pools are not emulated."""


class _Ranges:
    """``torch.cuda.nvtx``'s library: marks for a profiler that is not there."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *arguments: 0


def _synchronize(device: Any = None) -> None:
    _index(device)
    bridge.check(bridge.sticky_error())


def _memory_statistics(device: Any = None) -> dict[str, Any]:
    library = runtime.library()
    current, peak = int(library.kw_bytes_in_use()), int(library.kw_peak_bytes())
    return {
        f"{what}_bytes.all.{when}": value
        for what in ("allocated", "active", "reserved", "requested")
        for when, value in (("current", current), ("peak", peak), ("allocated", peak), ("freed", peak - current))
    }


def _storage_new(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.UntypedStorage(…, device="cuda")``, which a torch without CUDA refuses to make."""

    def new(cls: Any, *arguments: Any, device: Any = None, **named: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            return original(cls, *arguments, **({} if device is None else {"device": device}), **named)
        bytes_wanted = arguments[0] if arguments else 0
        if not isinstance(bytes_wanted, int):
            raise TypeError("a cuda storage is made from its size")
        return torch.empty(bytes_wanted, dtype=torch.uint8, device="cuda").untyped_storage()

    return new


def _storage_resize(original: Callable[..., Any]) -> Callable[..., Any]:
    """``UntypedStorage.resize_``, which a torch without CUDA refuses for a cuda storage."""

    def resize(self: Any, size: int) -> Any:
        if self.device.type != "cuda":
            return original(self, size)
        bridge.resize_storage(torch.empty(0, dtype=torch.uint8, device="cuda").set_(self), size)
        return self

    return resize


def patches(spec: DeviceSpec) -> list[tuple[Any, str, Any]]:
    """Every replaced name: where, what, by what."""
    cuda: Any = torch.cuda
    facts = properties(spec)
    library = runtime.library()
    for function in (library.kw_bytes_in_use, library.kw_peak_bytes):
        function.restype = ctypes.c_size_t

    def in_use(device: Any = None) -> int:
        return int(library.kw_bytes_in_use())

    def peak(device: Any = None) -> int:
        return int(library.kw_peak_bytes())

    def nothing(*arguments: Any, **named: Any) -> None:
        return None

    def constant(value: Any) -> Callable[..., Any]:
        return lambda *arguments, **named: value

    def of_device(value: Any) -> Callable[..., Any]:
        def answer(device: Any = None) -> Any:
            _index(device)
            return value

        return answer

    answers: dict[str, Any] = {
        # is there one, and what is it
        "is_available": constant(True),
        "device_count": constant(1),
        "_is_compiled": constant(True),
        "_is_in_bad_fork": constant(False),
        "_lazy_init": nothing,
        "_lazy_call": lambda callable, **named: callable(),
        "init": nothing,
        "_initialized": True,
        "current_device": constant(0),
        "set_device": lambda device: (_index(device), None)[1],
        "_exchange_device": lambda index: _index(max(0, index)),
        "_maybe_exchange_device": constant(0),
        "get_device_name": of_device(facts.name),
        "get_device_capability": of_device(spec.compute_capability),
        "get_device_properties": of_device(facts),
        "get_arch_list": constant([f"sm_{facts.major}{facts.minor}"]),
        "get_gencode_flags": constant(
            f"-gencode compute=compute_{facts.major}{facts.minor},code=sm_{facts.major}{facts.minor}"
        ),
        "is_bf16_supported": constant(True),
        "is_tf32_supported": constant(True),
        "can_device_access_peer": constant(False),
        "check_error": bridge.check,
        "default_generators": (bridge.default_generator(),),
        # streams and events
        "Stream": streams.Stream,
        "ExternalStream": streams.ExternalStream,
        "Event": streams.Event,
        "current_stream": streams.current_stream,
        "default_stream": streams.default_stream,
        "set_stream": streams.set_stream,
        "get_stream_from_external": streams.ExternalStream,
        "synchronize": _synchronize,
        "is_current_stream_capturing": constant(False),
        "_sleep": nothing,
        # memory
        "mem_get_info": lambda device=None: (max(0, spec.memory_bytes - in_use()), spec.memory_bytes),
        "memory_allocated": in_use,
        "memory_reserved": in_use,
        "max_memory_allocated": peak,
        "max_memory_reserved": peak,
        "memory_stats": _memory_statistics,
        "memory_summary": lambda device=None, abbreviated=False: f"{in_use()} bytes in use, at most {peak()} so far",
        "empty_cache": nothing,
        "ipc_collect": nothing,
        "reset_peak_memory_stats": nothing,
        "reset_max_memory_allocated": nothing,
        "reset_accumulated_memory_stats": nothing,
        "set_per_process_memory_fraction": nothing,
        # what there is not
        "CUDAGraph": CUDAGraph,
        "graph": _refuse("torch.cuda.graph"),
        "make_graphed_callables": _refuse("torch.cuda.make_graphed_callables"),
        "graph_pool_handle": _refuse("torch.cuda.graph_pool_handle"),
        "MemPool": MemPool,
        "cudart": _refuse("torch.cuda.cudart"),
        "current_blas_handle": _refuse("torch.cuda.current_blas_handle"),
        "utilization": _refuse("torch.cuda.utilization"),
        "temperature": _refuse("torch.cuda.temperature"),
        "power_draw": _refuse("torch.cuda.power_draw"),
        "clock_rate": of_device(spec.clock_mhz),
    }
    table: list[tuple[Any, str, Any]] = [(cuda, name, value) for name, value in answers.items()]
    table += [
        (place, name, answers[name])
        for place in (cuda.streams, cuda.memory, cuda.random, cuda.graphs)
        for name in answers
        if name in vars(place)
    ]
    table += [
        (torch.version, "cuda", CUDA_VERSION),
        (torch.backends.cuda, "is_built", constant(True)),
        (torch.backends.cudnn, "is_acceptable", constant(False)),
        (cuda.nvtx, "_nvtx", _Ranges()),
        (torch.UntypedStorage, "__new__", _storage_new(torch.UntypedStorage.__new__)),
        (torch.UntypedStorage, "resize_", _storage_resize(torch.UntypedStorage.resize_)),
        (torch._C, "_cuda_getCurrentRawStream", lambda index: streams.current_stream().cuda_stream),
    ]
    return table


def install(spec: DeviceSpec) -> None:
    """Replaces every name of the table. There is no way back: the process belongs to the candidate."""
    for place, name, value in patches(spec):
        setattr(place, name, value)
