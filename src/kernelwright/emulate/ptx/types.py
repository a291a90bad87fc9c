"""Sizes of PTX's scalar types, and the special registers.

Source: PTX ISA 9.0, sections 5.2 (types) and 10 (special registers),
https://docs.nvidia.com/cuda/parallel-thread-execution/#fundamental-types
"""

from __future__ import annotations

TYPE_BYTES: dict[str, int] = {
    "pred": 1,
    "b8": 1, "u8": 1, "s8": 1, "e4m3": 1, "e5m2": 1,
    "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "e4m3x2": 2, "e5m2x2": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "tf32": 4, "f16x2": 4, "bf16x2": 4, "u16x2": 4, "s16x2": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8,
    "b128": 16,
}  # fmt: skip
"""Bytes of a value of each type in memory (``pred`` never lies in memory)."""

_VECTORS = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")

SPECIAL_REGISTERS: dict[str, int] = {
    **{f"%{name}.{axis}": 4 for name in _VECTORS for axis in "xyz"},
    **{f"%envreg{i}": 4 for i in range(32)},
    **{f"%pm{i}": 4 for i in range(8)},
    **{f"%pm{i}_64": 8 for i in range(8)},
    **{f"%lanemask_{relation}": 4 for relation in ("eq", "le", "lt", "ge", "gt")},
    "%laneid": 4, "%warpid": 4, "%nwarpid": 4, "%smid": 4, "%nsmid": 4, "%gridid": 8,
    "%clock": 4, "%clock_hi": 4, "%clock64": 8, "%globaltimer": 8, "%globaltimer_lo": 4, "%globaltimer_hi": 4,
    "%total_smem_size": 4, "%aggr_smem_size": 4, "%dynamic_smem_size": 4,
    "%cluster_ctarank": 4, "%cluster_nctarank": 4, "%is_explicit_cluster": 1, "%current_graph_exec": 8,
    "%reserved_smem_offset_begin": 4, "%reserved_smem_offset_end": 4, "%reserved_smem_offset_cap": 4,
    "%reserved_smem_offset_0": 4, "%reserved_smem_offset_1": 4,
    "WARP_SZ": 4,
}  # fmt: skip
"""Special register to its size in bytes."""

LANE_DEPENDENT_SPECIALS = frozenset(
    {"%tid.x", "%tid.y", "%tid.z", "%laneid"} | {f"%lanemask_{relation}" for relation in ("eq", "le", "lt", "ge", "gt")}
)
"""Special registers whose value differs between the lanes of one warp."""


def align_up(offset: int, alignment: int) -> int:
    """The smallest multiple of ``alignment`` that is not below ``offset``."""
    return -(-offset // alignment) * alignment
