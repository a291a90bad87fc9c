"""The mistakes that end a command: one class for each kind, the message on the class.

Why: a user should read what happened, which facts disagree and what to do, and a script should read the exit status.
The rule: ``str(error)`` says what happened and where; advice lives in ``hint`` and is printed on its own line. A
*candidate's* faults are not errors of Kernelwright: they are causes in a verdict (docs/causes.md).
"""

from __future__ import annotations

from typing import Any, ClassVar

EXIT_YES = 0
"""The candidate is correct, or the command did what it was asked."""
EXIT_NO = 1
"""The candidate does not build, is wrong, or the problem itself does not run."""
EXIT_USAGE = 2
"""The command line or the configuration is wrong."""
EXIT_FAULT = 3
"""Kernelwright or the machine is at fault; nothing is said about the candidate."""


class KernelwrightError(Exception):
    """Something that ends a command with a sentence instead of a traceback.

    A subclass gives ``message``, a format string over its constructor's keywords, so that one mistake has one wording.
    """

    message: ClassVar[str] = "{text}"
    advice: ClassVar[str] = ""
    exit_status: ClassVar[int] = EXIT_FAULT

    def __init__(self, text: str = "", *, hint: str = "", **facts: Any) -> None:
        self.facts: dict[str, Any] = {"text": text, **facts}
        self.hint: str = hint or self.advice.format(**self.facts)
        super().__init__(self.message.format(**self.facts))


class UsageError(KernelwrightError):
    """The command line or the configuration asks for something that cannot be."""

    exit_status = EXIT_USAGE


class UnknownSetting(UsageError):
    """A KERNELWRIGHT_ variable, or a key under [tool.kernelwright], that no setting has."""

    message = "{where} sets {name}, which Kernelwright does not know"
    advice = "did you mean {near}? docs/settings.md lists every setting"


class BadSetting(UsageError):
    """A setting whose value cannot be read."""

    message = "{where} sets {name} to {value!r}: {why}"


class UnknownDevice(UsageError):
    """``--as`` names a GPU that has no data sheet here."""

    message = "no data sheet for the GPU {name!r}"
    advice = "known: {known}"


class MissingFile(UsageError):
    """A file named on the command line that is not there."""

    message = "{role} {path} does not exist"


class ProblemError(KernelwrightError):
    """The problem file itself does not load or its reference does not run: nothing can be said about a candidate."""

    exit_status = EXIT_NO
    advice = "run the problem alone with PyTorch; it needs Model, get_inputs() and get_init_inputs()"


class MachineError(KernelwrightError):
    """This machine lacks something that the command needs."""

    exit_status = EXIT_FAULT
    advice = "kernelwright doctor says what is missing and how to get it"


class MissingTool(MachineError):
    """A program that the command needs and that was not found."""

    message = "{tool} was not found ({searched})"
    advice = "kernelwright doctor says how to get it"


class RefusedError(KernelwrightError):
    """The emulated device met something it does not know; it stops rather than guess."""

    exit_status = EXIT_FAULT
    advice = "please report it with the line above; on a machine with a GPU, --device cuda runs it"


class NotServed(RefusedError):
    """A library of NVIDIA's that the emulated device does not stand in for."""

    def __init__(self, what: str, *, file: str, line: int) -> None:
        super().__init__(f"{what} is not served")
        self.what = what
        """A header or a function."""
        self.file, self.line = file, line
        """Where the candidate asks for it; line 0 where that is not known."""


class InternalError(KernelwrightError):
    """A state that Kernelwright's own rules exclude."""

    exit_status = EXIT_FAULT
    advice = "this is our fault, not the candidate's; KERNELWRIGHT_DEBUG=1 shows the traceback"
