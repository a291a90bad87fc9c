"""Causes of the family ``interface``: host and device disagree on what was passed.

Needs: an access to memory that the device does not own (a binding layer's temporary, a CPU tensor), seen by the
emulated device; or, on a GPU, which does not say which address was bad, an address error beside a call that passes an
integer to a raw pointer; or an exception whose text PyTorch or the binding layer reserves for one mistake. The rule:
the line is on the host's side, where the wrong thing is declared, made or passed; without exactly one such line, the
access itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernelwright.explain import access
from kernelwright.explain.case import Case
from kernelwright.explain.cpp import Allocation, Function, allocations, split_arguments
from kernelwright.records import HOST_STACK, Cause, Confidence, Finding, Stage

# PyTorch's Tensor::data_ptr<T> and accessor checks, and pybind11's overload resolution.
_EXPECTED_TYPE = re.compile(r"expected scalar type (\w+) but found (\w+)")
_WRONG_ARGUMENTS = re.compile(r"(\w+)\(\): incompatible function arguments")

_BAD_ADDRESS = re.compile(r"illegal memory access|misaligned address|unspecified launch failure")

_TAKE_TENSORS = "Take torch::Tensor in the wrapper and call .data_ptr<float>() there, or take int64_t and cast it."

_CPP_TYPES = {
    "Float": "float", "Double": "double", "Half": "(?:at::|c10::)?Half", "BFloat16": "(?:at::|c10::)?BFloat16",
    "Int": "(?:int|int32_t)", "Long": "(?:long|int64_t)", "Byte": "(?:uint8_t|unsigned char)",
    "Char": "(?:int8_t|char)", "Bool": "bool", "Short": "(?:short|int16_t)",
}  # fmt: skip


def causes(case: Case) -> Iterator[Cause]:
    """Causes of this family that the evidence shows."""
    for finding in case.evidence.findings:
        kind = finding.allocation.kind if finding.allocation is not None else ""
        if finding.cause == "interface.raw-pointer" or kind == "binding-temporary":
            yield raw_pointer(case, finding)
        elif finding.cause == "interface.host-memory" or kind == "host":
            # A sanitizer knows the stack, not what lies there: a call that passes integers tells.
            stack = finding.allocation is not None and finding.allocation.name == HOST_STACK
            passed = stack and any(passed_address(case))
            yield raw_pointer(case, finding) if passed else host_memory(case, finding)
    exception = case.evidence.exception
    if exception is not None:
        on_gpu = case.evidence.device is not None and case.evidence.device.kind == "cuda"
        if on_gpu and _BAD_ADDRESS.search(exception.message):
            yield from passed_address(case)
        expected = _EXPECTED_TYPE.search(exception.message)
        if expected:
            yield dtype(case, expected[1], expected[2])
        wrong = _WRONG_ARGUMENTS.search(exception.message)
        if wrong and exception.type == "TypeError":
            yield argument_order(case, wrong[1])


def raw_pointer(case: Case, finding: Finding) -> Cause:
    """An integer reached a raw-pointer parameter; the binding layer passed the address of a temporary instead."""
    wrapper = _wrapper(case, finding)
    frame = case.own_frame(finding.frames)
    pointers = ", ".join(wrapper.raw_pointers) if wrapper else ""
    name = wrapper.name if wrapper else "The wrapper"
    calls = [call.lineno for call in case.tree.extension_calls if wrapper and case.tree.called_at(call.lineno) == name]
    evidence = [
        f"{access.who(finding)} {access.does(finding)} at address {finding.address:#x}, which lies in host memory that "
        f"the binding layer made for the call: a temporary, not a tensor",
        f"it is used at line {frame.line}: {case.text(frame.line)}" if frame else "",
        f"called at line {calls[0]}: {case.text(calls[0])}" if calls else "",
        access.seen(finding),
    ]
    sentence = (
        f"{name} takes raw pointers{f' ({pointers})' if pointers else ''}, and Python passes integers such as "
        f"tensor.data_ptr(): the binding layer converts each integer to a number in a temporary on the host and passes "
        f"the address of that temporary, so {access.kernel(finding.kernel)} gets host addresses, not the tensors."
    )
    return case.cause(
        "interface.raw-pointer",
        Stage.RUN,
        sentence,
        line=wrapper.line if wrapper else (frame.line if frame else 0),
        evidence=evidence,
        fix=_TAKE_TENSORS,
    )


def passed_address(case: Case) -> Iterator[Cause]:
    """A call that passes ``data_ptr()`` to a raw pointer, after an address error on a device that names no address."""
    for call in case.tree.extension_calls:
        wrapper = _called(case, call.lineno)
        if wrapper is None or wrapper.is_kernel:
            continue
        parameters = [" ".join(parameter.split()) for parameter in split_arguments(wrapper.parameters)]
        wrong = [
            f"{ast.unparse(argument)} for {parameter}"
            for argument, parameter in zip(call.args, parameters, strict=False)
            if "*" in parameter and is_address(argument)
        ]
        if wrong:
            yield case.cause(
                "interface.raw-pointer",
                Stage.RUN,
                f"{wrapper.name} takes raw pointers and Python passes integers ({'; '.join(wrong)}): the binding layer "
                f"converts each integer to a number in a temporary on the host and passes the address of that "
                f"temporary, so the kernel gets host addresses, not the tensors.",
                line=wrapper.line,
                evidence=[
                    f"the device reported: {_first_line(case)}",
                    f"called at line {call.lineno}: {case.text(call.lineno)}",
                ],
                fix=_TAKE_TENSORS,
                confidence=Confidence.LIKELY,
            )


def is_address(argument: ast.expr) -> bool:
    """Whether a Python argument is an address as an integer: ``x.data_ptr()``."""
    return (
        isinstance(argument, ast.Call) and isinstance(argument.func, ast.Attribute) and argument.func.attr == "data_ptr"
    )


def host_memory(case: Case, finding: Finding) -> Cause:
    """A CPU tensor's memory reaches a kernel."""
    frame = case.own_frame(finding.frames)
    line = frame.line if frame else 0
    evidence = access.facts(finding)
    site = finding.allocation.site if finding.allocation is not None else None
    known = site is not None and case.is_candidate(site.file)
    made = site.line if site is not None and known else _made_on_host(case, finding)
    if made:
        evidence.append(f"it is used at line {line}: {case.text(line)}" if line else "")
        line = made
    what = access.memory(finding.allocation) if finding.allocation is not None else f"address {finding.address:#x}"
    return case.cause(
        "interface.host-memory",
        Stage.RUN,
        f"{access.who(finding)} {access.does(finding)} in host memory ({what}): a CPU tensor's memory was passed to "
        f"the kernel.",
        line=line,
        evidence=evidence,
        fix="Make the tensor on the device: x.options() in C++, device=x.device in Python, or move it with .to().",
    )


def dtype(case: Case, expected: str, found: str) -> Cause:
    """The wrapper asks a tensor for another element type than it holds."""
    exception = case.evidence.exception
    frame = exception.frames[-1] if exception and exception.frames else None
    line = frame.line if frame else 0
    evidence = [f"PyTorch said: expected scalar type {expected} but found {found}"]
    function = _called(case, line)
    kind = _CPP_TYPES.get(expected, re.escape(expected))
    if function is not None:
        asks = re.search(
            rf"(?:data_ptr|accessor\d*|packed_accessor\d*)\s*<\s*(?:const\s+)?{kind}\s*[,>]", function.body
        )
        if asks:
            evidence.append(f"called at line {line}: {case.text(line)}")
            line = function.line_at(asks.start())
    return case.cause(
        "interface.dtype",
        Stage.RUN,
        f"The wrapper asks for {expected.lower()} elements and the tensor that it gets holds {found.lower()}.",
        line=line,
        evidence=evidence,
        fix="Dispatch on the tensor's dtype (AT_DISPATCH_FLOATING_TYPES), or convert it and convert the result back.",
    )


def argument_order(case: Case, name: str) -> Cause:
    """The binding layer found no way to convert the arguments."""
    exception = case.evidence.exception
    frame = exception.frames[-1] if exception and exception.frames else None
    definition = case.sources.named(name)
    takes = " ".join(definition[0].parameters.split()) if len(definition) == 1 else ""
    return case.cause(
        "interface.argument-order",
        Stage.RUN,
        f"{name} is called with arguments that its parameters{f' ({takes})' if takes else ''} cannot take.",
        line=frame.line if frame else 0,
        evidence=[line.strip() for line in (exception.message.splitlines() if exception else []) if line.strip()][:6],
        fix="Pass the arguments in the order and of the kinds that the wrapper declares.",
    )


def _first_line(case: Case) -> str:
    exception = case.evidence.exception
    return exception.message.splitlines()[0] if exception and exception.message else ""


def _wrapper(case: Case, finding: Finding) -> Function | None:
    """The bound function with raw-pointer parameters that launched this kernel; None if there is not exactly one."""
    bound = [f for name in case.tree.bound for f in case.sources.named(name) if f.raw_pointers and not f.is_kernel]
    if not bound:
        bound = [f for f in case.sources.functions if f.raw_pointers and not f.is_kernel and _is_bound(case, f.name)]
    launching = [f for f in bound if any(launch.within is f for launch in case.sources.launches_of(finding.kernel))]
    chosen = launching or bound
    return chosen[0] if len(chosen) == 1 else None


def _is_bound(case: Case, name: str) -> bool:
    return re.search(rf"\bdef\s*\(\s*\"\w+\"\s*,\s*&?\s*{name}\b", case.evidence.candidate_text) is not None


def _made_on_host(case: Case, finding: Finding) -> int:
    """The one line where a tensor that this kernel can have got is made without a device; 0 if not exactly one."""
    hosts = {launch.within.line: launch.within for launch in case.sources.launches_of(finding.kernel)}
    made: list[Allocation] = [a for function in hosts.values() for a in allocations(function) if not a.on_device]
    lines = {allocation.line for allocation in made} or set(case.tree.cpu_tensors)
    return lines.pop() if len(lines) == 1 else 0


def _called(case: Case, line: int) -> Function | None:
    """The C++ function that the Python line ``line`` calls."""
    found = case.sources.named(case.tree.called_at(line))
    return found[0] if len(found) == 1 else None
