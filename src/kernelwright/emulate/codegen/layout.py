"""Where things lie in a warp: the offsets of ``kw_warp`` in native/runtime_warp.h.

The rule: a number here equals one there; static assertions in the header fail the build when they part.
"""

from __future__ import annotations

LANES = 32

MASK = 128
"""i32: the lanes that run now."""
LIVE = 132
"""i32: the lanes that have not exited."""
NEXT_WAITS = 140
"""i32: the lowest block number at which another runnable lane stands."""
BUDGET = 144
COUNT = 152
"""i64: thread instructions so far."""
PARAMS = 160
SHARED = 168
LOCAL = 176
LOCAL_STRIDE = 184
CTAID = 208
NTID = 220
NCTAID = 232
WARP_INDEX = 244
RED = 252
"""i32: result of the last barrier reduction: popc << 2 | or << 1 | and."""
TID = 256
"""Three rows of 32 x i32."""
ADDRESSES = 640
"""32 addresses, i64 or i32 by space."""
DATA = 896
"""Four rows of 256 bytes."""
DATA_ROW = 256
SYMBOLS = 1920
"""Pointer to the module's variable addresses, i64 each."""
DYNAMIC_SHARED = 1928
"""i64: window offset of dynamic shared memory."""
TOTAL_SHARED = 1936
CELLS = 2024
"""Pointer to the counters of a counted launch, i64 each."""
REGISTERS = 2048
"""Where the registers that outlive a block begin."""
