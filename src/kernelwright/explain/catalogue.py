"""The public list of causes: every id that a verdict may carry, with its meaning.

Why: ids are a promise to whoever reads verdicts by machine; they never change meaning, new ones may be added. The rule:
a rule in this package names ids of this table only, and docs/causes.md is generated from it.
"""

from __future__ import annotations

from collections.abc import Mapping

UNEXPLAINED = "unexplained"
"""The id of a failure whose pattern is described and whose cause is not known: a wrong cause is worse than none."""

FAMILIES: Mapping[str, str] = {
    "build": "the sources do not become a loadable module",
    "interface": "host and device disagree on what was passed",
    "launch": "a launch is refused or does nothing",
    "memory": "an address is wrong",
    "sync": "threads do not wait for one another",
    "device": "the emulated device does not have what the code needs",
    "logic": "the arithmetic of indices or values is not the problem's",
    "numeric": "the value is right in real arithmetic, not in floating point",
    "semantic": "it computes something else than the reference does",
    "performance": "right, but slow for a nameable reason",
    "cheat": "the measurement or the comparison is fooled",
}
"""What the families of causes have in common, in the order of the road."""

CAUSES: Mapping[str, str] = {
    "build.missing-declaration": "a bound name has no declaration where the binding code is generated",
    "build.undefined-symbol": (
        "declared (or used) but never defined: missing definition, other signature, or an instantiation that "
        "does not exist"
    ),
    "build.duplicate-definition": (
        "one definition rule broken: two definitions, two binding modules, two types for one extern __shared__"
    ),
    "build.missing-header": "a type or function is used without its header, or the header no longer exists",
    "build.wrong-language": "host compiler given device code, or device code calling a host function",
    "build.disabled-operators": "half/bfloat16 operators or conversions switched off by the extension's default flags",
    "build.wrong-flag": "a compiler flag is missing, or replaces one that the headers need",
    "build.wrong-architecture": (
        "the code needs a target that was not asked for, or the module holds none that this device runs"
    ),
    "build.removed-api": "an API that this version of PyTorch or CUDA no longer has",
    "build.bad-module-name": "the extension's name is no identifier",
    "build.toolchain": "nvcc, the host compiler, ninja or CUDA_HOME is missing or wrong; the source is not at fault",
    "build.syntax": "the source is not valid CUDA C++ or Python",
    "build.not-exported": "the Python side names something that the module does not bind",
    "interface.raw-pointer": (
        "an integer reaches a raw-pointer parameter through the binding layer, which passes the address of a "
        "host temporary"
    ),
    "interface.host-memory": "a CPU tensor's memory reaches a kernel",
    "interface.non-contiguous": "a kernel walks memory linearly, the tensor has other strides (input or output)",
    "interface.dangling-temporary": "a pointer outlives the temporary that owned its memory",
    "interface.dtype": "tensor and kernel disagree on the element type",
    "interface.wrong-stream": "launched on a stream that does not order with PyTorch's current one",
    "interface.argument-order": "arguments swapped, or of the wrong kind for the wrapper",
    "launch.grid-limit": "a grid dimension is zero or above its limit",
    "launch.block-limit": "more threads in a block than the device or the kernel allows",
    "launch.shared-memory": "more shared memory than allowed without the opt-in attribute",
    "launch.registers": "registers x threads exceed the multiprocessor's file",
    "launch.unchecked": "the refused launch was noticed by nobody, so stale memory was returned",
    "memory.out-of-bounds": "an access outside its allocation, or inside it but outside the tensor's row or view",
    "memory.misaligned": "a vector access that is not aligned to its size",
    "memory.index-overflow": "an index wrapped in 32-bit arithmetic",
    "memory.uninitialised": "a value is read that nobody wrote (global, shared or local)",
    "memory.unwritten-output": "part of the output is never written (tail dropped, grid too small, axes swapped)",
    "memory.local-overrun": "a per-thread array is indexed past its end",
    "memory.use-after-free": "memory used after its owner released it",
    "memory.stale-read": "memory that the same launch writes is read through the read-only cache",
    "sync.shared-race": "two threads touch one shared word, one writes, no barrier between",
    "sync.global-race": "the same for global memory, within or between blocks",
    "sync.divergent-barrier": "some threads of a block never reach a barrier that others wait at",
    "sync.deadlock": "threads wait for what cannot happen (a grid barrier with more blocks than fit, a lock in a warp)",
    "warp.block-broadcast": "a shuffle is used as if it reached the whole block",
    "warp.partial-result": "a lane uses a reduction's result that only lane 0 (or the named lanes) holds",
    "warp.mask": "a shuffle, vote or sync names lanes that are inactive, or leaves out lanes that take part",
    "device.refused": "an instruction or a call that is not emulated was met: nothing was decided, for or against",
    "logic.wrong-identity": "a reduction starts from a value that is not its identity",
    "logic.power-of-two": "a halving tree meets a size that is not a power of two",
    "logic.repeated-work": "elements are visited more than once (stride too small)",
    "logic.neighbour": "a stencil or halo test reads across a row, channel or image edge",
    "logic.integer-arithmetic": "integer division or truncation where a real number is meant",
    "logic.formula": "a term, constant, divisor or parenthesis differs from the reference's formula",
    "numeric.overflow": "an intermediate exceeds its type's range (no max subtraction, half squares)",
    "numeric.cancellation": "difference of nearly equal large numbers",
    "numeric.inf-minus-inf": "infinities subtracted or multiplied by zero",
    "numeric.low-precision-accumulator": "the running sum is kept in a narrower type",
    "numeric.reduced-operands": "operands rounded to tf32, bf16, fp16 or fp8 first",
    "numeric.fast-math": "fast-math or approximate intrinsics outside their accurate range",
    "numeric.other-function": "an approximation of another function (tanh for erf GELU)",
    "numeric.order": "the result depends on the order of atomics: it differs from run to run",
    "semantic.weights": "parameters differ: creation order, distribution, or not loadable by name",
    "semantic.mode": "training and evaluation behaviour confused",
    "semantic.mutates-input": "inputs or parameters are changed",
    "semantic.transposed": "a matrix is read along the other axis",
    "semantic.broadcast": "a vector is applied along the wrong axis",
    "semantic.shape": "shape, number or nesting of the outputs differs",
    "semantic.dtype": "the outputs' dtype, device or strides differ",
    "semantic.convention": "padding, bias correction, ties, keepdim or another PyTorch convention is not followed",
    "performance.uncoalesced": "a warp's accesses touch far more sectors than bytes need",
    "performance.bank-conflicts": "shared-memory accesses serialise on banks",
    "performance.spills": "registers spill to local memory",
    "performance.local-array": "a run-time index keeps an array in local memory",
    "performance.atomics": "atomics serialise on few addresses",
    "performance.low-parallelism": "too few blocks or warps to fill the device or hide latency",
    "performance.host-sync": "allocation, copy or synchronisation in the forward pass",
    "performance.redundant-work": "the same values are loaded or computed again and again",
    "cheat.cached-output": "a remembered result is returned",
    "cheat.hidden-stream": "work is left where the timer does not wait for it",
    "cheat.calls-reference": "the op under test is done by the library after all, openly or as a fallback",
    "cheat.patches-harness": "timers, comparison functions or global switches are changed",
    "cheat.reads-reference": "the answer is taken from memory or state that the reference left",
    "cheat.call-dependent": "behaviour depends on the number of calls, the shape or the phase",
    "cheat.constant-output": "the output does not depend on the input, and the tolerance lets it pass",
    "cheat.precision": "precision is lowered silently to gain speed",
}
