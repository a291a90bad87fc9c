"""A PTX module on the emulated device: parsed once, each kernel compiled at its first launch.

Why: the CUDA shim hands over PTX text and kernel names, and wants an error number and findings back. The rule: blocks
of a launch run in parallel only where the code holds nothing by which one block could see another's progress.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kernelwright import records
from kernelwright.counters.records import KernelCounters

from . import counting, runtime
from . import findings as found
from .calls import RefusedCall
from .codegen import machine
from .codegen.kernel import Compiled, KernelCode
from .codegen.lane import RefusedInstruction
from .demangle import demangle
from .flatten import flatten, function_address
from .gridbarrier import GridBarrier, with_workspace
from .ptx.ir import Function, Instruction, Module, Position
from .ptx.operands import call_parts, effects
from .ptx.parse import parse

__all__ = ["EmulatedModule", "KernelAttributes", "LaunchOutcome", "RefusedCall", "RefusedInstruction"]

RESIDENT_LIMIT = 1056
"""Blocks that may run side by side when the first ones spin: 132 multiprocessors with 8 blocks each (H200)."""

INVALID_DEVICE_FUNCTION = 98


@dataclass(frozen=True)
class LaunchOutcome:
    """What a launch did."""

    findings: tuple[records.Finding, ...]
    error: int
    """cudaError_t; 0 is success. All of 700, 702, 710, 716, 719 are sticky."""
    printed: str
    seconds: float
    """Execution only, without compiling."""
    thread_instructions: int
    exact: set[str]
    """Opcodes of the kernel whose results equal a GPU's bit for bit."""
    approximate: set[str]
    """Opcodes that may differ from a GPU in the last bits."""
    observations: tuple[records.Finding, ...] = ()
    """What hardware tolerates, yet may explain a wrong result: shuffles over lanes that do not run, exited threads."""
    interrupted: bool = False
    """Ended by a deadline or :func:`runtime.interrupt`; error is then 702."""
    stopped_at: tuple[tuple[records.SourceLine, ...], ...] = ()
    """Interrupted: the inline stack at which each unfinished warp last went round a loop, without repeats."""
    compile_seconds: float = 0.0
    counters: KernelCounters | None = None
    """What was counted, where it was asked for."""


@dataclass(frozen=True)
class KernelAttributes:
    """What cudaFuncGetAttributes needs and the PTX knows."""

    static_shared_bytes: int
    local_bytes: int
    const_bytes: int
    max_threads: int
    """From ``.maxntid``/``.reqntid``; 1024 where there is neither."""
    parameter_bytes: int
    ptx_version: int
    """Major * 10 + minor of the target architecture."""


@dataclass
class _Kernel:
    function: Function
    code: Compiled
    address: int
    parallel: bool
    sites: ctypes.Array[runtime.Site]
    symbols: ctypes.Array[ctypes.c_uint64]
    exact: frozenset[str] = frozenset()
    approximate: frozenset[str] = frozenset()
    positions: tuple[Position | None, ...] = field(default=())


class EmulatedModule:
    """One PTX text, loaded: variables live in device memory from now on. Raises ``PtxSyntaxError``."""

    def __init__(self, ptx_text: str, *, name: str = "") -> None:
        self.name = name
        self.module: Module = parse(with_workspace(ptx_text))
        self._kernels: dict[tuple[str, bool], _Kernel] = {}
        self._memory: dict[str, tuple[int, int]] = {}
        self._load_variables()
        self._grid_barrier = GridBarrier(self._memory)

    # ---- variables

    def _load_variables(self) -> None:
        library = runtime.library()
        for variable in self.module.variables.values():
            if variable.space not in ("global", "const"):
                continue
            kind = runtime.CONST if variable.space == "const" else runtime.GLOBAL
            address = library.kw_alloc(max(variable.size, 1), kind, demangle(variable.name).encode()[:119])
            if not address:
                raise MemoryError(f"no room for {variable.name}")
            content = variable.initial or b""
            ctypes.memset(address, 0, max(variable.size, 1))
            ctypes.memmove(address, content, min(len(content), variable.size))
            self._memory[variable.name] = (address, variable.size)
        for variable in self.module.variables.values():
            for offset, target in variable.relocations:
                if variable.name not in self._memory:
                    continue
                if target.name in self.module.functions:
                    address = function_address(self.module, target.name)
                else:
                    address = self._memory[target.name][0] + target.offset
                ctypes.memmove(self._memory[variable.name][0] + offset, ctypes.byref(ctypes.c_uint64(address)), 8)

    def symbol(self, name: str) -> tuple[int, int]:
        """Address and size in bytes of a ``__device__`` or ``__constant__`` variable. ``KeyError`` where unknown."""
        return self._memory[name]

    # ---- kernels

    @property
    def kernels(self) -> tuple[str, ...]:
        """Mangled names of the kernels."""
        return tuple(name for name, function in self.module.functions.items() if function.entry)

    def _function(self, kernel: str) -> Function:
        name = self.module.aliases.get(kernel, kernel)
        function = self.module.functions.get(name)
        if function is None or not function.entry:
            raise KeyError(kernel)
        return function

    def compiled(self, kernel: str, *, counted: bool = False) -> _Kernel:
        """The kernel's machine code, made now if need be: plain, or such that it counts what it does.

        Raises :class:`RefusedInstruction`, :class:`RefusedCall`.
        """
        known = self._kernels.get((kernel, counted))
        if known is not None:
            return known
        try:
            function = flatten(self.module, self._function(kernel))
            code = KernelCode(self.module, function, counted=counted).compile()
        except (RefusedInstruction, RefusedCall) as refusal:
            refusal.kernel = kernel
            raise
        address = machine.load(code.text, code.symbol)
        sites = (runtime.Site * max(len(code.sites), 1))()
        for number, site in enumerate(code.sites):
            bounds = (site.parameter, site.low, site.high, site.bytes)
            kinds = (site.space, site.access, site.strong, site.parts, site.variable, site.granule, site.read_only)
            sites[number] = runtime.Site(*bounds, *kinds)
        addresses = [self._memory[name][0] for name in code.symbols]
        symbols = (ctypes.c_uint64 * max(len(addresses), 1))(*addresses)
        opcodes = {instruction.opcode: instruction for instruction in function.instructions}
        opcodes.pop("kw_red.popc", None)
        approximate = frozenset(name for name, instruction in opcodes.items() if is_approximate(instruction))
        made = _Kernel(
            function,
            code,
            address,
            is_parallel(function),
            sites,
            symbols,
            frozenset(name for name in opcodes if "kw_" not in name) - approximate,
            approximate,
            tuple(function.instructions[start].position for start in code.block_instructions),
        )
        self._kernels[kernel, counted] = made
        return made

    def _any(self, kernel: str) -> _Kernel:
        """The kernel in whichever form there is."""
        return self._kernels.get((kernel, True)) or self.compiled(kernel)

    def parameters(self, kernel: str) -> list[tuple[int, int]]:
        """Offset and size in bytes of each parameter of a kernel. ``KeyError`` where unknown."""
        return [(param.offset, param.size) for param in self._function(kernel).params]

    def attributes(self, kernel: str) -> KernelAttributes:
        """Facts about a kernel. ``KeyError`` where unknown."""
        function = self._function(kernel)
        limit = function.required_threads or function.max_threads
        shared = 0
        try:
            shared = self._any(kernel).code.static_shared
        except (RefusedInstruction, RefusedCall):
            shared = sum(v.size for v in function.locals if v.space == "shared")
        digits = "".join(c for c in self.module.target.split(",")[0] if c.isdigit())
        return KernelAttributes(
            static_shared_bytes=shared,
            local_bytes=sum(v.size for v in function.locals if v.space == "local"),
            const_bytes=sum(v.size for v in self.module.variables.values() if v.space == "const"),
            max_threads=min(limit[0] * limit[1] * limit[2], 1024) if limit else 1024,
            parameter_bytes=_parameter_bytes(function),
            ptx_version=int(digits or 80),
        )

    def position_of_block(self, kernel: str, code_block: int) -> tuple[records.SourceLine, ...]:
        """The inline stack at the start of a code block that :func:`runtime.where` named."""
        positions = self._any(kernel).positions
        if not 0 <= code_block < len(positions):
            return ()
        return found.frames(positions[code_block], demangle(kernel))

    # ---- launching

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: bytes | Sequence[int] | ctypes.Array[ctypes.c_void_p] | int,
        dynamic_shared: int = 0,
        *,
        cooperative: bool = False,
        deadline_s: float = 0.0,
        workers: int = 0,
        counted: bool = False,
        global_races: bool = True,
        shared_races: bool = True,
    ) -> LaunchOutcome:
        """Run a kernel to its end.

        ``args``: the parameter block itself, or what cudaLaunchKernel takes: the addresses of the parameters' values (a
        ``void**`` as array, sequence or address). ``deadline_s``: wall-clock seconds after which the launch is
        stopped, 0 for none. ``workers``: the most threads to use, 0 for one a core. ``counted``: count what the kernel
        does, too. ``global_races``: look for races in global memory; ``shared_races``: in shared memory, and for reads
        of it that nobody wrote. Static limits are the caller's.
        """
        before = time.perf_counter()
        known = self.compiled(kernel, counted=counted)
        compile_seconds = time.perf_counter() - before
        self._grid_barrier.prepare(cooperative=cooperative)
        params = ctypes.create_string_buffer(_parameters(known.function, args) + bytes(8))
        code = known.code
        run = runtime.Run(
            code=known.address,
            kernel=kernel.encode(),
            params=ctypes.addressof(params),
            sites=ctypes.cast(known.sites, ctypes.POINTER(runtime.Site)),
            symbols=ctypes.cast(known.symbols, ctypes.POINTER(ctypes.c_uint64)),
            parameter_bytes=_parameter_bytes(known.function),
            dynamic_shared=dynamic_shared,
            deadline_s=deadline_s,
            grid=(ctypes.c_uint32 * 3)(*grid),
            block=(ctypes.c_uint32 * 3)(*block),
            n_sites=len(code.sites),
            static_shared=code.static_shared,
            local_bytes=code.local_bytes,
            register_bytes=code.register_bytes,
            parallel=int(known.parallel and not cooperative),
            resident_limit=RESIDENT_LIMIT,
            worker_limit=workers,
            granule=code.granule,
            global_races=int(global_races),
            cooperative=int(cooperative),
            shared_races=int(shared_races),
        )
        if code.cells is not None:
            run.cells = (ctypes.c_uint64 * (code.cells.number + 1))()
            run.n_cells, run.n_accesses = code.cells.number, len(code.cells.accesses)
        library = runtime.library()
        before = time.perf_counter()
        library.kw_run_launch(ctypes.byref(run))
        seconds = time.perf_counter() - before
        try:
            outcome = self._outcome(kernel, known, run, grid, block, seconds, compile_seconds)
            if code.cells is None:
                return outcome
            shape = {"grid": grid, "block": block}
            made = counting.counters(
                demangle(kernel), known.function, code, run, dynamic_shared=dynamic_shared, **shape
            )
            return replace(outcome, counters=made)
        finally:
            library.kw_run_release(ctypes.byref(run))

    def _outcome(
        self,
        kernel: str,
        known: _Kernel,
        run: runtime.Run,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        seconds: float,
        compile_seconds: float,
    ) -> LaunchOutcome:
        name = demangle(kernel)
        errors: list[records.Finding] = []
        observations: list[records.Finding] = []
        for number in range(run.n_findings):
            native = run.findings[number]
            site = known.code.sites[native.site]
            instruction: Instruction = known.function.instructions[site.instruction]
            other = known.code.sites[native.other_site] if native.other_site >= 0 else None
            record = found.finding(
                native,
                kernel=name,
                instruction=instruction,
                other=None if other is None else (other, known.function.instructions[other.instruction]),
                shared_arrays=known.code.shared_arrays,
                grid=grid,
                block=block,
            )
            (observations if native.cause in found.OBSERVATIONS else errors).append(record)
        stopped = dict.fromkeys(self.position_of_block(kernel, run.where[i]) for i in range(run.n_where))
        return LaunchOutcome(
            findings=tuple(errors),
            error=run.error,
            printed=ctypes.string_at(run.text, run.text_bytes).decode(errors="replace") if run.text_bytes else "",
            seconds=seconds,
            thread_instructions=run.count,
            exact=set(known.exact),
            approximate=set(known.approximate),
            observations=tuple(observations),
            interrupted=bool(run.interrupted),
            stopped_at=tuple(stopped),
            compile_seconds=compile_seconds,
        )


def _parameter_bytes(function: Function) -> int:
    return max((param.offset + param.size for param in function.params), default=0)


def _parameters(function: Function, args: bytes | Sequence[int] | ctypes.Array[ctypes.c_void_p] | int) -> bytes:
    """The parameter block."""
    size = _parameter_bytes(function)
    if isinstance(args, (bytes, bytearray)):
        if len(args) < size:
            raise ValueError(f"{function.name} takes {size} bytes of parameters, {len(args)} are given")
        return bytes(args)
    if isinstance(args, int):
        args = (ctypes.c_void_p * len(function.params)).from_address(args)
    made = bytearray(size)
    for param, address in zip(function.params, args, strict=False):
        made[param.offset : param.offset + param.size] = ctypes.string_at(address, param.size)
    return bytes(made)


_APPROXIMATE = frozenset({"ex2", "lg2", "sin", "cos", "tanh", "rsqrt"})


def is_approximate(instruction: Instruction) -> bool:
    """Whether an instruction's result may differ from a GPU's in the last bits."""
    if instruction.op == "mma" or (instruction.op == "wmma" and instruction.mods[0] == "mma"):
        return instruction.mods[-1] != "s32"
    return instruction.op in _APPROXIMATE or "approx" in instruction.mods or "full" in instruction.mods


_INTEGERS = frozenset({"u32", "s32", "b32", "u64", "s64", "b64"})
_COMMUNICATES = frozenset({"volatile", "acquire", "release", "acq_rel", "relaxed", "mmio"})


_ORDERLESS = frozenset({"add", "min", "max", "and", "or", "xor"})
"""Atomic operations on integers that leave the same memory in whatever order they are done."""


def is_parallel(function: Function) -> bool:
    """Whether blocks may run at the same time without the result depending on their order."""
    read = {register.name for instruction in function.instructions for register in effects(instruction).uses}
    for instruction in function.instructions:
        op, mods = instruction.op, instruction.mods
        if any(mod.startswith("shared") for mod in mods) or "local" in mods:
            continue
        if op in ("membar", "fence") and mods[:1] != ("cta",) and "proxy" not in mods:
            return False
        if op in ("ld", "st") and _COMMUNICATES & set(mods):
            return False
        if op in ("atom", "red"):
            # nvcc writes atom where nobody reads what it returns, too.
            used = any(register.name in read for register in effects(instruction).defs)
            if used or mods[-1] not in _INTEGERS or not _ORDERLESS & set(mods):
                return False
        if op == "call" and getattr(call_parts(instruction).target, "name", "") in ("malloc", "free"):
            return False
    return True
