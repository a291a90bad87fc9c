"""The emulated device of a candidate's process: installs it, runs its kernels, and keeps the record of what happened.

Why: the CUDA runtime shim and the torch bridge know nothing of PTX; they call back here, and here a fat binary becomes
an :class:`EmulatedModule` and a launch an outcome. The rule: no exception may cross a C frame, so whatever goes wrong
becomes a CUDA error for the candidate and is kept (``fault``) for the worker, which must look.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernelwright.counters.occupancy import occupied
from kernelwright.counters.records import KernelCounters
from kernelwright.counters.sums import together
from kernelwright.device.specs import DeviceSpec
from kernelwright.emulate import bridge, fatbin, native_abi, runtime, sites, suspicion
from kernelwright.emulate.demangle import demangle
from kernelwright.errors import InternalError
from kernelwright.records import DeviceFact, Finding, LaunchFact, SourceLine, Suspicion

if TYPE_CHECKING:
    import torch

    from kernelwright.emulate.module import EmulatedModule

LaunchKey = tuple[str, tuple[int, int, int], tuple[int, int, int], int, int, int]
"""Kernel, grid, block, dynamic shared bytes, error, return address: launches that agree are one fact."""
CountedKey = tuple[str, tuple[int, int, int], tuple[int, int, int], int]
"""Mangled kernel, grid, block, dynamic shared bytes: launches that agree are counted together."""


@dataclass
class _Module:
    """A module an extension registered; compiled at its first use."""

    key: bytes
    ptx: str
    compiled: EmulatedModule | None = None
    problem: Exception | None = None
    """Why it could not be made; raised again at every use."""


@dataclass(frozen=True)
class Refusal:
    """An API call that the device refused, which was no launch."""

    error: int
    cause: str
    sentence: str


@dataclass
class EmulatedDevice:
    """The record of one process's device. Made by :func:`install`."""

    spec: DeviceSpec
    on_launch: Callable[[LaunchFact], None] | None = None
    """Called before each kernel runs, with a fact that has no outcome yet."""
    on_end: Callable[[LaunchFact], None] | None = None
    """Called after each kernel and each refused launch, when the record holds its outcome."""
    on_refusal: Callable[[Refusal], None] | None = None
    """Called inside the refused API call, whose stack still stands."""
    findings: list[Finding] = field(default_factory=list)
    observations: list[Finding] = field(default_factory=list)
    """What a GPU tolerates, yet may explain a wrong result."""
    refusals: list[Refusal] = field(default_factory=list)
    printed: str = ""
    """What kernels printed, in order."""
    exact: set[str] = field(default_factory=set)
    approximate: set[str] = field(default_factory=set)
    fault: Exception | None = None
    """The first thing that Kernelwright itself could not do (an unknown instruction, a bug)."""
    stopped_at: tuple[tuple[SourceLine, ...], ...] = ()
    """Where the warps of an interrupted kernel stood, an inline stack each."""
    provided: dict[str, str] = field(default_factory=dict)
    registers: dict[str, int] = field(default_factory=dict)
    """Registers of each kernel by mangled name, as ptxas counted them; the build knows, PTX does not."""
    counted: bool = False
    """Count what kernels do."""
    races: bool = True
    """Look for races, and for reads of shared memory that nobody wrote."""
    _modules: dict[bytes, _Module] = field(default_factory=dict)
    _launches: dict[LaunchKey, LaunchFact] = field(default_factory=dict)
    _counters: dict[CountedKey, KernelCounters] = field(default_factory=dict)
    _known: set[tuple[bool, str, str, int, tuple[SourceLine, ...]]] = field(default_factory=set)
    _ran: dict[tuple[bytes, str, tuple[int, int, int]], None] = field(default_factory=dict)
    """Module, kernel and block of every launch that ran, in order."""
    _callbacks: Any = None

    # ---- what others use -----------------------------------------------------------------------------------------

    @property
    def launches(self) -> list[LaunchFact]:
        """Every launch in order of its first occurrence, with the host line that made it."""
        return [replace(fact, site=sites.source_line(key[5])) for key, fact in self._launches.items()]

    @property
    def counters(self) -> list[KernelCounters]:
        """What each kernel did in all its launches of one shape, in order of the first; needs ``counted``."""
        return [occupied(one, self.spec, self.registers.get(key[0])) for key, one in self._counters.items()]

    @property
    def ptx(self) -> list[str]:
        """The PTX of every module that was used."""
        return [module.ptx for module in self._modules.values() if module.compiled is not None]

    def suspicions(self) -> list[Suspicion]:
        """Patterns in the code of the kernels that ran; asked for only beside a wrong result."""
        found: list[Suspicion] = []
        for key, kernel, block in self._ran:
            found.extend(suspicion.suspicions(self.module(key), kernel, block))
        return found

    def provide_ptx(self, key: str, ptx: str) -> None:
        """``ptx`` is what the module whose fat binary is the text ``kw-ptx:<key>`` runs."""
        self.provided[key] = ptx

    def provide_registers(self, registers: Mapping[str, int]) -> None:
        """What ``ptxas -v`` said of each kernel, by mangled name: launches that want too many are refused."""
        self.registers.update(registers)

    def wrap(self, tensor: torch.Tensor, *, name: str) -> torch.Tensor:
        """A ``cuda:0`` tensor over a CPU tensor's memory, without a copy; reports call it ``name``."""
        return bridge.device_twin(tensor, name)

    def synchronize(self) -> None:
        """Raises torch's error for a fault of an earlier kernel, as ``torch.cuda.synchronize`` does."""
        bridge.check(bridge.sticky_error())

    def fact(self) -> DeviceFact:
        """What the candidate runs on, and how faithfully so far."""
        major, minor = self.spec.compute_capability
        # Sums of mma are Hopper's to the bit (H200, driver 13.0, 2026-11-29); other architectures sum otherwise.
        sums = {name for name in self.approximate if name.startswith("mma.") and (major, minor) == (9, 0)}
        exact = self.exact | sums
        words = (("exact", exact), ("approximate", self.approximate - exact))
        fidelity = tuple(f"{word}: {', '.join(sorted(names))}" for word, names in words if names)
        return DeviceFact("emulated", self.spec.name, f"{major}.{minor}", self.spec.key, fidelity)

    # ---- what the shim calls ---------------------------------------------------------------------------------------

    def register(self, container: bytes) -> bytes:
        """A module's key; its PTX is looked for at once, compiled later."""
        digest = hashlib.sha256(container).hexdigest().encode()
        capability = self.spec.compute_capability
        if digest not in self._modules:
            named = fatbin.key(container)
            module = _Module(digest, "")
            try:
                if named is not None and named not in self.provided:
                    raise InternalError(f"no PTX was provided for the module {named}")
                module.ptx = self.provided[named] if named is not None else fatbin.ptx(container, capability=capability)
            except Exception as error:
                module.problem = error
            self._modules[digest] = module
        return digest

    def module(self, key: bytes) -> EmulatedModule:
        """The compiled module. Raises what kept it from being made."""
        from kernelwright.emulate.module import EmulatedModule

        module = self._modules[key]
        if module.problem is None and module.compiled is None:
            try:
                module.compiled = EmulatedModule(module.ptx, name=key.decode()[:12])
            except Exception as error:
                module.problem = error
        if module.compiled is None:
            raise module.problem or KeyError(key)
        return module.compiled

    def launch(self, asked: native_abi.Launch) -> int:
        """Runs a kernel; the ``cudaError_t`` that the launch returns."""
        before = self._fact(asked)
        if self.on_launch is not None:
            self.on_launch(before)
        module = self.module(asked.module_key)
        outcome = module.launch(
            asked.kernel.decode(),
            before.grid,
            before.block,
            ctypes.cast(asked.args, ctypes.c_void_p).value or 0,
            before.dynamic_shared_bytes,
            cooperative=bool(asked.cooperative),
            counted=self.counted,
            global_races=self.races,
            shared_races=self.races,
        )
        if outcome.counters is not None:
            self._count(asked.kernel.decode(), outcome.counters)
        self._ran.setdefault((asked.module_key, asked.kernel.decode(), before.block))
        self.findings += self._fresh(outcome.findings)
        self.observations += self._fresh(outcome.observations, observed=True)
        if outcome.interrupted:
            self.stopped_at = outcome.stopped_at
        self.printed += outcome.printed
        self.exact |= outcome.exact
        self.approximate |= outcome.approximate
        after = replace(
            before,
            error=outcome.error,
            error_name=native_abi.error_name(outcome.error),
            seconds=outcome.seconds,
            thread_instructions=outcome.thread_instructions,
        )
        self._keep(asked, after)
        if outcome.error:
            runtime.library().kw_set_sticky_error(outcome.error)
        if self.on_end is not None:
            self.on_end(after)
        return int(outcome.error)

    def attributes(self, key: bytes, kernel: str) -> native_abi.Attributes:
        """What the runtime API says of a kernel. Raises ``KeyError`` for a kernel that the module has not."""
        known = self.module(key).attributes(kernel)
        target = self.spec.compute_capability[0] * 10 + self.spec.compute_capability[1]
        return native_abi.Attributes(
            registers=self.registers.get(kernel, 0),
            static_shared_bytes=known.static_shared_bytes,
            local_bytes=known.local_bytes,
            constant_bytes=known.const_bytes,
            max_threads_per_block=known.max_threads,
            ptx_version=known.ptx_version,
            binary_version=target,
            max_dynamic_shared_bytes=max(0, self.spec.shared_per_block - known.static_shared_bytes),
        )

    def note_fault(self, error: Exception) -> None:
        """Keeps what went wrong with Kernelwright itself; what it does not know is a finding, too."""
        if self.fault is not None:
            return
        self.fault = error
        from kernelwright.emulate import refusals

        finding = refusals.refusal(error)
        if finding is not None:
            self.findings.append(finding)

    def refused(self, asked: native_abi.Launch | None, error: int, cause: str, sentence: str) -> None:
        """The shim refused a launch or another call: for the record."""
        if asked is None:
            self.refusals.append(Refusal(error, cause, sentence))
            if self.on_refusal is not None:
                self.on_refusal(self.refusals[-1])
            return
        name = native_abi.error_name(error)
        fact = replace(self._fact(asked), error=error, error_name=name, limit=cause, message=sentence)
        self._keep(asked, fact)
        if self.on_end is not None:
            self.on_end(fact)

    def _fresh(self, found: tuple[Finding, ...], *, observed: bool = False) -> list[Finding]:
        """Those that no launch before had: a kernel that races does not stop, and does so in every launch.

        What was only observed before may be found for certain now.
        """
        keys = {(observed, f.cause, f.kernel, f.ptx_line, f.other): f for f in found}
        fresh = [f for key, f in keys.items() if key not in self._known]
        self._known.update(keys)
        return fresh

    def _count(self, kernel: str, made: KernelCounters) -> None:
        key: CountedKey = (kernel, made.grid, made.block, made.dynamic_shared_bytes)
        self._counters[key] = together(self._counters[key], made) if key in self._counters else made

    def _fact(self, asked: native_abi.Launch) -> LaunchFact:
        static_shared, registers = 0, None
        if asked.kernel and asked.module_key in self._modules and self._modules[asked.module_key].compiled:
            known = self.attributes(asked.module_key, asked.kernel.decode())
            static_shared, registers = known.static_shared_bytes, known.registers or None
        return LaunchFact(
            kernel=demangle(asked.kernel.decode()),
            grid=asked.grid.triple(),
            block=asked.block.triple(),
            dynamic_shared_bytes=int(asked.dynamic_shared),
            static_shared_bytes=static_shared,
            registers=registers,
        )

    def _keep(self, asked: native_abi.Launch, fact: LaunchFact) -> None:
        key: LaunchKey = (fact.kernel, fact.grid, fact.block, fact.dynamic_shared_bytes, fact.error, int(asked.host_pc))
        same = self._launches.get(key)
        if same is None:
            self._launches[key] = fact
            return
        done = (same.thread_instructions or 0) + (fact.thread_instructions or 0)
        self._launches[key] = replace(
            same,
            count=same.count + 1,
            seconds=same.seconds + fact.seconds,
            thread_instructions=None if same.thread_instructions is None else done,
        )


def install(spec: DeviceSpec, *, memory_limit_bytes: int | None = None, with_torch: bool = True) -> EmulatedDevice:
    """Makes ``cuda:0`` the emulated device that presents ``spec``, in this process and for good.

    ``memory_limit_bytes`` bounds what the device hands out below the data sheet's memory. ``with_torch``: torch's
    ``cuda:0``, too; without it torch is not imported, and only what is linked with the shim finds the device. Takes
    0.3 s, and 20 s more where the native parts must be compiled.
    """
    library = runtime.library()
    if with_torch:
        bridge.load()
    device = EmulatedDevice(spec)
    native_abi.present(library, spec)
    library.kw_set_memory_limit(ctypes.c_size_t(min(spec.memory_bytes, memory_limit_bytes or spec.memory_bytes)))
    device._callbacks = native_abi.connect(library, device)
    if with_torch:
        from kernelwright.emulate import presence

        presence.install(spec)
    return device
