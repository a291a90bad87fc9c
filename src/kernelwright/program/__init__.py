"""Whole CUDA programs: compiled as they are, run on the emulated device in a process of their own, and explained.

Why: most CUDA code in the world is a file with a ``main``, and its author has no checker that needs no GPU. The rule:
the program's output and exit status are its own; what the device saw comes beside them, never in between.
"""

from kernelwright.program.report import ProgramReport
from kernelwright.program.run import RunOptions, exit_status, run

__all__ = ["ProgramReport", "RunOptions", "exit_status", "run"]
