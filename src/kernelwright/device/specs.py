"""Data sheets: what each GPU has, as its vendor states it and its driver reports it.

Why: the emulated device presents one of these, launches are refused by its limits, and a limit (the least time a
problem can take) starts from its peaks. The rule: a figure is a vendor's or a driver's, its source stands beside it,
and figures that follow from others (ridge points) are computed, never typed in. Peaks are dense (no sparsity).

Sources: [A100] NVIDIA A100 architecture whitepaper and data sheet; [H100] NVIDIA H100 architecture whitepaper v1.04,
tables 2 and 3; [H200] H200 data sheet, and the driver of one (580.159.04, 2026-11-29); [L4] L4 data sheet, sparse
figures halved; [ADA] NVIDIA Ada GPU architecture whitepaper v2, appendix A; [B200] HGX B200 data sheet (eight GPUs,
divided by eight, sparse figures halved), Blackwell tuning guide, and a driver's report (pytorch/ao#4002); [GUIDE]
CUDA C++ programming guide, "Technical specifications per compute capability".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from kernelwright.errors import MachineError, UnknownDevice

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True)
class CapabilityLimits:
    """What depends on the compute capability alone [GUIDE]."""

    shared_per_sm: int
    """Bytes of shared memory of one multiprocessor."""
    shared_per_block_optin: int
    """Most bytes of shared memory a block may have, after opting in: 1 KiB per block is the system's."""
    max_threads_per_sm: int
    max_blocks_per_sm: int


CAPABILITIES: Mapping[tuple[int, int], CapabilityLimits] = {
    (7, 5): CapabilityLimits(64 * KIB, 64 * KIB, 1024, 16),
    (8, 0): CapabilityLimits(164 * KIB, 163 * KIB, 2048, 32),
    (8, 6): CapabilityLimits(100 * KIB, 99 * KIB, 1536, 16),
    (8, 7): CapabilityLimits(164 * KIB, 163 * KIB, 1536, 16),
    (8, 9): CapabilityLimits(100 * KIB, 99 * KIB, 1536, 24),
    (9, 0): CapabilityLimits(228 * KIB, 227 * KIB, 2048, 32),
    (10, 0): CapabilityLimits(228 * KIB, 227 * KIB, 2048, 32),
    (12, 0): CapabilityLimits(100 * KIB, 99 * KIB, 1536, 24),
}


@dataclass(frozen=True)
class DeviceSpec:
    """One GPU's data sheet."""

    key: str
    """What ``--as`` takes, e.g. ``h200``."""
    name: str
    """What the driver calls it, e.g. ``NVIDIA H200``."""
    compute_capability: tuple[int, int]
    multiprocessors: int
    clock_mhz: int
    """Highest (boost) clock of the multiprocessors."""
    memory_clock_mhz: int
    """As the driver reports it: half the transfer rate of one pin."""
    memory_bus_bits: int
    memory_bytes: int
    """What a program can see (``cudaDeviceProp::totalGlobalMem``), less than the label says."""
    bandwidth_gb_s: float
    """Of the device memory, from the data sheet, in 10^9 bytes a second."""
    l2_bytes: int
    shared_per_block_optin: int
    shared_per_sm: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    vector_tflops: Mapping[str, float] = field(default_factory=dict)
    """Peaks of the ordinary units by dtype, 10^12 flop a second; an FMA is two."""
    tensor_tflops: Mapping[str, float] = field(default_factory=dict)
    """Dense peaks of the tensor cores by dtype, accumulating in fp32 (int8: in int32)."""
    shared_per_block: int = 48 * KIB
    """Bytes of shared memory a block may have without opting in [GUIDE]."""
    reserved_shared_per_block: int = 1 * KIB
    registers_per_sm: int = 65536
    registers_per_block: int = 65536
    max_registers_per_thread: int = 255
    max_threads_per_block: int = 1024
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    max_block: tuple[int, int, int] = (1024, 1024, 64)
    warp_size: int = 32

    @property
    def architecture(self) -> str:
        """The compiler's name of the target, e.g. ``sm_90``."""
        return f"sm_{self.compute_capability[0]}{self.compute_capability[1]}"

    @property
    def peaks(self) -> dict[str, float]:
        """The fastest dense unit for each dtype, 10^12 flop a second."""
        return {
            dtype: max(self.vector_tflops.get(dtype, 0.0), self.tensor_tflops.get(dtype, 0.0))
            for dtype in ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
            if dtype in self.vector_tflops or dtype in self.tensor_tflops
        }

    @property
    def ridges(self) -> dict[str, float]:
        """Flop for each byte of device memory at which compute and memory take equally long, by dtype, at the peaks."""
        return {dtype: tflops * 1e12 / (self.bandwidth_gb_s * 1e9) for dtype, tflops in self.peaks.items()}


def _sheet(key: str, name: str, capability: tuple[int, int], **figures: Any) -> DeviceSpec:
    limits = CAPABILITIES[capability]
    for peaks in ("vector_tflops", "tensor_tflops"):
        figures[peaks] = MappingProxyType(figures[peaks])
    return DeviceSpec(
        key=key,
        name=name,
        compute_capability=capability,
        shared_per_block_optin=limits.shared_per_block_optin,
        shared_per_sm=limits.shared_per_sm,
        max_threads_per_sm=limits.max_threads_per_sm,
        max_blocks_per_sm=limits.max_blocks_per_sm,
        **figures,
    )


# [H100] table 3, SXM5: the H200's chip is the same one, so its peaks are the same.
_HOPPER_VECTOR = {"fp64": 33.5, "fp32": 66.9, "fp16": 133.8, "bf16": 133.8}
_HOPPER_TENSOR = {"fp64": 66.9, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4, "fp8": 1978.9, "int8": 1978.9}

SPECS: tuple[DeviceSpec, ...] = (
    _sheet(
        "h200",
        "NVIDIA H200",
        (9, 0),
        multiprocessors=132,
        # [H200] driver: 1980 MHz, 3201 MHz, 6016 bits, 150109880320 bytes, 60 MiB of L2.
        clock_mhz=1980,
        memory_clock_mhz=3201,
        memory_bus_bits=6016,
        memory_bytes=150_109_880_320,
        l2_bytes=60 * MIB,
        # [H200] data sheet; 3201 MHz x 2 x 6016 bits give 4814.
        bandwidth_gb_s=4800.0,
        vector_tflops=_HOPPER_VECTOR,
        tensor_tflops=_HOPPER_TENSOR,
    ),
    _sheet(
        "h100",
        "NVIDIA H100 80GB HBM3",
        (9, 0),
        multiprocessors=132,
        # [H100] table 2, SXM5; clocks and memory as its driver reports them.
        clock_mhz=1980,
        memory_clock_mhz=2619,
        memory_bus_bits=5120,
        memory_bytes=81_079 * MIB,
        l2_bytes=50 * MIB,
        bandwidth_gb_s=3352.0,
        vector_tflops=_HOPPER_VECTOR,
        tensor_tflops=_HOPPER_TENSOR,
    ),
    _sheet(
        "a100",
        "NVIDIA A100-SXM4-80GB",
        (8, 0),
        multiprocessors=108,
        # [A100] data sheet, 80 GB SXM; 1593 MHz x 2 x 5120 bits give 2039 GB/s.
        clock_mhz=1410,
        memory_clock_mhz=1593,
        memory_bus_bits=5120,
        memory_bytes=81_251 * MIB,
        l2_bytes=40 * MIB,
        bandwidth_gb_s=2039.0,
        # [A100] table 4: bf16 outside the tensor cores runs at half the fp16 rate.
        vector_tflops={"fp64": 9.7, "fp32": 19.5, "fp16": 78.0, "bf16": 39.0},
        tensor_tflops={"fp64": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0, "int8": 624.0},
    ),
    _sheet(
        "l4",
        "NVIDIA L4",
        (8, 9),
        multiprocessors=58,
        # [L4] 192-bit GDDR6 at 12.5 Gbit/s; 6251 MHz x 2 x 192 bits give 300 GB/s.
        clock_mhz=2040,
        memory_clock_mhz=6251,
        memory_bus_bits=192,
        memory_bytes=22_478 * MIB,
        l2_bytes=48 * MIB,
        bandwidth_gb_s=300.0,
        # [L4] fp64 is 1/64 of fp32 on compute capability 8.9 [GUIDE].
        vector_tflops={"fp64": 0.47, "fp32": 30.3, "fp16": 30.3, "bf16": 30.3},
        tensor_tflops={"tf32": 60.0, "bf16": 121.0, "fp16": 121.0, "fp8": 242.5, "int8": 242.5},
    ),
    _sheet(
        "rtx4090",
        "NVIDIA GeForce RTX 4090",
        (8, 9),
        multiprocessors=128,
        # [ADA] 384-bit GDDR6X at 21 Gbit/s, 73728 KB of L2.
        clock_mhz=2520,
        memory_clock_mhz=10501,
        memory_bus_bits=384,
        memory_bytes=24_217 * MIB,
        l2_bytes=72 * MIB,
        bandwidth_gb_s=1008.0,
        vector_tflops={"fp64": 1.29, "fp32": 82.6, "fp16": 82.6, "bf16": 82.6},
        # [ADA] with fp32 accumulation, which GeForce halves for fp16 and fp8: 330.3 and 660.6 with fp16 accumulation.
        tensor_tflops={"tf32": 82.6, "bf16": 165.2, "fp16": 165.2, "fp8": 330.3, "int8": 660.6},
    ),
    _sheet(
        "b200",
        "NVIDIA B200",
        (10, 0),
        multiprocessors=148,
        # [B200] driver: 3996 MHz, 7680 bits, 178.35 GiB, 126.5 MiB of L2.
        clock_mhz=1965,
        memory_clock_mhz=3996,
        memory_bus_bits=7680,
        memory_bytes=182_630 * MIB,
        l2_bytes=126 * MIB + 512 * KIB,
        # [B200] HGX data sheet 62 TB/s for eight; 3996 MHz x 2 x 7680 bits give 7672.
        bandwidth_gb_s=7700.0,
        # [B200] 296 and 600 TFLOP/s for eight; fp16 and bf16 run at twice the fp32 rate [GUIDE].
        vector_tflops={"fp64": 37.0, "fp32": 75.0, "fp16": 150.0, "bf16": 150.0},
        tensor_tflops={"fp64": 37.0, "tf32": 1125.0, "bf16": 2250.0, "fp16": 2250.0, "fp8": 4500.0, "int8": 4500.0},
    ),
)

_BY_KEY: Mapping[str, DeviceSpec] = {sheet.key: sheet for sheet in SPECS}

# What people and drivers call them, letters and digits only.
_ALIASES: Mapping[str, str] = {
    "h200sxm": "h200",
    "h200sxm5": "h200",
    "h10080gbhbm3": "h100",
    "h100sxm": "h100",
    "h100sxm5": "h100",
    "a100sxm480gb": "a100",
    "a10080gb": "a100",
    "a100sxm": "a100",
    "4090": "rtx4090",
    "geforcertx4090": "rtx4090",
    "b200sxm": "b200",
    "sm80": "a100",
    "sm89": "l4",
    "sm90": "h200",
    "sm100": "b200",
}


def spec(name: str) -> DeviceSpec:
    """The data sheet called ``name``: a key (``h200``), a driver's name (``NVIDIA H200``) or an alias (``sm_90``).

    Case, spaces and punctuation do not matter. Raises ``UnknownDevice``, a ``UsageError``, that lists the keys.
    """
    bare = re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("nvidia")
    key = _ALIASES.get(bare, bare)
    if key not in _BY_KEY:
        raise UnknownDevice(name=name, known=", ".join(sheet.key for sheet in SPECS))
    return _BY_KEY[key]


def from_cuda(properties: Any) -> DeviceSpec:
    """The data sheet of a real GPU from what ``torch.cuda.get_device_properties`` returns.

    What the driver reports beats the table; peaks come from the table where the GPU is in it and stay empty where it is
    not. Raises ``MachineError`` for a compute capability whose limits are not known here.
    """
    capability = (int(properties.major), int(properties.minor))
    limits = CAPABILITIES.get(capability)
    if limits is None:
        raise MachineError(
            f"{properties.name} has compute capability {capability[0]}.{capability[1]}, whose limits are not known here"
        )
    try:
        sheet = spec(str(properties.name))
    except UnknownDevice:
        key = re.sub(r"[^a-z0-9]+", "-", str(properties.name).lower().removeprefix("nvidia ")).strip("-")
        sheet = DeviceSpec(
            key=key,
            name=str(properties.name),
            compute_capability=capability,
            multiprocessors=0,
            clock_mhz=0,
            memory_clock_mhz=0,
            memory_bus_bits=0,
            memory_bytes=0,
            bandwidth_gb_s=0.0,
            l2_bytes=0,
            shared_per_block_optin=limits.shared_per_block_optin,
            shared_per_sm=limits.shared_per_sm,
            max_threads_per_sm=limits.max_threads_per_sm,
            max_blocks_per_sm=limits.max_blocks_per_sm,
        )
    clock_khz, memory_khz = int(properties.clock_rate), int(properties.memory_clock_rate)
    bus_bits = int(properties.memory_bus_width)
    return replace(
        sheet,
        compute_capability=capability,
        multiprocessors=int(properties.multi_processor_count),
        clock_mhz=clock_khz // 1000,
        memory_clock_mhz=memory_khz // 1000,
        memory_bus_bits=bus_bits,
        memory_bytes=int(properties.total_memory),
        # Two transfers a clock; the data sheet's rounded figure gives way to the product.
        bandwidth_gb_s=memory_khz * 1e3 * 2 * bus_bits / 8 / 1e9,
        l2_bytes=int(properties.L2_cache_size),
        shared_per_block_optin=int(properties.shared_memory_per_block_optin),
        shared_per_sm=int(properties.shared_memory_per_multiprocessor),
        registers_per_sm=int(properties.regs_per_multiprocessor),
        max_threads_per_sm=int(properties.max_threads_per_multi_processor),
        max_blocks_per_sm=limits.max_blocks_per_sm,
    )
