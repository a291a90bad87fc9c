"""What is asked of ncu: sections and metrics, and the words for what stalls a warp.

Why: each metric costs passes over the kernel, so only what a reason or a table shows is asked for. The rule: names are
ncu's own (2025.3, ``--query-metrics --chips gh100``); those that the emulated device counts, too, come from
``kernelwright.counters.metrics``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.counters import metrics as m

TIME = "gpu__time_duration.sum"
"""In ns."""
DRAM_READ = "dram__bytes_read.sum"
DRAM_WRITE = "dram__bytes_write.sum"
L2_HITS = "lts__t_sector_hit_rate.pct"
L1_HITS = "l1tex__t_sector_hit_rate.pct"
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
ISSUED = "smsp__issue_active.avg.pct_of_peak_sustained_active"
TENSOR_PIPE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
FMA_PIPE = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
FP64_PIPE = "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_active"
XU_PIPE = "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active"
LSU_PIPE = "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"
CLOCK = "sm__cycles_elapsed.avg.per_second"
ACTIVE_MEAN = "sm__cycles_active.avg"
ACTIVE_MOST = "sm__cycles_active.max"
SAMPLES = "smsp__pcsamp_sample_count"
LOCAL_SPILLS = "derived__local_spilling_requests"

TENSOR_OPS = {
    "fp64": "sm__ops_path_tensor_src_fp64.sum",
    "tf32": "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "bf16": "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "fp16": "sm__ops_path_tensor_src_fp16.sum",
    "fp8": "sm__ops_path_tensor_src_fp8.sum",
}
"""Operations of the tensor cores by the dtype of their operands."""

KINDS = {"fp32": "f", "fp64": "d", "fp16": "h"}
"""Kinds of scalar floating-point operations, and the first letter of their instructions."""

SECTIONS = ("LaunchStats", "Occupancy", "SourceCounters")
"""Launch and occupancy; samples and traffic by instruction."""

_SUMMED = (
    m.INST, m.THREAD_INST, m.THREAD_INST_ON, m.BRANCHES_DIVERGENT, m.BRANCHES_UNIFORM,
    *(name(space, op) for space, ops in (("global", ("ld", "st", "atom", "red")), ("local", m.LOCAL_OPS))
      for op in ops for name in (m.requests, m.sectors)),
    *(name(op) for op in ("ld", "st", "atom") for name in (m.wavefronts, m.conflicts)),
    *(m.flops(op) for op in m.FLOP_OPS),
)  # fmt: skip

BASE = (
    TIME, DRAM_READ, DRAM_WRITE, L2_HITS, L1_HITS, ACHIEVED, ISSUED, TENSOR_PIPE, FMA_PIPE, FP64_PIPE, XU_PIPE,
    LSU_PIPE, CLOCK, ACTIVE_MEAN, ACTIVE_MOST,
)  # fmt: skip
"""Every chip since Volta has these."""
ASKED = (*BASE, *_SUMMED, *TENSOR_OPS.values())
"""All; a chip that lacks one is asked for ``BASE`` alone."""


@dataclass(frozen=True)
class Stall:
    """One reason why a warp does not issue."""

    column: str
    """Of ncu's source page."""
    metric: str
    """``smsp__pcsamp_warps_issue_stalled_…``, in samples."""
    words: str


def _stall(column: str, name: str, words: str) -> Stall:
    return Stall(f"stall_{column}", f"smsp__pcsamp_warps_issue_stalled_{name}", words)


STALLS = (
    _stall("long_sb", "long_scoreboard", "wait for global or local memory"),
    _stall("short_sb", "short_scoreboard", "wait for shared memory or special functions"),
    _stall("lg", "lg_throttle", "find the queue of global and local accesses full"),
    _stall("mio", "mio_throttle", "find the queue of shared accesses and special functions full"),
    _stall("math", "math_pipe_throttle", "wait for a busy arithmetic pipe"),
    _stall("wait", "wait", "wait the fixed latency of an earlier instruction"),
    _stall("barrier", "barrier", "wait at a barrier"),
    _stall("membar", "membar", "wait at a memory fence"),
    _stall("branch_resolving", "branch_resolving", "wait for a branch"),
    _stall("drain", "drain", "wait at the exit for stores to drain"),
    _stall("no_inst", "no_instructions", "wait for instructions to be fetched"),
    _stall("imc", "imc_miss", "wait for constants"),
    _stall("tex", "tex_throttle", "find the texture queue full"),
    _stall("dispatch", "dispatch_stall", "wait for dispatch"),
    _stall("sleep", "sleeping", "sleep"),
    _stall("misc", "misc", "wait for other reasons"),
    _stall("gmma", "gmma", "wait for a warpgroup's matrix product"),
    _stall("warpgroup_arrive", "warpgroup_arrive", "wait for their warpgroup"),
    _stall("not_selected", "not_selected", "are ready, but another warp issues"),
    _stall("selected", "selected", "issue"),
)
NOT_STALLED = frozenset({"stall_selected", "stall_not_selected"})
"""Columns of warps that could issue."""
BY_COLUMN = {stall.column: stall for stall in STALLS}
