"""What stops the interpreter: one class for each reason, with the PTX line on it."""

from __future__ import annotations

from kernelwright.emulate.ptx.ir import Instruction


class InterpreterError(Exception):
    """A kernel that cannot go on: a deadlock, a launch that does not fit the kernel, a malformed instruction."""


class AtInstruction(InterpreterError):
    """An error that one instruction raised."""

    def __init__(self, instruction: Instruction, what: str) -> None:
        super().__init__(f"PTX line {instruction.ptx_line}: {instruction.opcode}: {what}")
        self.instruction = instruction
        self.ptx_line = instruction.ptx_line


class UnknownInstruction(AtInstruction):
    """An opcode or a modifier that the interpreter does not know; it never guesses."""

    def __init__(self, instruction: Instruction, what: str = "not known to the interpreter") -> None:
        super().__init__(instruction, what)


class MemoryFault(AtInstruction):
    """An address outside every known allocation, or misaligned."""

    def __init__(self, instruction: Instruction, what: str, address: int, thread: int) -> None:
        super().__init__(instruction, f"{what} at address {address:#x} by thread {thread}")
        self.address = address
        self.thread = thread


class KernelTrap(AtInstruction):
    """``trap`` was executed."""


class KernelAssertion(AtInstruction):
    """``__assertfail`` was called."""
