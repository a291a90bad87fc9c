"""A numpy interpreter of the PTX IR: slow, plain, and the yardstick for the compiled emulator."""

from .errors import InterpreterError, KernelAssertion, KernelTrap, MemoryFault, UnknownInstruction
from .interpreter import Interpreter

__all__ = ["Interpreter", "InterpreterError", "KernelAssertion", "KernelTrap", "MemoryFault", "UnknownInstruction"]
