"""The command line: parses input, calls the core, renders what comes back.

Why: a face must stay thin, so that the same check runs from a terminal, a test and a service. The rule: stdout is data,
stderr is talk; exit status 0 yes, 1 no, 2 usage, 3 our failure or the machine's. Nothing heavy is imported before the
command that needs it, so ``kernelwright --help`` answers at once.
"""

from kernelwright.cli.main import main

__all__ = ["main"]
