"""The values of special registers.

Source: PTX ISA 9.0, section 10, https://docs.nvidia.com/cuda/parallel-thread-execution/#special-registers
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]


class SpecialRegisters:
    """What each lane of a running grid sees. One multiprocessor, no clusters (each block is its own)."""

    def __init__(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], dynamic_shared: int, shared: int
    ) -> None:
        self._grid, self._block = grid, block
        self._sizes = {"dynamic_smem_size": dynamic_shared, "total_smem_size": shared, "aggr_smem_size": shared}
        self._ticks = 0

    def value(self, name: str, thread: Values, block_index: Values, lane: Values) -> Values:
        """``name`` for lanes given by their number in the block, their block's number and their number in the warp."""
        key, _, axis = name.removeprefix("%").partition(".")
        place = "xyz".find(axis) if axis else 0
        match key:
            case "tid":
                return self._split(thread, self._block)[place]
            case "ctaid" | "clusterid":
                return self._split(block_index, self._grid)[place]
            case "ntid":
                return np.full(len(thread), self._block[place], np.uint64)
            case "nctaid" | "nclusterid":
                return np.full(len(thread), self._grid[place], np.uint64)
            case "cluster_nctaid" | "cluster_nctarank":
                return np.ones(len(thread), np.uint64)
            case "laneid":
                return lane.astype(np.uint64)
            case "warpid":
                return (thread // 32).astype(np.uint64)
            case "nwarpid":
                return np.full(len(thread), 64, np.uint64)
            case "nsmid":
                return np.ones(len(thread), np.uint64)
            case "WARP_SZ":
                return np.full(len(thread), 32, np.uint64)
            case "clock" | "clock64":
                self._ticks += 1
                return np.full(len(thread), self._ticks, np.uint64)
            case "clock_hi":
                return np.zeros(len(thread), np.uint64)
            case "globaltimer" | "globaltimer_lo":
                return np.full(len(thread), time.time_ns(), np.uint64)
            case "globaltimer_hi":
                return np.full(len(thread), time.time_ns() >> 32, np.uint64)
        if key.startswith("lanemask_"):
            return self._lane_mask(key.removeprefix("lanemask_"), lane.astype(np.uint64))
        return np.full(len(thread), self._sizes.get(key, 0), np.uint64)

    @staticmethod
    def _split(number: Values, shape: tuple[int, int, int]) -> tuple[Values, Values, Values]:
        rest = number // shape[0]
        return number % shape[0], rest % shape[1], rest // shape[1]

    @staticmethod
    def _lane_mask(relation: str, lane: Values) -> Values:
        one = np.uint64(1)
        equal = one << lane
        below = equal - one
        everything = np.uint64(0xFFFFFFFF)
        masks = {
            "eq": equal,
            "lt": below,
            "le": below | equal,
            "gt": everything & ~(below | equal),
            "ge": everything & ~below,
        }
        return masks[relation]
