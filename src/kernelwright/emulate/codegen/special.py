"""Special registers.

Source: PTX ISA 9.0, section 10. The emulated multiprocessor is number 0; clocks count nanoseconds of the host.
"""

from __future__ import annotations

from . import layout
from .text import Text, Value, constant

_FIELDS = {
    **{f"%ctaid.{axis}": layout.CTAID + 4 * i for i, axis in enumerate("xyz")},
    **{f"%ntid.{axis}": layout.NTID + 4 * i for i, axis in enumerate("xyz")},
    **{f"%nctaid.{axis}": layout.NCTAID + 4 * i for i, axis in enumerate("xyz")},
    "%total_smem_size": layout.TOTAL_SHARED, "%aggr_smem_size": layout.TOTAL_SHARED, "%warpid": layout.WARP_INDEX,
}  # fmt: skip
_TID = {f"%tid.{axis}": layout.TID + 128 * i for i, axis in enumerate("xyz")}
_CONSTANTS = {
    "WARP_SZ": 32, "%smid": 0, "%nsmid": 1, "%gridid": 0, "%cluster_ctarank": 0, "%cluster_nctarank": 1,
    **{f"%clusterid.{axis}": 0 for axis in "xyz"}, **{f"%nclusterid.{axis}": 1 for axis in "xyz"},
    **{f"%cluster_ctaid.{axis}": 0 for axis in "xyz"}, **{f"%cluster_nctaid.{axis}": 1 for axis in "xyz"},
    "%is_explicit_cluster": 0, "%current_graph_exec": 0,
    # Set by a driver, or counting what nobody counts here.
    **{f"%envreg{i}": 0 for i in range(32)}, **{f"%pm{i}": 0 for i in range(8)}, **{f"%pm{i}_64": 0 for i in range(8)},
}  # fmt: skip
_MASKS = {
    "eq": lambda i: 1 << i, "lt": lambda i: (1 << i) - 1, "le": lambda i: (1 << i + 1) - 1,
    "gt": lambda i: (1 << 32) - (1 << i + 1), "ge": lambda i: (1 << 32) - (1 << i),
}  # fmt: skip
_CLOCKS = {"%clock": 0, "%clock_hi": 32, "%clock64": 0, "%globaltimer": 0, "%globaltimer_lo": 0, "%globaltimer_hi": 32}

INVARIANT = frozenset({*_FIELDS, *_CONSTANTS, "%dynamic_smem_size", "%nwarpid"})
"""Registers that are the same for a warp from beginning to end."""


def _row(values: list[int]) -> Value:
    return Value("<" + ", ".join(f"i32 {v}" for v in values) + ">", "i32", True, True)


def special_register(text: Text, name: str) -> Value | None:
    """The value of a special register; None for one that is not emulated."""
    if name in _FIELDS:
        return text.load(text.at("%w", _FIELDS[name]), "i32", align=4)
    if name in _TID:
        return text.load(text.at("%w", _TID[name]), "i32", wide=True, align=64)
    if name == "%laneid":
        return _row(list(range(layout.LANES)))
    if name in _CONSTANTS:
        return constant("i32", _CONSTANTS[name])
    if name.startswith("%lanemask_"):
        return _row([_MASKS[name.removeprefix("%lanemask_")](i) for i in range(layout.LANES)])
    if name in _CLOCKS:
        made = Value(text.call("kw_clock", "i64", "ptr %w", "ptr"), "i64")
        if not _CLOCKS[name]:
            return made
        return text.op("lshr", made, constant("i64", 32))
    if name == "%nwarpid":
        threads = constant("i32", 1)
        for axis in "xyz":
            threads = text.op("mul", threads, text.load(text.at("%w", _FIELDS[f"%ntid.{axis}"]), "i32", align=4))
        return text.op("lshr", text.op("add", threads, constant("i32", 31)), constant("i32", 5))
    if name == "%dynamic_smem_size":
        total = text.load(text.at("%w", layout.TOTAL_SHARED), "i32", align=4)
        static = text.resize(text.load(text.at("%w", layout.DYNAMIC_SHARED), "i64", align=8), "i32")
        return text.op("sub", total, static)
    return None
