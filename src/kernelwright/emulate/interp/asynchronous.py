"""cp.async, which copies at once here, and mbarrier: barriers in shared memory that count arrivals and bytes.

The rule: an mbarrier's word is opaque to programs; from bit 0 on it holds the expected and the pending arrivals (20
bits each), the pending bytes (21, signed), and in bit 63 the phase. Lanes take their turn in lane order.
Source: PTX ISA 9.0, sections 9.7.9.25 and 9.7.13.15,
https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-mbarrier
"""

from __future__ import annotations

import numpy as np

from kernelwright.emulate.ptx.ir import Imm, Instruction, Sym

from .errors import UnknownInstruction
from .lanes import Handler, Lanes
from .transfer import check, space_of

_COUNT = 0xFFFFF
_WORD = 8


def copy(lanes: Lanes, instruction: Instruction) -> None:
    """cp.async of 4, 8 or 16 bytes, the bytes beyond the given size zero; groups are done when they are committed."""
    mods, operands = instruction.mods, instruction.operands
    if mods[:2] in (("async", "commit_group"), ("async", "wait_group"), ("async", "wait_all")):
        return
    if mods[:2] == ("async", "mbarrier"):
        _arrive_after_copies(lanes, instruction)
        return
    if mods[0] != "async" or mods[1] not in ("ca", "cg") or not isinstance(operands[2], Imm):
        raise UnknownInstruction(instruction)
    size = operands[2].bits
    partial = len(operands) > 3 and "L2::cache_hint" not in mods
    given = lanes.read(3, "u32") if partial else np.full(lanes.count, size, np.uint32)
    targets = lanes.addresses(lanes.operand(0), "shared")
    sources = lanes.addresses(lanes.operand(1), "global")
    check(lanes, targets, size)
    check(lanes, sources[given == size], size)
    memory = lanes.machine.memory
    for target, source, count in zip(targets.tolist(), sources.tolist(), given.tolist(), strict=True):
        taken = min(count, size)
        memory.write(target, (memory.read(source, taken) if taken else b"") + bytes(size - taken))


class _Word:
    """An mbarrier's word, taken apart."""

    def __init__(self, bits: int) -> None:
        self.expected, self.pending = bits & _COUNT, bits >> 20 & _COUNT
        self.bytes = (bits >> 40 & 0x1FFFFF ^ 0x100000) - 0x100000
        self.phase = bits >> 63

    def bits(self) -> int:
        """The word with what has changed; a phase in which nothing is pending is over."""
        if not self.pending and not self.bytes:
            self.phase ^= 1
            self.pending = self.expected
        return self.phase << 63 | (self.bytes & 0x1FFFFF) << 40 | self.pending << 20 | self.expected


def barrier(lanes: Lanes, instruction: Instruction) -> None:
    """mbarrier in all its forms, clusters aside."""
    kind = instruction.mods[0]
    if kind == "pending_count":
        lanes.write(0, (lanes.read(1, "b64") >> np.uint64(20) & np.uint64(_COUNT)).astype(np.uint32), "b32")
        return
    if kind not in _FORMS:
        raise UnknownInstruction(instruction)
    answers = kind in ("arrive", "arrive_drop") or "wait" in kind
    first = 1 if answers else 0
    addresses = _addresses(lanes, instruction, first)
    type_ = "b64" if "wait" in kind and "parity" not in instruction.mods else "u32"
    has = len(instruction.operands) > first + 1
    given = lanes.read(first + 1, type_).tolist() if has else [1] * lanes.count
    results = [_one(lanes, instruction, a, number) for a, number in zip(addresses.tolist(), given, strict=True)]
    if "wait" in kind:
        lanes.write(0, np.array(results, bool), "pred")
    elif answers:
        lanes.write(0, np.array(results, np.uint64), "b64")


_FORMS = frozenset({"init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "expect_tx", "complete_tx"})


def _addresses(lanes: Lanes, instruction: Instruction, position: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    addresses = lanes.addresses(lanes.operand(position), space_of(instruction))
    check(lanes, addresses, _WORD)
    return addresses


def _one(lanes: Lanes, instruction: Instruction, address: int, given: int) -> int:
    """What one lane does and is answered."""
    memory, kind = lanes.machine.memory, instruction.mods[0]
    before = int.from_bytes(memory.read(address, _WORD), "little")
    word = _Word(before)
    if "wait" in kind:
        waited = given & 1 if "parity" in instruction.mods else given >> 63
        return int(waited != word.phase)
    if kind == "inval":
        return 0
    if kind == "init":
        made = given | given << 20
    else:
        expects = kind == "expect_tx" or "expect_tx" in instruction.mods
        word.bytes += given if expects else -given if kind == "complete_tx" else 0
        arrivals = 0 if kind in ("expect_tx", "complete_tx") else 1 if expects else given
        word.pending -= arrivals
        word.expected -= arrivals if kind == "arrive_drop" else 0
        made = word.bits()
    memory.write(address, made.to_bytes(_WORD, "little"))
    return before


def _arrive_after_copies(lanes: Lanes, instruction: Instruction) -> None:
    """cp.async.mbarrier.arrive: without ``.noinc`` the arrival is expected by itself, so that no count changes."""
    addresses = _addresses(lanes, instruction, 0)
    if "noinc" not in instruction.mods:
        return
    arrive = Instruction("mbarrier", ("arrive",), (Sym(""),), None, instruction.ptx_line, instruction.position)
    for address in addresses.tolist():
        _one(lanes, arrive, address, 1)


HANDLERS: dict[str, Handler] = {"cp": copy, "mbarrier": barrier}
