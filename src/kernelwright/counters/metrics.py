"""The metrics: Nsight Compute's names, what each counts, and the ratios that follow from sums.

Why: a user of one tool must find the other's figures without a dictionary. The rule: a metric carries the name that
``ncu --query-metrics`` lists (2025.3, sm_90) where it counts the same event; what ncu has no name for begins with
``kernelwright__``. Ratios are computed here alone, from sums, and so add up the same for lines, launches and kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Instructions
INST = "smsp__inst_executed.sum"
THREAD_INST = "smsp__thread_inst_executed.sum"
THREAD_INST_ON = "smsp__thread_inst_executed_pred_on.sum"
THREADS_PER_INST = "smsp__thread_inst_executed_per_inst_executed.ratio"
BRANCHES_DIVERGENT = "smsp__sass_branch_targets_threads_divergent.sum"
BRANCHES_UNIFORM = "smsp__sass_branch_targets_threads_uniform.sum"
BRANCH_UNIFORMITY = "smsp__sass_average_branch_targets_threads_uniform.pct"

GLOBAL_OPS = ("ld", "st", "atom", "red", "ldgsts")
SHARED_OPS = ("ld", "ldsm", "st", "atom", "ldgsts")
LOCAL_OPS = ("ld", "st")
_SASS = "smsp__sass_l1tex"
"""Of ncu's metrics that it counts by instrumenting the code rather than in hardware: for some events the only ones."""


def requests(space: str, op: str) -> str:
    """Warp-level requests; ``space`` is ``global`` or ``local``."""
    return f"{_SASS if op == 'ldgsts' else 'l1tex_'}_t_requests_pipe_lsu_mem_{space}_op_{op}.sum"


def sectors(space: str, op: str) -> str:
    """32-byte sectors that the requests touch."""
    return f"{_SASS if op == 'ldgsts' else 'l1tex_'}_t_sectors_pipe_lsu_mem_{space}_op_{op}.sum"


def sectors_per_request(space: str, op: str) -> str:
    """Their ratio."""
    start = _SASS if op == "ldgsts" else "l1tex_"
    return f"{start}_average_t_sectors_per_request_pipe_lsu_mem_{space}_op_{op}.ratio"


def ideal_sectors(op: str) -> str:
    """Sectors that the bytes of each global request would fill; those it touches where they are fewer."""
    return f"kernelwright__ideal_t_sectors_mem_global_op_{op}.sum"


def shared_requests(op: str) -> str:
    """Warp-level requests of shared memory."""
    shared = "" if op in ("ldsm", "ldgsts") else "shared_"
    return f"smsp__sass_inst_executed_op_{shared}{op}.sum"


def wavefronts(op: str) -> str:
    """Passes through the banks of shared memory."""
    start = _SASS if op in ("ldsm", "ldgsts") else "l1tex_"
    return f"{start}_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"


def conflicts(op: str) -> str:
    """Wavefronts beyond those that a request without conflicts takes."""
    start = _SASS if op in ("ldsm", "ldgsts") else "l1tex_"
    return f"{start}_data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"


def ideal_wavefronts(op: str) -> str:
    """Wavefronts that the same bytes would take without conflicts."""
    return f"kernelwright__ideal_wavefronts_mem_shared_op_{op}.sum"


SECTORS_GLOBAL = "memory_l2_theoretical_sectors_global"
SECTORS_GLOBAL_IDEAL = "memory_l2_theoretical_sectors_global_ideal"
WAVEFRONTS_SHARED = "memory_l1_wavefronts_shared"
WAVEFRONTS_SHARED_IDEAL = "memory_l1_wavefronts_shared_ideal"
COMPULSORY_READ = "kernelwright__compulsory_bytes_read.sum"
COMPULSORY_WRITE = "kernelwright__compulsory_bytes_write.sum"
ATOMICS = "kernelwright__thread_atomics.sum"
ATOMIC_HOTTEST = "kernelwright__atomics_on_hottest_address.max"
ATOMIC_ADDRESSES = "kernelwright__atomic_addresses.max"

FLOP_OPS = ("fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "hadd", "hmul", "hfma")


def flops(op: str) -> str:
    """Threads that ran an ``op`` with their predicate on."""
    return f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum"


FLOP_KINDS = ("fp32", "fp64", "fp16", "tensor")


def flop(kind: str) -> str:
    """Floating-point operations of one kind: an FMA is two, both halves of a pair count."""
    return f"kernelwright__flop_{kind}.sum"


MMA = "kernelwright__inst_executed_mma.sum"

# Of the launch, not of a line
REGISTERS = "launch__registers_per_thread"
SHARED_STATIC = "launch__shared_mem_per_block_static"
SHARED_DYNAMIC = "launch__shared_mem_per_block_dynamic"
LIMIT_BLOCKS = "launch__occupancy_limit_blocks"
LIMIT_REGISTERS = "launch__occupancy_limit_registers"
LIMIT_SHARED = "launch__occupancy_limit_shared_mem"
LIMIT_WARPS = "launch__occupancy_limit_warps"
OCCUPANCY = "sm__maximum_warps_per_active_cycle_pct"
WAVES = "launch__waves_per_multiprocessor"

OF_A_LAUNCH = (
    REGISTERS, SHARED_STATIC, SHARED_DYNAMIC, LIMIT_BLOCKS, LIMIT_REGISTERS, LIMIT_SHARED, LIMIT_WARPS, OCCUPANCY,
    WAVES,
)  # fmt: skip
"""Equal in every launch of a kernel with one shape: kept, not added."""


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str
    unit: str
    meaning: str
    emulated: str
    """How the emulated device's figure stands to the hardware's."""


_PTX = "PTX instructions, not SASS"
_BRANCHES = "PTX branches; ptxas predicates short ones away"
_SAME = "the same where PTX and SASS access memory alike"


def _memory(space: str, ops: Iterable[str], exact: str) -> Iterable[Metric]:
    words = {"ld": "loads", "st": "stores", "atom": "atomics that return", "red": "atomics that return nothing",
             "ldgsts": "cp.async"}  # fmt: skip
    for op in ops:
        yield Metric(requests(space, op), "request", f"warp requests: {space} {words[op]}", exact)
        yield Metric(sectors(space, op), "sector", "32-byte sectors that they touch", exact)
        yield Metric(sectors_per_request(space, op), "sector", "their ratio; 4 is ideal for 32 x 4 bytes", exact)
        if space == "global":
            yield Metric(ideal_sectors(op), "sector", "sectors that their bytes would fill, if fewer", "ours")


def _shared(ops: Iterable[str]) -> Iterable[Metric]:
    words = {"ld": "loads", "ldsm": "ldmatrix", "st": "stores", "atom": "atomics", "ldgsts": "cp.async"}
    for op in ops:
        yield Metric(shared_requests(op), "request", f"warp requests: shared {words[op]}", _SAME)
        yield Metric(wavefronts(op), "wavefront", "passes through the banks that they take", _SAME)
        yield Metric(
            conflicts(op), "wavefront", "those beyond the ideal", "without ncu's arbitration stalls, which vary"
        )
        yield Metric(ideal_wavefronts(op), "wavefront", "passes that they would take without conflicts", "ours")


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(INST, "inst", "instructions that warps executed", _PTX),
        Metric(THREAD_INST, "inst", "the same, times the threads that took part", _PTX),
        Metric(THREAD_INST_ON, "inst", "the same, threads whose predicate was true", _PTX),
        Metric(THREADS_PER_INST, "thread", "threads that took part in an instruction, of 32", _PTX),
        Metric(BRANCHES_DIVERGENT, "branch", "branches at which threads of the warp parted", _BRANCHES),
        Metric(BRANCHES_UNIFORM, "branch", "branches at which none parted", _BRANCHES),
        Metric(BRANCH_UNIFORMITY, "%", "their share", _BRANCHES),
        *_memory("global", GLOBAL_OPS, _SAME),
        Metric(SECTORS_GLOBAL, "sector", "sectors of all global accesses", _SAME),
        Metric(SECTORS_GLOBAL_IDEAL, "sector", "sectors that their bytes would fill, if fewer", _SAME),
        *_memory("local", LOCAL_OPS, "arrays that PTX keeps in local memory; ptxas's spills are not among them"),
        *_shared(SHARED_OPS),
        Metric(WAVEFRONTS_SHARED, "wavefront", "wavefronts of all shared accesses", _SAME),
        Metric(WAVEFRONTS_SHARED_IDEAL, "wavefront", "wavefronts that their bytes would fill, if fewer", _SAME),
        Metric(COMPULSORY_READ, "byte", "distinct sectors read, times 32: the least an L2 must fetch", "exact"),
        Metric(COMPULSORY_WRITE, "byte", "distinct sectors written, times 32", "exact"),
        Metric(ATOMICS, "thread", "global atomics, one a thread", "ptxas may combine those of a warp"),
        Metric(ATOMIC_HOTTEST, "thread", "the most of them on one address in one launch", "the same reserve"),
        Metric(ATOMIC_ADDRESSES, "address", "addresses that they went to", "exact"),
        *(Metric(flops(op), "inst", f"threads that ran {op.upper()}, a pair of halves once", _PTX) for op in FLOP_OPS),
        *(Metric(flop(kind), "flop", f"{kind} operations of those; an FMA is two", _PTX) for kind in FLOP_KINDS[:3]),
        Metric(MMA, "inst", "matrix instructions that warps executed", "mma.sync and wmma of PTX"),
        Metric(flop("tensor"), "flop", "2 m n k of each of them", "exact"),
        Metric(REGISTERS, "register", "registers of a thread", "ptxas for the presented device"),
        Metric(SHARED_STATIC, "byte", "shared memory that a block declares", "ptxas"),
        Metric(SHARED_DYNAMIC, "byte", "shared memory that the launch adds", "exact"),
        Metric(LIMIT_BLOCKS, "block", "blocks that a multiprocessor holds at most", "data sheet"),
        Metric(LIMIT_REGISTERS, "block", "those that its registers are enough for", "counters/occupancy.py"),
        Metric(LIMIT_SHARED, "block", "those that its shared memory is enough for", "counters/occupancy.py"),
        Metric(LIMIT_WARPS, "block", "those that its warps are enough for", "counters/occupancy.py"),
        Metric(OCCUPANCY, "%", "theoretical occupancy", "counters/occupancy.py"),
        Metric(WAVES, "wave", "how often the blocks fill the device", "counters/occupancy.py"),
    )
}
"""Every metric by name, in the order in which pages and tables have them."""


def derived(sums: Mapping[str, float]) -> dict[str, float]:
    """``sums`` with the ratios that follow from them, in the table's order; names that are not in it come last."""
    made = dict(sums)

    def ratio(name: str, part: str, whole: str) -> None:
        if sums.get(whole) and part in sums:
            made[name] = sums[part] / sums[whole]

    ratio(THREADS_PER_INST, THREAD_INST, INST)
    branches = sums.get(BRANCHES_UNIFORM, 0) + sums.get(BRANCHES_DIVERGENT, 0)
    if branches:
        made[BRANCH_UNIFORMITY] = 100 * sums.get(BRANCHES_UNIFORM, 0) / branches
    for space, ops in (("global", GLOBAL_OPS), ("local", LOCAL_OPS)):
        for op in ops:
            ratio(sectors_per_request(space, op), sectors(space, op), requests(space, op))
    order = {name: place for place, name in enumerate(METRICS)}
    return dict(sorted(made.items(), key=lambda item: order.get(item[0], len(order))))


def added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Two launches' sums as one: what belongs to a launch is kept, a maximum stays one, ratios are made anew."""
    total = dict(one)
    for name, value in other.items():
        if name in OF_A_LAUNCH or name not in total:
            total.setdefault(name, value)
        elif name.endswith(".max"):
            total[name] = max(total[name], value)
        elif not name.endswith((".ratio", ".pct")):
            total[name] += value
    return derived(total)
