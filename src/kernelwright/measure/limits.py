"""The least time that this device's measured ceilings allow for a problem's compulsory work, and what sets it.

Why: "fast" means little without "how fast could it be". The rule: pure arithmetic on records; a limit is a *least*
time, so each term takes the best rate ever measured, terms that can overlap are not added, and an output that fits in
the L2 need not have reached the memory when a run ends. Where the memory and a unit bind equally, the larger wins.

An fp32 product has three limits, because three ways of computing it are fp32-accurate: the ordinary fp32 units; three
fp16 products on the tensor cores with the sums promoted to fp32 (Ootomo & Yokota, arXiv 2203.03341); and, where no
element stands out of its row or column by orders of magnitude, six products of signed bytes with exact sums, of the
nine of 24-bit integers (Ootomo, Ozaki & Yokota, arXiv 2306.11975). The gallery's `linear` has all three.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.device.specs import DeviceSpec
from kernelwright.measure.records import Ceiling, Ceilings, Limit, Work

HALVES, BYTES = "fp16x3", "int8x6"

_UNITS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "fp64": (("fp64", "fp64", 1),),
    "fp32": (("fp32", "fp32", 1), (HALVES, "fp16", 3), (BYTES, "int8", 6)),
    "fp16": (("fp16", "fp16", 1),),
    "bf16": (("bf16", "bf16", 1),),
    "fp8": (("fp8", "fp8", 1),),
}
"""Dtype of a product to its ways of being computed: name of the way, ceiling that binds it, products it takes."""


def limit(work: Work, ceilings: Ceilings, device_ms: Mapping[str, float]) -> Limit | None:
    """The limit for ``work``; ``device_ms`` are contestants' medians. None where a needed ceiling is not known."""
    read, write = _best(ceilings, "read"), _best(ceilings, "write")
    if read is None or write is None:
        return None
    # Bytes over GB/s are 1e-9 s, hence 1e-6 ms.
    to_memory = max(0, work.written_bytes - ceilings.l2_bytes)
    memory_ms = (work.read_bytes / read + to_memory / write) * 1e-6
    arithmetic = arithmetic_ms(work, ceilings)
    launch_ms = _best(ceilings, "launch") or 0.0
    least = min(arithmetic, key=lambda way: arithmetic[way]) if arithmetic else ""
    terms = {"memory": memory_ms, "launch": launch_ms}
    if least:
        terms[f"arithmetic:{least}"] = arithmetic[least]
    kind = max(terms, key=lambda term: terms[term])
    limit_ms = terms[kind]
    return Limit(
        limit_ms=limit_ms,
        kind=kind,
        memory_ms=memory_ms,
        arithmetic_ms=arithmetic,
        launch_ms=launch_ms,
        fraction={name: limit_ms / taken for name, taken in device_ms.items() if taken > 0},
        ceilings=ceilings.source,
        work=work,
    )


def in_words(kind: str) -> str:
    """``memory traffic``, ``one launch``, ``arithmetic in int8x6``."""
    plain = {"memory": "memory traffic", "launch": "one launch"}
    return plain.get(kind) or f"arithmetic in {kind.partition(':')[2]}"


def compulsory_bytes(work: Work, ceilings: Ceilings) -> int:
    """Bytes that must come from or go to the memory: an output as far as the L2 cannot hold it."""
    return work.read_bytes + max(0, work.written_bytes - ceilings.l2_bytes)


def arithmetic_ms(work: Work, ceilings: Ceilings) -> dict[str, float]:
    """Least time in ms for the flops alone, by way; a problem of several dtypes has the sum of each one's least.

    Ways whose ceiling is not known are left out; so is everything where one dtype has no way at all.
    """
    if not work.flops:
        return {}
    parts: list[dict[str, float]] = []
    for dtype, flops in work.flops.items():
        ways: dict[str, float] = {}
        for way, unit, products in _UNITS[dtype]:
            rate = _best(ceilings, unit)
            if rate is not None:
                # Flops over TFLOP/s are 1e-12 s, hence 1e-9 ms.
                ways[way] = products * flops / rate * 1e-9
        if not ways:
            return {}
        parts.append(ways)
    if len(parts) == 1:
        return parts[0]
    chosen = [min(ways.items(), key=lambda item: item[1]) for ways in parts]
    return {"+".join(way for way, _ in chosen): sum(time for _, time in chosen)}


def from_data_sheet(sheet: DeviceSpec, *, driver: str = "") -> Ceilings:
    """A data sheet in the place of measured ceilings: never reached, so fractions come out low."""
    bandwidth, peaks = sheet.bandwidth_gb_s, sheet.peaks
    found = {
        name: Ceiling(name, "GB/s", bandwidth, None, "data sheet") for name in ("read", "write", "copy") if bandwidth
    }
    for dtype in ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"):
        if peaks.get(dtype):
            unit = "TOP/s" if dtype == "int8" else "TFLOP/s"
            found[dtype] = Ceiling(dtype, unit, peaks[dtype], None, "data sheet")
    return Ceilings(
        device=sheet.name,
        driver=driver,
        l2_bytes=sheet.l2_bytes,
        ceilings=found,
        source="data sheet",
    )


def _best(ceilings: Ceilings, name: str) -> float | None:
    found = ceilings.ceilings.get(name)
    return found.best if found is not None and found.best > 0 else None
