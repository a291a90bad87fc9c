"""Refusals of the fast tier that no header can change.

Why: the facade may refuse what torch accepts, so its word is no verdict and the real headers are asked, which takes
from half a minute to two. The rule: that is spared only where the message is about a name that those headers never
mention (:mod:`kernelwright.build.mentioned`), or about something that the user's files alone decide: the extension's
name, a function of the user's that is not declared or not defined, a name of the user's that is defined twice, a symbol
that libtorch is known not to have, a missing bracket or semicolon, or the inside of a device function. Everything else
falls through.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelwright.build import mentioned, skeleton
from kernelwright.build.extension import Extension
from kernelwright.build.link import Reference, Unresolved
from kernelwright.build.nvcc import CommandFailed
from kernelwright.build.toolchain import Toolchain
from kernelwright.records import Diagnostic


def settled(
    failure: CommandFailed | Unresolved,
    told: Sequence[Diagnostic],
    extension: Extension,
    toolchain: Toolchain,
    *,
    arch: str,
) -> tuple[Diagnostic, ...]:
    """What the real headers would say, too; nothing where they have to be asked."""
    if settles(failure, told, extension):
        return tuple(told)
    return () if isinstance(failure, Unresolved) else mentioned.undeclared(extension, toolchain, told, arch=arch)


def settles(failure: CommandFailed | Unresolved, told: Sequence[Diagnostic], extension: Extension) -> bool:
    """Whether these sources alone decide that the real headers would refuse them."""
    if not extension.name.isidentifier():
        return True
    if isinstance(failure, Unresolved):
        return any(_users_own(reference) or _never_instantiated(reference) for reference in failure.references)
    errors = [d for d in told if d.severity == "error"]
    if errors and _grammar(errors[0], extension):
        return True
    return any(_decided(d, extension) for d in errors)


_GRAMMAR = re.compile(
    r'^(expected an? "[;)}\]]"|unrecognized token|missing closing quote|expected [\'‘"][;)}\]][\'’"])'
)


def _grammar(first: Diagnostic, extension: Extension) -> bool:
    """Whether the first thing said is that the user's text lacks a bracket, a quote or a semicolon.

    A name or macro that only the real headers know is complained of before what follows it.
    """
    own = {extension.candidate, *(unit.name for unit in extension.units)}
    return first.file in own and _GRAMMAR.match(first.message) is not None


_TORCHS = re.compile(r"\b(at|c10|torch|caffe2|pybind11)::|\b(TORCH|AT|C10|CUDA_KERNEL)_|Tensor|Accessor")


def in_device_code(told: Sequence[Diagnostic], extension: Extension) -> bool:
    """Whether the first error lies in a device function's body and names nothing of torch's.

    Device code sees CUDA, the user's own names and the flags, which are the same in either tier; and what torch's
    headers include (``FLT_MAX`` of ``<cfloat>``), so that a name which nothing declares is not for this to decide.
    Asked only once the sources were compiled for the device's own architecture.
    """
    first = next((d for d in told if d.severity == "error"), None)
    if first is None or mentioned.UNDECLARED.search(first.message):
        return False
    if first.tool == "ptxas":
        return True
    bodies = {place for unit in extension.units if unit.cuda for place in skeleton.device_lines(unit.text)}
    return (first.file, first.line) in bodies and not _TORCHS.search(first.message + " " + first.text)


def _decided(d: Diagnostic, extension: Extension) -> bool:
    undeclared = re.search(r"'(\w+)' was not declared in this scope", d.message)
    if undeclared:
        return undeclared[1] in extension.functions
    if d.tool == "g++" and re.search(
        r"'__(global|device|shared|constant)__' (does not name|was not declared)", d.message
    ):
        return True  # torch/extension.h brings no CUDA headers
    twice = re.search(
        r"redefinition of '[^']*\b(?:PyInit_|pybind11_init_)\w+"
        r"|declaration is incompatible with (?:previous )?\"\w+\" \(declared at line \d+\)"
        r"|multiple definition of [`'](?!std::|at::|c10::|torch::)",
        d.message,
    )
    # A type that dispatch macros refuse in the facade for the same reason as in ATen (tensor.h).
    return bool(twice) or "DeprecatedTypeProperties" in d.message


def _users_own(reference: Reference) -> bool:
    """A function or variable at global scope: torch defines nothing there."""
    return "::" not in re.sub(r"[(<].*", "", reference.name) and reference.symbol.startswith("_Z")


def _never_instantiated(reference: Reference) -> bool:
    """``data_ptr<T>`` of a CUDA type: libtorch instantiates its own element types only."""
    return re.search(r"TensorBase::(?:\w+_)?data_ptr<(?:const )?(?:__half2?|__nv_\w+)", reference.name) is not None
